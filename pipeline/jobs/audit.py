"""The audit: what became of each message, whether the journal is whole, and whether it adds up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Row

from pipeline.jobs.balance import imbalances
from pipeline.jobs.chunks import DELIVERS, chunks
from pipeline.jobs.continuity import holes
from pipeline.jobs.facts import facts, known_queues
from pipeline.jobs.forwarding import forwarding_losses
from pipeline.jobs.ledger import contributions, fold
from pipeline.jobs.verdicts import HARMLESS, MEANINGS, Rules, judged

NEEDS_FULL: Final = ("delivered_after_settle", "stuck_unacked", "undelivered")
SHOWN: Final = 1000
OTHER_MEANINGS: Final = {
    "hole": "events of the journal are missing, or there twice",
    "imbalance": "what came and left does not make up what the queue has",
    "forwarding_loss": "a message left a queue for another and never came there",
}


class Audit(NamedTuple):
    """What an audit has found. `findings`: how many by kind; `others`: how many by harmless verdict.

    `rows`: the findings themselves, SHOWN of each kind at most. `not_judged`: what could not be looked for,
    with the reason.
    """

    events: int
    entries: int
    findings: dict[str, int]
    others: dict[str, int]
    rows: dict[str, list[dict[str, Any]]]
    not_judged: dict[str, str]

    @property
    def clean(self) -> bool:
        """Whether there is no finding."""
        return not any(self.findings.values())

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"clean": self.clean}


def verdicts(events: DataFrame, queues: DataFrame, rules: Rules) -> DataFrame:
    """A verdict on each entry of the queues of one node."""
    return judged(fold(contributions(events)), queues, rules)


def audit(events: DataFrame, age: float = 3600, poison: int = 5, now: int | None = None) -> Audit:
    """Audit all events, node by node. `age`: seconds; `now`: microseconds, else that of the last event."""
    with kept(chunks(events)) as summed:
        delivers = F.col("does").bitwiseAND(DELIVERS) > 0
        sums = [F.sum("events").alias("events"), F.max("latest").alias("latest")]
        found = summed.groupBy("node").agg(*sums, F.bool_or(delivers).alias("full")).collect()
        nodes = sorted(found, key=lambda row: str(row["node"]))
        time = now or max((row["latest"] for row in nodes), default=0)
        rules = Rules(time, age, poison)
        parts = [_of_node(events, summed, node, len(nodes) == 1, rules) for node in nodes]
    return _added(parts, nodes)


def _of_node(events: DataFrame, summed: DataFrame, node: Row, only: bool, rules: Rules) -> Audit:
    name = node["node"]
    of_node = events if only else events.where(F.col("node") == name)
    own = summed if only else summed.where(F.col("node") == name)
    with kept(facts(of_node)) as told:
        rows: dict[str, list[dict[str, Any]]] = {}
        findings: dict[str, int] = {}
        with kept(known_queues(own, told)) as queues:
            by_verdict = _judge(verdicts(of_node, queues, rules), rows)
        findings |= {verdict: by_verdict.pop(verdict, 0) for verdict in MEANINGS}
        lists = {
            "imbalance": imbalances(of_node, own, told),
            "forwarding_loss": forwarding_losses(of_node, told),
        }
        lists["hole"] = holes(of_node, own, name)
        for kind, frame in lists.items():
            findings[kind], rows[kind] = _collected(frame)
    entries = sum(by_verdict.values()) + sum(findings[verdict] for verdict in MEANINGS)
    return Audit(int(node["events"]), entries, findings, by_verdict, rows, {})


def _judge(frame: DataFrame, rows: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """Count verdicts, and collect those that are findings, in one pass."""
    names = (*MEANINGS, *HARMLESS)
    seen = Observation()
    metrics = [F.count_if(F.col("verdict") == name).alias(name) for name in names]
    observed = frame.observe(seen, *metrics)
    with kept(observed.where(F.col("verdict").isin(*MEANINGS))) as found:
        for verdict in {row["verdict"] for row in found.select("verdict").distinct().collect()}:
            some = found.where(F.col("verdict") == verdict).orderBy("last_seq").limit(SHOWN).collect()
            rows[verdict] = [row.asDict() for row in some]
    return {name: int(seen.get[name]) for name in names}


def _collected(frame: DataFrame) -> tuple[int, list[dict[str, Any]]]:
    some = frame.limit(SHOWN + 1).collect()
    total = len(some) if len(some) <= SHOWN else frame.count()
    return total, [row.asDict() for row in some[:SHOWN]]


def _added(parts: list[Audit], nodes: list[Row]) -> Audit:
    findings: dict[str, int] = {}
    others: dict[str, int] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for kind, count in part.findings.items():
            findings[kind] = findings.get(kind, 0) + count
        for kind, count in part.others.items():
            others[kind] = others.get(kind, 0) + count
        for kind, some in part.rows.items():
            rows.setdefault(kind, []).extend(some)
    without = [row["node"] for row in nodes if not row["full"]]
    why = f"the journal of {', '.join(without)} has no deliveries: the level `full` records them"
    return Audit(
        sum(part.events for part in parts),
        sum(part.entries for part in parts),
        findings,
        others,
        {kind: some for kind, some in rows.items() if some},
        dict.fromkeys(NEEDS_FULL, why) if without else {},
    )


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The rows are computed once."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
