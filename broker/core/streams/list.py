"""The entry list of a stream: entries are rows on disk, made when a consumer reads them, and never acquired.

[RabbitMQ streams]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    LAST_VALUE_KIND,
    PARTITIONED_KIND,
    PRIORITY_KIND,
    SORTED_KIND,
    STANDARD,
    is_stream,
    kind_of,
)
from broker.core.arguments.rule import Arguments
from broker.core.entries.cursor import LOAD_COST, LOAD_SHIFT
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.entries.last_value import LastValueEntryList
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.entries.sorted import SortedEntryList
from broker.core.message import NOWHERE, Message
from broker.core.message_view import Headers
from broker.core.ports import StoredStream, StreamPage
from broker.core.queues.queue import Queue
from broker.core.queues.search import LOGGED, UNLOGGED, Search

_NOTHING: Final = Message(NOWHERE, b"", 0, False, 0)


@final
class StreamEntry(QueueEntry):
    """The message with the offset `order - 1`, as one consumer sees it; each consumer has its own entries.

    The entry is a row of one `partition`. `following`: the next offsets in all partitions behind it; None if
    there is only one partition. `page`: the rows around it in memory, while a cursor stands on the entry.
    """

    def __init__(
        self,
        message: Message,
        offset: i64,
        page: StreamPage | None,
        partition: i64 = 0,
        following: list[int] | None = None,
    ) -> None:
        super().__init__(message, offset + 1)
        self.page = page
        self.partition = partition
        self.following = following

    @property
    def offset(self) -> i64:
        """The row's offset in the stream."""
        return self.order - 1

    def next_offset(self, partition: i64) -> i64:
        """Return the next offset in a partition."""
        return self.order if self.following is None else self.following[partition]

    def release_page(self) -> None:
        """Drop the page: no cursor stands on the entry any more."""
        self.page = None


