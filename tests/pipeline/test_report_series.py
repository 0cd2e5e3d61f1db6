"""The numbers of a report equal its journal's: in its series, in its plots, and in its page."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs.audit import SHOWN, Audit
from pipeline.report.figures import SAMPLE, compute_series, figures, share_of
from pipeline.report.page import page
from pipeline.report.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, axis_of
from tests.pipeline.frames import WHEN, frame
from tests.pipeline.test_jobs import done
from tests.pipeline.test_order import QUEUE, deliver, enqueue
from tests.pipeline.test_since import write

pytestmark = pytest.mark.spark

Event = dict[str, Any]
Point = dict[str, float | None]
FIRST = int(WHEN.timestamp() * 1e6)
LENGTH_US = 192_000_000
"""So long that the 96 buckets have two seconds each."""
NOTHING: Point = {
    "in": 0.0,
    "out": 0.0,
    "delivered": 0.0,
    "redelivered": None,
    "p50": None,
    "p95": None,
    "p99": None,
}


def at(micros: int, *events: Event) -> list[Event]:
    return [event | {"ts": WHEN + timedelta(microseconds=micros)} for event in events]


def left(uid: int, op: str = "ack") -> Event:
    return QUEUE | {"op": op, "msg_uid": uid}


def numbered(events: list[Event]) -> list[Event]:
    return [event | {"seq": seq} for seq, event in enumerate(events, 1)]


def found(last: int = LENGTH_US - 1, entries: int = 4, **kinds: list[Event]) -> Audit:
    """Return an audit's result; `kinds`: its findings."""
    findings = {kind: len(rows) for kind, rows in kinds.items()}
    return Audit(14, FIRST, FIRST + last, entries, findings, {"ok": entries}, kinds, {})


EVENTS = numbered(
    [
        *at(0, QUEUE | {"op": "declare", "quantity": 0, "reason": "full"}, *map(enqueue, range(3))),
        *at(1_999_999, enqueue(3), deliver(0), deliver(1), deliver(2)),
        *at(2_000_000, left(0), left(1, "requeue"), deliver(1, redelivered=True)),
        *at(5_000_000, left(1), left(2, "expire")),
        *at(LENGTH_US - 1, deliver(3)),
    ]
)
"""Messages 0 to 2 are in the queue for 2, 5 and 5 seconds, and 3 is there still; 1 is delivered twice."""


def test_rates_times_and_redeliveries_are_in_the_buckets_where_they_were(spark: SparkSession) -> None:
    points = compute_series(found(), frame(spark, EVENTS))

    assert len(points) == 96
    assert {place: point for place, point in enumerate(points) if point != NOTHING} == {
        0: {
            "in": 2.0,
            "out": 0.0,
            "delivered": 1.5,
            "redelivered": 0.0,
            "p50": 5.0,
            "p95": 5.0,
            "p99": 5.0,
        },
        1: NOTHING | {"out": 0.5, "delivered": 0.5, "redelivered": 1.0},
        2: NOTHING | {"out": 1.0},
        95: NOTHING | {"delivered": 0.5, "redelivered": 0.0},
    }


def test_quantiles_cover_the_events_of_their_bucket(spark: SparkSession) -> None:
    events = at(0, *map(enqueue, range(100)))
    for uid in range(100):
        events += at((uid + 1) * 500_000, left(uid))
    twice = at(1_500_000, enqueue(200)) + at(1_600_000, enqueue(200) | {"queue_id": 2})
    twice += at(1_700_000, left(200) | {"queue_id": 2})

    in_time = sorted([*events, *twice], key=lambda event: event["ts"])
    points = compute_series(found(50_000_000), frame(spark, numbered(in_time)))

    assert [points[0][name] for name in ("p50", "p95", "p99")] == [25.0, 47.5, 49.5]
    assert [points[1][name] for name in ("in", "p50", "p99")] == [2.0, 0.1, 0.1]


def test_a_sample_gives_times_and_all_messages_give_rates(spark: SparkSession) -> None:
    events: list[Event] = []
    for uid in range(48):
        events += at(uid * 4_000_000, enqueue(uid), left(uid))

    points = compute_series(found(entries=4 * SAMPLE), frame(spark, numbered(events)))

    assert [point["in"] for point in points] == [0.5, 0.0] * 48
    assert 0 < sum(point["p50"] == 0 for point in points) < 36


@pytest.mark.parametrize(
    ("entries", "share"), [(0, 1), (2 * SAMPLE - 1, 1), (2 * SAMPLE, 2), (SAMPLE * 50, 50)]
)
def test_the_share_of_messages_looked_at(entries: int, share: int) -> None:
    assert share_of(found(entries=entries)) == share


