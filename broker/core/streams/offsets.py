"""The extent of a stream consumer: the offset at which it begins, and its filters.

[RabbitMQ x-stream-offset, x-stream-filter]
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.consumer import (
    BEGINNINGS,
    BROWSE,
    BROWSE_FROM,
    CONSUMER_RULES,
    LAST,
    NEXT,
    NO_TIME,
    SELECTOR,
    BrowseRange,
    browses,
    extent_argument,
)
from broker.core.arguments.queue import PARTITIONS_MAX
from broker.core.arguments.rule import ANY_SIZE, Arguments, age_milliseconds, invalid, is_age
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message_view import milliseconds
from broker.core.names import is_short
from broker.core.ports import NO_PARTITION, StoredStream
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.streams.list import StreamEntry, StreamEntryList
from broker.core.streams.progress import StreamOffsets

STREAM_OFFSET: Final = "x-stream-offset"
STREAM_FILTER: Final = "x-stream-filter"
PARTITION: Final = "x-stream-partition"
CONSUMER_NAME: Final = "x-stream-consumer-name"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
STREAM_NAMES: Final = (STREAM_OFFSET, STREAM_FILTER, PARTITION, CONSUMER_NAME, MATCH_UNFILTERED)
CONSUMER_NAMES: Final = (*CONSUMER_RULES, SELECTOR, BROWSE, BROWSE_FROM, *STREAM_NAMES)
"""All arguments of consumers."""


def stream_extent(arguments: Arguments, queue: str, date: int) -> BrowseRange:
    """Return the extent that these consumer arguments ask for, of a stream `queue 'q' in vhost '/'`.

    `date`: the time of day, in milliseconds since 1970. Without arguments the consumer sees new messages
    only.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    if BROWSE_FROM in arguments:
        for other in STREAM_NAMES:
            if other in arguments:
                raise invalid(BROWSE_FROM, queue, arguments[BROWSE_FROM], f"does not go with {other}")
        return extent_argument(arguments)
    offset = arguments.get(STREAM_OFFSET, NEXT)
    values = _values(arguments, queue)
    unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(unfiltered, bool):
        raise invalid(MATCH_UNFILTERED, queue, unfiltered, "is not a boolean")
    snapshot = browses(arguments) and arguments[BROWSE] not in (True, "true")
    name = arguments.get(CONSUMER_NAME, "")
    if not isinstance(name, str) or not is_short(name):
        raise invalid(CONSUMER_NAME, queue, name, "is not a string of at most 255 bytes")
    extent = StreamExtent(snapshot=snapshot, values=values, unfiltered=unfiltered, name=name)
    if PARTITION in arguments:
        partition = arguments[PARTITION]
        if name:
            raise invalid(PARTITION, queue, partition, f"does not go with {CONSUMER_NAME}")
        number = partition if isinstance(partition, int) and not isinstance(partition, bool) else -1
        if not 0 <= number < PARTITIONS_MAX:
            raise invalid(PARTITION, queue, partition, "is not the number of a partition")
        extent.partition = number
    if isinstance(offset, datetime):
        extent.since = max(milliseconds(offset), 0)
    elif isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < ANY_SIZE:
        extent.offset = offset
    elif isinstance(offset, str) and offset in BEGINNINGS:
        extent.beginning = offset
    elif isinstance(offset, str) and is_age(offset):
        extent.since = max(date - age_milliseconds(offset), 0)
    else:
        allowed = f"{', '.join(BEGINNINGS)}, an offset, a timestamp, or an interval as 12h"
        raise invalid(STREAM_OFFSET, queue, offset, f"is not one of {allowed}")
    return extent


def _values(arguments: Arguments, queue: str) -> tuple[bytes, ...]:
    value = arguments.get(STREAM_FILTER, [])
    values: list[bytes] = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str) or not each:
            raise invalid(STREAM_FILTER, queue, value, "is neither a string nor a list of strings")
        values.append(each.encode("utf-8", "surrogateescape"))
    return tuple(values)


NO_OFFSET: Final[i64] = -1
NEVER_OFFSET: Final[i64] = 1 << 62  # beyond all offsets


