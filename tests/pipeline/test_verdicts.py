"""Verdicts as a plain model of the journal has them, in whatever portions events come."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pipeline.digest.sources import Digest
from pipeline.jobs.audit import audit
from pipeline.jobs.portions import fold_portion, join_portions, verdicts_of
from pipeline.jobs.verdicts import MEANINGS, Rules
from tests.pipeline.frames import SLOW, digested, frame, table

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

END = datetime(2026, 1, 2, tzinfo=UTC)
POISON = 5
STEPS = ("deliver", "redeliver", "requeue", "ack", "dead_letter", "purge", "restart", "loss", "delete")
RULES = Rules(int(END.timestamp() * 1e6), 3600, POISON)


class Life(NamedTuple):
    """The history of a message, which has a queue of its own, and its age in hours."""

    persistent: bool
    known: bool
    steps: list[str]
    hours: int


LIVES = st.lists(
    st.builds(
        Life,
        st.booleans(),
        st.integers(0, 4).map(bool),
        st.lists(st.sampled_from(STEPS), max_size=6),
        st.integers(0, 2),
    ),
    min_size=30,
    max_size=30,
)


class Model:
    """The life of a single message: its events, and its verdict."""

    def __init__(self, number: int, life: Life) -> None:
        self.number = number
        self.time = END - timedelta(hours=life.hours)
        self.persistent = life.persistent
        self.events: list[dict[str, Any]] = []
        self.known = self.inside = life.known
        self.unacked = self.poison = False
        self.end = ""
        self.add("declare", msg_uid=None, quantity=0)
        if life.known:
            self.add("enqueue", persistent=life.persistent)
        for step in life.steps:
            if self.end in ("taken", "lost", "lost_volatile"):
                break
            self.take(step)

    def add(self, op: str, **values: object) -> None:
        own = {"queue_id": self.number, "msg_uid": 1000, "qpos": 7, "delivery_count": 0, "ts": self.time}
        self.events.append(own | {"op": op, "vhost": "/", "queue": f"q{self.number}"} | values)

    def take(self, step: str) -> None:
        if step in ("deliver", "redeliver"):
            again = step == "redeliver"
            self.add("deliver", delivery_count=POISON if again else 0)
            self.poison |= again
            self.unacked = True
            if self.end == "ok":
                self.end = "delivered_after_settle"
        elif step == "requeue" and self.inside and self.unacked:
            self.add("requeue")
            self.unacked = False
        elif step in ("ack", "dead_letter"):
            self.add(step)
            self.end = "ok" if self.inside else "double_settled"
            self.inside = False
        elif step == "purge":
            self.add("purge", msg_uid=None, first_qpos=0, qpos=9, quantity=1)
            if self.inside and not self.unacked:
                self.leave("taken")
        elif step == "delete":
            self.add("queue_delete", msg_uid=None, quantity=1, qpos=None)
            if self.inside:
                self.leave("taken")
        elif step in ("restart", "loss"):
            self.restart(step == "loss")

    def restart(self, loses: bool) -> None:
        listed = self.inside and not loses
        if listed:
            self.add("recover", persistent=self.persistent)
            self.unacked = False
        self.add("recover", msg_uid=None, quantity=int(listed), qpos=None)
        if self.inside and loses:
            self.leave("lost" if self.persistent else "lost_volatile")

    def leave(self, how: str) -> None:
        self.inside = False
        self.end = how

    def verdict(self, any_delivers: bool) -> str | None:
        """None: no event is of the message."""
        ops = [event["op"] for event in self.events if event["msg_uid"] is not None]
        if not ops:
            return None
        if not self.known:
            return "orphan"
        if self.end in ("double_settled", "delivered_after_settle"):
            return self.end
        if self.poison:
            return "poison"
        if self.end:
            return "ok" if self.end == "taken" else self.end
        full = "deliver" in ops or (any_delivers and not {"ack", "requeue"} & set(ops))
        if full and END - self.time > timedelta(hours=1):
            return "stuck_unacked" if self.unacked else "undelivered"
        return "in_flight"


def interleaved(models: list[Model]) -> list[dict[str, Any]]:
    """Return the events of all models, interleaved."""
    longest = max(len(model.events) for model in models)
    rows = [model.events[turn] for turn in range(longest) for model in models if turn < len(model.events)]
    return [row | {"node": "n", "seq": seq} for seq, row in enumerate(rows, 1)]


def batch(digest: Digest) -> tuple[Counter[str], dict[int, str]]:
    """Return the verdicts of a single audit over all entries: the counts, and the findings by queue."""
    found = audit(digest, now=RULES.now)
    counts = {kind: found.findings[kind] for kind in MEANINGS} | found.others
    findings = {row["queue_id"]: kind for kind in MEANINGS for row in found.rows.get(kind, [])}
    return Counter({kind: count for kind, count in counts.items() if count}), findings


def summed(verdicts: dict[int, str]) -> tuple[Counter[str], dict[int, str]]:
    """Verdicts as `batch` has them."""
    findings = {number: verdict for number, verdict in verdicts.items() if verdict in MEANINGS}
    return Counter(verdicts.values()), findings


def verdict_of(frame_of_verdicts: DataFrame) -> dict[int, str]:
    return {row["queue_id"]: row["verdict"] for row in frame_of_verdicts.collect()}


@settings(SLOW, max_examples=4)
@given(lives=LIVES, shares=st.lists(st.floats(0, 1), min_size=1, max_size=2))
def test_verdicts_are_those_of_the_model_in_any_portions(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, lives: list[Life], shares: list[float]
) -> None:
    models = [Model(number, life) for number, life in enumerate(lives, 1)]
    rows = interleaved(models)
    any_delivers = any(row["op"] == "deliver" for row in rows)
    wanted = {model.number: model.verdict(any_delivers) for model in models}
    expected = {number: verdict for number, verdict in wanted.items() if verdict is not None}

    cuts = [0, *sorted(int(share * len(rows)) for share in shares), len(rows)]
    digest = digested(spark, tmp_path_factory.mktemp("journal"), table(rows), *cuts[1:-1])
    assert batch(digest) == summed(expected)

    parts = [fold_portion(frame(spark, rows[start:end])) for start, end in pairwise(cuts)]
    carried = parts[0]
    for part in parts[1:]:
        carried = join_portions(carried, part)
    assert verdict_of(verdicts_of(carried, RULES)) == expected


def test_messages_that_a_gap_may_have_swallowed_are_no_finding(spark: SparkSession, tmp_path: Path) -> None:
    lost = Model(1, Life(True, True, ["deliver"], 2))
    rows = interleaved([lost])
    gap = {"node": "n", "seq": len(rows) + 1, "ts": END, "op": "gap"}
    end = {"op": "recover", "queue_id": 1, "quantity": 0, "vhost": "/", "queue": "q1"}
    events = table([*rows, gap, gap | end | {"seq": len(rows) + 2}])

    assert batch(digested(spark, tmp_path, events)) == summed({1: "unsure"})
