"""Plots as SVG within a page, and their common axis of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from math import ceil
from typing import Final, NamedTuple

from pipeline.jobs.audit import Audit

BUCKETS: Final = 96
TICKS: Final = 8
DAY: Final = 86_400
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

WIDTH: Final = 1000
HEIGHT: Final = 250
LEFT: Final = 140
RIGHT: Final = 12
TOP: Final = 12
BOTTOM: Final = 28
ROW: Final = 30
MARK: Final = 9
VALUE_STEPS: Final = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10)


class Axis(NamedTuple):
    """An axis of `buckets` of `width` seconds. `first`: start of the first one in microseconds since 1970."""

    first: int
    width: float
    buckets: int

    def time(self, place: float) -> datetime:
        """Return the time of a place; whole numbers are the starts of buckets."""
        return EPOCH + timedelta(microseconds=self.first + round(place * self.width * 1e6))

    def place(self, time: datetime) -> float:
        """Return the place of a time."""
        micros = (time - EPOCH) // timedelta(microseconds=1)
        return (micros - self.first) / 1e6 / self.width

    def ticks(self) -> list[tuple[float, str]]:
        """Return places of round times, at most TICKS, with their labels."""
        length = self.width * self.buckets
        step = next((each for each in STEPS if length / each <= TICKS), DAY * ceil(length / (DAY * TICKS)))
        at = -(-self.first // 1_000_000) // step * step
        ticks = []
        while (place := (at - self.first / 1e6) / self.width) < self.buckets:
            if place >= 0:
                ticks.append((place, _label(EPOCH + timedelta(seconds=at), step)))
            at += step
        return ticks


def axis_of(found: Audit) -> Axis | None:
    """Return BUCKETS buckets over the time of all events, or fewer of a second each; None without events."""
    if found.first is None or found.last is None:
        return None
    width = max(1.0, (found.last - found.first + 1) / 1e6 / BUCKETS)
    return Axis(found.first, width, int((found.last - found.first) / 1e6 / width) + 1)


def _label(time: datetime, step: int) -> str:
    if time.hour == time.minute == time.second == 0:
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M:%S}" if step < 60 else f"{time:%H:%M}"


class Line(NamedTuple):
    """A line: its name, the number of its colour in the page, and a value (or None) for each bucket."""

    name: str
    colour: int
    values: Sequence[float | None]


def plot(axis: Axis, lines: Sequence[Line], shown: Callable[[float], str]) -> str:
    """Return a figure of lines with a legend. `shown`: formats a value for the axis."""
    known = [value for line in lines for value in line.values if value is not None]
    if not known:
        return '<p class="empty">Nothing to plot.</p>'
    top = _round_up(max(known))
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(top * share, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, "end", shown(top * share)))
    parts += _times(axis, HEIGHT)
    for line in lines:
        parts += _line(line, axis.buckets, top, line is lines[0])
    parts.append("</svg>")
    legend = "".join(f'<span><i class="dot c{line.colour}"></i>{escape(line.name)}</span>' for line in lines)
    return f'<div class="legend">{legend}</div>' + "".join(parts)


def marks(axis: Axis, places: Mapping[str, Sequence[float]]) -> str:
    """Return a row of marks for each name, at their places on the axis."""
    height = TOP + ROW * len(places) + BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for row, (name, own) in enumerate(places.items()):
        y = TOP + ROW * (row + 0.5)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(LEFT - 8, y + 4, "end", name))
        strokes = (
            f"M{x:.1f} {y - MARK}v{2 * MARK}" for x in sorted(_x(place, axis.buckets) for place in own)
        )
        parts.append(f'<path class="mark" d="{"".join(strokes)}"/>')
    return "".join([*parts, *_times(axis, height), "</svg>"])


def _line(line: Line, count: int, top: float, is_shaded: bool) -> list[str]:
    """Return the strokes of a line, with a shade below it if wanted; None interrupts the line."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_x(place + 0.5, count), _y(value, top)))
    parts = []
    for run in filter(None, runs):
        if len(run) == 1:
            parts.append(f'<circle class="f{line.colour}" cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="3"/>')
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        floor = HEIGHT - BOTTOM
        shade = f"{run[0][0]:.1f},{floor} {points} {run[-1][0]:.1f},{floor}"
        if is_shaded:
            parts.append(f'<polygon class="shade f{line.colour}" points="{shade}"/>')
        parts.append(f'<polyline class="stroke s{line.colour}" points="{points}"/>')
    return parts


def _times(axis: Axis, height: float) -> list[str]:
    floor = height - BOTTOM
    parts = []
    for place, label in axis.ticks():
        x = _x(place, axis.buckets)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(_text(x, height - 8, "middle", label))
    return parts


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="axis" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _x(place: float, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * place / count


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """Return the next number that is easy to read, never 0."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return next(step * power for step in VALUE_STEPS if step * power >= value)
