"""Verdicts for queues that are journaled at different levels or at different times."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.arguments import parser
from pipeline.errors import PipelineError
from pipeline.incremental_audit import NOT_FOLLOWED, follow
from pipeline.jobs.audit import FILE, audit
from pipeline.jobs.dead_letters import forwarding_losses
from pipeline.jobs.facts import NEEDS_FULL, activity, facts, known_queues
from pipeline.jobs.ledger import contributions, fold
from pipeline.jobs.portions import fold_portion, join_portions, verdicts_of
from pipeline.jobs.verdicts import add_verdicts
from pipeline.runs import NEED_FULL, run
from tests.pipeline.frames import digested, frame, table
from tests.pipeline.test_verdicts import END, RULES

pytestmark = pytest.mark.spark

HOUR = 3600


class EventList:
    """Events of a single node, each second, that begin two hours before the END."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, op: str, queue: int | None = None, uid: int | None = None, **values: object) -> EventList:
        seq = len(self.rows) + 1
        names = {} if queue is None else {"vhost": "/", "queue": f"q{queue}", "queue_id": queue}
        own = {"node": "n", "seq": seq, "ts": END - timedelta(seconds=2 * HOUR - seq), "op": op}
        self.rows.append(own | names | {"msg_uid": uid, "qpos": uid} | values)
        return self

    def come(self, queue: int, *uids: int) -> EventList:
        """Messages come into a queue."""
        for uid in uids:
            self.add("enqueue", queue, uid, persistent=True)
        return self

    def look(self, queue: int, level: str) -> EventList:
        return self.add("checkpoint", queue, reason=level, quantity=1)

    def listed(self, queue: int, level: str, *uids: int) -> EventList:
        """Add the events of a queue that a restart writes."""
        for uid in uids:
            self.add("recover", queue, uid)
        return self.add("recover", queue, reason=level, quantity=len(uids))

    def level(self, reason: str, queue: int | None = None) -> EventList:
        return self.add("level", queue, reason=reason)


def mixed() -> EventList:
    """Return events of queues 1, 3 and 5 at the level full, 2 and 4 not; consumers of all but 3 hang."""
    event_list = EventList()
    for queue in (1, 2, 3, 4):
        event_list.add("declare", queue, quantity=0, reason="full" if queue % 2 else "lifecycle")
        event_list.come(queue, 10 * queue)
    event_list.add("deliver", 1, 10).come(4, 41).add("ack", 4, 41).add(
        "declare", 5, quantity=0, reason="full"
    )
    return event_list.come(5, 50, 51, 52).add("stage", 5, 50).add("ack", 5, 50).add("stage", 5, 51)


def open_verdicts(events: DataFrame, cut: int | None = None) -> dict[int, str]:
    """The verdict on each message, as all events at once or two portions have it."""
    if cut is None:
        found = add_verdicts(
            fold(contributions(events)), known_queues(activity(events), facts(events)), RULES
        )
    else:
        two = fold_portion(events.where(f"seq <= {cut}")), fold_portion(events.where(f"seq > {cut}"))
        found = verdicts_of(join_portions(*two), RULES)
    return {row["msg_uid"]: row["verdict"] for row in found.collect()}


@pytest.mark.parametrize("cut", [None, 11])
def test_messages_that_a_consumer_may_have_are_not_undelivered(spark: SparkSession, cut: int | None) -> None:
    assert open_verdicts(frame(spark, mixed().rows), cut) == {
        10: "stuck_unacked",
        20: "in_flight",
        30: "undelivered",
        40: "in_flight",
        41: "ok",
        50: "ok",
        51: "stuck_unacked",
        52: "undelivered",
    }


def test_queues_that_have_less_are_named(spark: SparkSession, tmp_path: Path) -> None:
    report = audit(digested(spark, tmp_path / "journal", table(mixed().rows)), now=RULES.now)

    assert set(report.not_judged) == {FILE, *NEEDS_FULL}
    assert "of q2, q4 in n: the level `full`" in report.not_judged["stuck_unacked"]
    assert (report.findings["stuck_unacked"], report.findings["undelivered"]) == (2, 2)

    words = ["run", "audit", "--journal", str(tmp_path / "journal"), "--out", str(tmp_path / "out")]
    _, summary = follow(spark, parser().parse_args([*words, "--mode", "available-now"]), lambda text: None)
    assert summary["not_judged"] == report.not_judged | NOT_FOLLOWED


@pytest.mark.parametrize("job", ["order", "latency"])
def test_jobs_name_queues_that_have_less(spark: SparkSession, tmp_path: Path, job: str) -> None:
    pq.write_table(table(mixed().rows), tmp_path / "events.parquet")
    options = parser().parse_args(["run", job, "--journal", str(tmp_path)])
    _, summary = run(spark, options, None, lambda text: None)
    assert set(summary["not_judged"]) == set(NEED_FULL[job])
    for reason in summary["not_judged"].values():
        assert reason.endswith("of q2, q4 in n: the level `full` records them")


def test_an_order_of_no_deliveries_is_no_order(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(EventList().come(1, 10, 11).rows), tmp_path / "events.parquet")
    options = parser().parse_args(["run", "order", "--journal", str(tmp_path)])
    with pytest.raises(PipelineError, match=r"order needs deliveries, and '.*' has none: the level `full`"):
        run(spark, options, None, lambda text: None)


