"""The audit as one HTML file that needs nothing else: what was found, what it means, and how it went."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.audit import OTHER_MEANINGS, Audit
from pipeline.jobs.latency import ACCURACY
from pipeline.jobs.verdicts import HARMLESS, MEANINGS
from pipeline.journal.schema import LEAVING
from pipeline.report.plots import Line, plot
from pipeline.report.style import STYLE

BUCKETS: Final = 96
SAMPLE: Final = 200_000
ROWS_OF_KIND: Final = 20
ALL_MEANINGS: Final = MEANINGS | OTHER_MEANINGS


def write_report(path: Path, found: Audit, events: DataFrame) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(page(found, series(found, events)), encoding="utf-8")
    temporary.replace(path)


def series(found: Audit, events: DataFrame) -> list[dict[str, Any]]:
    """At most BUCKETS rows over the time of the events that were audited.

    start | label | in, out, delivered: per second | redelivered: share of deliveries, or None
    | p50, p95, p99: seconds in the queue of what came then, or None; of one message in `share_of` only.
    """
    first, last = found.first, found.last
    if first is None or last is None:
        return []
    width = max(1.0, (last - first + 1) / 1e6 / BUCKETS)

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
    return [_point(rows[at] | {"quantiles": by_bucket.get(at)}, first, width) for at in sorted(rows)]


def share_of(found: Audit) -> int:
    """Of so many messages one is looked at for the time in the queue, which is enough for its quantiles."""
    return max(1, found.entries // SAMPLE)


def _stays(events: DataFrame) -> DataFrame:
    """Node | queue_id | msg_uid | came: microseconds since 1970 | in_queue: seconds, or null."""
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


def _point(row: Mapping[str, Any], first: int, width: float) -> dict[str, Any]:
    start = datetime.fromtimestamp(first / 1e6 + row["bucket"] * width, UTC)
    quantiles: Sequence[float | None] = row["quantiles"] or (None, None, None)
    return {
        "start": start,
        "label": f"{start:%H:%M}",
        "in": row["came"] / width,
        "out": row["left"] / width,
        "delivered": row["delivered"] / width,
        "redelivered": row["again"] / row["delivered"] if row["delivered"] else None,
        "p50": quantiles[0],
        "p95": quantiles[1],
        "p99": quantiles[2],
    }


def page(found: Audit, points: Sequence[Mapping[str, Any]]) -> str:
    """The page."""
    total = sum(found.findings.values())
    word = "Nothing is amiss" if found.clean else f"{total:,} finding{'s' if total > 1 else ''}"
    ends = [f"{point['start']:%Y-%m-%d %H:%M}" for point in (*points[:1], *points[-1:])]
    time = f"{' to '.join(ends)} UTC." if ends else ""
    state = "clean" if found.clean else "found"
    body = [
        f'<header class="{state}"><p class="over">amqpd · audit of a journal</p>',
        f"<h1>{word}</h1><p>{found.events:,} events of {found.entries:,} messages in queues. "
        f"{time}</p></header>",
        _cards(found),
        _notes(found),
        _plots(points, share_of(found)),
        *(_table(kind, found) for kind in ALL_MEANINGS if found.findings.get(kind)),
        _harmless(found),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit: '
        f'{word}</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _cards(found: Audit) -> str:
    cards = []
    for kind in ALL_MEANINGS:
        count = found.findings.get(kind, 0)
        state = "bad" if count else "unknown" if kind in found.not_judged else "good"
        number = "?" if state == "unknown" else f"{count:,}"
        link = f' href="#{kind}"' if count else ""
        cards.append(f'<a class="card {state}"{link}><b>{number}</b><span>{_words(kind)}</span></a>')
    return f'<section class="cards">{"".join(cards)}</section>'


def _notes(found: Audit) -> str:
    if not found.not_judged:
        return ""
    kinds = ", ".join(_words(kind) for kind in found.not_judged)
    reason = escape(next(iter(found.not_judged.values())))
    return f'<p class="note">Could not be looked for: {kinds}; {reason}.</p>'


def _plots(points: Sequence[Mapping[str, Any]], share: int) -> str:
    labels = [point["label"] for point in points]

    def line(name: str, colour: int, key: str) -> Line:
        return Line(name, colour, [point[key] for point in points])

    waits = [line("99 of 100 within", 3, "p99"), line("95 of 100", 2, "p95"), line("half", 1, "p50")]
    rates = [line("in", 1, "in"), line("delivered", 4, "delivered"), line("out", 2, "out")]
    again = [line("share of deliveries that are not the first", 3, "redelivered")]
    figures = (
        ("Time in the queue", waits, _seconds, f"one message in {share}" if share > 1 else ""),
        ("Messages a second", rates, lambda value: f"{value:,.4g}", ""),
        ("Redeliveries", again, lambda value: f"{value:.2%}", ""),
    )
    shown = [
        f"<figure><h2>{title} <small>{note}</small></h2>{plot(labels, lines, form)}</figure>"
        for title, lines, form, note in figures
    ]
    return f'<section class="plots">{"".join(shown)}</section>'


def _table(kind: str, found: Audit) -> str:
    rows = found.rows.get(kind, [])[:ROWS_OF_KIND]
    names = [name for name in (rows[0] if rows else {}) if name not in ("verdict", "queue_id")]
    head = "".join(f"<th>{_words(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(_cell(row[name]) for name in names)}</tr>" for row in rows)
    count = found.findings[kind]
    more = f'<p class="more">and {count - len(rows):,} more</p>' if count > len(rows) else ""
    return (
        f'<section id="{kind}" class="finding"><h2>{_words(kind)} <em>{count:,}</em></h2>'
        f"<p>{_meaning(kind)}</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{more}'
        "</section>"
    )


def _meaning(kind: str) -> str:
    subject = "A message " if kind in MEANINGS else ""
    text = f"{subject}{ALL_MEANINGS[kind]}."
    return text[0].upper() + text[1:]


def _harmless(found: Audit) -> str:
    lines = "".join(
        f"<tr><td>{_words(kind)}</td><td>{found.others.get(kind, 0):,}</td><td>{text}</td></tr>"
        for kind, text in HARMLESS.items()
    )
    table = f'<div class="scroll"><table><tbody>{lines}</tbody></table></div>'
    return f"<section><h2>Everything else</h2>{table}</section>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    text = f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value)
    return f'<td class="{"number" if isinstance(value, int) else "text"}">{escape(text)}</td>'


def _words(kind: str) -> str:
    return escape(kind.replace("_", " "))


def _seconds(value: float) -> str:
    if value >= 3600:
        return f"{value / 3600:.3g} h"
    if value >= 60:
        return f"{value / 60:.3g} min"
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
