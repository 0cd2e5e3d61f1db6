"""The columns of events, and the meaning of operations."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

EVENTS: Final = StructType(
    [
        StructField("node", StringType(), False),
        StructField("seq", LongType(), False),
        StructField("ts", TimestampType(), False),
        StructField("op", StringType(), False),
        StructField("reason", StringType()),
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        StructField("queue_id", LongType()),
        StructField("msg_uid", LongType()),
        StructField("origin_uid", LongType()),
        StructField("qpos", LongType()),
        StructField("first_qpos", LongType()),
        StructField("peer_queue", StringType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("user", StringType()),
        StructField("conn", StringType()),
        StructField("channel", IntegerType()),
        StructField("consumer", StringType()),
        StructField("size", LongType()),
        StructField("quantity", LongType()),
        StructField("unacked", LongType()),
        StructField("delivery_count", IntegerType()),
        StructField("persistent", BooleanType()),
        StructField("redelivered", BooleanType()),
        StructField("auto_ack", BooleanType()),
        StructField("message_id", StringType()),
        StructField("text", StringType()),
        StructField("address", StringType()),
        StructField("request", StringType()),
    ]
)
"""An event, as every job reads it. A column that a file lacks is null."""

QUANTITY_ALIAS: Final = "count"
"""Another name of the column `quantity` in files."""

KEYS: Final = ("queue_id", "msg_uid")
"""The columns that identify an entry of a node: numbers only, as they are compared very often."""

LEAVING: Final = (
    "ack",
    "reject",
    "expire",
    "dead_letter",
    "drop_overflow",
    "replace",
    "remove",
)
"""Operations that remove one entry from its queue."""

ARRIVING: Final = ("enqueue", "recover")
"""Operations after which a queue has an entry, at its `qpos`."""

TAKING: Final = ("deliver", "stage")
"""Operations after which a consumer or a reader holds an entry, which is still in its queue."""

RANGES: Final = ("purge", "queue_delete", "lost")
"""Operations that remove `quantity` entries from a queue, without naming them."""

FACTS: Final = (
    "declare",
    "checkpoint",
    "recover",
    "purge",
    "queue_delete",
    "lost",
    "gap",
    "level",
)
"""Operations that may concern no single message."""

ANCHORS: Final = ("declare", "checkpoint", "recover", "queue_delete")
"""Facts of a queue with its number of entries."""

STREAMED: Final = ("append", "read")
"""Operations on rows of streams, which stay however often they are read."""

FORWARDS: Final = ("dead_letter",)
"""Operations that send an entry from its queue to another one."""
