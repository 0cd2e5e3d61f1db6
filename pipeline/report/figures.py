"""The plots of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pipeline.jobs.audit import SHOWN, Audit
from pipeline.report.axis import Axis
from pipeline.report.plots import Line, marks, plot
from pipeline.report.series import share_of


def figures(found: Audit, axis: Axis, points: Sequence[Mapping[str, float | None]]) -> str:
    """When what was found was, how long messages were in queues, and how many came and went."""

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
    """Where findings are, by kind: when the last was heard of a message, or when it shows otherwise."""
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
