"""Deliveries out of order, and deliveries that only seem to be out of order."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs.order import order
from tests.pipeline.frames import frame

pytestmark = pytest.mark.spark

QUEUE = {"node": "a", "vhost": "/", "queue": "q", "queue_id": 1}
OTHER = QUEUE | {"queue": "other", "queue_id": 2}
Event = dict[str, Any]


def enqueue(uid: int, queue: Event = QUEUE) -> Event:
    return queue | {"op": "enqueue", "msg_uid": uid, "qpos": uid}


def deliver(uid: int, consumer: str = "c", queue: Event = QUEUE, **fields: object) -> Event:
    return queue | {"op": "deliver", "msg_uid": uid, "qpos": uid, "consumer": consumer, "conn": "x"} | fields


def listed(queue: Event = QUEUE) -> Event:
    """Return the end of a queue's list after a restart: places are new from here on."""
    return queue | {"op": "recover", "quantity": 0}


def overtaken(spark: SparkSession, events: list[Event], by_consumer: bool) -> list[tuple[int, int, int]]:
    """Number, place of the message that overtook it, and seq of each delivery out of order."""
    event_rows = frame(spark, [event | {"seq": seq} for seq, event in enumerate(events)])
    rows = order(event_rows, by_consumer).collect()
    return [(row["msg_uid"], row["overtaken_by"], row["seq"]) for row in rows]


def test_a_present_message_is_overtaken_by_the_latest_before_it(spark: SparkSession) -> None:
    events = [*map(enqueue, range(5)), deliver(1), deliver(3), deliver(2), deliver(4), deliver(0)]
    assert overtaken(spark, events, by_consumer=False) == [(2, 3, 7), (0, 4, 9)]


def test_a_later_message_has_not_overtaken(spark: SparkSession) -> None:
    first = {"qpos": -1}  # a message of a higher priority
    late = [enqueue(1), enqueue(2), deliver(1), deliver(2), enqueue(7) | first, deliver(7) | first]
    there = [enqueue(1), enqueue(2), deliver(1), enqueue(7) | first, deliver(2), deliver(7) | first]

    assert overtaken(spark, late, by_consumer=False) == []
    assert overtaken(spark, there, by_consumer=False) == [(7, 2, 5)]


def test_redeliveries_may_come_at_any_time(spark: SparkSession) -> None:
    events = [enqueue(1), enqueue(2), deliver(1), deliver(2), deliver(1, redelivered=True)]
    assert overtaken(spark, events, by_consumer=True) == []


def test_consumers_and_queues_do_not_wait_for_each_other(spark: SparkSession) -> None:
    events = [*map(enqueue, range(4)), enqueue(9, OTHER)]
    events += [
        deliver(1, "c"),
        deliver(9, "c", OTHER),
        deliver(0, "d"),
        deliver(3, "d"),
        deliver(2, "c"),
    ]

    assert overtaken(spark, events, by_consumer=True) == []
    assert overtaken(spark, events, by_consumer=False) == [(0, 1, 7), (2, 3, 9)]


@pytest.mark.parametrize("by_consumer", [True, False])
def test_each_restart_starts_the_order_of_its_listed_queues_again(
    spark: SparkSession, by_consumer: bool
) -> None:
    events = [
        *map(enqueue, range(4)),
        *(enqueue(uid, OTHER) for uid in range(4)),
        deliver(3),
        deliver(3, queue=OTHER),
    ]
    events += [
        listed(),
        deliver(0),
        deliver(2),
        deliver(1),
        deliver(0, queue=OTHER),
        listed(),
        listed(OTHER),
    ]
    events += [deliver(1), deliver(1, queue=OTHER)]

    assert overtaken(spark, events, by_consumer) == [(1, 2, 13), (0, 3, 14)]


def test_nodes_have_places_of_their_own(spark: SparkSession) -> None:
    node = {"node": "b"}
    events = [
        enqueue(1),
        enqueue(2),
        enqueue(1) | node,
        deliver(2),
        listed() | node,
        deliver(1) | node,
        deliver(1),
    ]
    assert overtaken(spark, events, by_consumer=True) == [(1, 2, 6)]
