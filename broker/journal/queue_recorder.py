"""What the journal records of one queue."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import OUTCOMES
from broker.core.entries.entry import Holder, QueueEntry
from broker.core.message import Message
from broker.core.queues.backlog import existing_backlog
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.death import Death
from broker.core.queues.hooks import EXPIRED, MAXLEN, REASONS
from broker.core.queues.queue import Queue
from broker.core.queues.state import QueueState
from broker.journal.watched import FULL_LEVEL, LEVEL_REASONS, NO_PLACE, WatchedQueue
from protocol.journal import records as r
from protocol.journal.names import Name

# reasons, in the order of the numbers that the core has for them
_WAY_NAMES: Final = ("", "dead_letter", "moved", "copied", "delayed", "own", "edited", "redriven")
WAY_REASONS: Final = [r.reason_number(name) for name in _WAY_NAMES]
_DEATHS: Final = [r.reason_number(name) for name in REASONS]
_RETURNS: Final = [r.reason_number(name) for name in OUTCOMES]
_REPLACED: Final = r.reason_number("replaced")
_IMMEDIATE: Final = r.reason_number("immediate")


def flags_of(message: Message) -> i64:
    """The flags of a message itself."""
    if message.persistent:
        return r.PERSISTENT
    return 0


def outlives(entry: QueueEntry, queue: Queue) -> bool:
    """Whether `entry` is in the log, so that it is in `queue` after a restart."""
    return queue.logged and entry.message.sequence > 0


@final
class QueueRecorder(WatchedQueue):
    """Records each way of a message into its queue and out of it."""

    # ---- the queue itself

    def count(self) -> i64:
        """The count of messages in the queue (WatchedQueue)."""
        return self.queue.messages

    def lost(self) -> i64:
        """The count of messages that a restart does not bring back (WatchedQueue)."""
        queue = self.queue
        lost: i64 = 0
        for entry in queue.entries:
            if not outlives(entry, queue):
                lost += 1
        for death in self._deaths():
            if not queue.logged or death.message.sequence <= 0:
                lost += 1
        return lost

    def last_place(self) -> i64:
        """The place of the last message (WatchedQueue)."""
        entries = self.queue.entries
        tail = entries.tail
        return tail.order if tail is not entries.head else NO_PLACE

    def recovered(self) -> None:
        """Say what is in the queue after a restart, entry by entry; then how many, and what is recorded."""
        count: i64 = 0
        for entry in self.queue.entries:
            self._recovered(entry.message, entry.order, entry.delivery_count)
            count += 1
        for death in self._deaths():
            self._recovered(death.message, death.order, death.count)
            count += 1
        self.tell(r.RECOVER, count, 0, NO_PLACE, LEVEL_REASONS[self.level])

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
        backlog = existing_backlog(self.queue)
        return [] if backlog is None else backlog.deaths()

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
            recorder.maker(way),
            message.size,
            flags_of(message) if self.queue.logged else 0,
            WAY_REASONS[way],
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

    def staged(self, entry: QueueEntry, taker: Holder) -> None:
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

    def settled(self, entry: QueueEntry, consumer: Holder) -> None:
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

    def died(
        self,
        message: Message,
        uid: i64,
        order: i64,
        reason: i64,
        to: QueueState | None,
        by: Holder | None,
    ) -> None:
        """A message becomes a dead letter (QueueJournal)."""
        recorder = self.recorder
        if recorder.limit > 0:
            if uid == 0:
                uid = recorder.identify(message)
            peer = None if to is None else recorder.peer(to)
            actor = None if by is None else recorder.consumer(by)
            recorder.write(
                r.DEAD_LETTER, uid, order, 0, self.name, peer, actor, message.size, 0, _DEATHS[reason], 0, b""
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
            way = WAY_REASONS[recorder.way]
            who = recorder.actor_name(recorder.who())
            recorder.write(
                r.REMOVE, uid, order, 0, self.name, None, who, message.size, 0, way, deliveries, b""
            )

    def unwanted(self, entry: QueueEntry) -> None:
        """`entry` was for consumers that wait, and none could have it (QueueJournal)."""
        if self.recorder.limit > 0:
            self._step(r.EXPIRE, entry, None, 0, _IMMEDIATE)

    # ---- records

    def _step(self, op: i64, entry: QueueEntry, consumer: Holder | None, flags: i64, reason: i64) -> None:
        self._record(op, entry, None if consumer is None else self.recorder.consumer(consumer), flags, reason)

    def _record(self, op: i64, entry: QueueEntry, actor: Name | None, flags: i64, reason: i64) -> None:
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
            actor,
            message.size,
            flags,
            reason,
            entry.delivery_count,
            b"",
        )
