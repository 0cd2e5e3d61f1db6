"""What is judged where queues are journaled at different levels, or at other times."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.command import parser
from pipeline.following import NOT_FOLLOWED, follow
from pipeline.jobs.audit import audit, verdicts
from pipeline.jobs.facts import facts, known_queues
from pipeline.jobs.forwarding import forwarding_losses
from pipeline.jobs.incremental import joined, portion, verdicts_of
from pipeline.jobs.levels import NEEDS_FULL
from pipeline.jobs.moves import activity
from tests.pipeline.test_verdicts import END, RULES, frame

pytestmark = pytest.mark.spark

HOUR = 3600


class Told:
    """Events of one node, one each second, that begin two hours before the END."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, op: str, queue: int | None = None, uid: int | None = None, **values: object) -> Told:
        seq = len(self.rows) + 1
        names = {} if queue is None else {"vhost": "/", "queue": f"q{queue}", "queue_id": queue}
        own = {"node": "n", "seq": seq, "ts": END - timedelta(seconds=2 * HOUR - seq), "op": op}
        self.rows.append(own | names | {"msg_uid": uid, "qpos": uid} | values)
        return self

    def come(self, queue: int, *uids: int) -> Told:
        """Messages come into a queue."""
        for uid in uids:
            self.add("enqueue", queue, uid, persistent=True)
        return self

    def look(self, queue: int, unacked: int) -> Told:
        return self.add("checkpoint", queue, reason="time", quantity=1, unacked=unacked)

    def level(self, reason: str, queue: int | None = None) -> Told:
        return self.add("level", queue, reason=reason)


def mixed() -> Told:
    """Queue 1 at the level full; 2 and 4 not, and their consumers hang; nobody takes of 3, a reader of 5."""
    told = Told()
    for queue in (1, 2, 3, 4):
        told.add("declare", queue, quantity=0).come(queue, 10 * queue)
    told.add("deliver", 1, 10).look(1, 1).look(2, 1).look(3, 0)
    told.come(4, 41).add("ack", 4, 41)
    return told.add("declare", 5, quantity=0).come(5, 50).add("stage", 5, 50).look(5, 1)


def open_verdicts(events: DataFrame, cut: int | None = None) -> dict[int, str]:
    """The verdict on each message, as all events at once or two portions have it."""
    if cut is None:
        keys = events.where("msg_uid is not null").select("queue_id", "msg_uid").distinct()
        found = verdicts(events, keys, known_queues(activity(events), facts(events)), RULES)
    else:
        two = portion(events.where(f"seq <= {cut}")), portion(events.where(f"seq > {cut}"))
        found = verdicts_of(joined(*two), RULES)
    return {row["msg_uid"]: row["verdict"] for row in found.collect()}


@pytest.mark.parametrize("cut", [None, 11])
def test_messages_that_a_consumer_may_have_are_not_undelivered(spark: SparkSession, cut: int | None) -> None:
    assert open_verdicts(frame(spark, mixed().rows), cut) == {
        10: "stuck_unacked",
        20: "in_flight",
        30: "undelivered",
        40: "in_flight",
        41: "ok",
        50: "stuck_unacked",
    }


@pytest.mark.nightly
def test_what_an_older_version_has_carried_on_is_read(spark: SparkSession) -> None:
    events = frame(spark, mixed().rows)
    before, new = portion(events.where("seq <= 11")), portion(events.where("seq > 11"))

    found = verdicts_of(joined(before._replace(told=before.told.drop("unacked")), new), RULES)

    assert found.count() == 6


def test_queues_that_have_less_are_named(spark: SparkSession, tmp_path: Path) -> None:
    events = frame(spark, mixed().rows)

    found = audit(events, now=RULES.now)

    assert set(found.not_judged) == set(NEEDS_FULL)
    assert "of q2, q4 in n: the level `full`" in found.not_judged["stuck_unacked"]
    assert (found.findings["stuck_unacked"], found.findings["undelivered"]) == (2, 1)

    events.write.parquet(str(tmp_path / "journal" / "parquet"))
    words = ["run", "audit", "--journal", str(tmp_path / "journal"), "--out", str(tmp_path / "out")]
    _, summary = follow(spark, parser().parse_args([*words, "--mode", "available-now"]), lambda text: None)
    assert summary["not_judged"] == found.not_judged | NOT_FOLLOWED


