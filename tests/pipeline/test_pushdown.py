"""`pushdown`: a query with filters gets the same rows, and less is fetched for them."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, IsNull, LessThanOrEqual, Not

from pipeline.connector.offsets import Place, Range
from pipeline.connector.pushdown import convert_filters
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

CONF = "spark.sql.python.filterPushdown.enabled"
KEYS = ("a", "b", "c\N{LATIN SMALL LETTER U WITH DIAERESIS}")


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(CONF, "true")
    yield spark
    spark.conf.unset(CONF)


@pytest.fixture(scope="module")
def filled(broker: Broker) -> Broker:
    """A stream with partitions and a plain stream, in several chunks, with three routing keys."""
    for name, partitions in (("some", 3), ("one", 1)):
        broker.declare_stream(name, partitions=partitions)
        with broker.channel() as channel:
            for key in KEYS:
                channel.queue_bind(name, "amq.direct", f"{name}.{key}")
            for number in range(120):
                body = bytes(1000) + b"%d" % number
                channel.basic_publish("amq.direct", f"{name}.{KEYS[number % 3]}", body)
    return broker


def read(spark: SparkSession, broker: Broker, pushdown: bool, **options: str) -> DataFrame:
    source_options = (
        broker.options_of_spark | {"subscribe": "some,one", "pushdown": str(pushdown).lower()} | options
    )
    return spark.read.format("amqp").options(**source_options).load()


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(
        (row["queue"], row["partition"], row["offset"], row["routing_key"], bytes(row["value"]))
        for row in frame.collect()
    )


def conditions(every: DataFrame) -> list[str]:
    """Filters of all kinds, alone and together, that leave all rows, some or none."""
    times = sorted(row["timestamp"] for row in every.select("timestamp").collect())
    chance = random.Random(7)

    def time() -> str:
        found = chance.choice([times[0], times[-1], chance.choice(times)])
        moved = found + timedelta(microseconds=chance.choice([-1000, -1, 0, 0, 1, 1000]))
        return f"TIMESTAMP '{moved.isoformat(sep=' ')}'"

    def single() -> str:
        sign = chance.choice(["=", "<", "<=", ">", ">=", "<=>", "!="])
        return chance.choice(
            [
                f"offset {sign} {chance.choice([-1, 0, 17, 39, 40, 119, 120, 10**12])}",
                f"timestamp {sign} {time()}",
                f"partition {sign} {chance.randrange(-1, 4)}",
                f"partition IN ({chance.randrange(3)}, {chance.randrange(5)}, NULL)",
                f"queue {sign} '{chance.choice(['some', 'one', 'none'])}'",
                f"queue IN ('one', '{chance.choice(['some', 'none'])}')",
                f"routing_key {sign} '{chance.choice(['some', 'one'])}.{chance.choice(KEYS)}'",
                f"routing_key IN ('some.a', 'one.{chance.choice(KEYS)}')",
                f"offset IN (1, {chance.randrange(120)})",
                "timestamp IS NULL",
                "length(value) > 1002",
                f"(offset < 5 OR partition = {chance.randrange(3)})",
            ]
        )

    return [" AND ".join(single() for _ in range(chance.randrange(1, 4))) for _ in range(40)]


@pytest.mark.nightly
def test_rows_are_the_same_with_filters_pushed_down_and_without(
    pushing: SparkSession, filled: Broker
) -> None:
    plain = read(pushing, filled, False).cache()
    left = []
    for condition in conditions(plain):
        expected = rows(plain.where(condition))
        assert rows(read(pushing, filled, True).where(condition)) == expected, condition
        left.append(len(expected))
    plain.unpersist()
    assert len(set(left)) > 8, "these filters are worth asking for"


def test_some_filters_are_pushed_down_and_others_are_left_to_spark(
    pushing: SparkSession, filled: Broker
) -> None:
    frame = read(pushing, filled, True)
    found = frame.where("queue = 'one' AND offset >= 100 AND routing_key = 'one.b' AND length(value) > 1002")
    assert [row[2] for row in rows(found)] == [100, 103, 106, 109, 112, 115, 118]
    assert found.rdd.getNumPartitions() == 1
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "length(value" in plan
    assert "FilterExec" not in plan
    assert "offset#" not in plan.partition("Filter")[2].partition("\n")[0], "Spark need not look again"


class Counting:
    """An address behind which an HTTP API is reached; `received` bytes came from there."""

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self._target = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # the socket was closed
                return
            server = socket.create_connection(self._target)
            for source, target in ((client, server), (server, client)):
                arguments = (source, target, source is server)
                threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with source, target:
            try:
                while data := source.recv(65536):
                    self.received += len(data) if counts else 0
                    target.sendall(data)
            except OSError:  # the other side has ended
                return


def test_less_is_fetched(pushing: SparkSession, filled: Broker) -> None:
    counting = Counting(filled.daemon.admin)
    try:

        def fetched(condition: str) -> int:
            before = counting.received
            read(pushing, filled, True, apiUrl=counting.base).where(condition).collect()
            return counting.received - before

        whole = fetched("length(value) > 0")
        assert whole > 240_000
        assert fetched("queue = 'one'") < 0.7 * whole
        assert fetched("queue = 'one' AND offset < 1") < 0.3 * whole
        assert fetched("timestamp < TIMESTAMP '2001-01-01 00:00:00'") < 10_000
        assert fetched("partition = 7") < 10_000
    finally:
        counting.close()


def test_pushdown_without_the_spark_setting_is_refused(spark: SparkSession, filled: Broker) -> None:
    with pytest.raises(PySparkException, match=rf"{CONF.replace('.', '[.]')}"):
        read(spark, filled, True).where("offset > 3").collect()


def test_pushdown_of_a_streaming_query_is_refused(
    spark: SparkSession, filled: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = filled.options_of_spark | {"subscribe": "one", "pushdown": "true"}
    stream = spark.readStream.format("amqp").options(**options).load()
    writer = stream.writeStream.format("noop").option(
        "checkpointLocation", str(tmp_path_factory.mktemp("at"))
    )
    with pytest.raises(PySparkException, match="'pushdown' is 'true', which is for batches"):
        writer.trigger(availableNow=True).start().awaitTermination()


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
RANGES = [Range(Place("q", 0), "i", 10, 100), Range(Place("r", 1), "i", 0, 50)]


@pytest.mark.parametrize(
    ("filters", "expected", "keys"),
    [
        ([EqualTo(("offset",), 20)], [(20, 21), (20, 21)], None),
        ([GreaterThan(("offset",), 20), LessThanOrEqual(("offset",), 30)], [(21, 31), (21, 31)], None),
        ([GreaterThan(("offset",), 60)], [(61, 100)], None),
        ([In(("queue",), ("r", "s"))], [(0, 50)], None),
        ([GreaterThan(("partition",), 0)], [(0, 50)], None),
        ([GreaterThan(("timestamp",), MOMENT)], [(41, 100), (41, 50)], None),
        ([LessThanOrEqual(("timestamp",), MOMENT)], [(10, 41), (0, 41)], None),
        ([In(("routing_key",), ("a", "b")), EqualTo(("routing_key",), "b")], [(10, 100), (0, 50)], {"b"}),
        ([IsNotNull(("offset",)), IsNotNull(("timestamp",))], [(10, 100), (0, 50)], None),
    ],
)
def test_the_scan_reads_the_ranges_of_the_filters(
    filters: list[Filter], expected: list[tuple[int, int]], keys: set[str] | None
) -> None:
    found, left = convert_filters(filters, has_times=True)
    assert left == []

    def at_time(_: Place, time: int) -> int:
        return 40 + time - (int(MOMENT.timestamp()) * 1_000_000 + 6)

    assert [(each.start, each.end) for each in found.narrowed(RANGES, at_time)] == expected
    assert found.keys == keys


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(("offset",), 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "a"), "x"),
        EqualTo(("timestamp",), MOMENT),
        IsNotNull(("timestamp",)),
        IsNull(("offset",)),
        In(("queue",), ("a", None)),
        In(("offset",), (1, 2)),
        GreaterThan(("queue",), "a"),
        EqualTo(("offset",), None),
    ],
    ids=str,
)
def test_filters_that_reading_cannot_use_are_left_to_spark(each: Filter) -> None:
    found, left = convert_filters([each], has_times=False)
    assert (left, found.bounds, found.choices) == ([each], (), ())
