"""The journal as the queue core calls it: records of queues, of streams, and of the broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import JOURNAL, LEVELS, OFF, OUTCOMES, is_stream
from broker.core.arguments.remote import shown_arguments
from broker.core.delivery.journal import (
    CARRIED,
    CONNECTED,
    DISCONNECTED,
    FINISHED,
    IMMEDIATE,
    Journal,
    Operator,
)
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import Holder, QueueEntry
from broker.core.message import Address, Message
from broker.core.message_view import Views
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.hooks import (
    EXPIRED,
    MAXLEN,
    REASONS,
    QueueJournal,
)
from broker.core.queues.queue import Queue
from broker.core.queues.source import COPIED, DEAD_LETTER_SOURCE, EDITED, MOVED, PUBLISHED, REDRIVEN, Source
from broker.core.queues.state import QueueState
from broker.core.streams.stream import stream_of
from protocol.amqp091.constants import FRAME_HEADER
from protocol.amqp091.lookup import property_at, short_string
from protocol.amqp091.properties import MESSAGE_ID
from protocol.journal import records as r
from protocol.journal.encoder import Encoder
from protocol.journal.names import DEPUTY, LINK, OPERATOR, QUEUE, ROUTE, SESSION, Name

FULL_LEVEL: Final[i64] = 2
NO_PLACE: Final[i64] = -1

LEVEL_REASONS: Final = [r.reason_number(name) for name in LEVELS]
SHUTDOWN: Final = r.reason_number("shutdown")
_LEVEL: Final = r.reason_number("level")

# Reasons, in the order of their numbers in the core.
_WAY_NAMES: Final = ("", "dead_letter", "moved", "copied", "delayed", "own", "edited", "redriven")
WAY_REASONS: Final = [r.reason_number(name) for name in _WAY_NAMES]
_DEATHS: Final = [r.reason_number(name) for name in REASONS]
_RETURNS: Final = [r.reason_number(name) for name in OUTCOMES]
_REPLACED: Final = r.reason_number("replaced")
_IMMEDIATE: Final = r.reason_number("immediate")

FLUSH_COUNT: Final[i64] = 512  # records that are written at once
NAMES_MAX: Final = 65_536  # for routes; above this number all are dropped
GIVEN_BITS: Final = 11  # numbers assigned to messages in one microsecond
CHANGES: Final = frozenset(
    ("vhost", "exchange", "binding", "policy", "operator_policy", "parameter", "user", "dispatcher")
)
"""The definitions whose changes are journaled, by the first word of their kinds in the log.

