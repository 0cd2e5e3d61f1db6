"""The figures of a page, bucket by bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.audit import SHOWN, Audit
from pipeline.jobs.statistics import ACCURACY
from pipeline.journal.schema import LEAVING
from pipeline.report.plots import Axis, Line, axis_of, marks, plot

SAMPLE: Final = 200_000


def compute_series(found: Audit, events: DataFrame) -> list[dict[str, float | None]]:
    """Return rows for the buckets of `Axis`, one after the other.

    in, out, delivered: per second | redelivered: share of deliveries, or None | p50, p95, p99: seconds in the
    queue of messages enqueued then, or None; of one message in `share_of` only.
    """
    axis = axis_of(found)
    if axis is None:
        return []
    first, width = axis.first, axis.width

    def bucket(micros: Column) -> Column:
        return F.floor((micros - F.lit(first)) / F.lit(width * 1e6)).alias("bucket")

    op, micros = F.col("op"), F.unix_micros("ts")
    rates = events.groupBy(bucket(micros)).agg(
        F.count_if(op == "enqueue").alias("came"),
        F.count_if(op.isin(*LEAVING)).alias("left"),
        F.count_if(op == "deliver").alias("delivered"),
        F.count_if((op == "deliver") & F.coalesce("redelivered", F.lit(False))).alias("again"),
    )
    quantiles = F.percentile_approx("in_queue", [0.5, 0.95, 0.99], ACCURACY).alias("quantiles")
    some = events.where(F.pmod(F.xxhash64("msg_uid"), F.lit(share_of(found))) == 0)
    times = _stays(some).groupBy(bucket(F.col("came"))).agg(quantiles)
    rows = {row["bucket"]: row.asDict() for row in rates.collect()}
    by_bucket = {row["bucket"]: row["quantiles"] for row in times.collect()}
    return [_point(rows.get(at), by_bucket.get(at), width) for at in range(axis.buckets)]


def share_of(found: Audit) -> int:
    """Return n if the time in the queue is sampled from 1 message in n, enough for its quantiles."""
    return max(1, found.entries // SAMPLE)


def _stays(events: DataFrame) -> DataFrame:
    """Return node | queue_id | msg_uid | came: microseconds since 1970 | in_queue: seconds, or null."""
    op, micros = F.col("op"), F.unix_micros("ts")
    came = F.min(F.when(op == "enqueue", micros)).alias("came")
    left = F.min(F.when(op.isin(*LEAVING), micros)).alias("left")
    return (
        events.where(F.col("queue_id").isNotNull() & F.col("msg_uid").isNotNull())
        .groupBy("node", "queue_id", "msg_uid")
        .agg(came, left)
        .where(F.col("came").isNotNull())
        .withColumn("in_queue", (F.col("left") - F.col("came")) / 1e6)
    )


def _point(
    row: Mapping[str, int] | None, quantiles: Sequence[float] | None, width: float
) -> dict[str, float | None]:
    sums = row or dict.fromkeys(("came", "left", "delivered", "again"), 0)
    times = quantiles or (None, None, None)
    return {
        "in": sums["came"] / width,
        "out": sums["left"] / width,
        "delivered": sums["delivered"] / width,
        "redelivered": sums["again"] / sums["delivered"] if sums["delivered"] else None,
        "p50": times[0],
        "p95": times[1],
        "p99": times[2],
    }


def figures(found: Audit, axis: Axis, points: Sequence[Mapping[str, float | None]]) -> str:
    """Return the figures: times of findings, times in queues, and rates."""

    def line(name: str, colour: int, key: str) -> Line:
        return Line(name, colour, [point[key] for point in points])

    share = share_of(found)
    waits = [line("99 of 100 within", 3, "p99"), line("95 of 100", 2, "p95"), line("half", 1, "p50")]
    rates = [line("in", 1, "in"), line("delivered", 4, "delivered"), line("out", 2, "out")]
    again = [line("share of deliveries that are not the first", 3, "redelivered")]
    shown = [
        ("Time in the queue", f"one message in {share}" if share > 1 else "", plot(axis, waits, _seconds)),
        ("Messages a second", "", plot(axis, rates, _number)),
        ("Redeliveries", "", plot(axis, again, lambda value: f"{_number(value * 100)} %")),
    ]
    if places := _places(found, axis):
        note = f"the first {SHOWN:,} of a kind" if max(found.findings.values()) > SHOWN else ""
        shown.insert(0, ("Findings", note, marks(axis, places)))
    parts = [
        f"<figure><h2>{title} <small>{note}</small></h2>{drawn}</figure>" for title, note, drawn in shown
    ]
    return f'<section class="plots">{"".join(parts)}</section>'


def _places(found: Audit, axis: Axis) -> dict[str, list[float]]:
    """Return the times of findings, by kind: the last event of a message, or the time in the finding."""
    places: dict[str, list[float]] = {}
    for kind in found.findings:
        if times := [row["at"] for row in found.rows.get(kind, []) if isinstance(row.get("at"), datetime)]:
            places[kind.replace("_", " ")] = [axis.place(time) for time in times]
    return places


def _seconds(value: float) -> str:
    if value >= 3600:
        return f"{value / 3600:.3g} h"
    if value >= 60:
        return f"{value / 60:.3g} min"
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
