"""The plan of a query: the offsets at which its batches begin and end, and the ranges of its tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from pipeline.connector.choices import OptionError
from pipeline.connector.filters import RangeFilters
from pipeline.connector.offsets import (
    EARLIEST,
    LATEST,
    NOTHING,
    AtTime,
    Offsets,
    Partition,
    Place,
    Range,
    parse_offsets,
    share_messages,
    split_ranges,
)
from pipeline.connector.options import Bound, SourceOptions
from pipeline.connector.streams import DataLossError
from pipeline.connector.subscription import ReaderDeletedError, Subscription
from pipeline.poll import Poll

EVERYTHING: Final = RangeFilters()
LOG: Final = logging.getLogger("amqpd.pipeline")


class Slice(InputPartition):
    """A range that a task reads, and the reader of a staged queue; None: the range is of a stream."""

    def __init__(self, wanted: Range, reader: str | None) -> None:
        super().__init__(0)
        self.wanted = wanted
        self.reader = reader


def resolve_bound(
    bound: Bound,
    partitions: Sequence[Partition],
    at_time: AtTime,
    latest_if_none: bool,
    goes_on: bool = False,
) -> Offsets:
    """Return an offset of each partition.

    `latest_if_none`: without a message from a time on, reading begins with the next message; otherwise that
    is an error. `goes_on`: `latest` means the stored offset of the reader, if known. A missing offset is
    checked later.

    Raises OptionError: an offset names a partition that is not read, or some partitions have an offset and
    others none.
    """
    named = dict(bound.offsets) or dict(bound.times or {})
    places = {each.place for each in partitions}
    for place in named.keys() - places:
        raise OptionError(
            f"an offset is given for partition {place.number} of '{place.queue}', which is not read"
        )
    if named and not bound.by_time:
        for place in sorted(places - named.keys()):
            raise OptionError(f"no offset is given for partition {place.number} of '{place.queue}'")
    positions: dict[Place, int] = {}
    for each in partitions:
        time = bound.time if bound.times is None else bound.times.get(each.place)
        offset = bound.offsets.get(each.place, bound.offset)
        if time is not None:
            offset = _at(each, time, at_time, latest_if_none)
        latest = each.kept if goes_on and each.kept is not None else each.next
        positions[each.place] = {EARLIEST: each.first, LATEST: latest}.get(offset, offset)
    return Offsets(positions, {each.place: each.incarnation for each in partitions})


def _at(partition: Partition, time: int, at_time: AtTime, latest_if_none: bool) -> int:
    """Return the offset of the first message from a time on, or the end.

    The stored offset of the reader does not count, as it may be before that time.
    """
    offset = at_time(partition.place, time)
    if offset < partition.next:
        return offset
    if not latest_if_none:
        place = partition.place
        raise OptionError(
            f"partition {place.number} of '{place.queue}' has no message from {time // 1000} ms since 1970 on"
        )
    return partition.next


def plan_batch(options: SourceOptions, filters: RangeFilters = EVERYTHING) -> list[Range]:
    """Return the ranges that tasks read, without the parts that the filters exclude.

    Raises OptionError, ServerError, DataLossError.
    """
    subscription = Subscription(options)
    for queue in subscription.queues:
        raise OptionError(
            f"'{queue.place.queue}' is an ordinary queue: reading removes its messages, which a batch "
            "cannot do safely: use readStream with trigger(availableNow=True)"
        )
    partitions = subscription.streams.partitions(options.ending.asked)
    at_time = subscription.streams.at_time
    start = resolve_bound(options.starting, partitions, at_time, options.latest_if_none)
    end = resolve_bound(options.ending, partitions, at_time, latest_if_none=True)
    # A partition that begins behind its end has no messages.
    end = end.moved({place: max(offset, end.positions[place]) for place, offset in start.positions.items()})
    ranges = check_ranges(options, start, end, partitions)
    return split_ranges(filters.narrowed(ranges, at_time), options.least_parts, options.part_rows)


def check_ranges(
    options: SourceOptions,
    start: Offsets,
    end: Offsets,
    partitions: list[Partition],
    awaited: Mapping[Place, int] = NOTHING,
) -> list[Range]:
    """Return the ranges from `start` up to `end`, checked against the partitions.

    With `failOnDataLoss` missing messages are an error; without it they are left out, with a warning.
    `awaited`: offsets that need not exist yet.

    Raises DataLossError.
    """
    by_place = {each.place: each for each in partitions}
    ranges: list[Range] = []
    for place, behind in end.positions.items():
        incarnation = end.incarnations[place]
        partition = by_place.get(place)
        name = _name(place)
        first = start.positions.get(place, behind)
        if partition is None:
            _report_loss(options, f"{name} was deleted, with the messages up to {behind}")
            continue
        if partition.incarnation != incarnation:
            _report_loss(
                options, f"{name} was deleted and declared again: the messages up to {behind} are lost"
            )
            continue
        begun = start.incarnations.get(place, incarnation)
        if begun == incarnation and first > behind:
            _report_loss(
                options,
                f"{name}: the messages up to {behind} were planned by a run whose beginning is not known, "
                f"and this one would begin with {first}: a new checkpoint and startingTimestamp help",
            )
            continue
        if behind > partition.next and behind != awaited.get(place):
            _report_loss(options, f"{name} ends before offset {partition.next}, not {behind}")
            behind = partition.next
        first = _check_offset(options, partition, first, begun, awaited)
        if first < behind:
            ranges.append(Range(place, incarnation, first, behind))
    return ranges


def find_continuation(
    options: SourceOptions, offsets: Offsets, partitions: list[Partition], awaited: Mapping[Place, int]
) -> Offsets:
    """Return the offsets where reading continues, checked as in `check_ranges`. Raises DataLossError.

    A partition that was declared again begins with its first message.
    """
    positions: dict[Place, int] = {}
    for each in partitions:
        offset, incarnation = offsets.positions[each.place], offsets.incarnations[each.place]
        positions[each.place] = _check_offset(options, each, offset, incarnation, awaited)
    incarnations = {each.place: each.incarnation for each in partitions}
    return Offsets(offsets.positions | positions, offsets.incarnations | incarnations)


def _check_offset(
    options: SourceOptions, partition: Partition, offset: int, incarnation: str, awaited: Mapping[Place, int]
) -> int:
    """Return an offset, or the one where reading continues if the offset does not exist any more."""
    name = _name(partition.place)
    oldest = partition.first - partition.retained
    if partition.incarnation != incarnation:
        _report_loss(options, f"{name} was deleted and declared again: the messages from {offset} are lost")
        return partition.first
    if offset > partition.next and offset != awaited.get(partition.place):
        _report_loss(options, f"{name} ends before offset {partition.next}, not {offset}")
        return partition.next
    if offset < oldest:
        _report_loss(options, f"{name} begins with offset {oldest}: the messages from {offset} are lost")
        return oldest
    return offset


def _name(place: Place) -> str:
    return f"partition {place.number} of '{place.queue}'"


def _report_loss(options: SourceOptions, what: str) -> None:
    if options.fail_on_loss:
        raise DataLossError(f"{what}; failOnDataLoss=false continues without them")
    LOG.warning("%s", what)


class Progress:
    """Plans batches, in the process that plans a query. All functions raise PipelineError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._found: Subscription | None = None
        self._initial: Offsets | None = None
        self._end: Offsets | None = None  # only with the trigger AvailableNow
        self._seen: Offsets | None = None
        self._told: Offsets | None = None
        self._poll = Poll(options.poll)
        self._batch_at = time.monotonic()  # the time of the last batch

    @property
    def _subscription(self) -> Subscription:
        if self._found is None:
            self._found = Subscription(self._options)
        return self._found

    def initial(self) -> Offsets:
        """Return the offsets of the first batch.

        Spark asks again when it repeats that batch, without the earlier answer. `latest` means the offsets
        that the streams store for the reader. So no message is skipped that arrived while the reader was
        stopped.
        """
        if self._initial is None:
            options, streams = self._options, self._subscription.streams
            partitions = streams.partitions()
            at_time, goes_on = streams.at_time, options.reader is not None
            start = resolve_bound(options.starting, partitions, at_time, options.latest_if_none, goes_on)
            self._initial = start.with_new(queue.partition() for queue in self._subscription.queues)
        return self._initial

    def fix_end(self) -> None:
        """Limit the query to the messages that exist now."""
        partitions = self._found_now()
        self._end = Offsets(
            {each.place: each.next for each in partitions},
            {each.place: each.incarnation for each in partitions},
        )

    def end_seen(self) -> dict[str, Any] | None:
        """Return the ends of all partitions at the last look-up."""
        return None if self._seen is None else self._seen.json()

    def next_batch(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        """Return the end of the next batch; `committed` itself if there is nothing to read.

        Messages before `committed` are never read again.
        """
        if not self._poll.is_due():
            return committed
        while True:
            with suppress(
                ReaderDeletedError
            ):  # a queue or its reader was declared again: look it up once more
                return self._planned(committed, rows)

    def _planned(self, committed: dict[str, Any], rows: int | None) -> dict[str, Any]:
        before = parse_offsets(committed)
        partitions = self._found_now(before)
        if self._end is not None:
            known = self._end.positions.keys() | before.positions.keys()
            partitions = [each for each in partitions if each.place in known]
        before = before.with_new(partitions)
        start = find_continuation(self._options, before, partitions, self._options.starting.asked)
        self._acknowledge(start)
        backlogs = {each.place: self._tail(each, start) - start.positions[each.place] for each in partitions}
        end = start.moved(self._ends(start, backlogs if rows is None else share_messages(backlogs, rows)))
        self._seen = start.moved(
            {each.place: max(each.next, start.positions[each.place]) for each in partitions}
        )
        if self._waits(sum(end.positions.values()) - sum(start.positions.values())):
            self._poll.found_nothing()
            return committed if start == before else start.json()
        self._batch_at = time.monotonic()
        return end.json()

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """Return the slices of a batch, which an earlier process may have planned."""
        options, planned = self._options, parse_offsets(end)
        staged = [queue.partition() for queue in self._subscription.queues]
        partitions = self._streams_now(planned) + staged
        begun = self._begun(parse_offsets(start), partitions).with_new(partitions)
        ranges = check_ranges(options, begun, planned, partitions, options.starting.asked)
        queues = {each.place for each in staged}
        return [
            Slice(each, options.reader if each.place in queues else None)
            for each in split_ranges(ranges, options.least_parts, options.part_rows)
        ]

    def acknowledge(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch that is done."""
        with suppress(ReaderDeletedError):  # the next batch finds that out
            self._acknowledge(parse_offsets(end))

    def _acknowledge(self, offsets: Offsets) -> None:
        """Acknowledge staged messages, and store the reader's offsets in the streams for operators."""
        for queue in self._subscription.queues:
            if offsets.incarnations.get(queue.place) == queue.partition().incarnation:
                queue.acknowledge(offsets.positions[queue.place])
        if self._options.reader is not None and offsets != self._told:
            self._subscription.streams.keep(self._options.reader, offsets)
            self._told = offsets

    def _begun(self, start: Offsets, partitions: list[Partition]) -> Offsets:
        """Return the beginning of a batch of an earlier process.

        For the first batch Spark has only today's begin.

        The streams store the begin of the last planned batch of a reader, which is not later.
        """
        if self._told is not None or start != self._initial:
            return start
        kept = {each.place: each.kept for each in partitions if each.kept is not None}
        return start.moved({place: min(at, kept.get(place, at)) for place, at in start.positions.items()})

    def _found_now(self, known: Offsets | None = None) -> list[Partition]:
        """Return all partitions; those of queues with the messages that could be staged."""
        return self._streams_now(known) + [queue.whole() for queue in self._subscription.queues]

    def _streams_now(self, known: Offsets | None) -> list[Partition]:
        """Return the partitions of streams, which have reached their known offsets if they still exist."""
        asked = self._options.starting.asked.items()  # these offsets may not exist
        offsets = {} if known is None else dict(known.positions.items() - asked)
        return self._subscription.streams.partitions(offsets)

    def _tail(self, partition: Partition, start: Offsets) -> int:
        """Return the end of a partition. With a fixed end, a later partition has nothing to read."""
        first = start.positions[partition.place]
        if self._end is None:
            return max(partition.next, first)
        if self._end.incarnations.get(partition.place) != partition.incarnation:
            return first
        return max(self._end.positions[partition.place], first)

    def _ends(self, start: Offsets, counts: dict[Place, int]) -> dict[Place, int]:
        """Return the end of each partition's part of a batch, of at most `counts` messages."""
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
        """Whether the batch is empty, or so small that it waits for more messages."""
        limits = self._options.limits
        if limits.least_rows is None or self._end is not None or count == 0:
            return count == 0
        return count < limits.least_rows and time.monotonic() - self._batch_at < limits.delay
