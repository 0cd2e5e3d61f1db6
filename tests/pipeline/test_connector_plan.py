"""Beginnings and ends of batches, whatever happens to the read streams; partitions are fakes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import NOTHING, Offsets, Partition, Place
from pipeline.connector.options import source_options
from pipeline.connector.plan import Progress
from pipeline.connector.server import RefusedError
from pipeline.connector.streams import DataLossError, Streams

S = Place("s", 0)
Q = Place("q", 0)
EVERY_S = 1_000_000_000  # a message of S each second, from 1970 on: its offset


class FakeSubscription:
    """A subscription to streams that are as is said, and to queues with so many messages."""

    def __init__(self, *partitions: Partition) -> None:
        self.there = {each.place: each for each in partitions}
        self.streams = self
        self.queues: list[Queue] = []

    def partitions(self, known: Mapping[Place, int] = NOTHING) -> list[Partition]:
        """Return the given partitions."""
        self.known = known
        return list(self.there.values())

    def at_time(self, place: Place, time: int) -> int:
        """Return the offset of a time, with a message each second."""
        return min(time // 1_000_000, self.there[place].next)

    def reach(self, place: Place, start: int, size: int) -> int:
        """Return the end of `size` bytes, with a byte for each message."""
        if start < self.there[place].first:
            raise RefusedError(410, f"begins with offset {self.there[place].first}, not with {start}")
        return start + size

    def keep(self, reader: str, offsets: Offsets) -> None:
        """Keep offsets of the only reader."""
        for place, each in self.there.items():
            self.there[place] = each._replace(kept=offsets.positions[place])


class Queue:
    """A queue with so many messages."""

    def __init__(self, place: Place, rows: int) -> None:
        self.place = place
        self.rows = rows
        self.next = 0
        self.asked: list[tuple[int, int | None]] = []

    def partition(self) -> Partition:
        """Return the staged partition."""
        return Partition(self.place, "i", 0, self.next)

    def whole(self) -> Partition:
        """Return the whole partition."""
        return Partition(self.place, "i", 0, self.rows)

    def acknowledge(self, start: int) -> None:
        """Do nothing."""

    def advance(self, start: int, rows: int, size: int | None) -> int:
        """Stage as many rows as requested."""
        self.asked.append((rows, size))
        self.next = max(self.next, min(start + rows, self.rows))
        return self.next


def progress(monkeypatch: pytest.MonkeyPatch, fake: FakeSubscription, **options: object) -> Progress:
    given = {"url": "amqp://h", "subscribe": "s", "pollIntervalMs": 1}
    texts = {name: str(value) for name, value in (given | options).items()}
    monkeypatch.setattr("pipeline.connector.plan.Subscription", lambda _: fake)
    return Progress(source_options(texts, streaming=True))


def at(offset: int, incarnation: str = "a") -> dict[str, Any]:
    """Return the checkpoint of S at an offset."""
    return {"v": 1, "q": {"s": {"0": offset}}, "id": {"s": {"0": incarnation}}}


def ranges(mine: Progress, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each.incarnation, each.start, each.end) for each in (s.wanted for s in mine.slices(start, end))]


@pytest.mark.parametrize("there", [900, 1000, 1010, 5000])
def test_a_stream_that_was_declared_again_is_read_from_its_beginning_once(
    monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    subscription = FakeSubscription(Partition(S, "b", 5, 5 + there))
    mine = progress(monkeypatch, subscription, failOnDataLoss="false")
    first = mine.next_batch(at(1000), 400)
    assert (first, ranges(mine, at(1000), first)) == (at(405, "b"), [("b", 5, 405)])
    second = mine.next_batch(first, 400)
    assert (second, ranges(mine, first, second)) == (at(805, "b"), [("b", 405, 805)])
    with pytest.raises(DataLossError, match="partition 0 of 's' was deleted and declared again"):
        progress(monkeypatch, subscription).next_batch(at(1000), 400)


def test_an_empty_stream_that_was_declared_again_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = progress(monkeypatch, FakeSubscription(Partition(S, "b", 0, 0)), failOnDataLoss="false")
    first = mine.next_batch(at(1000), None)
    assert (first, ranges(mine, at(1000), first)) == (at(0, "b"), [])
    caplog.clear()
    assert mine.next_batch(first, None) == first
    assert caplog.records == []


def test_a_planned_batch_has_nothing_of_a_stream_that_was_declared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = progress(monkeypatch, FakeSubscription(Partition(S, "b", 0, 50)), failOnDataLoss="false")
    assert ranges(mine, at(0), at(30)) == []
    assert mine.next_batch(at(30), None) == at(50, "b"), "which has all of it instead"


def test_a_stream_declared_again_has_none_of_the_old_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 100))
    mine = progress(monkeypatch, subscription, failOnDataLoss="false")
    mine.fix_end()
    subscription.there[S] = Partition(S, "b", 0, 50)
    assert mine.next_batch(at(60), None) == at(0, "b")
    assert mine.next_batch(at(0, "b"), None) == at(0, "b")


def test_a_stream_that_ends_before_the_last_read_row_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 900))
    with pytest.raises(DataLossError, match="partition 0 of 's' ends before offset 900, not 1000"):
        progress(monkeypatch, subscription).next_batch(at(1000), None)
    mine = progress(monkeypatch, subscription, failOnDataLoss="false")
    assert mine.next_batch(at(1000), None) == at(900)
    assert subscription.known == {S: 1000}


@pytest.mark.parametrize("fail_on_loss", ["true", "false"])
def test_an_offset_that_is_asked_for_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, fail_on_loss: str
) -> None:
    t = Place("t", 0)
    subscription = FakeSubscription(Partition(S, "a", 0, 10), Partition(t, "a", 0, 10))
    first = {"s": {"0": 23}, "t": {"0": 0}}
    options = {"subscribe": "s,t", "startingOffsets": json.dumps(first), "failOnDataLoss": fail_on_loss}
    mine = progress(monkeypatch, subscription, **options)
    start = mine.initial().json()
    end = mine.next_batch(start, None)
    assert end["q"] == {"s": {"0": 23}, "t": {"0": 10}}
    assert ranges(mine, start, end) == [("a", 0, 10)]
    subscription.there[S] = Partition(S, "a", 0, 22)
    mine = progress(monkeypatch, subscription, **options)
    assert mine.next_batch(end, None) == end
    assert subscription.known == {t: 10}, "S has not come to where it begins, and nobody waits for that"
    subscription.there[S] = Partition(S, "a", 0, 30)
    assert ranges(mine, end, mine.next_batch(end, None)) == [("a", 23, 30)]


def test_a_stream_that_ends_before_what_was_read_behind_an_offset_that_was_asked_for_is_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"startingOffsets": '{"s": {"0": 23}}'}
    subscription = FakeSubscription(Partition(S, "a", 0, 10))
    with pytest.raises(DataLossError, match="ends before offset 10, not 40"):
        progress(monkeypatch, subscription, **options).next_batch(at(40), None)
    with pytest.raises(DataLossError, match="ends before offset 10, not 40"):
        progress(monkeypatch, subscription, **options).slices(at(23), at(40))


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"s": {"0": -1}}'},
        {"startingTimestamp": EVERY_S, "startingOffsetsByTimestampStrategy": "latest"},
        {"startingTimestamp": 1_200_000, "startingOffsetsByTimestampStrategy": "latest"},
        {
            "startingOffsetsByTimestamp": f'{{"s": {{"0": {EVERY_S}}}}}',
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ],
    ids=["word", "partition", "time", "time that has come", "time of a partition"],
)
def test_the_latest_is_the_same_for_a_reader_whose_first_batch_is_done_again(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 1000))
    first = progress(monkeypatch, subscription, readerName="r", **options)
    start = first.initial().json()
    subscription.there[S] = subscription.there[S]._replace(next=1500)
    assert first.next_batch(start, None) == at(1500)
    subscription.there[S] = subscription.there[S]._replace(next=1600)
    again = progress(monkeypatch, subscription, readerName="r", **options)
    assert ranges(again, again.initial().json(), at(1500)) == [("a", 1000, 1500)]
    assert again.next_batch(at(1500), None) == at(1600)
    assert ranges(again, at(1500), at(1600)) == [("a", 1500, 1600)]


@pytest.mark.parametrize(
    "option",
    [{"startingTimestamp": EVERY_S}, {"startingOffsetsByTimestamp": f'{{"s": {{"0": {EVERY_S}}}}}'}],
    ids=["of all", "of a partition"],
)
def test_nothing_is_read_from_before_a_time_although_a_reader_was_there(
    monkeypatch: pytest.MonkeyPatch, option: dict[str, object]
) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 1000, kept=100))
    options = {"readerName": "r", "startingOffsetsByTimestampStrategy": "latest"} | option
    mine = progress(monkeypatch, subscription, **options)
    assert mine.initial().json() == at(1000)
    subscription.there[S] = subscription.there[S]._replace(next=1010)
    assert ranges(mine, at(1000), mine.next_batch(at(1000), None)) == [("a", 1000, 1010)]


def test_rows_of_the_first_batch_that_retention_removes_are_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 1000))
    options = {"readerName": "r", "startingOffsets": "earliest"}
    first = progress(monkeypatch, subscription, **options)
    end = first.next_batch(first.initial().json(), None)
    subscription.there[S] = subscription.there[S]._replace(first=700)
    again = progress(monkeypatch, subscription, **options)
    with pytest.raises(DataLossError, match="begins with offset 700: the messages from 0 are lost"):
        again.slices(again.initial().json(), end)
    again = progress(monkeypatch, subscription, failOnDataLoss="false", **options)
    assert ranges(again, again.initial().json(), end) == [("a", 700, 1000)]


def test_a_first_batch_whose_beginning_is_not_known_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 1600))
    mine = progress(monkeypatch, subscription, startingOffsets="latest")
    start = mine.initial().json()
    with pytest.raises(DataLossError, match="not known, and this one would begin with 1600"):
        mine.slices(start, at(1500))
    caplog.set_level(logging.WARNING, "amqpd.pipeline")
    mine = progress(monkeypatch, subscription, startingOffsets="latest", failOnDataLoss="false")
    assert mine.slices(start, at(1500)) == []
    assert "whose beginning is not known" in caplog.text


def test_retention_behind_the_last_read_row_does_not_end_a_query_with_batches_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscription = FakeSubscription(Partition(S, "a", 700, 2000))
    mine = progress(monkeypatch, subscription, maxBytesPerTrigger=100, failOnDataLoss="false")
    end = mine.next_batch(at(100), None)
    assert (end, ranges(mine, at(100), end)) == (at(800), [("a", 700, 800)])
    with pytest.raises(DataLossError, match="begins with offset 700: the messages from 100 are lost"):
        progress(monkeypatch, subscription, maxBytesPerTrigger=100).next_batch(at(100), None)


def test_rows_that_retention_has_just_removed_have_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RefusedError(410, "begins with offset 700, not with 100")

    monkeypatch.setattr("pipeline.connector.server.Server.get", refuse)
    options = source_options({"url": "amqp://h", "subscribe": "s"}, streaming=True)
    assert Streams(options, ["s"]).reach(S, 100, 50) == 101


def test_queues_have_their_share_beside_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = FakeSubscription(Partition(S, "a", 0, 995_000))
    queue = Queue(Q, 5000)
    subscription.queues = [queue]
    mine = progress(monkeypatch, subscription, subscribe="s,q", readerName="r", startingOffsets="earliest")
    end = mine.next_batch(mine.initial().json(), 1000)
    assert end["q"] == {"s": {"0": 995}, "q": {"0": 5}}, "in proportion to what waits"
    mine = progress(monkeypatch, subscription, subscribe="s,q", readerName="r", maxBytesPerTrigger=1000)
    mine.next_batch(end, None)
    assert queue.asked[-1] == (4995, 5), "and so of bytes"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "1"),
        ("endingOffsetsByTimestamp", '{"s": {"0": 1}}'),
    ],
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    given = {"url": "amqp://h", "subscribe": "s", name: value}
    source_options(given, streaming=False)
    with pytest.raises(OptionError, match=f"option '{name}' is for batches: a stream has no end"):
        source_options(given, streaming=True)
