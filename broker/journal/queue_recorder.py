"""What the journal records of one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import EXPIRED, MAXLEN, REASONS, Death
from broker.core.entry import QueueEntry
from broker.core.journal import LEVELS, QueueJournal
from broker.core.message import Message
from broker.core.outcome import OUTCOMES
from broker.core.queue import Queue
from protocol.journal import records as r

if TYPE_CHECKING:
    from broker.journal.recording import Recorder

FULL_LEVEL: Final[i64] = 2
NO_PLACE: Final[i64] = -1

# reasons, in the order of the numbers that the core has for them
_WAY_NAMES: Final = ("", "dead_letter", "moved", "copied", "delayed", "own", "edited", "redriven")
_WAYS: Final = [r.reason_number(name) for name in _WAY_NAMES]
_DEATHS: Final = [r.reason_number(name) for name in REASONS]
_RETURNS: Final = [r.reason_number(name) for name in OUTCOMES]
_LEVELS: Final = [r.reason_number(name) for name in LEVELS]
_REPLACED: Final = r.reason_number("replaced")
_IMMEDIATE: Final = r.reason_number("immediate")
_LEVEL: Final = r.reason_number("level")
_SHUTDOWN: Final = r.reason_number("shutdown")


def flags_of(message: Message) -> i64:
    """The flags of a message itself."""
    if message.persistent:
        return r.PERSISTENT
    return 0


def outlives(entry: QueueEntry, queue: Queue) -> bool:
    """Whether `entry` is in the log, so that it is in `queue` after a restart."""
    return queue.logged and entry.message.sequence > 0


@final
class QueueRecorder(QueueJournal):
    """Made for one queue that is journaled, which it calls `name`; `level`: how much, its place in LEVELS."""

    def __init__(self, recorder: Recorder, queue: Queue, level: i64) -> None:
        self.recorder = recorder
        self.level = level
        self._queue = queue
        self.name = recorder.queue(queue)

    # ---- the queue itself

    def begin(self) -> None:
        """The queue is journaled from here on: it is new, or there already."""
        queue = self._queue
        if queue.published == 0 and queue.messages == 0:
            self._fact(r.DECLARE, 0, 0, NO_PLACE, _LEVELS[self.level])
            return
        self._checkpoint(_LEVEL)
        if self.level != FULL_LEVEL:
            self._fact(r.LEVEL, 0, 0, NO_PLACE, _LEVELS[self.level])

    def set_level(self, level: i64) -> None:
        """Record more or less of it from here on."""
        if level != self.level:
            self.level = level
            self._fact(r.LEVEL, 0, 0, NO_PLACE, _LEVELS[level])

    def stop(self) -> None:
        """The queue is journaled no longer."""
        self._checkpoint(_LEVEL)
        self._fact(r.LEVEL, 0, 0, NO_PLACE, _LEVELS[0])

    def stopped(self) -> None:
        """The broker stops, and the log is closed: say what goes with it, and what will be there again."""
        queue = self._queue
        if queue.number == 0:
            self._fact(r.QUEUE_DELETE, queue.messages, 0, NO_PLACE, _SHUTDOWN)
            return
        lost: i64 = 0
        for entry in queue.entries:
            if not outlives(entry, queue):
                lost += 1
        for death in self._deaths():
            if not queue.logged or death.message.sequence <= 0:
                lost += 1
        if lost > 0:
            self._fact(r.LOST, lost, 0, NO_PLACE, _SHUTDOWN)
        self._fact(r.CHECKPOINT, queue.messages - lost, 0, self._last_place(), _SHUTDOWN)

    def checkpoint(self) -> None:
        """Say how much is in the queue now, and how much is recorded of it, as who reads a part may ask."""
        self._checkpoint(_LEVELS[self.level])

    def _checkpoint(self, reason: i64) -> None:
        queue = self._queue
        self._fact(r.CHECKPOINT, queue.messages, queue.unacked, self._last_place(), reason)

    def _last_place(self) -> i64:
        entries = self._queue.entries
        tail = entries.tail
        return tail.order if tail is not entries.head else NO_PLACE

    def recovered(self) -> None:
        """Say what is in the queue after a restart, entry by entry; then how many, and what is recorded."""
        count: i64 = 0
        for entry in self._queue.entries:
            self._recovered(entry.message, entry.order, entry.delivery_count)
            count += 1
        for death in self._deaths():
            self._recovered(death.message, death.order, death.count)
            count += 1
        self._fact(r.RECOVER, count, 0, NO_PLACE, _LEVELS[self.level])

    def _recovered(self, message: Message, order: i64, deliveries: i64) -> None:
        recorder = self.recorder
        recorder.write(
            r.RECOVER,
            recorder.identify(message),
            order,
            0,
            self.name,
            recorder.route(message.address),
            None,
            message.size,
            flags_of(message),
            0,
            deliveries,
            b"",
        )

    def _deaths(self) -> list[Death]:
        """Messages that wait to be dead-lettered: they have not left."""
        backlog = self._queue.backlog
        return [] if backlog is None else backlog.deaths()

    def renamed(self) -> None:
        """The queue is called otherwise from here on (QueueJournal)."""
        self.name = self.recorder.renamed(self.name, self._queue)

    def deleted(self) -> None:
        """The queue is deleted, with all that is in it now (QueueJournal)."""
        self._fact(r.QUEUE_DELETE, self._queue.messages, 0, NO_PLACE, 0)

    def purged(self, first: i64, last: i64, count: i64) -> None:
        """All entries from one place to another leave (QueueJournal)."""
        self._fact(r.PURGE, count, first, last, 0)

    # ---- ways in

    def enqueued(self, entry: QueueEntry) -> None:
        """`entry` is new (QueueJournal)."""
        recorder = self.recorder
        if recorder.limit == 0:
            return
        message = entry.message
        way = recorder.way
        recorder.write(
            r.ENQUEUE,
            recorder.identify(message),
            entry.order,
            recorder.origin,
            self.name,
            recorder.route(message.address),
            recorder.connection(recorder.publisher) if way == 0 else None,
            message.size,
            flags_of(message) if self._queue.logged else 0,
            _WAYS[way],
            0,
            recorder.message_id(message),
        )

    # ---- in between

    def delivered(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`entry` goes to `consumer` (QueueJournal)."""
        if self.level == FULL_LEVEL and self.recorder.limit == FULL_LEVEL:
            flags: i64 = 0
            if entry.redelivered:
                flags = r.REDELIVERED
            if consumer.no_ack:
                flags |= r.AUTO_ACK
            self._step(r.DELIVER, entry, consumer, flags, 0)

    def staged(self, entry: QueueEntry, taker: QueueConsumer) -> None:
        """`entry` is set apart for a reader (QueueJournal)."""
        if self.recorder.limit > 0:
            self._step(r.STAGE, entry, taker, 0, 0)

    def returned(self, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        """`consumer` gives `entry` back (QueueJournal)."""
        if self.recorder.limit > 0:
            bit = 0
            while outcome > 1:
                outcome >>= 1
                bit += 1
            self._step(r.REQUEUE, entry, consumer, 0, _RETURNS[bit])

    # ---- ways out

    def settled(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer` is done with `entry` (QueueJournal)."""
        if self.recorder.limit > 0:
            flags: i64 = 0
            if consumer.no_ack:
                flags = r.AUTO_ACK
            self._step(r.ACK, entry, consumer, flags, 0)

    def discarded(self, entry: QueueEntry, reason: i64) -> None:
        """`entry` leaves, and nothing comes of it (QueueJournal)."""
        if self.recorder.limit > 0:
            op: i64 = r.REJECT
            if reason == EXPIRED:
                op = r.EXPIRE
            elif reason == MAXLEN:
                op = r.DROP_OVERFLOW
            self._step(op, entry, entry.owner, 0, _DEATHS[reason])

    def died(self, message: Message, uid: i64, order: i64, reason: i64, to: Queue | None) -> None:
        """A message becomes a dead letter (QueueJournal)."""
        recorder = self.recorder
        if recorder.limit > 0:
            if uid == 0:
                uid = recorder.identify(message)
            peer = None if to is None else recorder.peer(to)
            recorder.write(
                r.DEAD_LETTER, uid, order, 0, self.name, peer, None, message.size, 0, _DEATHS[reason], 0, b""
            )

    def replaced(self, entry: QueueEntry) -> None:
        """A later message has taken the place of `entry` (QueueJournal)."""
        if self.recorder.limit > 0:
            self._step(r.REPLACE, entry, None, 0, _REPLACED)

    def removed(self, message: Message, order: i64, deliveries: i64) -> None:
        """An operator takes a message away (QueueJournal)."""
        recorder = self.recorder
        if recorder.limit > 0:
            uid = message.uid
            if uid <= 0:
                uid = recorder.identify(message)
            way = _WAYS[recorder.way]
            recorder.write(
                r.REMOVE, uid, order, 0, self.name, None, None, message.size, 0, way, deliveries, b""
            )

    def unwanted(self, entry: QueueEntry) -> None:
        """`entry` was for consumers that wait, and none could have it (QueueJournal)."""
        if self.recorder.limit > 0:
            self._step(r.EXPIRE, entry, None, 0, _IMMEDIATE)

    # ---- records

    def _step(
        self, op: i64, entry: QueueEntry, consumer: QueueConsumer | None, flags: i64, reason: i64
    ) -> None:
        recorder = self.recorder
        message = entry.message
        uid = message.uid
        if uid <= 0:
            uid = recorder.identify(message)
        recorder.write(
            op,
            uid,
            entry.order,
            0,
            self.name,
            None,
            None if consumer is None else recorder.consumer(consumer),
            message.size,
            flags,
            reason,
            entry.delivery_count,
            b"",
        )

    def _fact(self, op: i64, count: i64, other: i64, place: i64, reason: i64) -> None:
        recorder = self.recorder
        if recorder.limit > 0 and recorder.started:
            recorder.write(op, 0, place, other, self.name, None, None, count, 0, reason, 0, b"")