@pytest.mark.parametrize(
    ("last", "width", "buckets"),
    [
        (0, 1.0, 1),
        (999_999, 1.0, 1),
        (1_000_000, 1.0, 2),
        (LENGTH_US - 1, 2.0, 96),
        (2 * LENGTH_US - 1, 4.0, 96),
    ],
)
def test_buckets_take_all_of_the_time(last: int, width: float, buckets: int) -> None:
    assert axis_of(found(last)) == Axis(FIRST, width, buckets)


def test_without_events_there_is_nothing_to_plot() -> None:
    none = found()._replace(first=None, last=None)

    assert axis_of(none) is None
    assert "<svg" not in page(none, [])


def drawn(html: str, title: str) -> ET.Element:
    """The figure with this title."""
    (one,) = re.findall(rf"<figure><h2>{title} <small>.*?</figure>", html)
    return ET.fromstring(one)


def lines(html: str, title: str) -> dict[str, list[float]]:
    """Return the values of a plot's lines by their names in the legend, read off at the axis."""
    figure = drawn(html, title)
    top = float((figure.findall(".//text[@text-anchor='end']")[-1].text or "").split()[0])
    found: dict[str, list[float]] = {}
    for dot in figure.findall(".//span/i"):
        colour = dot.get("class", "").removeprefix("dot c")
        (line,) = figure.findall(f".//polyline[@class='stroke s{colour}']")
        ys = [float(pair.split(",")[1]) for pair in line.get("points", "").split()]
        found[dot.tail or ""] = [top * (1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)) for y in ys]
    return found


def test_each_line_of_a_plot_has_the_values_of_its_name() -> None:
    first: Point = {"in": 10, "delivered": 6, "out": 2, "redelivered": 0.25}
    first |= {"p50": 20, "p95": 90, "p99": 120}
    points: list[Point] = [first, {name: 0.5 * (value or 0) for name, value in first.items()}]

    html = figures(found(1_999_999), Axis(FIRST, 1.0, 2), points)

    assert lines(html, "Messages a second") == {
        "in": pytest.approx([10, 5], abs=0.1),
        "delivered": pytest.approx([6, 3], abs=0.1),
        "out": pytest.approx([2, 1], abs=0.1),
    }
    assert lines(html, "Time in the queue") == {
        "99 of 100 within": pytest.approx([2, 1], abs=0.02),  # minutes
        "95 of 100": pytest.approx([1.5, 0.75], abs=0.02),
        "half": pytest.approx([1 / 3, 1 / 6], abs=0.02),
    }
    assert lines(html, "Redeliveries") == {
        "share of deliveries that are not the first": pytest.approx([25, 12.5], abs=0.2)
    }


def test_findings_are_marked_where_they_were() -> None:
    twice: list[Event] = [{"at": WHEN + timedelta(seconds=second)} for second in (48, 144)]
    counted = found(double_settled=twice, poison=[{"at": None}, {"at": WHEN}], hole=[{"before": 7}])

    figure = drawn(figures(counted, Axis(FIRST, 2.0, 96), [NOTHING] * 96), "Findings")

    names = [each.text for each in figure.findall(".//text[@text-anchor='end']")]
    marks = [re.findall(r"M([\d.]+)", each.get("d", "")) for each in figure.findall(".//path")]
    quarter = (WIDTH - LEFT - RIGHT) / 4
    assert names == ["double settled", "poison"]
    assert [[float(x) for x in each] for each in marks] == [[LEFT + quarter, LEFT + 3 * quarter], [LEFT]]


def test_the_report_names_the_shown_part() -> None:
    axis = Axis(FIRST, 2.0, 96)
    many = found(entries=3 * SAMPLE, lost=[{"at": WHEN}])._replace(findings={"lost": SHOWN + 1})

    html = figures(many, axis, [NOTHING] * 96)

    assert drawn(html, "Findings").find("h2/small").text == "the first 1,000 of a kind"  # type: ignore[union-attr]
    assert "<small>one message in 3</small>" in html
    assert "<small>" not in figures(found(lost=[{"at": WHEN}]), axis, [NOTHING] * 96).replace(
        "<small></small>", ""
    )


def test_the_report_of_an_audit_has_its_numbers(spark: SparkSession, tmp_path: Path) -> None:
    events = numbered([*EVENTS, *at(LENGTH_US - 1, left(0))])
    write(tmp_path / "journal" / "1.parquet", *events)
    report = tmp_path / "audit.html"

    _, summary = done(spark, tmp_path / "journal", "audit", "--report", str(report))

    html = report.read_text()
    assert summary["findings"]["double_settled"] == 1
    assert f"<h1>1 finding</h1><p>{len(events)} events of 4 messages in queues. 2026-01-01 00:00 to" in html
    assert '<a class="card bad" href="#double_settled"><b>1</b><span>double settled</span></a>' in html
    assert '<a class="card good"><b>0</b><span>lost</span></a>' in html
    assert "<td>ok</td><td>2</td>" in html
    assert lines(html, "Messages a second")["in"][:2] == pytest.approx([2, 0], abs=0.02)
    assert drawn(html, "Time in the queue").findall(".//circle[@class='f1']")
