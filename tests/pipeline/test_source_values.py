"""Bodies, properties and headers on their way from a publisher into Spark."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.connector.columns import Columns
from pipeline.connector.messages import Details
from pipeline.connector.offsets import Place
from pipeline.connector.schema import source_schema
from protocol.amqp10.types import Ulong
from protocol.streams.chunk import BASIC, Chunk, ChunkWriter
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp091.peer import Peer
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer import Peer10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.amqp10.reference_codec import described
from tests.support.pipeline.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def rows(spark: SparkSession, broker: Broker, queue: str, **options: str) -> list[Row]:
    frame = spark.read.format("amqp").options(**broker.options_of_spark, subscribe=queue, **options).load()
    found: list[Row] = frame.orderBy("offset").collect()
    return found


def utc(text: str) -> datetime:
    """A time as Spark gives it: without a zone, which the session says."""
    return datetime.fromisoformat(text)


ALL = {"includeProperties": "true", "includeHeaders": "true"}


SAID: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 200,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
}
HEADERS: dict[str, tuple[Any, str | None]] = {
    "text": ("Grüße", "Grüße"),
    "whole": (-5, "-5"),
    "big": (2**40, str(2**40)),
    "yes": (True, "true"),
    "none": (None, None),
    "octets": (b"\xff\xfe", "//4="),
    "decimal": (Decimal("1.5"), "1.5"),
    "time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "table": ({"a": [1, {"b": None}]}, '{"a": [1, {"b": null}]}'),
}
HAS_HEADERS = b"\x20\x00"
TEXTS: dict[str, str | None] = {
    "t": "true",
    "f": "false",
    "b": "-128",
    "B": "255",
    "s": "-32768",
    "u": "65535",
    "I": "-2147483648",
    "i": "4294967295",
    "l": "-9223372036854775808",
    "L": "9223372036854775807",
    "f32": "0.10000000149011612",
    "f64": "0.1",
    "D": "42949549.51",
    "S": "héllo",
    "S-empty": "",
    "S-long": "x" * 50_000,
    "S-binary": b64encode(bytes(range(256))).decode(),
    "A": '[1, "x", []]',
    "T": "2023-11-14T22:13:20+00:00",
    "F": '{"inner": {"x": null}}',
    "V": None,
    "x": "AP8=",
}
"""`FIELDS` as text. A decimal's digits have no sign, as RabbitMQ has them. [amqp-0-9-1 4.2.5.5]"""


