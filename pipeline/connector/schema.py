"""The columns that a source gives."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

CORRUPT: Final = "_corrupt_record"

PROPERTIES: Final = StructType(
    [
        StructField("content_type", StringType()),
        StructField("content_encoding", StringType()),
        StructField("delivery_mode", IntegerType()),
        StructField("priority", IntegerType()),
        StructField("correlation_id", StringType()),
        StructField("reply_to", StringType()),
        StructField("expiration", StringType()),
        StructField("message_id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("type", StringType()),
        StructField("user_id", StringType()),
        StructField("app_id", StringType()),
    ]
)
"""What publishers say of messages, in the words of AMQP 0-9-1. [amqp-0-9-1 1.8.3]"""


def source_schema(body: DataType | None, properties: bool, headers: bool) -> StructType:
    """All columns. `body`: what `value` is, None: binary."""
    fields = [
        StructField("value", body or BinaryType()),
        StructField("queue", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("redelivered", BooleanType()),
    ]
    if properties:
        fields.append(StructField("properties", PROPERTIES))
    if headers:
        fields.append(StructField("headers", MapType(StringType(), StringType())))
    return StructType(fields)


def body_type(body_format: str, schema: StructType | None) -> DataType | None:
    """What `value` is: of json the columns of a schema, and what could not be read where it asks for that."""
    if body_format == "string":
        return StringType()
    return schema
