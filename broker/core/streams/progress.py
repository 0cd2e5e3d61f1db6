"""How far named consumers of a stream have got, which the stream keeps for when they come again.

[RabbitMQ streams: stored offsets]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.cursor import CursorProgress, QueueContext
from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.queues.host import QueueHost
from broker.core.queues.queue import Queue
from broker.core.schedule import Alarm
from broker.core.streams.list import StreamEntry, StreamEntryList

OFFSETS: Final = "offsets"
NAMES_MAX: Final = 1000  # of one stream
NOTE_MS: Final[i64] = 1000  # so long the log may not know of what has been settled


@final
class StreamOffsets(Alarm):
    """The offsets that named consumers of `queue` are to begin with when they come again.

    `kept`: by their names, as the log has them or is about to. What is settled is told to the log once in a
    while: after a crash a consumer may get again what it had settled in the last second.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        super().__init__()
        self.kept: dict[str, list[int]] = {}
        self._queue = queue
        self._host = host
        self._attached: dict[str, StreamProgress] = {}  # by name, the one that came last
        self._changed = False  # there is something that the log has not been told

    def attach(self, name: str, context: QueueContext) -> None:
        """A consumer with this cursor comes that calls itself so; another one of that name counts no longer.

        Raises:
            PreconditionFailed: there are too many names.
        """
        self._require_room(name)
        entries = self._queue.entries
        assert isinstance(entries, StreamEntryList), "a queue with a stream has such a list"
        context.progress = StreamProgress(self, context, name, len(entries.partitions))
        self._attached[name] = context.progress

    def start(self, name: str, offsets: list[int]) -> list[int]:
        """Where a consumer that calls itself so begins: behind what it had settled, or else at `offsets`.

        What it had settled when it was here last, or as one that is here still, counts.
        """
        attached = self._attached.get(name)
        return self.kept.get(name, offsets) if attached is None else attached.offsets()

    def settled(self) -> None:
        """A consumer has got further."""
        if self.due == 0:
            schedule = self._host.schedule
            schedule.set(self, schedule.after(NOTE_MS))

    def detached(self, progress: StreamProgress) -> None:
        """A consumer has gone: the log is to know how far it had got."""
        if self._attached.get(progress.name) is progress:
            self._look()
            del self._attached[progress.name]
            self._note()

    def keep(self, name: str, offsets: list[int]) -> None:
        """Whoever calls itself so has got as far as `offsets`, one for each partition, without consuming.

        Raises:
            PreconditionFailed: a consumer of that name is there, there are too many names, or this one is
                longer than 255 bytes or no Unicode text.
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
        """Whoever calls itself so begins anew; whether anybody did, or does."""
        attached = self._attached.pop(name, None)  # what it still settles counts no longer
        if self.kept.pop(name, None) is None:
            return attached is not None
        self._host.note_queue(self._queue)
        return True

    def ring(self) -> None:
        """Have the log know how far all have got (Alarm)."""
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
        """See how far all have got."""
        for name, progress in self._attached.items():
            offsets = progress.offsets()
            if self.kept.get(name) != offsets:
                self.kept[name] = offsets
                self._changed = True

    def _note(self) -> None:
        """Have the log know it, now or when it accepts something again."""
        if not self._changed:
            return
        if self._host.store.failure:
            self.settled()
            return
        self._changed = False
        self._host.note_queue(self._queue)

    def restore(self, found: object) -> None:
        """What a definition has said. Raises ValueError if it makes no sense."""
        if found is None:
            return
        if not isinstance(found, dict) or not all(_are_offsets(offsets) for offsets in found.values()):
            raise ValueError(f"offsets of consumers are no table of lists of numbers: {found!r}")
        self.kept = {str(name): list(offsets) for name, offsets in found.items()}

    def stop(self) -> None:
        """The queue has been deleted."""
        self._host.schedule.cancel(self)
        self._attached = {}


@final
class StreamProgress(CursorProgress):
    """What one named consumer has got and not settled: it is to begin with the first of that."""

    def __init__(self, offsets: StreamOffsets, context: QueueContext, name: str, partitions: int) -> None:
        self.name = name
        self._offsets = offsets
        self._context = context
        # for each partition the orders of entries, in their order
        self._unsettled: list[dict[int, None]] = [{} for _ in range(partitions)]

    def delivered(self, entry: QueueEntry) -> None:
        """The consumer has got an entry."""
        assert isinstance(entry, StreamEntry), "the entries of streams are such"
        self._unsettled[entry.partition][entry.order] = None

    def settled(self, entries: list[QueueEntry]) -> None:
        """It is done with these."""
        for entry in entries:
            assert isinstance(entry, StreamEntry), "the entries of streams are such"
            self._unsettled[entry.partition].pop(entry.order, None)
        self._offsets.settled()

    def offsets(self) -> list[int]:
        """Where it is to go on in each partition."""
        last = self._context.last
        assert isinstance(last, StreamEntry), "cursors stand on such"
        return [
            int(next(iter(unsettled)) - 1 if unsettled else last.next_offset(partition))
            for partition, unsettled in enumerate(self._unsettled)
        ]

    def end(self) -> None:
        """It has gone, and what it has not settled is not done."""
        self._offsets.detached(self)


def _are_offsets(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(offset, int) for offset in found)
