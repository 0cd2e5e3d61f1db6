"""Columns of a source, properties of messages, and schemas in text form. [amqp-0-9-1 1.8.3]

[Spark SQL reference, data types]
"""

from __future__ import annotations

import json
import re
from typing import Final

from pyspark.sql import types as T  # noqa: N812
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

from pipeline.connector.choices import OptionError
from protocol.amqp091 import properties as basic

TEXTS: Final = {
    "content_type": basic.CONTENT_TYPE,
    "content_encoding": basic.CONTENT_ENCODING,
    "correlation_id": basic.CORRELATION_ID,
    "reply_to": basic.REPLY_TO,
    "expiration": basic.EXPIRATION,
    "message_id": basic.MESSAGE_ID,
    "type": basic.TYPE,
    "user_id": basic.USER_ID,
    "app_id": basic.APP_ID,
}
OCTETS: Final = {"delivery_mode": basic.DELIVERY_MODE, "priority": basic.PRIORITY}
TIMESTAMP: Final = "timestamp"
PLACES: Final = TEXTS | OCTETS | {TIMESTAMP: basic.TIMESTAMP}
"""The bit of each property among the flags, counted from the highest."""

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
"""The properties that publishers give messages, in the words of AMQP 0-9-1. [amqp-0-9-1 1.8.3]"""

_TOKEN: Final = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")
_SIMPLE: Final[dict[str, T.DataType]] = {
    "tinyint": T.ByteType(),
    "byte": T.ByteType(),
    "smallint": T.ShortType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
}


def source_schema(body: DataType | None, properties: bool, headers: bool) -> StructType:
    """Return all columns. `body`: the type of `value`; None: binary."""
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
    """Return the type of the column `value`; None: it is binary. JSON has the columns of `schema`."""
    if body_format == "string":
        return StringType()
    return schema


def parse_schema(text: str) -> T.StructType:
    """Return the schema of a text in DDL, or in the JSON of Spark's schemas.

    Raises OptionError.
    """
    if text.lstrip().startswith("{"):
        try:
            return T.StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OptionError(f"option 'bodySchema' is '{text}', which is no schema: {error}") from error
    return _Ddl(text).read()


class _Ddl:
    """Reads a text token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(f"'{text[position:].strip()[0]}' has no meaning there")
            self._tokens.append(match[1])
            position = match.end()
        self._tokens.append("")  # the end
        self._next = 0

    def read(self) -> T.StructType:
        """Read the whole text."""
        schema = self._fields("")
        if not schema.fields:
            raise self._wrong("there is no column")
        return schema

    def _fields(self, end: str) -> T.StructType:
        fields: list[T.StructField] = []
        while True:
            name = self._word("the name of a column")
            if self._tokens[self._next] == ":":
                self._next += 1
            kind = self._type()
            if self._tokens[self._next].lower() == "not":
                self._next += 1
                self._expect("null")  # may be null nevertheless: if the field is missing, or unreadable
            fields.append(T.StructField(name, kind))
            if self._tokens[self._next] != ",":
                break
            self._next += 1
        self._expect(end)
        return T.StructType(fields)

    def _type(self) -> T.DataType:
        name = self._word("a type").lower()
        if name == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return T.ArrayType(element)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return T.MapType(key, value)
        if name == "struct":
            self._expect("<")
            return self._fields(">")
        if name in ("decimal", "numeric", "dec"):
            return self._decimal()
        if name not in _SIMPLE:
            raise self._wrong(f"'{name}' is no type")
        return _SIMPLE[name]

    def _decimal(self) -> T.DecimalType:
        numbers = [10, 0]
        if self._tokens[self._next] == "(":
            self._next += 1
            numbers = [int(self._digits())]
            if self._tokens[self._next] == ",":
                self._next += 1
                numbers.append(int(self._digits()))
            self._expect(")")
        precision, scale = [*numbers, 0][:2]
        if not 0 <= scale <= precision <= 38:
            raise self._wrong(f"decimal({precision},{scale}) is too wide")
        return T.DecimalType(precision, scale)

    def _digits(self) -> str:
        word = self._word("a number")
        if not word.isdecimal():
            raise self._wrong(f"'{word}' is no number")
        return word

    def _word(self, what: str) -> str:
        text = self._tokens[self._next]
        if not text or text in "<>(),:":
            raise self._wrong(f"{what} is missing{f' before {text!r}' if text else ''}")
        self._next += 1
        return text.strip("`")

    def _expect(self, token: str) -> None:
        if self._tokens[self._next].lower() != token:
            text = self._tokens[self._next]
            raise self._wrong(f"{token or 'the end'!r} is expected where {text or 'the end'!r} is")
        self._next += 1

    def _wrong(self, why: str) -> OptionError:
        return OptionError(f"option 'bodySchema' is '{self._text}': {why}")
