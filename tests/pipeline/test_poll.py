"""`pollIntervalMs`: how long a query that has read all there is lets the broker, or the journal, alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.connector.offsets import NOTHING, Partition, Place
from pipeline.journal.options import journal_options
from pipeline.journal.plan import Progress as JournalProgress
from pipeline.poll import PAUSE_MAX
from tests.pipeline.test_connector_plan import FakeSubscription, S, at, progress


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.slept.append(seconds)


class Watched(FakeSubscription):
    """A stream with five messages; `looks`: when it was looked at."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Partition(S, "a", 0, 5))
        self.clock = clock
        self.looks: list[float] = []

    def partitions(self, known: Mapping[Place, int] = NOTHING) -> list[Partition]:
        """Return the given partitions."""
        self.looks.append(self.clock.now)
        return super().partitions(known)


def waits(looks: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(looks)]


@pytest.mark.parametrize("poll_ms", [30, 100, 250, 4000])
def test_streams_are_looked_at_once_in_an_interval(monkeypatch: pytest.MonkeyPatch, poll_ms: int) -> None:
    clock = Clock()
    monkeypatch.setattr("pipeline.poll.time", clock)
    watched = Watched(clock)
    mine = progress(monkeypatch, watched, pollIntervalMs=poll_ms)
    assert mine.next_batch(at(0), None) == at(5)
    while len(watched.looks) < 5:
        assert mine.next_batch(at(5), None) == at(5)
    seconds = poll_ms / 1000
    assert waits(watched.looks) == pytest.approx([0, seconds, seconds, seconds]), "at once behind a batch"
    assert max(clock.slept) <= PAUSE_MAX, "a query that is stopped does not wait for all of it"


@pytest.mark.parametrize("poll_ms", [30, 100, 250, 4000])
def test_journals_are_looked_at_once_in_an_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poll_ms: int
) -> None:
    clock = Clock()
    looks: list[float] = []

    def ends(*_: object) -> dict[str, int]:
        looks.append(clock.now)
        return {"n": 5}

    monkeypatch.setattr("pipeline.poll.time", clock)
    monkeypatch.setattr("pipeline.journal.plan.find_ends", ends)
    reader_options = {"path": str(tmp_path), "pollIntervalMs": str(poll_ms)}
    mine = JournalProgress(journal_options(reader_options, streaming=True))
    assert mine.next_batch({"n": 1}, None) == {"n": 5}
    while len(looks) < 5:
        assert mine.next_batch({"n": 5}, None) == {"n": 5}
    seconds = poll_ms / 1000
    assert waits(looks) == pytest.approx([0, seconds, seconds, seconds]), "at once behind a batch"
    assert max(clock.slept) <= PAUSE_MAX, "a query that is stopped does not wait for all of it"
