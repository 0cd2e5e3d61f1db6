"""The verdicts on all entries of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Row

from pipeline.jobs.ledger import FEW_KEYS, arrivals, contributions, doubled, fold
from pipeline.jobs.verdicts import HARMLESS, MEANINGS, Rules, judged
from pipeline.journal.schema import KEYS


class Settled(NamedTuple):
    """Lives that a digest has counted and left out. `lowest`: their least `msg_uid`; None: there is none.

    `unseen`: queue_id | last: of the lives that ended with an ack and had no delivery, the queue and the last
    seq of the events that they are counted with.
    """

    entries: int
    lowest: int | None
    unseen: DataFrame


class Asked(NamedTuple):
    """Suspicions to look at again: entries that never came, and entries that were delivered repeatedly."""

    unknown: int
    repeated: int


class Verdicts(NamedTuple):
    """`counts`: entries by verdict. `rows`: of those that are findings, some of each."""

    counts: dict[str, int]
    rows: list[Row]


def judge(
    lived: DataFrame,
    settled: Settled,
    queues: DataFrame,
    rules: Rules,
    shown: int,
    events: Callable[[], DataFrame],
) -> Verdicts:
    """Judge the entries of a digest: those of the events `lived`, and the `settled`, which are ok.

    An entry that has events and never came may have been settled before them, in another file: it is looked
    up in all `events`. One that left its queue and came again in another file counts twice, and so do those
    of files that are there twice, which `holes` tells. What was acknowledged without a delivery where all are
    journaled is looked up too. `shown`: so many rows of each finding at most.
    """
    entries = fold(contributions(lived))
    found, asked = _judged(entries, settled.lowest, queues, rules, shown)
    count = settled.entries
    suspected = _suspected(settled.unseen, queues)
    if asked.repeated:
        keys = entries.where(_is_repeated()).select(*KEYS)
        again = doubled(lived.join(keys, list(KEYS), "left_semi"))
        entries = fold(contributions(lived).unionByName(again, allowMissingColumns=True)).localCheckpoint()
    if asked.unknown:
        never_came = _never_came(settled.lowest)
        keys = entries.where(never_came).select(*KEYS)
        if asked.unknown <= FEW_KEYS:
            keys = F.broadcast(keys)
        whole = fold(contributions(events().join(keys, list(KEYS), "left_semi"))).localCheckpoint()
        count -= whole.agg(F.sum(arrivals()).alias("arrivals")).collect()[0]["arrivals"] or 0
        entries = entries.where(~never_came).unionByName(whole)
    if suspected:
        of_queues = events().where(F.col("queue_id").isin(suspected))
        acked = fold(contributions(of_queues)).where(F.col("acked").isNotNull() & F.col("takes").isNull())
        extra = acked.join(entries.select(*KEYS), list(KEYS), "left_anti").localCheckpoint()
        count -= extra.agg(F.sum(arrivals()).alias("arrivals")).collect()[0]["arrivals"] or 0
        entries = entries.unionByName(extra)
    if asked.repeated or asked.unknown or suspected:
        found, _ = _judged(entries, None, queues, rules, shown)
    return found._replace(counts=found.counts | {"ok": found.counts["ok"] + count})


def _judged(
    entries: DataFrame, lowest: int | None, queues: DataFrame, rules: Rules, shown: int
) -> tuple[Verdicts, Asked]:
    """The verdicts on these entries, and how many of them are to be looked at again.

    Entries never came though some from `lowest` on did, or were delivered repeatedly.
    """
    seen = Observation()
    verdict = F.col("verdict")
    names = (*MEANINGS, *HARMLESS)
    counts = [F.count_if(verdict == name).alias(name) for name in names]
    unknown = F.count_if(_never_came(lowest)).alias("unknown")
    first = F.row_number().over(Window.partitionBy("verdict").orderBy("last_seq")) <= shown
    asked = Observation()
    repeated = F.count_if(_is_repeated()).alias("repeated")
    all_judged = judged(entries.observe(asked, unknown, repeated), queues, rules).observe(seen, *counts)
    findings = all_judged.where(verdict.isin(*MEANINGS)).withColumn("shown", first)
    rows = findings.where("shown").drop("shown").collect()
    told: dict[str, Any] = seen.get
    again = Asked(int(asked.get["unknown"]), int(asked.get["repeated"]))
    return Verdicts({name: int(told[name]) for name in names}, rows), again


def _suspected(unseen: DataFrame, queues: DataFrame) -> list[int]:
    """The queues that have acknowledged entries without a delivery while all deliveries were journaled."""
    found = unseen.join(F.broadcast(queues.select("queue_id", "full_from")), "queue_id")
    return [
        row["queue_id"] for row in found.where("last > full_from").select("queue_id").distinct().collect()
    ]


def _is_repeated() -> Column:
    return F.coalesce(F.col("takes") > 1, F.lit(False))


def _never_came(lowest: int | None) -> Column:
    """Whether an entry was not enqueued by these events, though some from its number on were, and settled."""
    if lowest is None:
        return F.lit(False)
    return (arrivals() == 0) & (F.col("msg_uid") >= lowest)
