"""What has become of each entry, as one word."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.ledger import PERSISTENT, arrivals, departures, recoveries
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