@final
class StreamExtent(BrowseRange):
    """The extent of a stream that a consumer sees: where it begins, and its filter values.

    `offset`: that of the first message to see; NO_OFFSET: `beginning` or `since` decide. `values`: the
    consumer sees only messages whose filter value is one of these, and with `unfiltered` also messages
    without one; no values: all messages.
    `name`: a stored offset of this name, if there is one, has precedence. `partition`: the only partition
    that the consumer sees; NO_PARTITION: all.
    """

    def __init__(
        self,
        beginning: str = NEXT,
        offset: i64 = NO_OFFSET,
        since: i64 = NO_TIME,
        snapshot: bool = False,
        values: tuple[bytes, ...] = (),
        unfiltered: bool = False,
        name: str = "",
        partition: i64 = NO_PARTITION,
    ) -> None:
        super().__init__(beginning, 0, since, snapshot)
        self.offset = offset
        self.values = frozenset(values)
        self.unfiltered = unfiltered
        self.name = name
        self.partition = partition

    def first_offset(self, stored: StoredStream, partition: i64) -> i64:
        """Return the first offset in a partition, as far as it is known now."""
        if self.partition not in (NO_PARTITION, partition):
            return NEVER_OFFSET
        return self.offset if self.offset != NO_OFFSET else beginning_of(self, stored)

    def sieve(self, entry_filter: EntryFilter | None) -> EntryFilter | None:
        """Return a filter for the filter values, combined with another filter."""
        return ValueFilter(self, entry_filter) if self.values else entry_filter


def beginning_of(extent: BrowseRange, stored: StoredStream) -> i64:
    """Return the offset of the first message of an extent in a partition."""
    if extent.since != NO_TIME:
        return stored.since(extent.since * 1000)
    if extent.beginning == NEXT:
        return stored.next
    if extent.beginning == LAST:
        return max(stored.behind - 1, stored.first)
    return stored.first + extent.skip


def stream_context(queue: Queue, consumer: QueueConsumer, known: StreamOffsets) -> Cursor:
    """Make the cursor of a consumer that is being attached to a queue with a stream.

    `known`: the offsets of named consumers.

    Raises:
        PreconditionFailed: too many named consumers, or its partition does not exist.
    """
    entries = queue.entries
    extent = consumer.extent or BrowseRange()
    entry_filter = consumer.filter
    assert isinstance(entries, StreamEntryList), "a queue with a stream has a StreamEntryList"
    partitions = entries.partitions
    if isinstance(extent, StreamExtent):
        _check_partition(queue, extent, len(partitions))
        offsets = [int(extent.first_offset(stored, n)) for n, stored in enumerate(partitions)]
        if extent.name:
            offsets = known.start(extent.name, offsets)
        entry_filter = extent.sieve(entry_filter)
    else:
        offsets = [int(beginning_of(extent, stored)) for stored in partitions]
    if extent.snapshot:
        entry_filter = EndFilter([int(stored.behind) for stored in partitions], entry_filter)
    context = Cursor(entries, entry_filter)
    context.last = entries.place(list(offsets))
    if isinstance(extent, StreamExtent) and extent.name:
        known.attach(extent.name, context)
    return context


def _check_partition(queue: Queue, extent: StreamExtent, count: int) -> None:
    if extent.partition >= count:
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' has no partition {int(extent.partition)}, "
            f"it has {count}"
        )


@final
class ValueFilter(EntryFilter):
    """A filter that passes messages with one of the values that the consumer wants."""

    def __init__(self, extent: StreamExtent, entry_filter: EntryFilter | None) -> None:
        super().__init__("")
        self._values = extent.values
        self._unfiltered = extent.unfiltered
        self._filter = entry_filter

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the message's filter value is wanted, and the other filter agrees."""
        assert isinstance(entry, StreamEntry), "streams have StreamEntry only"
        page = entry.page
        value = b"" if page is None else page.filter_value(entry.offset)
        if value not in self._values and not (self._unfiltered and not value):
            return False
        return self._filter is None or self._filter.passes(entry)


@final
class EndFilter(EntryFilter):
    """A filter that passes messages that were on disk when the consumer was attached."""

    def __init__(self, ends: list[int], entry_filter: EntryFilter | None) -> None:
        super().__init__("")
        self._ends = ends
        self._filter = entry_filter

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the message was on disk then, and the other filter agrees."""
        assert isinstance(entry, StreamEntry), "streams have StreamEntry only"
        if entry.order > self._ends[entry.partition]:
            return False
        return self._filter is None or self._filter.passes(entry)