def test_properties_and_headers_of_0_9_1(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("properties")
    headers = {name: sent for name, (sent, _) in HEADERS.items()}
    with broker.channel() as channel:
        properties = pika.BasicProperties(headers=headers, timestamp=1_700_000_000, **SAID)
        channel.basic_publish("", "properties", b"body", properties)
        channel.basic_publish("", "properties", b"", pika.BasicProperties())
        channel.basic_publish("", "properties", b"", pika.BasicProperties(timestamp=2**63))
    first, second, third = rows(spark, broker, "properties", **ALL)
    assert first["properties"].asDict() == SAID | {"timestamp": utc("2023-11-14T22:13:20")}
    assert first["headers"] == {name: text for name, (_, text) in HEADERS.items()}
    assert set(second["properties"].asDict().values()) == {None}
    assert (bytes(second["value"]), second["headers"]) == (b"", {})
    assert third["properties"]["timestamp"] is None, "no calendar has it"


def test_headers_of_every_type_on_the_wire(spark: SparkSession, broker: Broker) -> None:
    """Clients other than pika have numbers of all sizes."""
    broker.declare_stream("wire")
    table = b"".join(field(name.encode(), value) for name, value in FIELDS.items())
    peer = Peer(broker.daemon.address).open()
    channel = peer.channel()
    channel.confirm_select()
    channel.publish(b"", "wire", properties=HAS_HEADERS + long_string(table))
    channel.expect_confirms(1)
    peer.close()
    (row,) = rows(spark, broker, "wire", **ALL)
    assert row["headers"] == TEXTS


def test_messages_of_1_0(spark: SparkSession, broker: Broker) -> None:
    proton = pytest.importorskip("proton", reason="the extra `peers` is not installed")
    broker.declare_stream("sections")
    connection = pytest.importorskip("proton.utils").BlockingConnection(
        broker.daemon.address.url().removesuffix("/%2F"), allowed_mechs="PLAIN"
    )
    sender = connection.create_sender("/queues/sections")
    sender.send(
        proton.Message(
            id="i", subject="s", properties={"n": 7, "t": proton.timestamp(0)}, body=b"data", inferred=True
        )
    )
    sender.send(proton.Message(body={"a": [1, True, None], "b": proton.symbol("s")}, id=proton.ulong(9)))
    sender.send(proton.Message(body="text"))
    connection.close()
    data, value, text = rows(spark, broker, "sections", **ALL)
    assert bytes(data["value"]) == b"data"
    assert (data["properties"]["message_id"], data["headers"]["n"]) == ("i", "7")
    assert [row["properties"]["type"] for row in (data, value, text)] == ["s", None, None]
    assert json.loads(bytes(value["value"])) == {"a": [1, True, None], "b": "s"}
    assert value["properties"]["content_type"] == "application/json"
    assert bytes(text["value"]) == b"text"
    plain = rows(spark, broker, "sections")
    assert [bytes(row["value"]) for row in plain] == [bytes(row["value"]) for row in (data, value, text)]


def test_messages_of_1_0_that_are_plain_bytes_of_the_protocol(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("plain10")
    peer = Peer10(broker.daemon.address)
    peer.open(container_id="plain")
    session = PeerSession10(peer)
    session.sends("plain10", 0)
    bodies = [described(0x75, b"\xa0\x00"), described(0x75, b"\xa0\x02\xff\x00"), described(0x77, b"\x40")]
    for number, body in enumerate(bodies):
        header_values: dict[str, object] = {"none": None, "n": Ulong(7), "on": True, "text": "t"}
        session.publish(0, 1, content10(application=header_values, body=body), number)
    peer.socket.close()
    found = rows(spark, broker, "plain10", **ALL)
    assert [bytes(row["value"]) for row in found] == [b"", b"\xff\x00", b"null"]
    assert found[0]["headers"] == {"none": None, "n": "7", "on": "true", "text": "t"}


def test_names_that_are_no_utf_8_are_readable() -> None:
    writer = ChunkWriter()
    for key in (
        b"plain",
        b"\xff.key",
        "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{LATIN SMALL LETTER SHARP S}e".encode(),
    ):
        writer.add(1, BASIC, b"\xfe", key, b"\0\0", b"body")
    chunk = Chunk(writer.take(5, 1))
    schema = to_arrow_schema(source_schema(None, False, False), timezone="UTC")
    batch = Columns(schema, Place("q", 0), None, Details(False, False)).batch(chunk, 5, 8)
    keys = batch.column("routing_key").to_pylist()
    assert keys == [
        "plain",
        "\N{REPLACEMENT CHARACTER}.key",
        "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{LATIN SMALL LETTER SHARP S}e",
    ]
    assert batch.column("exchange").to_pylist() == ["\N{REPLACEMENT CHARACTER}"] * 3
    assert batch.column("offset").to_pylist() == [5, 6, 7]


@pytest.mark.parametrize("size", [0, 1, 70_000, 16 * 2**20], ids=["nothing", "1 B", "70 kB", "16 MiB"])
def test_bodies_of_any_size(spark: SparkSession, broker: Broker, size: int) -> None:
    broker.declare_stream(f"size-{size}")
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    broker.publish(f"size-{size}", [body, b"next"])
    first, second = rows(spark, broker, f"size-{size}", fetchBytes="65536")
    assert (bytes(first["value"]) == body, bytes(second["value"])) == (True, b"next")


def test_bodies_as_text(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("texts")
    broker.publish("texts", ["Grüße".encode(), b"", b"\xff!"])
    found = [row["value"] for row in rows(spark, broker, "texts", bodyFormat="string")]
    assert found == ["Grüße", "", "\N{REPLACEMENT CHARACTER}!"]


def test_bodies_as_json_with_a_schema(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("json")
    full: dict[str, Any] = {
        "id": 2**40,
        "small": 7,
        "price": 1.25,
        "exact": 1.25,
        "on": True,
        "day": "2026-03-04",
        "at": "2026-03-04T05:06:07.5+02:00",
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "inner": {"name": "n", "more": "unknown"},
        "text": {"kept": "as JSON"},
    }
    broken = [b"{", b"[1]", b"null", b'{"small": 300}', b'{"on": "yes"}', b'{"at": "soon"}', b"\xff"]
    bodies = [json.dumps(full).encode(), b"{}", b'{"id": null, "small": 1.0}', *broken]
    broker.publish("json", bodies)
    ddl = (
        "id bigint, small tinyint, price double, exact decimal(10,3), on boolean, day date, at timestamp, "
        "tags array<string>, counts map<string,int>, inner struct<name: string>, text string NOT NULL"
    )
    found = [row["value"] for row in rows(spark, broker, "json", bodyFormat="json", bodySchema=ddl)]
    assert found[0].asDict(recursive=True) == {
        "id": 2**40,
        "small": 7,
        "price": 1.25,
        "exact": Decimal("1.250"),
        "on": True,
        "day": date(2026, 3, 4),
        "at": utc("2026-03-04T03:06:07.5"),
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "inner": {"name": "n"},
        "text": '{"kept": "as JSON"}',
        "_corrupt_record": None,
    }
    assert set(found[1].asDict().values()) == {None}
    assert (found[2]["id"], found[2]["small"]) == (None, 1)
    corrupt = [row["_corrupt_record"] for row in found[3:]]
    assert corrupt == [body.decode(errors="replace") for body in broken]


def test_a_schema_is_inferred(spark: SparkSession, broker: Broker) -> None:
    broker.declare_stream("inferred")
    broker.publish("inferred", [b'{"a": 1, "b": {"c": ["x"]}}', b'{"a": 2, "d": null}', b"no"])
    found = rows(spark, broker, "inferred", bodyFormat="json", bodySchema="infer")
    assert found[0]["value"].asDict(recursive=True) == {
        "a": 1,
        "b": {"c": ["x"]},
        "d": None,
        "_corrupt_record": None,
    }
    assert found[2]["value"]["_corrupt_record"] == "no"


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("a", "a type is missing"),
        ("a in", "'in' is no type"),
        ("a array<int", "'>' is expected where 'the end' is"),
        ("a decimal(50,2)", "decimal(50,2) is too wide"),
        ("a int b int", "'the end' is expected where 'b' is"),
        ("a binary", "the type binary, which JSON is not read into"),
        ("a ; b", "';' has no meaning there"),
        ('{"a": 1}', "which is no schema"),
    ],
)
def test_invalid_schemas_are_refused(spark: SparkSession, broker: Broker, ddl: str, reason: str) -> None:
    broker.declare_stream("json")
    with pytest.raises(PySparkException) as refused:
        rows(spark, broker, "json", bodyFormat="json", bodySchema=ddl)
    assert reason in str(refused.value)
