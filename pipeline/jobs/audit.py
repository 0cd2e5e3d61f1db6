"""The audit: what became of each message, whether the journal is whole, and whether it adds up."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Row

from pipeline.jobs.balance import imbalances
from pipeline.jobs.continuity import holes
from pipeline.jobs.facts import FACT_COLUMNS, facts, is_fact, known_queues
from pipeline.jobs.forwarding import forwarding_losses, is_forwarding
from pipeline.jobs.ledger import FEW_KEYS, KEYS, contributions, fold, plainness
from pipeline.jobs.levels import lacks, not_judged
from pipeline.jobs.moves import anchors, moves
from pipeline.jobs.order import order
from pipeline.jobs.verdicts import HARMLESS, MEANINGS, Rules, judged

SHOWN: Final = 1000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FEW: Final = (*FACT_COLUMNS, "msg_uid", "origin_uid", "peer_queue")
OTHER_MEANINGS: Final = {
    "hole": "events of the journal are missing, or there twice",
    "imbalance": "what came and left does not make up what the queue has",
    "forwarding_loss": "a message left a queue for another and never came there",
    "reordered": "a message was delivered to a consumer after one from behind it",
}
Rows = list[dict[str, Any]]


class Audit(NamedTuple):
    """What an audit has found. `findings`: how many by kind; `others`: how many by harmless verdict.

    `first`, `last`: microseconds since 1970 of the events, or None. `rows`: the findings themselves, SHOWN
    of each kind at most. `not_judged`: what could not be looked for in all queues, with the reason.
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
        """For JSON."""
        times = {"first": _time(self.first), "last": _time(self.last)}
        return self._asdict() | times | {"clean": self.clean}


class Frames(NamedTuple):
    """The events of one node, and what was made of them: `moves`, `anchors`, and FEW of some."""

    events: DataFrame
    moved: DataFrame
    anchored: DataFrame
    few: DataFrame


class Part(NamedTuple):
    """What is found of one node: how many entries have each verdict, how many `others` there are.

    `lacking`: queues that could not be looked at closely.
    """

    verdicts: dict[str, int]
    others: dict[str, int]
    rows: dict[str, Rows]
    lacking: str


def unsettled(events: DataFrame, rules: Rules, seen: Observation | None = None) -> DataFrame:
    """KEYS of the entries that are not plainly `ok`; `seen` gets how many are `plain` and how many not."""
    entries, plain = plainness(events, rules.poison), F.col("plain")
    if seen is not None:
        counts = [F.count_if(plain).alias("plain"), F.count_if(~plain).alias("others")]
        entries = entries.observe(seen, *counts)
    return entries.where(~plain).select(*KEYS)


def verdicts(events: DataFrame, keys: DataFrame, queues: DataFrame, rules: Rules) -> DataFrame:
    """A verdict on each entry of one node that is among `keys`."""
    return judged(fold(contributions(events.join(keys, list(KEYS), "left_semi"))), queues, rules)


def audit(events: DataFrame, age: float = 3600, poison: int = 5, now: int | None = None) -> Audit:
    """Audit all events, node by node. `age`: seconds; `now`: microseconds, else that of the last event."""
    few = _kept(events.where(is_fact() | is_forwarding()).select(*FEW))
    anchored = _kept(anchors(facts(few)))
    moved = _kept(moves(events, anchored))
    nodes = _nodes(moved)
    last = max((row["last"] for row in nodes), default=None)
    rules = Rules(now or last or 0, age, poison)
    parts = []
    for row in nodes:
        frames = Frames(events, moved, anchored, few)
        if len(nodes) > 1:
            frames = Frames(*(each.where(F.col("node") == row["node"]) for each in frames))
        parts.append(_of_node(row, frames, rules))
    return _added(nodes, parts)


def _nodes(moved: DataFrame) -> list[Row]:
    sums = (F.sum("events").alias("events"), F.min("earliest").alias("first"), F.max("latest").alias("last"))
    rows = moved.groupBy("node").agg(*sums).collect()
    return sorted(rows, key=lambda row: str(row["node"]))


def _of_node(node: Row, frames: Frames, rules: Rules) -> Part:
    events, moved, anchored, few = frames
    told = facts(few)
    rows: dict[str, Rows] = {}
    queues = _kept(known_queues(moved, told))
    lists = {
        "imbalance": imbalances(moved, anchored, told),
        "forwarding_loss": forwarding_losses(few, told, node["last"]),
        "hole": holes(events, moved, node["node"]),
        "reordered": order(events, by_consumer=True),
    }
    with ThreadPoolExecutor(2) as pool:  # what is planned takes one core, and what is run all of them
        judging = pool.submit(_judge, events, queues, rules, rows)
        lacking = pool.submit(lacks, queues)
        collected = dict(zip(lists, pool.map(_collected, lists.values()), strict=True))
    others = {kind: total for kind, (total, _) in collected.items()}
    rows |= {kind: some for kind, (_, some) in collected.items()}
    return Part(judging.result(), others, rows, lacking.result())


def _judge(events: DataFrame, queues: DataFrame, rules: Rules, rows: dict[str, Rows]) -> dict[str, int]:
    """Count verdicts, and collect those that are findings."""
    plain, seen = Observation(), Observation()
    names = (*MEANINGS, *HARMLESS)
    counts = [F.count_if(F.col("verdict") == name).alias(name) for name in names]
    first = F.row_number().over(Window.partitionBy("verdict").orderBy("last_seq")) <= SHOWN
    keys = _kept(unsettled(events, rules, plain))
    if plain.get["others"] <= FEW_KEYS:
        keys = F.broadcast(keys)
    all_judged = verdicts(events, keys, queues, rules).observe(seen, *counts)
    found = all_judged.where(F.col("verdict").isin(*MEANINGS)).withColumn("shown", first)
    for row in sorted(found.where("shown").drop("shown").collect(), key=lambda row: row["last_seq"]):
        rows.setdefault(row["verdict"], []).append(_told(row))
    by_verdict = {name: int(seen.get[name]) for name in names}
    by_verdict["ok"] += int(plain.get["plain"])
    return by_verdict


def _collected(frame: DataFrame) -> tuple[int, Rows]:
    some = frame.limit(SHOWN + 1).collect()
    total = len(some) if len(some) <= SHOWN else frame.count()
    return total, [_told(row) for row in some[:SHOWN]]


def _told(row: Row) -> dict[str, Any]:
    """A row whose times say that they are UTC; Spark gives them as those of this machine's zone."""
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
        min((row["first"] for row in nodes), default=None),
        max((row["last"] for row in nodes), default=None),
        verdicts.total(),
        {kind: verdicts[kind] for kind in MEANINGS} | {kind: others[kind] for kind in OTHER_MEANINGS},
        {kind: verdicts[kind] for kind in HARMLESS},
        rows,
        not_judged({row["node"]: part.lacking for row, part in zip(nodes, parts, strict=True)}),
    )


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def _kept(frame: DataFrame) -> DataFrame:
    """The rows are computed once, and what they came of is forgotten.

    A plan has all plans of what it reads from a cache, each twice, and Spark writes them out again and again.
    """
    return frame.localCheckpoint()
