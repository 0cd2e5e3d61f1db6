"""Plots as SVG that stands in a page: lines over time, in the page's own colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 1000
HEIGHT: Final = 250
LEFT: Final = 62
RIGHT: Final = 12
TOP: Final = 12
BOTTOM: Final = 28
STEPS: Final = (1, 2, 2.5, 5, 10)


class Line(NamedTuple):
    """A line: its name, the number of its colour in the page, and a value (or None) for each label."""

    name: str
    colour: int
    values: Sequence[float | None]


def plot(labels: Sequence[str], lines: Sequence[Line], shown: Callable[[float], str]) -> str:
    """A figure of lines with a legend. `shown`: how a value is written at the axis."""
    known = [value for line in lines for value in line.values if value is not None]
    if not known or not labels:
        return '<p class="empty">Nothing to plot.</p>'
    top = _round_up(max(known))
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" preserveAspectRatio="none">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(top * share, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown(top * share)}</text>'
        )
    parts += _times(labels)
    for line in lines:
        parts += _line(line, len(labels), top)
    parts.append("</svg>")
    legend = "".join(f'<span><i class="dot c{line.colour}"></i>{escape(line.name)}</span>' for line in lines)
    return f'<div class="legend">{legend}</div>' + "".join(parts)


def _line(line: Line, count: int, top: float) -> list[str]:
    """Strokes of a line, with a shade below it; None interrupts it."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_x(place, count), _y(value, top)))
    parts = []
    for run in filter(None, runs):
        if len(run) == 1:
            parts.append(f'<circle class="f{line.colour}" cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="3"/>')
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        floor = HEIGHT - BOTTOM
        shade = f"{run[0][0]:.1f},{floor} {points} {run[-1][0]:.1f},{floor}"
        parts.append(f'<polygon class="shade f{line.colour}" points="{shade}"/>')
        parts.append(f'<polyline class="stroke s{line.colour}" points="{points}"/>')
    return parts


def _times(labels: Sequence[str]) -> list[str]:
    every = max(1, -(-len(labels) // 8))
    return [
        f'<text class="axis" x="{_x(place, len(labels)):.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for place, label in enumerate(labels)
        if place % every == 0 and LEFT < _x(place, len(labels)) + 20 < WIDTH
    ]


def _x(place: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (place / (count - 1) if count > 1 else 0.5)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """The next number that is easy to read, and never 0."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return next(step * power for step in STEPS if step * power >= value)