@pytest.mark.nightly
@pytest.mark.parametrize("cut", [None, 6])
def test_only_what_came_at_the_level_full_is_judged(spark: SparkSession, cut: int | None) -> None:
    told = Told()
    for queue in (1, 2, 3, 4):
        told.add("declare", queue, quantity=0).come(queue, 10 * queue)
    told.level("lifecycle", 1).level("lifecycle", 2).come(1, 11).come(2, 21)
    told.level("full", 1).come(1, 12)
    told.add("checkpoint", 3, reason="level", quantity=1).level("off", 3)
    told.look(1, 0).look(2, 0).look(4, 0)
    told.add("checkpoint", 3, reason="level", quantity=1).come(3, 31).look(3, 0)
    told.add("declare", 5, quantity=0).come(5, 50, 51).add("deliver", 5, 50).add("ack", 5, 50)
    assert open_verdicts(frame(spark, told.rows), cut) == {
        10: "in_flight",
        11: "in_flight",
        12: "undelivered",
        20: "in_flight",
        21: "in_flight",
        30: "unsure",
        31: "undelivered",
        40: "undelivered",
        50: "ok",
        51: "undelivered",
    }


@pytest.mark.nightly
def test_a_restart_begins_anew_and_a_full_disk_has_less_of_all(spark: SparkSession) -> None:
    told = Told().add("declare", 1, quantity=0).come(1, 10, 11).add("deliver", 1, 10).add("ack", 1, 10)
    told.level("lifecycle", 1).level("lifecycle").come(1, 12)
    short = Told()
    short.rows = [*told.rows]
    told.add("recover", 1, 11).add("recover", 1, 12).add("recover", 1, quantity=2)

    assert open_verdicts(frame(spark, told.rows)) == {10: "ok", 11: "undelivered", 12: "undelivered"}
    short.level("full", 1).come(1, 13)
    assert open_verdicts(frame(spark, short.rows)) == dict.fromkeys((11, 12, 13), "in_flight") | {10: "ok"}
    short.level("full").come(1, 14)
    assert open_verdicts(frame(spark, short.rows))[14] == "undelivered"


def dies(told: Told, uid: int, queue: int) -> Told:
    """A message leaves queue 1 for another one, and does not come there."""
    return told.add("dead_letter", 1, uid, peer_queue=f"q{queue}", reason="rejected")


def lost(spark: SparkSession, told: Told) -> set[int]:
    events = frame(spark, told.rows)
    end = int(told.rows[-1]["ts"].timestamp() * 1e6)
    return {row["msg_uid"] for row in forwarding_losses(events, facts(events), end).collect()}


def test_what_goes_to_a_queue_that_is_not_journaled_then_is_not_lost(spark: SparkSession) -> None:
    told = Told()
    dies(told, 20, 2).add("checkpoint", 2, reason="level", quantity=0)
    dies(told, 21, 2).level("lifecycle", 2)
    dies(told, 22, 2).add("checkpoint", 2, reason="level", quantity=0).level("off", 2)
    dies(told, 23, 2)
    told.add("declare", 3, quantity=0)
    dies(told, 30, 3).come(3, 99).rows[-1] |= {"origin_uid": 30, "reason": "dead_letter"}
    dies(told, 31, 3).add("queue_delete", 3, quantity=1)
    dies(told, 32, 3)
    told.add("declare", 4, quantity=0).add("checkpoint", 4, reason="shutdown", quantity=0)
    dies(told, 40, 4).add("recover", 4, quantity=0)
    dies(told, 41, 4)
    dies(told, 50, 5).come(1, 1)

    assert lost(spark, told) == {21, 22, 31, 41}


def test_what_may_have_come_in_what_is_not_read_is_not_lost(spark: SparkSession) -> None:
    told = dies(Told().add("declare", 2, quantity=0), 20, 2)
    assert lost(spark, told) == set()
    told.come(1, 1)
    told.rows[-1]["ts"] = told.rows[-2]["ts"]
    assert lost(spark, told) == set(), "it is the same turn"
    told.come(1, 2)
    assert lost(spark, told) == {20}
    assert lost(spark, told.level("off")) == set()