@pytest.mark.nightly
@pytest.mark.parametrize("cut", [None, 6, 13])
def test_only_events_of_the_level_full_are_judged(spark: SparkSession, cut: int | None) -> None:
    events = EventList()
    for queue in (1, 2, 3, 4):
        events.add("declare", queue, quantity=0, reason="full").come(queue, 10 * queue)
    events.level("lifecycle", 1).level("lifecycle", 2).come(1, 11).come(2, 21).look(1, "lifecycle")
    events.level("full", 1).come(1, 12).look(1, "full").look(2, "lifecycle")
    events.add("checkpoint", 3, reason="level", quantity=1).level("off", 3)
    events.add("checkpoint", 3, reason="level", quantity=1).come(3, 31)
    events.add("checkpoint", 4, reason="level", quantity=1).level("off", 4)
    events.add("checkpoint", 4, reason="level", quantity=1).level("lifecycle", 4).come(4, 41)
    events.add("declare", 5, quantity=0, reason="full").add("checkpoint", 5, reason="level", quantity=0)
    events.level("off", 5).add("declare", 5, quantity=0, reason="full").come(5, 50)
    assert open_verdicts(frame(spark, events.rows), cut) == {
        10: "in_flight",
        11: "in_flight",
        12: "undelivered",
        20: "in_flight",
        21: "in_flight",
        30: "unsure",
        31: "undelivered",
        40: "unsure",
        41: "in_flight",
        50: "undelivered",
    }


@pytest.mark.nightly
@pytest.mark.parametrize("cut", [None, 8])
def test_a_restart_has_its_own_levels(spark: SparkSession, cut: int | None) -> None:
    events = EventList()
    for queue, level in ((1, "full"), (2, "full"), (3, "lifecycle")):
        events.add("declare", queue, quantity=0, reason=level).come(queue, 10 * queue)
    events.level("lifecycle", 2).add("deliver", 1, 10)
    events.listed(1, "lifecycle", 10).listed(2, "lifecycle", 20).listed(3, "full", 30)
    events.come(1, 11).come(2, 21).come(3, 31)
    assert open_verdicts(frame(spark, events.rows), cut) == dict.fromkeys((10, 11, 20, 21), "in_flight") | {
        30: "undelivered",
        31: "undelivered",
    }


@pytest.mark.nightly
def test_a_partial_read_has_the_level_of_checkpoints(spark: SparkSession) -> None:
    event_list = (
        EventList().come(1, 10).come(2, 20).look(1, "full").look(2, "lifecycle").come(1, 11).come(2, 21)
    )

    assert open_verdicts(frame(spark, event_list.rows)) == {
        10: "undelivered",
        11: "undelivered",
        20: "in_flight",
        21: "in_flight",
    }


@pytest.mark.nightly
def test_a_full_disk_has_less_of_all(spark: SparkSession) -> None:
    event_list = (
        EventList().add("declare", 1, quantity=0, reason="full").come(1, 10).level("lifecycle").come(1, 11)
    )
    assert open_verdicts(frame(spark, event_list.rows)) == dict.fromkeys((10, 11), "in_flight")
    event_list.level("full").come(1, 12).level("full", 1)
    assert open_verdicts(frame(spark, event_list.rows))[12] == "undelivered"


def dies(event_list: EventList, uid: int, queue: int) -> EventList:
    """Add the death of a message that leaves queue 1 for another queue and does not arrive."""
    return event_list.add("dead_letter", 1, uid, peer_queue=f"q{queue}", reason="rejected")


def lost(spark: SparkSession, event_list: EventList) -> set[int]:
    events = frame(spark, event_list.rows)
    end = int(event_list.rows[-1]["ts"].timestamp() * 1e6)
    return {row["msg_uid"] for row in forwarding_losses(events, facts(events), end).collect()}


def test_messages_to_a_queue_without_a_journal_are_not_lost(spark: SparkSession) -> None:
    events = EventList()
    dies(events, 20, 2).add("checkpoint", 2, reason="level", quantity=0)
    dies(events, 21, 2).level("lifecycle", 2)
    dies(events, 22, 2).add("checkpoint", 2, reason="level", quantity=0).level("off", 2)
    dies(events, 23, 2)
    events.add("declare", 3, quantity=0)
    dies(events, 30, 3).come(3, 99).rows[-1] |= {"origin_uid": 30, "reason": "dead_letter"}
    dies(events, 31, 3).add("queue_delete", 3, quantity=1)
    dies(events, 32, 3)
    events.add("declare", 4, quantity=0).add("checkpoint", 4, reason="shutdown", quantity=0)
    dies(events, 40, 4).add("recover", 4, quantity=0)
    dies(events, 41, 4)
    dies(events, 50, 5).come(1, 1)

    assert lost(spark, events) == {21, 22, 31, 41}


def test_messages_that_may_be_in_unread_events_are_not_lost(spark: SparkSession) -> None:
    event_list = dies(EventList().add("declare", 2, quantity=0), 20, 2)
    assert lost(spark, event_list) == set()
    event_list.come(1, 1)
    event_list.rows[-1]["ts"] = event_list.rows[-2]["ts"]
    assert lost(spark, event_list) == set(), "it is the same turn"
    event_list.come(1, 2)
    assert lost(spark, event_list) == {20}
    assert lost(spark, event_list.level("off")) == set()
