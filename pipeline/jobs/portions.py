"""The audit in portions: unsettled entries are carried to the next portion, and recently settled ones."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.facts import activity, facts, known_queues
from pipeline.jobs.ledger import contributions, find_doubled, find_straddling, fold
from pipeline.jobs.verdicts import MEANINGS, Rules, add_verdicts


class Carried(NamedTuple):
    """The rows that a portion of one node leaves to the next portion.

    `entries`: rows of the ledger. `fact_rows`: facts, with the last checkpoint of each queue and reason.
    `queues`: the `activity` of each.
    """

    entries: DataFrame
    fact_rows: DataFrame
    queues: DataFrame


def fold_portion(events: DataFrame) -> Carried:
    """Fold a portion of events by itself."""
    rows = contributions(events).unionByName(find_doubled(events), allowMissingColumns=True)
    return Carried(fold(rows), _needed(facts(events)), activity(events))


def join_portions(before: Carried, new: Carried) -> Carried:
    """Join two adjacent portions, in either order."""
    entries = before.entries.unionByName(new.entries, allowMissingColumns=True)  # earlier rows lack columns
    return Carried(
        fold(entries.unionByName(find_straddling(entries), allowMissingColumns=True)),
        _needed(before.fact_rows.unionByName(new.fact_rows)),
        _by_queue(before.queues.unionByName(new.queues)),
    )


def queues_of(carried: Carried) -> DataFrame:
    """Return the facts of each queue after all events until now."""
    return known_queues(carried.queues, carried.fact_rows)


def verdicts_of(carried: Carried, rules: Rules) -> DataFrame:
    """Return the verdict on each entry after all events until now."""
    return add_verdicts(carried.entries, queues_of(carried), rules)


def is_over(now: int, grace: float) -> Column:
    """Return whether a row of `verdicts_of` is final: settled, without an event for `grace` seconds.

    The verdict stays: later events of the entry count as an orphan.
    """
    closed = F.col("verdict").isin(
        *("ok", "double_settled", "delivered_after_settle", "delivered_to_two", "settled_by_another"),
        *("settled_undelivered", "lost", "lost_volatile", "orphan", "older"),
    )
    return closed & (F.unix_micros("at") < F.lit(now - int(grace * 1e6)))


def findings(judged_rows: DataFrame) -> DataFrame:
    """Return the rows whose verdict is a finding."""
    return judged_rows.where(F.col("verdict").isin(*MEANINGS))


def _needed(fact_rows: DataFrame) -> DataFrame:
    is_checkpoint = F.col("op") == "checkpoint"
    rest = fact_rows.where(~is_checkpoint)
    keys = ("node", "queue_id", "reason")
    names = [name for name in fact_rows.columns if name not in keys]
    last = (
        fact_rows.where(is_checkpoint)
        .groupBy(*keys)
        .agg(*(F.max_by(name, "seq").alias(name) for name in names))
    )
    return rest.unionByName(last)


def _by_queue(active: DataFrame) -> DataFrame:
    return active.groupBy("node", "queue_id").agg(F.max("latest").alias("latest"))
