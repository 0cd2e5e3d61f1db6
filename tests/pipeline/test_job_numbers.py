"""The numbers of jobs for few and known sealed events, and the effect of flags."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from tests.pipeline.frames import WHEN, digested, table
from tests.pipeline.test_jobs import done
from tests.pipeline.test_order import QUEUE, deliver, enqueue

pytestmark = pytest.mark.spark

DEAD = {"queue": "dead", "queue_id": 2}
Event = dict[str, Any]


def left(uid: int, op: str = "ack", **fields: object) -> Event:
    return QUEUE | {"op": op, "msg_uid": uid} | fields


def events_after(seconds: float, *events: Event) -> list[Event]:
    """Events so many seconds after WHEN."""
    return [event | {"ts": WHEN + timedelta(seconds=seconds)} for event in events]


def sealed(spark: SparkSession, folder: Path, events: list[Event]) -> Path:
    """A sealed journal of these events."""
    digested(spark, folder, table([event | {"seq": seq} for seq, event in enumerate(events, 1)]))
    return folder


def test_traffic_counts_messages_by_operation(spark: SparkSession, tmp_path: Path) -> None:
    events = [enqueue(uid) | {"size": 10} for uid in range(12)]
    events += [*map(deliver, range(7)), left(0, "requeue"), deliver(0, redelivered=True), left(0)]
    events += [left(uid, "expire") for uid in (1, 2)]
    events += [left(uid, "dead_letter", peer_queue="dead") for uid in (3, 4, 5)]
    events += [left(6, "reject"), *(left(uid, "drop_overflow") for uid in (7, 8, 9))]
    events += events_after(7200, enqueue(12) | {"size": 5})

    events += [enqueue(1) | DEAD | {"size": 7}]

    _, summary = done(spark, sealed(spark, tmp_path, events), "traffic", "--window", "1 hour")

    rows = {(row["queue"], row["enqueued"]): row for row in summary["first"]}
    assert summary["rows"] == 3
    names = ("bytes", "delivered", "redelivered", "requeued", "left", "expired", "dead_lettered", "dropped")
    assert [rows["q", 12][name] for name in names] == [120, 8, 1, 1, 10, 2, 3, 4]
    assert rows["q", 12]["redelivery_ratio"] == 1 / 8
    assert [rows["q", 1][name] for name in names] == [5, 0, 0, 0, 0, 0, 0, 0]
    assert [rows["dead", 1][name] for name in names] == [7, 0, 0, 0, 0, 0, 0, 0]
    assert rows["q", 1]["redelivery_ratio"] is rows["dead", 1]["redelivery_ratio"] is None


def test_latency_by_consumer_is_of_those_that_each_took(spark: SparkSession, tmp_path: Path) -> None:
    events = events_after(0, *map(enqueue, range(3)))
    events += events_after(1, deliver(0, "c"), deliver(1, "c"), deliver(2, "d"))
    events += events_after(2, left(0, consumer="c"))
    events += events_after(5, left(1, consumer="c"), left(2, consumer="d"))
    journal = sealed(spark, tmp_path, events)

    _, apart = done(spark, journal, "latency", "--by-consumer")
    _, together = done(spark, journal, "latency")

    names = ("consumer", "messages", "first_delivery_p50", "in_queue_p50", "in_queue_p99", "processing_p99")
    assert [[row[name] for name in names] for row in apart["first"]] == [
        ["c", 2, 1, 2, 5, 4],
        ["d", 1, 1, 5, 5, 4],
    ]
    (row,) = together["first"]
    assert "consumer" not in row
    assert (row["messages"], row["in_queue_p50"], row["processing_p50"]) == (3, 5, 4)


def test_order_by_consumer_counts_overtaking_within_a_consumer(spark: SparkSession, tmp_path: Path) -> None:
    events = [
        *map(enqueue, range(6)),
        deliver(1, "c"),
        deliver(0, "d"),
        deliver(3, "d"),
        deliver(2, "c"),
    ]
    events += [deliver(5, "c"), deliver(4, "c")]
    journal = sealed(spark, tmp_path / "some", events)
    none = sealed(spark, tmp_path / "none", events[:-1])

    found, apart = done(spark, journal, "order", "--by-consumer")
    _, together = done(spark, journal, "order")

    assert found
    assert [(row["msg_uid"], row["consumer"], row["overtaken_by"]) for row in apart["first"]] == [(4, "c", 5)]
    assert [(row["msg_uid"], row["overtaken_by"]) for row in together["first"]] == [(0, 1), (2, 3), (4, 5)]
    assert "consumer" not in together["first"][0]
    found, apart = done(spark, none, "order", "--by-consumer")
    assert (found, apart["rows"]) == (False, 0)


@pytest.fixture(scope="module")
def family(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Message 1 becomes message 3, a dead letter; 2 and 4 have nothing to do with them."""
    events = [enqueue(1), enqueue(2), deliver(1), left(1, "dead_letter", peer_queue="dead")]
    events += [enqueue(3) | DEAD | {"origin_uid": 1}, left(2), enqueue(4) | {"message_id": "1"}]
    return sealed(spark, tmp_path_factory.mktemp("family"), events)


@pytest.mark.parametrize(
    ("uid", "life"),
    [
        (1, [(1, "enqueue"), (1, "deliver"), (1, "dead_letter"), (3, "enqueue")]),
        (3, [(1, "enqueue"), (1, "deliver"), (1, "dead_letter"), (3, "enqueue")]),
        (2, [(2, "enqueue"), (2, "ack")]),
    ],
)
def test_lineage_of_a_number(
    spark: SparkSession, family: Path, uid: int, life: list[tuple[int, str]]
) -> None:
    _, summary = done(spark, family, "lineage", "--msg-uid", str(uid))

    words = [line.split() for line in summary["life"]]
    assert [(int(line[3]), line[4]) for line in words] == life
    assert summary["messages"] == len({number for number, _ in life})


def test_a_number_that_no_message_has(spark: SparkSession, family: Path) -> None:
    with pytest.raises(PipelineError, match=f"no message 99 in '{family}'"):
        done(spark, family, "lineage", "--msg-uid", "99")


@pytest.fixture(scope="module")
def waiting(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Message 1 is with a consumer, and 2 with nobody, for 20 minutes."""
    declared = QUEUE | {"op": "declare", "quantity": 0, "reason": "full"}
    events = [
        *events_after(0, declared, enqueue(1), enqueue(2), deliver(1)),
        *events_after(1200, enqueue(3)),
    ]
    return sealed(spark, tmp_path_factory.mktemp("waiting"), events)


@pytest.mark.parametrize(("age", "count"), [("20m", 0), ("19m", 1)])
def test_the_age_decides_which_messages_wait_too_long(
    spark: SparkSession, waiting: Path, age: str, count: int
) -> None:
    findings = done(spark, waiting, "audit", "--age", age)[1]["findings"]

    assert (findings["stuck_unacked"], findings["undelivered"]) == (count, count)


@pytest.mark.nightly
@pytest.mark.parametrize(("age", "count"), [("20m", 0), ("19m", 1)])
def test_the_age_decides_for_followed_events_too(
    spark: SparkSession, waiting: Path, tmp_path: Path, age: str, count: int
) -> None:
    following = ("--mode", "available-now", "--out", str(tmp_path))
    verdicts = done(spark, waiting, "audit", "--age", age, *following)[1]["verdicts"]

    assert (verdicts.get("stuck_unacked", 0), verdicts.get("undelivered", 0)) == (count, count)
