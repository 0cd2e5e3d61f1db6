"""Messages that Spark reads from a stream and writes to a queue are unchanged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp.commands import Basic
from pyspark.sql import SparkSession

from tests.support.amqp091.peer import Peer
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

FULL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "delivery_mode": 1,
    "priority": 200,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000000",
    "message_id": "Grüße",
    "timestamp": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "message_type": "t",
    "user_id": "guest",
    "app_id": "a",
}
NOTHING: dict[str, Any] = dict.fromkeys(FULL)
LEAST = b"\x9c\x40" + b"\0" + b"\2" + b"\0" + b"\0" + bytes(8)
"""Properties that pamqp might leave out: zeros and empty texts, except the delivery mode."""
ZEROS = {
    "content_type": "",
    "delivery_mode": 2,
    "priority": 0,
    "correlation_id": "",
    "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
}
HEADERS: dict[str, tuple[Any, str | None]] = {
    "text": ("Grüße", "Grüße"),
    "empty": ("", ""),
    "none": (None, None),
    "yes": (True, "true"),
    "no": (False, "false"),
    "signed 8": (-128, "-128"),
    "signed 16": (-32768, "-32768"),
    "unsigned 16": (2**16 - 1, "65535"),
    "signed 32": (-(2**31), "-2147483648"),
    "unsigned 32": (2**32 - 1, "4294967295"),
    "signed 64": (-(2**63), "-9223372036854775808"),
    "float": (-1.5, "-1.5"),
    "octets": (bytearray(b"\xff\xfe"), "//4="),
    "time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "table": ({"a": [1, {"b": None}]}, '{"a": [1, {"b": null}]}'),
}
STAMPS = {"x-spark-query-id", "x-spark-batch-id", "x-spark-partition", "x-spark-row"}


def test_properties_and_headers_come_back(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("there")
    broker.declare("back")
    channel = Peer(broker.daemon.address).open().channel()
    channel.confirm_select()
    headers = {name: value for name, (value, _) in HEADERS.items()}
    for sent in (Basic.Properties(**FULL, headers=headers), LEAST, Basic.Properties()):
        channel.publish(b"body", "there", properties=sent)
    channel.expect_confirms(3)
    broker_options = broker.options_of_spark
    options = {"subscribe": "there", "includeProperties": "true", "includeHeaders": "true"}
    read = spark.read.format("amqp").options(**broker_options, **options).load()
    columns = read.select("value", "properties", "headers")
    columns.write.format("amqp").options(**broker_options, routingKey="back").mode("append").save()
    messages = [channel.take("back") for _ in range(3)]
    channel.peer.close()
    assert [message.body for message in messages] == [b"body"] * 3
    texts = {name: text for name, (_, text) in HEADERS.items()}
    expected = [(FULL, texts), (NOTHING | ZEROS, {}), (NOTHING | {"delivery_mode": 2}, {})]
    for message, (properties, others) in zip(messages, expected, strict=True):
        assert {name: getattr(message.properties, name) for name in FULL} == properties
        found = message.properties.headers or {}
        assert found.keys() - others.keys() == STAMPS
        assert {name: found[name] for name in others} == others
