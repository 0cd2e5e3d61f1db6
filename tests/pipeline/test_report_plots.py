"""Plots of a report: every mark is at its value."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from pipeline.report.plots import TICKS, Axis, Line, marks, plot

START = datetime(2026, 3, 4, 22, 10, 30, tzinfo=UTC)
FIRST = int(START.timestamp() * 1e6)


@pytest.mark.parametrize("width", [1.0, 7.3, 60.0, 900.0, 3600.0, 86_400.0, 1e7])
def test_ticks_are_few_round_times_in_order_and_within(width: float) -> None:
    axis = Axis(FIRST, width, 96)

    ticks = axis.ticks()

    places = [place for place, _ in ticks]
    assert 3 <= len(ticks) <= TICKS + 1
    assert places == sorted(places)
    assert all(0 <= place < 96 for place in places)
    assert all(axis.time(place).second % 5 == 0 for place in places)


def test_midnight_is_labelled_by_its_day() -> None:
    labels = [label for _, label in Axis(FIRST, 900.0, 96).ticks()]

    assert "5 Mar" in labels
    assert "03:00" in labels


def test_a_time_is_where_the_axis_says_it_is() -> None:
    axis = Axis(FIRST, 900.0, 96)

    assert axis.place(START + timedelta(seconds=1350)) == 1.5
    assert axis.time(1.5) == START + timedelta(seconds=1350)


def test_a_value_that_is_not_known_interrupts_its_line() -> None:
    drawn = plot(Axis(FIRST, 1.0, 5), [Line("in", 1, [1.0, 2.0, None, 4.0, 4.0])], "{:g}".format)

    assert drawn.count("<polyline") == 2
    assert ">4<" in drawn


def test_each_kind_has_its_row_of_marks() -> None:
    drawn = marks(Axis(FIRST, 1.0, 10), {"lost": [0.0, 10.0], "<poison>": [5.0]})

    xs = [[float(x) for x in re.findall(r"M([\d.]+)", path)] for path in re.findall(r'd="([^"]+)"', drawn)]
    assert [len(row) for row in xs] == [2, 1]
    assert xs[1][0] == pytest.approx(sum(xs[0]) / 2)
    assert "&lt;poison&gt;" in drawn
