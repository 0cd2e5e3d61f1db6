"""The stored offsets of a stream's named consumers, from which they continue when they are attached again.

[RabbitMQ streams: stored offsets]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.cursor import Cursor, CursorProgress
from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.queues.queue import Queue
from broker.core.queues.virtual_host import QueueHost
from broker.core.schedule import TimedTask
from broker.core.streams.list import StreamEntry, StreamEntryList

OFFSETS: Final = "offsets"
NAMES_MAX: Final = 1000  # for each stream
NOTE_MS: Final[i64] = 1000  # settled offsets are appended after this time


@final
class StreamOffsets(TimedTask):
    """The offsets from which named consumers of `queue` continue.

    `kept`: the offsets by name, as the log has them or is about to. Settled offsets are appended to the log
    now and then: after a crash a consumer may get again what it had settled in the last second.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        super().__init__()
        self.kept: dict[str, list[int]] = {}
        self._queue = queue
        self._host = host
        self._attached: dict[str, StreamProgress] = {}  # by name, the one attached last
        self._changed = False  # `kept` has changes that the log does not have

    def attach(self, name: str, context: Cursor) -> None:
        """Attach a named consumer with this cursor; an earlier consumer of that name counts no longer.

        Raises:
            PreconditionFailed: there are too many names.
        """
        self._require_room(name)
        entries = self._queue.entries
        assert isinstance(entries, StreamEntryList), "a queue with a stream has a StreamEntryList"
        context.progress = StreamProgress(self, context, name, len(entries.partitions))
        self._attached[name] = context.progress

    def start(self, name: str, offsets: list[int]) -> list[int]:
        """Return where a consumer of this name begins: behind its settled messages, or else at `offsets`.

        The messages count that it had settled when it was last attached, or that an attached one of the same
        name has settled.
        """
        attached = self._attached.get(name)
        return self.kept.get(name, offsets) if attached is None else attached.offsets()

    def note_settled(self) -> None:
        """Note that a consumer has settled messages."""
        if self.due == 0:
            schedule = self._host.schedule
            schedule.set(self, schedule.after(NOTE_MS))

    def note_detached(self, progress: StreamProgress) -> None:
        """Store the offsets of a consumer that was detached."""
        if self._attached.get(progress.name) is progress:
            self._look()
            del self._attached[progress.name]
            self._note()

    def keep(self, name: str, offsets: list[int]) -> None:
        """Store `offsets`, one for each partition, for a consumer name, without consuming.

        Raises:
            PreconditionFailed: a consumer of that name is attached, there are too many names, or this one is
                longer than 255 bytes or not valid UTF-8.
        """
        check_length("consumer name", name)
        if name in self._attached:
            queue = self._queue
            raise PreconditionFailed(
                f"consumer '{name}' of queue '{queue.name}' in vhost '{queue.vhost}' is there, and what it "
                "settles counts"
            )
        self._require_room(name)
        if self.kept.get(name) != offsets:
            self.kept[name] = offsets
            self._host.note_queue(self._queue)

    def forget(self, name: str) -> bool:
        """Forget the offsets of a name. Return whether it had any, or a consumer with it is attached."""
        attached = self._attached.pop(name, None)  # later settles of this consumer do not count
        if self.kept.pop(name, None) is None:
            return attached is not None
        self._host.note_queue(self._queue)
        return True

    def do_due_work(self) -> None:
        """Append the changed offsets to the log."""
        self._look()
        self._note()

    def _require_room(self, name: str) -> None:
        names = self.kept.keys() | self._attached.keys()
        if name not in names and len(names) >= NAMES_MAX:
            queue = self._queue
            raise PreconditionFailed(
                f"queue '{queue.name}' in vhost '{queue.vhost}' keeps the offsets of {NAMES_MAX} consumers, "
                f"and none of '{name}'"
            )

    def _look(self) -> None:
        """Collect the present offsets of all attached consumers."""
        for name, progress in self._attached.items():
            offsets = progress.offsets()
            if self.kept.get(name) != offsets:
                self.kept[name] = offsets
                self._changed = True

    def _note(self) -> None:
        """Append the changed offsets to the log, now or when it accepts appends again."""
        if not self._changed:
            return
        if self._host.store.failure:
            self.note_settled()
            return
        self._changed = False
        self._host.note_queue(self._queue)

    def restore(self, found: object) -> None:
        """Restore the offsets from a definition. Raises ValueError if they are malformed."""
        if found is None:
            return
        if not isinstance(found, dict) or not all(_are_offsets(offsets) for offsets in found.values()):
            raise ValueError(f"offsets of consumers are no table of lists of numbers: {found!r}")
        self.kept = {str(name): list(offsets) for name, offsets in found.items()}

    def stop(self) -> None:
        """Stop: the queue has been deleted."""
        self._host.schedule.cancel(self)
        self._attached = {}


@final
class StreamProgress(CursorProgress):
    """The unsettled messages of one named consumer, which continues at the first of them."""

    def __init__(self, offsets: StreamOffsets, context: Cursor, name: str, partitions: int) -> None:
        self.name = name
        self._offsets = offsets
        self._context = context
        # for each partition the orders of entries, in their order
        self._unsettled: list[dict[int, None]] = [{} for _ in range(partitions)]

    def note_delivery(self, entry: QueueEntry) -> None:
        """Note that an entry was delivered."""
        assert isinstance(entry, StreamEntry), "streams have StreamEntry only"
        self._unsettled[entry.partition][entry.order] = None

    def note_settled(self, entries: list[QueueEntry]) -> None:
        """Note that these entries were settled."""
        for entry in entries:
            assert isinstance(entry, StreamEntry), "streams have StreamEntry only"
            self._unsettled[entry.partition].pop(entry.order, None)
        self._offsets.note_settled()

    def offsets(self) -> list[int]:
        """Return where the consumer continues in each partition."""
        last = self._context.last
        assert isinstance(last, StreamEntry), "cursors of streams stand on StreamEntry only"
        return [
            int(next(iter(unsettled)) - 1 if unsettled else last.next_offset(partition))
            for partition, unsettled in enumerate(self._unsettled)
        ]

    def end(self) -> None:
        """Store the offsets: the consumer was detached, and its unsettled messages are not processed."""
        self._offsets.note_detached(self)


def _are_offsets(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(offset, int) for offset in found)