Queues report their own declaration and deletion, and the core reports alterations of queues.
"""

SECRET: Final = frozenset(("password_hash", "hashing", "verifier", "headers", "reroute", "former"))
SECRET_VALUE: Final = SECRET | {"value"}
PARAMETER: Final = "parameter"
NAME_LENGTH: Final = 255  # characters
_REFUSALS: Final = [
    r.reason_number(name)
    for name in ("queue_full", "stopped", "no_permission", "not_found", "log_failed", "invalid", "immediate")
]
_FORWARDING: Final = [
    r.reason_number(name)
    for name in (
        "started",
        "connected",
        "disconnected",
        "paused",
        "resumed",
        "stopped",
        "finished",
        "deleted",
        "moved",
    )
]
TIMED: Final = frozenset((CONNECTED, DISCONNECTED, FINISHED, CARRIED))
"""The events of shovels that no operator causes. Timers may inherit the operator of a past request."""

CURRENT: Final[ContextVar[Operator | None]] = ContextVar("operator", default=None)
"""The operator of the present HTTP request. Tasks and callbacks inherit it from their request."""


class WatchedQueue(QueueJournal):
    """The recorder of one journaled queue. `name`: its name in records. `level`: its place in LEVELS."""

    def __init__(self, recorder: Recorder, queue: Queue, level: i64) -> None:
        self.recorder = recorder
        self.level = level
        self.queue = queue
        self.name = recorder.queue(queue)

    def begin(self) -> None:
        """Record the beginning of the queue's journal: the queue is new, or existed before."""
        queue = self.queue
        if queue.published == 0 and self.count() == 0:
            who = self.recorder.actor_name(self.recorder.current_actor())
            self.tell(r.DECLARE, 0, 0, NO_PLACE, LEVEL_REASONS[self.level], who)
            return
        self._checkpoint(_LEVEL)
        if self.level != FULL_LEVEL:
            self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[self.level])

    def set_level(self, level: i64) -> None:
        """Record a change of the level."""
        if level != self.level:
            self.level = level
            self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[level])

    def stop(self) -> None:
        """Record the end of the queue's journal."""
        self._checkpoint(_LEVEL)
        self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[0])

    def stopped(self) -> None:
        """Record the broker's stop: the messages that a restart loses, and those that it recovers."""
        queue = self.queue
        if queue.number == 0:
            self.tell(r.QUEUE_DELETE, self.count(), 0, NO_PLACE, SHUTDOWN)
            return
        lost = self.lost()
        if lost > 0:
            self.tell(r.LOST, lost, 0, NO_PLACE, SHUTDOWN)
        self.tell(r.CHECKPOINT, self.count() - lost, 0, self.last_place(), SHUTDOWN)

    def checkpoint(self) -> None:
        """Record the count and the level of the queue, for readers of a part of the journal."""
        self._checkpoint(LEVEL_REASONS[self.level])

    def _checkpoint(self, reason: i64) -> None:
        self.tell(r.CHECKPOINT, self.count(), self.queue.unacked, self.last_place(), reason)

    def recovered(self) -> None:
        """Record the contents of the queue after a restart."""
        raise NotImplementedError

    def count(self) -> i64:
        """Return how many messages are in the queue."""
        raise NotImplementedError

    def lost(self) -> i64:
        """Return how many messages of the queue a restart does not bring back."""
        raise NotImplementedError

    def last_place(self) -> i64:
        """Return the place of the last message; NO_PLACE if there is none."""
        raise NotImplementedError

    def renamed(self) -> None:
        """Record a new name of the queue."""
        self.name = self.recorder.renamed(self.name, self.queue)

    def deleted(self) -> None:
        """Record the deletion of the queue with its messages."""
        who = self.recorder.actor_name(self.recorder.current_actor())
        self.tell(r.QUEUE_DELETE, self.count(), 0, NO_PLACE, 0, who)

    def purged(self, first: i64, last: i64, count: i64, by: object | None) -> None:
        """Record that all entries from one place to another leave."""
        self.tell(r.PURGE, count, first, last, 0, self.recorder.actor_name(by))

    def current_actor(self) -> object | None:
        """Return the actor of the present step."""
        return self.recorder.current_actor()

    def tell(
        self, op: i64, count: i64, other: i64, place: i64, reason: i64, actor: Name | None = None
    ) -> None:
        """Record an event that concerns no single message."""
        recorder = self.recorder
        if recorder.limit > 0 and recorder.started:
            recorder.write(op, 0, place, other, self.name, None, actor, count, 0, reason, 0, b"")


def flags_of(message: Message) -> i64:
    """Return the flags of a message."""
    if message.persistent:
        return r.PERSISTENT
    return 0


def outlives(entry: QueueEntry, queue: Queue) -> bool:
    """Whether `entry` is in the log, and so in `queue` after a restart."""
    return queue.logged and entry.message.sequence > 0


