"""Verdicts: what has become of each entry of one node, as one word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Row

from pipeline.jobs.ledger import (
    FEW_KEYS,
    PERSISTENT,
    arrivals,
    contributions,
    departures,
    doubled,
    fold,
    recoveries,
)
from pipeline.journal.schema import KEYS

MEANINGS: Final = {
    "orphan": "has events, but no event says that it was enqueued, though all were journaled",
    "double_settled": "left its queue more than once",
    "delivered_after_settle": "was delivered after it had left its queue",
    "delivered_to_two": "was delivered to a consumer while another one had it",
    "settled_by_another": "was acknowledged by another consumer, channel or connection than the delivery's",
    "settled_undelivered": "was acknowledged in a queue that had not delivered it",
    "poison": "was delivered again and again",
    "stuck_unacked": "is with a consumer for too long",
    "undelivered": "waits for too long and is with nobody",
    "lost": "was there before a restart, was persistent, and is not there after it",
}
"""The verdicts that are findings, and what each means."""

HARMLESS: Final = {
    "lost_volatile": "was not persistent, and a restart ended it",
    "older": "was enqueued before these events begin",
    "unsure": "may have left its queue where the journal has a gap",
    "in_flight": "is in its queue",
    "ok": "left its queue once",
}
"""The verdicts that are none."""


class Rules(NamedTuple):
    """`now`: microseconds since 1970, the time of the audit. `age`: seconds that are too long."""

    now: int
    age: float = 3600
    poison: int = 5


def judged(entries: DataFrame, queues: DataFrame, rules: Rules) -> DataFrame:
    """Each row of the ledger with its queue and its `verdict`. `queues`: of `known_queues`."""
    seq = F.shiftright("last", 1)
    returned = F.coalesce("returned", F.lit(-1))
    joined = (
        entries.join(F.broadcast(queues), "queue_id", "left")
        .withColumn("last_seq", seq)
        .withColumn("unacked", F.coalesce(F.col("delivered") > returned, F.lit(False)))
        .withColumn("gone_at", _gone_at(seq))
    )
    return joined.withColumn("verdict", _verdict(rules)).select(
        *KEYS,
        "vhost",
        "queue",
        "verdict",
        F.coalesce("deliveries", F.lit(0)).alias("deliveries"),
        "last_seq",
        F.timestamp_micros("at").alias("at"),
    )


def _gone_at(seq: Column) -> Column:
    """The seq of the first restart after the entry's last event that did not list it.

    If its last event is a recover, the restart just after that is the one that listed it.
    """
    later = F.filter("restarts", lambda each: each > seq)
    return F.get(later, F.col("last").bitwiseAND(1).cast("int"))


def _verdict(rules: Rules) -> Column:
    came, left, again = arrivals(), departures(), recoveries()
    ended = F.coalesce("ended", F.lit(-1))
    revived = F.coalesce(F.col("recovered") > F.col("settled"), F.lit(False))
    may_leave = came + F.when(revived | (came == 0), again).otherwise(F.lit(0))
    is_open = ended < F.coalesce("placed", F.lit(-1))
    after_end = ~is_open & F.coalesce(F.col("delivered") > ended, F.lit(False)) & (left > 0)
    old = F.col("at") < F.lit(rules.now - int(rules.age * 1e6))
    persistent = F.coalesce(F.col("flags").bitwiseAND(PERSISTENT) > 0, F.lit(False))
    gone = F.col("gone_at").isNotNull()
    full = F.coalesce(F.col("placed") > F.col("full_from"), F.lit(False))
    never_came = (came + again) == 0
    complete = F.exists("known", _covers)
    undelivered = _acked_undelivered()
    elsewhere = never_came & complete & _acked_free() & (F.col("first") > F.col("full_from"))
    return (
        F.when(elsewhere, "settled_undelivered")
        .when(never_came, F.when(complete, "orphan").otherwise("older"))
        .when(left > may_leave, "double_settled")
        .when(after_end, "delivered_after_settle")
        .when(_is_sure("doubled_from", "doubled_to"), "delivered_to_two")
        .when(_acked_by_another(), "settled_by_another")
        .when(full & undelivered, "settled_undelivered")
        .when(F.coalesce(F.col("deliveries") >= rules.poison, F.lit(False)), "poison")
        .when(~is_open | F.exists("ranges", _takes), "ok")
        .when(F.exists("gaps", lambda gap: (gap > F.col("last_seq")) & _before_end(gap)), "unsure")
        .when(gone & persistent, "lost")
        .when(gone, "lost_volatile")
        .when(full & F.col("unacked") & old, "stuck_unacked")
        .when(full & old, "undelivered")
        .otherwise("in_flight")
    )


def _acked_undelivered() -> Column:
    """Whether nobody had an entry when it was acknowledged by somebody, and no event is missing since."""
    return _acked_free() & _without_gap(_free_since(), F.col("acked"))


def _acked_free() -> Column:
    """Whether an entry was acknowledged by somebody, and no event says that anybody had it."""
    nobody = F.col("delivered").isNull() | (F.col("delivered") < _free_since())
    told = F.col("acker").isNotNull() & (_free_since() < F.col("acked")) & nobody
    return F.coalesce(told, F.lit(False))


def _free_since() -> Column:
    """The seq since when nobody has an entry who has not got it by a later event."""
    return F.greatest(F.coalesce("returned", F.lit(-1)), F.coalesce("placed", F.lit(-1)))


def _acked_by_another() -> Column:
    """Whether another one than the last holder acknowledged an entry, which had not come back."""
    returned = F.coalesce("returned", F.lit(-1))
    in_between = (returned < F.col("delivered")) & (F.col("delivered") < F.col("acked"))
    told = in_between & (F.col("acker") != F.col("holder"))
    return F.coalesce(told, F.lit(False)) & _without_gap(F.col("delivered"), F.col("acked"))


def _is_sure(start: str, end: str) -> Column:
    """Whether there are these two seqs, and no events are missing between them."""
    return F.col(start).isNotNull() & _without_gap(F.col(start), F.col(end))


def _without_gap(start: Column, end: Column) -> Column:
    return F.coalesce(~F.exists("gaps", lambda gap: (gap > start) & (gap < end)), F.lit(True))


def _covers(known: Column) -> Column:
    """Whether all that came into the queue before an entry's first event has been told."""
    begins = known["end"] < F.col("first")
    return begins & ~F.exists("gaps", lambda gap: (gap > known["start"]) & (gap < F.col("first")))


def _before_end(seq: Column) -> Column:
    """Whether something was before the restart that ended an entry, if one did."""
    return F.coalesce(seq < F.col("gone_at"), F.lit(True))


def _takes(each: Column) -> Column:
    """Whether a range has taken an entry: it was there, and with no consumer unless all were taken."""
    return (
        (each["at"] > F.col("last_seq"))
        & _before_end(each["at"])
        & (each["all"] | (~F.col("unacked") & F.col("qpos").between(each["first"], each["last"])))
    )


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
