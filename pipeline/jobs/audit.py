"""The audit: the fate of each message, and whether the journal is complete and consistent."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Row

from pipeline.digest.schema import select_kept, select_lived, select_moved, select_placed
from pipeline.digest.sources import Digest
from pipeline.jobs.balance import blocks, holes, imbalances, of_torn
from pipeline.jobs.dead_letters import forwarding_losses
from pipeline.jobs.facts import facts, format_lacking, known_queues, lacking_columns, not_judged
from pipeline.jobs.order import find_reordered
from pipeline.jobs.verdicts import HARMLESS, MEANINGS, Rules, SettledEntries, judge
from pipeline.journal.inventory import FileFaults

SHOWN: Final = 1000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FILE: Final = "file"
OTHER_MEANINGS: Final = {
    FILE: "a sealed file is missing, is there twice, or is not what the manifest says",
    "hole": "events of the journal are missing, or there twice",
    "imbalance": "what came and left does not make up what the queue has",
    "forwarding_loss": "a dead letter left a queue for another and never came there",
    "reordered": "a message was delivered to a consumer after one from behind it",
}
Rows = list[dict[str, Any]]


class Audit(NamedTuple):
    """The result of an audit. `findings`: number of each kind; `others`: number of each harmless verdict.

    `first`, `last`: times of the first and last event in microseconds since 1970, or None. `rows`: the
    findings, at most SHOWN of each kind. `not_judged`: verdicts that could not be checked in all queues, with
    the reason.
    """

    events: int
    first: int | None
    last: int | None
    entries: int
    findings: dict[str, int]
    others: dict[str, int]
    rows: dict[str, Rows]
    not_judged: dict[str, str]

    @property
    def clean(self) -> bool:
        """Whether there is no finding."""
        return not any(self.findings.values())

    def summary(self) -> dict[str, Any]:
        """Return the findings as values for JSON."""
        times = {"first": _time(self.first), "last": _time(self.last)}
        return self._asdict() | times | {"clean": self.clean}


class Frames(NamedTuple):
    """The rows of a digest by kind."""

    kept: DataFrame
    lived: DataFrame
    moved: DataFrame
    placed: DataFrame


class Part(NamedTuple):
    """The result of an audit for one node: the number of entries with each verdict, and of `others`.

    `lacking`: queues whose deliveries are not all journaled.
    """

    verdicts: dict[str, int]
    others: dict[str, int]
    rows: dict[str, Rows]
    lacking: str


def audit(digest: Digest, age: float = 3600, now: int | None = None) -> Audit:
    """Audit a journal, node by node. `age`: seconds.

    `now`: microseconds, by default the time of the last event.
    """
    rows = digest.rows.persist()  # not `_compute_once`: a digest with many unsettled entries is large
    try:
        frames = Frames(select_kept(rows), select_lived(rows), select_moved(rows), select_placed(rows))
        nodes = _nodes(frames.moved)
        last = max((row["latest"] for row in nodes), default=None)
        rules = Rules(now or last or 0, age, digest.poison)
        result = _added(nodes, [_of_node(row, frames, len(nodes), rules, digest) for row in nodes])
        return _with_files(result, digest.held)
    finally:
        rows.unpersist()


def _with_files(found: Audit, held: FileFaults) -> Audit:
    """Return the audit with the faults of files added."""
    reason = {} if held.judged else {FILE: "the journal has no manifest that says which files there must be"}
    rows = {FILE: held.faults[:SHOWN]} if held.faults else {}
    return found._replace(
        findings=found.findings | {FILE: len(held.faults)},
        rows=rows | found.rows,
        not_judged=reason | found.not_judged,
    )


def _events_of(digest: Digest, node: str) -> DataFrame:
    return digest.events.where(F.col("node") == node)


def _nodes(moved: DataFrame) -> list[Row]:
    in_blocks = (
        blocks(moved)
        .groupBy("node")
        .agg(
            F.sum("events").alias("events"),
            F.min("earliest").alias("earliest"),
            F.max("latest").alias("latest"),
            F.count_if(~F.col("whole")).alias("torn"),
            F.sum("settled").alias("settled"),
            F.min("lowest").alias("lowest"),
        )
    )
    return sorted(in_blocks.collect(), key=lambda row: str(row["node"]))


def _of_node(node: Row, frames: Frames, nodes: int, rules: Rules, digest: Digest) -> Part:
    """Audit one node. `frames`: of all the `nodes`."""
    if nodes > 1:
        frames = Frames(*(each.where(F.col("node") == node["node"]) for each in frames))
    events = partial(_events_of, digest, node["node"])
    known = facts(frames.kept)
    lacking = Observation()
    queues = _compute_once(known_queues(frames.moved, known).observe(lacking, *lacking_columns()))
    in_blocks = blocks(frames.moved)
    lists = {
        "imbalance": imbalances(frames.moved, known),
        "forwarding_loss": forwarding_losses(frames.kept, known, node["latest"]),
        "hole": holes(in_blocks, of_torn(events(), in_blocks) if node["torn"] else None),
        "reordered": find_reordered(frames.placed, frames.kept, frames.lived, events),
    }
    unseen = frames.moved.where("unseen > 0").groupBy("queue_id").agg(F.max("last").alias("last"))
    settled = SettledEntries(node["settled"], node["lowest"], unseen)
    with ThreadPoolExecutor(2) as pool:  # planning uses one core, and running uses all
        judging = pool.submit(judge, frames.lived, settled, queues, rules, SHOWN, events)
        collected = dict(zip(lists, pool.map(_collected, lists.values()), strict=True))
    verdicts = judging.result()
    rows = {kind: some for kind, (_, some) in collected.items()}
    for row in sorted(verdicts.rows, key=lambda row: row["last_seq"]):
        rows.setdefault(row["verdict"], []).append(_row_in_utc(row))
    others = {kind: total for kind, (total, _) in collected.items()}
    return Part(verdicts.counts, others, rows, format_lacking(lacking.get))


def _collected(frame: DataFrame) -> tuple[int, Rows]:
    some = frame.limit(SHOWN + 1).collect()
    total = len(some) if len(some) <= SHOWN else frame.count()
    return total, [_row_in_utc(row) for row in some[:SHOWN]]


def _row_in_utc(row: Row) -> dict[str, Any]:
    """Return a row with its times in UTC; Spark returns them in the zone of this machine."""
    values = row.asDict().items()
    return {name: each.astimezone(UTC) if isinstance(each, datetime) else each for name, each in values}


def _added(nodes: list[Row], parts: list[Part]) -> Audit:
    verdicts: Counter[str] = Counter()
    others: Counter[str] = Counter()
    rows: dict[str, Rows] = {}
    for part in parts:
        verdicts.update(part.verdicts)
        others.update(part.others)
        for kind, some in part.rows.items():
            if some:
                rows.setdefault(kind, []).extend(some)
    return Audit(
        sum(row["events"] for row in nodes),
        min((row["earliest"] for row in nodes), default=None),
        max((row["latest"] for row in nodes), default=None),
        verdicts.total(),
        {kind: verdicts[kind] for kind in MEANINGS} | {kind: others[kind] for kind in OTHER_MEANINGS},
        {kind: verdicts[kind] for kind in HARMLESS},
        rows,
        not_judged({row["node"]: part.lacking for row, part in zip(nodes, parts, strict=True)}),
    )


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def _compute_once(frame: DataFrame) -> DataFrame:
    """Compute the rows once, and drop their plan.

    A plan contains all plans of the caches that it reads, each twice, and Spark prints them again and again.
    """
    return frame.localCheckpoint()
