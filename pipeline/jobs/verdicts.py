"""Verdicts: the fate of each entry of one node, as one word."""

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
    find_doubled,
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
"""The verdicts that are findings, and the meaning of each."""

HARMLESS: Final = {
    "lost_volatile": "was not persistent, and a restart ended it",
    "older": "was enqueued before these events begin",
    "unsure": "may have left its queue where the journal has a gap",
    "in_flight": "is in its queue",
    "ok": "left its queue once",
}
"""The verdicts that are no findings."""


class Rules(NamedTuple):
    """The parameters of verdicts. `now`: microseconds since 1970, the time of the audit.

    `age`: limit in seconds.
    """

    now: int
    age: float = 3600
    poison: int = 5


def add_verdicts(entries: DataFrame, queues: DataFrame, rules: Rules) -> DataFrame:
    """Return each row of the ledger with its queue and its `verdict`. `queues`: of `known_queues`."""
    seq = F.shiftright("last", 1)
    returned = F.coalesce("returned", F.lit(-1))
    joined = (
        entries.join(F.broadcast(queues), "queue_id", "left")
        .withColumn("last_seq", seq)
        .withColumn("unacked", F.coalesce(F.col("delivered") > returned, F.lit(False)))
        .withColumn("gone_at", _lost_at(seq))
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


def _lost_at(seq: Column) -> Column:
    """Return the seq of the first restart after the entry's last event that did not list the entry.

    If the last event is a recover, the next restart is the one that listed the entry.
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
    """Return whether a consumer acknowledged an entry that no consumer held, with no event missing since."""
    return _acked_free() & _without_gap(_free_since(), F.col("acked"))


def _acked_free() -> Column:
    """Return whether a consumer acknowledged an entry, and no event names a holder."""
    nobody = F.col("delivered").isNull() | (F.col("delivered") < _free_since())
    acked = F.col("acker").isNotNull() & (_free_since() < F.col("acked")) & nobody
    return F.coalesce(acked, F.lit(False))


def _free_since() -> Column:
    """Return the seq since when no consumer holds an entry, unless a later event gives it to one."""
    return F.greatest(F.coalesce("returned", F.lit(-1)), F.coalesce("placed", F.lit(-1)))


def _acked_by_another() -> Column:
    """Return whether another consumer than the last holder acknowledged an entry that was not returned."""
    returned = F.coalesce("returned", F.lit(-1))
    in_between = (returned < F.col("delivered")) & (F.col("delivered") < F.col("acked"))
    by_another = in_between & (F.col("acker") != F.col("holder"))
    return F.coalesce(by_another, F.lit(False)) & _without_gap(F.col("delivered"), F.col("acked"))


def _is_sure(start: str, end: str) -> Column:
    """Return whether both seqs exist, and no events are missing between them."""
    return F.col(start).isNotNull() & _without_gap(F.col(start), F.col(end))


def _without_gap(start: Column, end: Column) -> Column:
    return F.coalesce(~F.exists("gaps", lambda gap: (gap > start) & (gap < end)), F.lit(True))


def _covers(known: Column) -> Column:
    """Return whether all enqueues before an entry's first event are known."""
    begins = known["end"] < F.col("first")
    return begins & ~F.exists("gaps", lambda gap: (gap > known["start"]) & (gap < F.col("first")))


def _before_end(seq: Column) -> Column:
    """Return whether a seq is before the restart that ended an entry, if any."""
    return F.coalesce(seq < F.col("gone_at"), F.lit(True))


def _takes(each: Column) -> Column:
    """Return whether a range has removed an entry: a present one, and unheld unless the range is of all."""
    return (
        (each["at"] > F.col("last_seq"))
        & _before_end(each["at"])
        & (each["all"] | (~F.col("unacked") & F.col("qpos").between(each["first"], each["last"])))
    )


class SettledEntries(NamedTuple):
    """Entries that a digest has counted and left out. `lowest`: their least `msg_uid`; None: no entry.

    `unseen`: queue_id | last: of the entries that ended with an ack without a delivery, the queue and the
    last seq of their sum.
    """

    entries: int
    lowest: int | None
    unseen: DataFrame


class Suspects(NamedTuple):
    """Entries to check again: entries without an enqueue, and entries that were delivered repeatedly."""

    unknown: int
    repeated: int


class Verdicts(NamedTuple):
    """The result. `counts`: entries by verdict. `rows`: some findings of each verdict."""

    counts: dict[str, int]
    rows: list[Row]


def judge(
    lived: DataFrame,
    settled: SettledEntries,
    queues: DataFrame,
    rules: Rules,
    shown: int,
    events: Callable[[], DataFrame],
) -> Verdicts:
    """Judge the entries of a digest: those of the events `lived`, and the `settled`, which are ok.

    An entry with events but without an enqueue may have been settled earlier in another file: all `events`
    are searched for it. An entry that left its queue and entered again in another file counts twice. So do
    entries of duplicate files, which `holes` reports. An ack without a delivery where all deliveries are
    journaled is searched for too. `shown`: limit of rows of each finding.
    """
    entries = fold(contributions(lived))
    verdicts, asked = _judge_entries(entries, settled.lowest, queues, rules, shown)
    count = settled.entries
    suspected = _suspected(settled.unseen, queues)
    if asked.repeated:
        keys = entries.where(_is_repeated()).select(*KEYS)
        again = find_doubled(lived.join(keys, list(KEYS), "left_semi"))
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
        verdicts, _ = _judge_entries(entries, None, queues, rules, shown)
    return verdicts._replace(counts=verdicts.counts | {"ok": verdicts.counts["ok"] + count})


def _judge_entries(
    entries: DataFrame, lowest: int | None, queues: DataFrame, rules: Rules, shown: int
) -> tuple[Verdicts, Suspects]:
    """Return the verdicts on these entries, and the entries to check again.

    To check: entries that were not enqueued though some from `lowest` on were, or delivered repeatedly.
    """
    seen = Observation()
    verdict = F.col("verdict")
    names = (*MEANINGS, *HARMLESS)
    counts = [F.count_if(verdict == name).alias(name) for name in names]
    unknown = F.count_if(_never_came(lowest)).alias("unknown")
    first = F.row_number().over(Window.partitionBy("verdict").orderBy("last_seq")) <= shown
    asked = Observation()
    repeated = F.count_if(_is_repeated()).alias("repeated")
    all_judged = add_verdicts(entries.observe(asked, unknown, repeated), queues, rules).observe(seen, *counts)
    findings = all_judged.where(verdict.isin(*MEANINGS)).withColumn("shown", first)
    rows = findings.where("shown").drop("shown").collect()
    totals: dict[str, Any] = seen.get
    again = Suspects(int(asked.get["unknown"]), int(asked.get["repeated"]))
    return Verdicts({name: int(totals[name]) for name in names}, rows), again


def _suspected(unseen: DataFrame, queues: DataFrame) -> list[int]:
    """Return the queues with acknowledged entries without a delivery while all deliveries were journaled."""
    with_levels = unseen.join(F.broadcast(queues.select("queue_id", "full_from")), "queue_id")
    return [
        row["queue_id"]
        for row in with_levels.where("last > full_from").select("queue_id").distinct().collect()
    ]


def _is_repeated() -> Column:
    return F.coalesce(F.col("takes") > 1, F.lit(False))


def _never_came(lowest: int | None) -> Column:
    """Return whether these events lack an entry's enqueue, but settle entries from its number on."""
    if lowest is None:
        return F.lit(False)
    return (arrivals() == 0) & (F.col("msg_uid") >= lowest)