@final
class StreamEntryList(QueueEntryList):
    """The rows of a stream that are on disk. An appended message appears when it is on disk.

    A stream has one or several `partitions`, each with its own offsets. Within a partition the order is that
    of the appends. A consumer reads the partitions round-robin, in blocks of rows that are in memory
    together. `sequence` is the highest offset behind the newest row of any partition; the order of an entry
    is its offset plus 1.
    `offsets_found`: the consumers' offsets from the queue's definition, until the stream is opened.
    """

    def __init__(self) -> None:
        super().__init__(True)
        self.partitions: list[StoredStream] = [StoredStream()]
        self.offsets_found: object = None

    def append(self, message: Message) -> QueueEntry:
        """Return the head: the message is appended to the stored stream, and appears when it is on disk."""
        return self.head

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """Return the entry of the row behind the row of `entry`, or of the oldest row that is kept."""
        if len(self.partitions) > 1:
            return self._next_of_several(entry)
        offset = entry.order
        page = entry.page if isinstance(entry, StreamEntry) else None
        if page is None or not page.first <= offset < page.behind:
            page = self._read(0, offset)
            if page is None:
                return None
            offset = max(offset, page.first)
            if isinstance(entry, StreamEntry):
                entry.page = page  # `next` may be called for it again
        return StreamEntry(page.message(offset), offset, page)

    def _next_of_several(self, entry: QueueEntry) -> QueueEntry | None:
        """Return the next entry of several partitions.

        The entry is from the same partition while the partition's rows are in memory, then from the next one.
        """
        count: i64 = len(self.partitions)
        following = [0] * count
        partition: i64 = 0
        page: StreamPage | None = None
        if isinstance(entry, StreamEntry) and entry.following is not None:
            following = list(entry.following)
            partition = entry.partition
            page = entry.page
        offset: i64 = following[partition]
        if page is None or not page.first <= offset < page.behind:
            page = None
            for _ in range(count):
                partition = (partition + 1) % count
                page = self._read(partition, following[partition])
                if page is not None:
                    break
            if page is None:
                return None
            offset = max(i64(following[partition]), page.first)
        following[partition] = offset + 1
        return StreamEntry(page.message(offset), offset, page, partition, following)

    def _read(self, partition: i64, offset: i64) -> StreamPage | None:
        """Return the rows around an offset of a partition, None if it is not on disk yet; adds to `reads`."""
        page = self.partitions[partition].at(offset)
        if page is not None:
            self.reads += LOAD_COST + (page.size >> LOAD_SHIFT)
        return page

    def before(self, entry: QueueEntry) -> QueueEntry:
        """Return the place before an entry."""
        assert isinstance(entry, StreamEntry), "cursors of streams stand on StreamEntry only"
        offsets = [int(entry.next_offset(partition)) for partition in range(len(self.partitions))]
        offsets[entry.partition] -= 1
        return self.place(offsets)

    def place(self, offsets: list[int]) -> QueueEntry:
        """Return the place of a cursor that sees the rows with these offsets next, one of each partition."""
        following = offsets if len(offsets) > 1 else None
        entry = StreamEntry(_NOTHING, offsets[0] - 1, None, 0, following)
        entry.state = ACQUIRED
        return entry

    def row(self, partition: i64, offset: i64) -> QueueEntry | None:
        """Return the entry of a row by its partition and offset.

        None if it is not kept, or not on disk yet.
        """
        page = self.partitions[partition].at(offset)
        if page is None or not page.first <= offset < page.behind:
            return None
        following: list[int] | None = None
        if len(self.partitions) > 1:
            following = [0] * len(self.partitions)
            following[partition] = offset + 1
        return StreamEntry(page.message(offset), offset, page, partition, following)

    def mark(self, entry: QueueEntry) -> str:
        """The text for the place of `entry`: the next offsets, one of each partition."""
        assert isinstance(entry, StreamEntry), "streams have StreamEntry only"
        return ".".join(str(int(entry.next_offset(n))) for n in range(len(self.partitions)))

    def placeholder(self, mark: str) -> QueueEntry:
        """The place of a cursor that sees these offsets next. Raises ValueError."""
        offsets = [int(offset) for offset in mark.split(".")]
        if len(offsets) != len(self.partitions) or not all(0 <= offset < 1 << 62 for offset in offsets):
            raise ValueError(f"'{mark}' names no offset of each of {len(self.partitions)} partitions")
        return self.place(offsets)

    def unlink(self, entry: QueueEntry) -> None:
        """Ignored: no entry of a stream is linked."""


@final
class RowSearch(Search):
    """The search for the row with an id in a stream, which `is_message_id` has accepted.

    Each partition has its own offsets; the first row that is found counts.
    """

    def __init__(self, queue: Queue, wanted: str) -> None:
        super().__init__(queue)
        logged = wanted.startswith(LOGGED)  # no row has such an id
        self._order: i64 = 0 if logged else int(wanted[len(UNLOGGED) :])

    def step(self, most: i64) -> bool:
        """Look into the partitions."""
        entries = self.queue.entries
        if not isinstance(entries, StreamEntryList) or self._order == 0:
            return True
        for partition in range(len(entries.partitions)):
            entry = entries.row(partition, self._order - 1)
            if entry is not None:
                self.entry = entry
                break
        return True


LISTS: Final[dict[str, Callable[[Arguments, Headers], QueueEntryList]]] = {
    STANDARD: FifoEntryList.of,
    PRIORITY_KIND: PriorityEntryList.of,
    SORTED_KIND: SortedEntryList.of,
    LAST_VALUE_KIND: LastValueEntryList.of,
    PARTITIONED_KIND: FifoEntryList.of,  # without entries
}
"""The list classes of the kinds of queues."""


def new_entry_list(arguments: Arguments, headers: Headers) -> QueueEntryList:
    """Return the list for the entries of a queue with these arguments."""
    if is_stream(arguments):
        return StreamEntryList()
    return LISTS[kind_of(arguments)](arguments, headers)
