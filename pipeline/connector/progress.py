"""How a streaming query goes on: from the offsets that are committed to those of the next batch."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from pipeline.connector.offsets import Offsets, Partition, Place, offsets_of, shares, split
from pipeline.connector.options import SourceOptions
from pipeline.connector.reading import checked, going_on
from pipeline.connector.slices import Slice
from pipeline.connector.staged import GoneError
from pipeline.connector.starting import resolved
from pipeline.connector.subscription import Subscription
from pipeline.polling import Poll


class Progress:
    """Plans batches; one of it is in the process that plans a query. Raises PipelineError everywhere."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._found: Subscription | None = None
        self._initial: Offsets | None = None
        self._end: Offsets | None = None  # with the trigger AvailableNow
        self._seen: Offsets | None = None
        self._told: Offsets | None = None
        self._poll = Poll(options.poll)
        self._batch_at = time.monotonic()  # when there was a batch

    @property
    def _subscription(self) -> Subscription:
        if self._found is None:
            self._found = Subscription(self._options)
        return self._found

    def initial(self) -> Offsets:
        """Where the first batch begins.

        Spark asks again when it does that batch again, and does not say what it was told before. `latest` is
        where streams keep that a reader was: so nothing is left out that came while it was not there.
        """
        if self._initial is None:
            options, streams = self._options, self._subscription.streams
            partitions = streams.partitions()
            at_time, goes_on = streams.at_time, options.reader is not None
            start = resolved(options.starting, partitions, at_time, options.latest_if_none, goes_on)
            self._initial = start.with_new(queue.partition() for queue in self._subscription.queues)
        return self._initial

    def fix_end(self) -> None:
        """Nothing that comes from now on is to be read."""
        found = self._found_now()
        self._end = Offsets(
            {each.place: each.next for each in found}, {each.place: each.incarnation for each in found}
        )

    def end_seen(self) -> dict[str, Any] | None:
        """The end of all partitions when it was last looked for."""
        return None if self._seen is None else self._seen.json()

    def next_batch(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        """Where the next batch ends; `committed` itself if there is nothing for it.

        What is before `committed` is done with for ever.
        """
        if not self._poll.is_due():
            return committed
        while True:
            with suppress(GoneError):  # a queue or its reader was declared again: now that is found out
                return self._planned(committed, rows)

    def _planned(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        before = offsets_of(committed)
        found = self._found_now(before)
        if self._end is not None:
            known = self._end.positions.keys() | before.positions.keys()
            found = [each for each in found if each.place in known]
        before = before.with_new(found)
        start = going_on(self._options, before, found, self._options.starting.asked)
        self._acknowledge(start)
        backlogs = {each.place: self._tail(each, start) - start.positions[each.place] for each in found}
        end = start.moved(self._ends(start, backlogs if rows is None else shares(backlogs, rows)))
        self._seen = start.moved({each.place: max(each.next, start.positions[each.place]) for each in found})
        if self._waits(sum(end.positions.values()) - sum(start.positions.values())):
            self._poll.found_nothing()
            return committed if start == before else start.json()
        self._batch_at = time.monotonic()
        return end.json()

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """What tasks read of a batch, which may have been planned in an earlier life."""
        options, planned = self._options, offsets_of(end)
        staged = [queue.partition() for queue in self._subscription.queues]
        found = self._streams_now(planned) + staged
        begun = self._begun(offsets_of(start), found).with_new(found)
        ranges = checked(options, begun, planned, found, options.starting.asked)
        queues = {each.place for each in staged}
        return [
            Slice(each, options.reader if each.place in queues else None)
            for each in split(ranges, options.least_parts, options.part_rows)
        ]

    def acknowledge(self, end: dict[str, Any]) -> None:
        """A batch is done."""
        with suppress(GoneError):  # which the next batch notices
            self._acknowledge(offsets_of(end))

    def _acknowledge(self, done: Offsets) -> None:
        """Let go of staged messages, and have streams keep where the reader is, for people to see."""
        for queue in self._subscription.queues:
            if done.incarnations.get(queue.place) == queue.partition().incarnation:
                queue.acknowledge(done.positions[queue.place])
        if self._options.reader is not None and done != self._told:
            self._subscription.streams.keep(self._options.reader, done)
            self._told = done

    def _begun(self, start: Offsets, found: list[Partition]) -> Offsets:
        """Where a batch of an earlier life began: of the first one Spark says where it would begin now.

        A reader's streams keep where the batch began that was planned last, which is not behind that.
        """
        if self._told is not None or start != self._initial:
            return start
        kept = {each.place: each.kept for each in found if each.kept is not None}
        return start.moved({place: min(at, kept.get(place, at)) for place, at in start.positions.items()})

    def _found_now(self, known: Offsets | None = None) -> list[Partition]:
        """All partitions; those of queues with what could be staged."""
        return self._streams_now(known) + [queue.whole() for queue in self._subscription.queues]

    def _streams_now(self, known: Offsets | None) -> list[Partition]:
        """The partitions of streams, which have come to what is known of them, if that is there still."""
        asked = self._options.starting.asked.items()  # what is there of these is not known
        offsets = {} if known is None else dict(known.positions.items() - asked)
        return self._subscription.streams.partitions(offsets)

    def _tail(self, partition: Partition, start: Offsets) -> int:
        """Behind what is to be read of a partition. With a fixed end one that came later has nothing."""
        first = start.positions[partition.place]
        if self._end is None:
            return max(partition.next, first)
        if self._end.incarnations.get(partition.place) != partition.incarnation:
            return first
        return max(self._end.positions[partition.place], first)

    def _ends(self, start: Offsets, counts: dict[Place, int]) -> dict[Place, int]:
        """Where each partition's part of a batch ends, which has so many messages at most."""
        queues = {queue.place: queue for queue in self._subscription.queues}
        size, total = self._options.limits.size, sum(counts.values())
        ends: dict[Place, int] = {}
        for place, count in counts.items():
            first = start.positions[place]
            share = None if size is None else max(size * count // max(total, 1), 1)
            if place in queues:
                ends[place] = queues[place].advance(first, count, share)
                continue
            ends[place] = first + count
            if share is not None and count:
                ends[place] = min(first + count, self._subscription.streams.reach(place, first, share))
        return ends

    def _waits(self, count: int) -> bool:
        """Whether there is nothing, or so little that a batch waits for more."""
        limits = self._options.limits
        if limits.least_rows is None or self._end is not None or count == 0:
            return count == 0
        return count < limits.least_rows and time.monotonic() - self._batch_at < limits.delay