@final
class QueueRecorder(WatchedQueue):
    """Records each event that brings a message into its queue, changes its state, or removes it."""

    # ---- events of the queue

    def count(self) -> i64:
        """The count of messages in the queue."""
        return self.queue.messages

    def lost(self) -> i64:
        """The count of messages that a restart does not bring back."""
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
        """The place of the last message."""
        entries = self.queue.entries
        tail = entries.tail
        return tail.order if tail is not entries.head else NO_PLACE

    def recovered(self) -> None:
        """Record the contents of the queue after a restart, entry by entry, then the count and the level."""
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
        """Return the messages that wait to be dead-lettered, as they count as contents."""
        backlog = existing_backlog(self.queue)
        return [] if backlog is None else backlog.deaths()

    # ---- entries enter

    def enqueued(self, entry: QueueEntry, source: Source) -> None:
        """Record that `entry` is enqueued."""
        recorder = self.recorder
        if recorder.limit == 0:
            return
        message = entry.message
        recorder.write(
            r.ENQUEUE,
            recorder.identify(message),
            entry.order,
            recorder.origin,
            self.name,
            recorder.route(message.address),
            recorder.maker(source),
            message.size,
            flags_of(message) if self.queue.logged else 0,
            WAY_REASONS[source.way],
            0,
            recorder.message_id(message),
        )

    # ---- entries change

    def delivered(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Record the delivery of `entry` to `consumer`."""
        if self.level == FULL_LEVEL and self.recorder.limit == FULL_LEVEL:
            flags: i64 = 0
            if entry.redelivered:
                flags = r.REDELIVERED
            if consumer.no_ack:
                flags |= r.AUTO_ACK
            self._step(r.DELIVER, entry, consumer, flags, 0)

    def staged(self, entry: QueueEntry, holder: Holder) -> None:
        """Record that `entry` is staged for a reader."""
        if self.recorder.limit > 0:
            self._step(r.STAGE, entry, holder, 0, 0)

    def returned(self, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        """Record that `consumer` returns `entry`."""
        if self.recorder.limit > 0:
            bit = 0
            while outcome > 1:
                outcome >>= 1
                bit += 1
            self._step(r.REQUEUE, entry, consumer, 0, _RETURNS[bit])

    # ---- entries leave

    def settled(self, entry: QueueEntry, consumer: Holder) -> None:
        """Record that `consumer` has settled `entry`."""
        if self.recorder.limit > 0:
            flags: i64 = 0
            if consumer.no_ack:
                flags = r.AUTO_ACK
            self._step(r.ACK, entry, consumer, flags, 0)

    def discarded(self, entry: QueueEntry, reason: i64) -> None:
        """Record that `entry` is discarded without a dead letter."""
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
        """Record that a message becomes a dead letter."""
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
        """Record that a later message replaces `entry`."""
        if self.recorder.limit > 0:
            self._step(r.REPLACE, entry, None, 0, _REPLACED)

    def removed(self, message: Message, order: i64, deliveries: i64, way: i64) -> None:
        """Record that an operator removes a message."""
        recorder = self.recorder
        if recorder.limit > 0:
            uid = message.uid
            if uid <= 0:
                uid = recorder.identify(message)
            who = recorder.actor_name(recorder.current_actor())
            recorder.write(
                r.REMOVE,
                uid,
                order,
                0,
                self.name,
                None,
                who,
                message.size,
                0,
                WAY_REASONS[way],
                deliveries,
                b"",
            )

    def unwanted(self, entry: QueueEntry) -> None:
        """Record that no consumer could take `entry`, an immediate message."""
        if self.recorder.limit > 0:
            self._step(r.EXPIRE, entry, None, 0, _IMMEDIATE)

    def refused(self, message: Message, source: Source) -> None:
        """Record that the queue refuses an immediate message whose value it has."""
        self.recorder.refused(source, message.address, message, IMMEDIATE, self.queue)

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


@final
class StreamRecorder(WatchedQueue):
    """Records rows of a stream by their offsets.

    A row is recorded when it is appended, before it is on disk.
    """

    def count(self) -> i64:
        """The count of rows."""
        stream = stream_of(self.queue)
        return self.queue.ready if stream is None else stream.appended

    def lost(self) -> i64:
        """The count of rows that a restart does not bring back: none, as all are on disk."""
        return 0

    def last_place(self) -> i64:
        """No place: a stream may have partitions, each with offsets of its own."""
        return NO_PLACE

    def recovered(self) -> None:
        """Record the number of rows after a restart, without a list of them.

        Retention has removed rows when the stream was opened, before the journal started.
        """
        stream = stream_of(self.queue)
        if stream is not None:
            for stored, first in zip(stream.partitions, stream.first_at_open, strict=True):
                if stored.first > first:
                    self.trimmed(first, stored.first - 1, stored.first - first)
        self.tell(r.CHECKPOINT, self.count(), 0, NO_PLACE, LEVEL_REASONS[self.level])

    def enqueued(self, entry: QueueEntry, source: Source) -> None:
        """Do nothing: the row was recorded when it was appended."""

    def unwanted(self, entry: QueueEntry) -> None:
        """Do nothing: streams take immediate messages."""

    def refused(self, message: Message, source: Source) -> None:
        """Do nothing: streams take immediate messages."""

    def appended(self, message: Message, offset: i64, source: Source) -> None:
        """Record an appended message."""
        recorder = self.recorder
        if recorder.limit == 0:
            return
        source = DEAD_LETTER_SOURCE if message.died else source
        recorder.write(
            r.APPEND,
            recorder.identify(message),
            offset,
            recorder.origin,
            self.name,
            recorder.route(message.address),
            recorder.maker(source),
            message.size,
            flags_of(message),
            WAY_REASONS[source.way],
            0,
            recorder.message_id(message),
        )

    def shown(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Record a row that is sent to a consumer."""
        recorder = self.recorder
        if self.level == FULL_LEVEL and recorder.limit == FULL_LEVEL:
            actor = recorder.consumer(consumer)
            size = entry.message.size
            recorder.write(r.READ, 0, entry.order - 1, 0, self.name, None, actor, size, 0, 0, 0, b"")

    def trimmed(self, first: i64, last: i64, count: i64) -> None:
        """Record the rows that retention removes."""
        self.tell(r.TRIM, count, first, last, 0)


def text_of(octets: bytes) -> bytes:
    """Return a client's text as UTF-8."""
    return octets if octets.isascii() else octets.decode(errors="replace").encode()


def _names_in(change: dict[str, object]) -> dict[str, object]:
    """Return the short texts of a definition: its kind, and names."""
    return {
        name: value for name, value in change.items() if isinstance(value, str) and len(value) <= NAME_LENGTH
    }


def _json_of(change: dict[str, object]) -> bytes:
    return json.dumps(change, ensure_ascii=False, default=str).encode(errors="replace")


def level_number(level: str) -> i64:
    """Return the place of a level in LEVELS."""
    return LEVELS.index(level)


@final
class Recorder(Journal):
    """Makes records, which `encoder` buffers until they are written.

    `level`: the level of queues without a level of their own, and of events of the broker. `limit`: the
    highest level that the disk has room for. `flush` writes the buffered records. `clock` returns
    microseconds since 1970, and is read once in a turn of the loop. The first record of a turn calls `wait`,
    which sets `stale` at the end of the turn, and flushes soon. Messages and queues without a number in the
    log get numbers that contain the time of the start, so that no number is assigned twice.
    """

    def __init__(
        self,
        level: str,
        encoder: Encoder,
        clock: Callable[[], int],
        store: MessageStore,
        views: Views,
        flush: Callable[[], None],
        wait: Callable[[], None],
    ) -> None:
        super().__init__()
        self.on = level != OFF
        self.level = level
        self.level_number: i64 = level_number(level)
        self.limit: i64 = FULL_LEVEL
        self.encoder = encoder
        self.started = False
        self.views = views
        self.store = store
        self.clock = clock
        self.flush = flush
        self.wait = wait
        self.time: i64 = 0
        self.stale = True
        self.origin: i64 = 0
        self._names: i64 = 0
        self._nobody = Operator("", "", "")
        self._given: i64 = clock() << GIVEN_BITS
        self._routes: dict[tuple[str, str], Name] = {}
        self._peers: dict[tuple[str, str], Name] = {}  # queues that are not journaled
        self._descendant: Message | None = None  # the last message that was made of another message,
        self._descendant_of: i64 = 0  # and the number of that other message

    # ---- calls from the core (Journal)

    def level_of(self, queue: Queue) -> str:
        """Return the level of LEVELS that applies to `queue`."""
        level = queue.effective.get(JOURNAL, self.level)
        assert isinstance(level, str), "arguments are checked before a queue is made"
        return level

    def journal_of(self, queue: Queue) -> QueueJournal | None:
        """Return the recorder of `queue`, whose arguments or policies are new; None: off."""
        number = level_number(self.level_of(queue))
        before = queue.journal
        if number == 0:
            if isinstance(before, WatchedQueue):
                before.stop()
            return None
        self.on = True
        if isinstance(before, WatchedQueue):
            before.set_level(number)
            return before
        recorder: WatchedQueue
        if is_stream(queue.arguments):
            recorder = StreamRecorder(self, queue, number)
        else:
            recorder = QueueRecorder(self, queue, number)
        if self.started:
            recorder.begin()
        return recorder

    def began(self, version: str) -> None:
        """Record the start of the broker."""
        if self.limit > 0:
            self.write(r.START, 0, NO_PLACE, 0, None, None, None, 0, 0, 0, 0, version.encode())

    def unroutable(self, message: Message, source: Source) -> None:
        """Record a message that was routed to no queue."""
        if self.level_number > 0 and self.limit > 0:
            uid = self.identify(message)
            self.write(
                r.UNROUTABLE,
                uid,
                NO_PLACE,
                0,
                None,
                self.route(message.address),
                self._publisher_of(source),
                message.size,
                flags_of(message),
                0,
                0,
                self.message_id(message),
            )

    def current_actor(self) -> object | None:
        """Return the actor of the present step."""
        actor = self.actor
        return CURRENT.get() if actor is None else actor

    def refused(
        self,
        source: Source,
        address: Address,
        message: Message | None,
        reason: i64,
        queue: object | None = None,
    ) -> None:
        """Record that a message for this address was refused."""
        place = queue if isinstance(queue, Queue) else None
        journaled = self.level_number > 0 or (place is not None and place.journal is not None)
        if journaled and self.limit > 0:
            self.write(
                r.REFUSE,
                0,
                NO_PLACE,
                0,
                None if place is None else self.peer(place),
                self.route(address),
                self._publisher_of(source),
                0 if message is None else message.size,
                0,
                _REFUSALS[reason],
                0,
                b"" if message is None else self.message_id(message),
            )

    def rolled_back(self, source: Source, publishes: i64, settlements: i64, why: str) -> None:
        """Record the rollback of a transaction."""
        if self.level_number > 0 and self.limit > 0:
            actor = self._publisher_of(source)
            self.write(
                r.ROLLBACK, 0, NO_PLACE, settlements, None, None, actor, publishes, 0, 0, 0, why.encode()
            )

    def changed(self, change: dict[str, object]) -> None:
        """Record a changed definition, without passwords, hashes, headers of calls and values of parameters.

        The URI of a remote queue is recorded without its log-in.

        The value of a parameter may be anything, such as a URL with a password.
        """
        if self.level_number > 0 and self.limit > 0 and self.started:
            hidden = SECRET_VALUE if change["kind"] == PARAMETER else SECRET
            public = {name: value for name, value in change.items() if name not in hidden}
            arguments = public.get("arguments")
            if isinstance(arguments, dict):
                public["arguments"] = shown_arguments(arguments)
            text = _json_of(public)
            if len(text) > r.CHANGE_MAX:
                text = _json_of({**_names_in(public), "cut": True})
            who = self.actor_name(self.current_actor())
            self.write(r.CHANGE, 0, NO_PLACE, 0, None, None, who, 0, 0, 0, 0, text)

    def defined(self, change: dict[str, object]) -> None:
        """Record a definition that was appended to the log."""
        if str(change["kind"]).split(".")[0] in CHANGES:
            self.changed(change)

    def forwarded(self, event: i64, count: i64, details: dict[str, object]) -> None:
        """Record an event of a shovel or a federation link."""
        if self.level_number > 0 and self.limit > 0 and self.started:
            who = None if event in TIMED else self.actor_name(self.current_actor())
            reason = _FORWARDING[event]
            self.write(r.FORWARD, 0, NO_PLACE, 0, None, None, who, count, 0, reason, 0, _json_of(details))

    def confirmed(self, session: Session, count: i64) -> None:
        """Record that `count` messages were confirmed to a client."""
        if self.level_number == FULL_LEVEL and self.limit == FULL_LEVEL:
            self.write(r.CONFIRM, 0, NO_PLACE, 0, None, None, self.connection(session), count, 0, 0, 0, b"")

    # ---- records

    def write(
        self,
        op: i64,
        uid: i64,
        qpos: i64,
        other: i64,
        queue: Name | None,
        place: Name | None,
        actor: Name | None,
        size: i64,
        flags: i64,
        reason: i64,
        deliveries: i64,
        text: bytes,
    ) -> None:
        """Make a record; see `protocol.journal.encoder`."""
        encoder = self.encoder
        if self.stale:
            self.stale = False
            self.time = self.clock()
            self.wait()
        encoder.record(
            self.time, op, uid, qpos, other, queue, place, actor, size, flags, reason, deliveries, text
        )
        if encoder.count >= FLUSH_COUNT:
            self.flush()

    def identify(self, message: Message) -> i64:
        """Assign a number to a message and return it.

        `origin`: the number of the message it was made of, or 0.
        """
        uid = message.uid
        self.origin = 0
        if uid > 0:
            if message is self._descendant:
                self.origin = self._descendant_of
            return uid
        if uid < 0:
            self._descendant = message
            self._descendant_of = self.origin = -uid
        uid = message.sequence
        if uid <= 0:
            self._given += 1
            uid = self._given
        message.uid = uid
        return uid

    def message_id(self, message: Message) -> bytes:
        """Return the publisher's message id, if the message's content is in memory; empty: none."""
        content = message.content
        if content is None:
            return b""
        if content[0] == FRAME_HEADER:
            at = property_at(content, MESSAGE_ID)
            return b"" if at < 0 else text_of(short_string(content, at))
        value = self.views(message, self.store).property("message_id")
        return value.encode() if isinstance(value, str) else b""

    # ---- names

    def new_name(self, kind: i64, fields: tuple[str, ...]) -> Name:
        """Return a name for use in later records."""
        self._names += 1
        return Name(self._names, kind, fields)

    def queue(self, queue: Queue) -> Name:
        """Return the name of a queue.

        A queue that is not in the log gets a number that the log never assigns.
        """
        number = queue.number
        if number == 0:
            self._given += 1
            number = self._given
        return self.new_name(QUEUE, (queue.vhost, queue.name, str(int(number))))

    def renamed(self, name: Name, queue: Queue) -> Name:
        """Return the new name of a renamed queue."""
        return self.new_name(QUEUE, (queue.vhost, queue.name, name.fields[2]))

    def peer(self, queue: QueueState) -> Name:
        """Return the name of another queue that a message went to."""
        journal = queue.journal if isinstance(queue, Queue) else None
        if isinstance(journal, WatchedQueue):
            return journal.name
        key = (queue.vhost, queue.name)
        name = self._peers.get(key)
        if name is None:
            if len(self._peers) >= NAMES_MAX:
                self._peers.clear()
            name = self._peers[key] = self.new_name(QUEUE, (*key, "0"))
        return name

    def route(self, address: Address) -> Name:
        """Return the name of an exchange and a routing key."""
        name = address.name
        if isinstance(name, Name):
            return name
        key = (address.exchange, address.routing_key)
        known = self._routes.get(key)
        if known is None:
            if len(self._routes) >= NAMES_MAX:
                self._routes.clear()
            known = self._routes[key] = self.new_name(ROUTE, key)
        address.name = known
        return known

    def _publisher_of(self, source: Source) -> Name | None:
        """The name of the publisher of a message from `source`; None: the broker publishes it."""
        return self.connection(source) if isinstance(source, Session) else None

    def connection(self, session: Session) -> Name | None:
        """Return the name of a connection and its channel; without a client, of the session's operator."""
        name = session.name
        if isinstance(name, Name):
            return name
        connection = session.connection
        operator = CURRENT.get()
        if not connection.address and operator is not None:
            new_name = self.operator(operator)
        else:
            fields = (connection.name, str(int(session.number)), connection.user, connection.address)
            new_name = self.new_name(SESSION, fields)
        session.name = new_name
        return new_name

    def consumer(self, consumer: Holder) -> Name:
        """Return the name of a consumer; for a holder without a client, with the operator of each step."""
        if not isinstance(consumer, QueueConsumer):
            return self._acting_for(CURRENT.get() or self._nobody, consumer.tag)
        name = consumer.name
        if isinstance(name, Name):
            return name
        target = consumer.target
        session = target.session if isinstance(target, PullingTarget) else None
        if session is None or not session.connection.address:
            return self._acting_for(CURRENT.get() or self._nobody, consumer.tag)
        connection = session.connection
        fields = (
            consumer.tag,
            connection.name,
            str(int(session.number)),
            connection.user,
            connection.address,
        )
        link_name = self.new_name(LINK, fields)
        consumer.name = link_name
        return link_name

    def _acting_for(self, operator: Operator, tag: str) -> Name:
        name = operator.consumers.get(tag)
        if isinstance(name, Name):
            return name
        if len(operator.consumers) >= NAMES_MAX:
            operator.consumers.clear()
        deputy_name = self.new_name(DEPUTY, (tag, operator.user, operator.address, operator.request))
        operator.consumers[tag] = deputy_name
        return deputy_name

    def operator(self, operator: Operator) -> Name:
        """Return the name of an operator with the request."""
        name = operator.name
        if isinstance(name, Name):
            return name
        operator_name = self.new_name(OPERATOR, (operator.user, operator.address, operator.request))
        operator.name = operator_name
        return operator_name

    def maker(self, source: Source) -> Name | None:
        """Return the name of the actor who brings a message from `source` into a queue; None: the broker."""
        if isinstance(source, Session):
            return self.connection(source)
        if source.way in (PUBLISHED, MOVED, COPIED, EDITED, REDRIVEN):
            return self.actor_name(self.current_actor())
        return None

    def _of_connection(self, connection: Connection) -> Name:
        """Return the name of a connection without a channel."""
        name = connection.label
        if isinstance(name, Name):
            return name
        session_name = self.new_name(SESSION, (connection.name, "", connection.user, connection.address))
        connection.label = session_name
        return session_name

    def actor_name(self, actor: object | None) -> Name | None:
        """Return the name of an actor of `who`."""
        if isinstance(actor, Operator):
            return self.operator(actor)
        if isinstance(actor, Session):
            return self.connection(actor)
        if isinstance(actor, Connection):
            return self._of_connection(actor)
        return None
