"""Streams: entries are rows of what is kept on disk, made when somebody reads them, and nobody takes any.

[RabbitMQ streams]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import ACQUIRED, QueueEntry
from broker.core.entry_list import QueueEntryList
from broker.core.errors import Unsupported
from broker.core.message import NOWHERE, Message
from broker.core.ports import StoredStream, StreamPage

if TYPE_CHECKING:
    from broker.core.queue import Queue

_NOTHING: Final = Message(NOWHERE, b"", 0, False, 0)


@final
class StreamEntry(QueueEntry):
    """The message with the offset `order - 1`, as one consumer sees it; others have entries of their own.

    `page`: where its row and those around it are, as long as a cursor stands on the entry.
    """

    def __init__(self, message: Message, offset: i64, page: StreamPage | None) -> None:
        super().__init__(message, offset + 1)
        self.page = page

    @property
    def offset(self) -> i64:
        """Its offset in the stream."""
        return self.order - 1

    def let_go(self) -> None:
        """No cursor stands on it any more (QueueEntry)."""
        self.page = None


@final
class StreamEntryList(QueueEntryList):
    """The rows of a stream that are on disk. What is appended is there when that is so.

    `sequence` is the offset behind the newest one; the order of an entry is its offset and 1.
    `offsets_found`: what its definition has said of consumers, until there is a stream to know that.
    """

    def __init__(self) -> None:
        super().__init__(True)
        self.stored: StoredStream = StoredStream()
        self.offsets_found: object = None

    def append(self, message: Message) -> QueueEntry:
        """It has been appended to what is stored, and is to be seen when it is on disk."""
        return self.head

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The entry of the row behind that of `entry`, or of the oldest one that is kept."""
        offset = entry.order
        page = entry.page if isinstance(entry, StreamEntry) else None
        if page is None or not page.first <= offset < page.behind:
            page = self.stored.at(offset)
            if page is None:
                return None
            offset = max(offset, page.first)
            if isinstance(entry, StreamEntry):
                entry.page = page  # it may be asked again
        return StreamEntry(page.message(offset), offset, page)

    def before(self, entry: QueueEntry) -> QueueEntry:
        """The place before an entry."""
        return self.place(entry.order - 1)

    def place(self, offset: i64) -> QueueEntry:
        """Where a cursor stands that is to see the row with this offset next."""
        entry = StreamEntry(_NOTHING, offset - 1, None)
        entry.state = ACQUIRED
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Nothing has been linked."""


def refuse_stream(queue: Queue, what: str) -> None:
    """Refuse what would take messages out of a queue, if that is a stream; `what` cannot be done with it.

    Raises:
        Unsupported: it is.
    """
    if isinstance(queue.entries, StreamEntryList):
        raise Unsupported(f"queue '{queue.name}' in vhost '{queue.vhost}' is a stream and cannot be {what}")
