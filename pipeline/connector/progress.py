"""How a streaming query goes on: from the offsets that are committed to those of the next batch."""

from __future__ import annotations

import time
from typing import Any, Final

from pipeline.connector.offsets import LATEST, Offsets, Partition, Place, offsets_of, shares, split
from pipeline.connector.options import SourceOptions
from pipeline.connector.reading import checked
from pipeline.connector.slices import Slice
from pipeline.connector.staged import StagedQueue
from pipeline.connector.starting import resolved
from pipeline.connector.subscription import Subscription

PAUSE_MAX: Final = 0.1  # seconds that are slept in one go: a query that is stopped waits for it


class Progress:
    """Plans batches; one of it is in the process that plans a query. Raises PipelineError everywhere."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._found: Subscription | None = None
        self._initial: Offsets | None = None
        self._end: dict[Place, int] | None = None  # with the trigger AvailableNow
        self._seen: Offsets | None = None
        self._told: dict[Place, int] = {}
        self._empty_at = 0.0  # when there was nothing new
        self._batch_at = time.monotonic()  # when there was a batch

    @property
    def _subscription(self) -> Subscription:
        if self._found is None:
            self._found = Subscription(self._options)
        return self._found

    def initial(self) -> Offsets:
        """Where the first batch begins.

        Spark asks again when it does that batch again, and does not say what it was told before. So a reader
        that begins with what comes has the streams keep where that was.
        """
        if self._initial is None:
            options = self._options
            streams = self._subscription.streams
            partitions = streams.partitions()
            start = resolved(options.starting, partitions, streams.at_time, options.latest_if_none)
            latest = options.starting.offset == LATEST and not (
                options.starting.offsets or options.starting.by_time
            )
            if latest and options.reader is not None:
                kept = {each.place: each.kept for each in partitions if each.kept is not None}
                start = start.moved(kept)
                if len(kept) < len(partitions):
                    streams.keep(options.reader, start.positions)
            self._initial = start.with_new(queue.partition() for queue in self._subscription.queues)
        return self._initial

    def fix_end(self) -> None:
        """Nothing that comes from now on is to be read."""
        self._end = {each.place: each.next for each in self._subscription.streams.partitions()}
        for queue in self._subscription.queues:
            self._end[queue.place] = queue.partition().next + queue.waiting()

    def end_seen(self) -> dict[str, Any] | None:
        """The end of all partitions when it was last looked for."""
        return None if self._seen is None else self._seen.json()

    def next_batch(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        """Where the next batch ends; `committed` itself if there is nothing for it.

        What is before `committed` is done with for ever.
        """
        start = offsets_of(committed)
        self._pace()
        self._acknowledge(start)
        partitions = self._subscription.streams.partitions()
        if self._end is not None:
            partitions = [
                each for each in partitions if each.place in self._end or each.place in start.positions
            ]
        start = start.with_new(partitions).with_new(queue.partition() for queue in self._subscription.queues)
        tails = {each.place: self._tail(each, start) for each in partitions}
        end = dict(start.positions) | self._of_streams(start, tails, rows)
        left = None if rows is None else rows - sum(end[place] - start.positions[place] for place in tails)
        for number, queue in enumerate(self._subscription.queues):
            share = None if left is None else left // (len(self._subscription.queues) - number)
            end[queue.place] = self._of_queue(queue, start.positions[queue.place], share)
            if left is not None:
                left -= end[queue.place] - start.positions[queue.place]
        count = sum(end[place] - offset for place, offset in start.positions.items())
        ends = [*partitions, *(queue.partition() for queue in self._subscription.queues)]
        self._seen = start.moved({each.place: max(each.next, start.positions[each.place]) for each in ends})
        if self._waits(count):
            self._empty_at = time.monotonic()
            return committed
        self._batch_at = time.monotonic()
        more = {queue.place: queue.partition().next + queue.waiting() for queue in self._subscription.queues}
        self._seen = self._seen.moved(more)
        return start.moved(end).json()

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """What tasks read of a batch, which may have been planned in an earlier life."""
        options = self._options
        staged = [queue.partition() for queue in self._subscription.queues]
        found = self._subscription.streams.partitions() + staged
        ranges = checked(options, offsets_of(start).with_new(found), offsets_of(end), found)
        queues = {each.place for each in staged}
        return [
            Slice(each, options.reader if each.place in queues else None)
            for each in split(ranges, options.least_parts, options.part_rows)
        ]

    def acknowledge(self, end: dict[str, Any]) -> None:
        """A batch is done."""
        self._acknowledge(offsets_of(end))

    def _acknowledge(self, done: Offsets) -> None:
        """Let go of staged messages, and have streams keep where the reader is, for people to see."""
        ordinary = {queue.place for queue in self._subscription.queues}
        for queue in self._subscription.queues:
            if queue.place in done.positions:
                queue.acknowledge(done.positions[queue.place])
        positions = {place: offset for place, offset in done.positions.items() if place not in ordinary}
        if self._options.reader is not None and positions and positions != self._told:
            self._subscription.streams.keep(self._options.reader, positions)
            self._told = positions

    def _tail(self, partition: Partition, start: Offsets) -> int:
        end = partition.next if self._end is None else self._end.get(partition.place, partition.next)
        return max(end, start.positions[partition.place])

    def _of_streams(self, start: Offsets, tails: dict[Place, int], rows: int | None) -> dict[Place, int]:
        """Where each partition's part of a batch ends."""
        backlogs = {place: tail - start.positions[place] for place, tail in tails.items()}
        if rows is not None:
            backlogs = shares(backlogs, rows)
        ends = {place: start.positions[place] + count for place, count in backlogs.items()}
        size = self._options.limits.size
        busy = [place for place, count in backlogs.items() if count]
        if size is not None:
            total = sum(backlogs.values())
            for place in busy:
                share = max(size * backlogs[place] // total, 1)
                reached = self._subscription.streams.reach(place, start.positions[place], share)
                ends[place] = min(ends[place], reached)
        return ends

    def _of_queue(self, queue: StagedQueue, start: int, rows: int | None) -> int:
        """Where a queue's part of a batch ends."""
        if self._end is not None:
            left = max(self._end.get(queue.place, start) - start, 0)
            rows = left if rows is None else min(rows, left)
        if rows == 0:
            return start
        return queue.advance(start, rows, self._options.limits.size)

    def _waits(self, count: int) -> bool:
        """Whether there is nothing, or so little that a batch waits for more."""
        limits = self._options.limits
        if limits.least_rows is None or self._end is not None or count == 0:
            return count == 0
        return count < limits.least_rows and time.monotonic() - self._batch_at < limits.delay

    def _pace(self) -> None:
        """Spark asks without end while there is nothing new."""
        wait = self._empty_at + self._options.poll - time.monotonic()
        if self._empty_at and wait > 0:
            time.sleep(min(wait, PAUSE_MAX))
