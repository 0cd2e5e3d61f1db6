"""The journal that the queue core tells of its steps: it makes records of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import JOURNAL, LEVELS, OFF, is_stream
from broker.core.delivery.journal import Journal, Operator
from broker.core.delivery.session import Connection, PullingTarget, Session
from broker.core.entries.entry import Holder
from broker.core.message import Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.hooks import COPIED, EDITED, MOVED, PUBLISHED, REDRIVEN, QueueJournal
from broker.core.queues.queue import Queue
from broker.core.queues.state import QueueState
from broker.core.view import Views
from broker.journal.queue_recorder import QueueRecorder, flags_of
from broker.journal.stream_recorder import StreamRecorder
from broker.journal.watched import WatchedQueue
from protocol.amqp091.constants import FRAME_HEADER
from protocol.amqp091.lookup import property_at, short_string
from protocol.amqp091.properties import MESSAGE_ID
from protocol.journal import records as r
from protocol.journal.encoder import Encoder
from protocol.journal.names import DEPUTY, LINK, OPERATOR, QUEUE, ROUTE, SESSION, Name

FLUSH_COUNT: Final[i64] = 512  # records; so many are written at once
NAMES_MAX: Final = 65_536  # of routes; then all are forgotten
GIVEN_BITS: Final = 11  # of the numbers that are given to messages in one microsecond
NO_PLACE: Final[i64] = -1
FULL_LEVEL: Final[i64] = 2
CHANGES: Final = frozenset(("vhost", "exchange", "binding", "policy", "operator_policy", "parameter", "user"))
"""The definitions of the log of which changes are journaled, by the first word of their kinds.

Queues say themselves that they are declared and deleted, and alterations of queues come from the core.
"""

SECRET: Final = frozenset(("password_hash", "hashing", "verifier"))
SECRET_VALUE: Final = SECRET | {"value"}
PARAMETER: Final = "parameter"
NAME_LENGTH: Final = 255  # characters
_REFUSALS: Final = [
    r.reason_number(name)
    for name in ("queue_full", "stopped", "no_permission", "not_found", "log_failed", "invalid")
]

CURRENT: Final[ContextVar[Operator | None]] = ContextVar("operator", default=None)
"""The operator whose HTTP request is being worked on. Tasks and callbacks inherit it from their request."""


def text_of(octets: bytes) -> bytes:
    """What a client has sent as text, as UTF-8."""
    return octets if octets.isascii() else octets.decode(errors="replace").encode()


def _names_in(change: dict[str, object]) -> dict[str, object]:
    """Return the short texts of a definition: its kind, and names."""
    return {
        name: value for name, value in change.items() if isinstance(value, str) and len(value) <= NAME_LENGTH
    }


def _json_of(change: dict[str, object]) -> bytes:
    return json.dumps(change, ensure_ascii=False, default=str).encode(errors="replace")


def level_number(level: str) -> i64:
    """How much is journaled: the place of a level in LEVELS."""
    return LEVELS.index(level)


@final
class Recorder(Journal):
    """Makes records, which `encoder` holds until they are written.

    `level`: what holds for queues without a level of their own, and for what concerns no queue. `limit`: what
    the disk bears, at most. `flush` writes what there is. `clock`: microseconds since 1970; it is read once
    in a turn, whose first record calls `wait`: who sets `stale` when the turn is over, and flushes soon. The
    numbers of messages and queues for which the log has none are made of the time of the start, so that they
    are not given twice.
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
        self._descendant: Message | None = None  # the last message that was made of another,
        self._descendant_of: i64 = 0  # and the number of that

    # ---- what the core asks and tells (Journal)

    def level_of(self, queue: Queue) -> str:
        """Out of LEVELS, what holds for `queue` (Journal)."""
        level = queue.effective.get(JOURNAL, self.level)
        assert isinstance(level, str), "arguments are checked before a queue is made"
        return level

    def of(self, queue: Queue) -> QueueJournal | None:
        """What is to be told of `queue`, whose arguments or policies are new (Journal)."""
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
        """The broker has started."""
        if self.limit > 0:
            self.write(r.START, 0, NO_PLACE, 0, None, None, None, 0, 0, 0, 0, version.encode())

    def unroutable(self, message: Message) -> None:
        """A message was published to no queue (Journal)."""
        if self.level_number > 0 and self.limit > 0:
            uid = self.identify(message)
            self.write(
                r.UNROUTABLE,
                uid,
                NO_PLACE,
                0,
                None,
                self.route(message.address),
                self.connection(self.publisher),
                message.size,
                flags_of(message),
                0,
                0,
                self.message_id(message),
            )

    def who(self) -> object | None:
        """Return the actor of what happens now (Journal)."""
        actor = self.actor
        return CURRENT.get() if actor is None else actor

    def refused(
        self,
        session: Session | None,
        address: Address,
        message: Message | None,
        reason: i64,
        queue: object | None = None,
    ) -> None:
        """A message for this address was refused (Journal)."""
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
                self.connection(session),
                0 if message is None else message.size,
                0,
                _REFUSALS[reason],
                0,
                b"" if message is None else self.message_id(message),
            )

    def rolled_back(self, session: Session | None, publishes: i64, settlements: i64, why: str) -> None:
        """A transaction has been rolled back (Journal)."""
        if self.level_number > 0 and self.limit > 0:
            actor = self.connection(session)
            self.write(
                r.ROLLBACK, 0, NO_PLACE, settlements, None, None, actor, publishes, 0, 0, 0, why.encode()
            )

    def changed(self, change: dict[str, object]) -> None:
        """A definition has changed (Journal). No password, hash or value of a parameter is told.

        The value of a parameter may be anything, such as a URL with a password.
        """
        if self.level_number > 0 and self.limit > 0 and self.started:
            hidden = SECRET_VALUE if change["kind"] == PARAMETER else SECRET
            public = {name: value for name, value in change.items() if name not in hidden}
            text = _json_of(public)
            if len(text) > r.CHANGE_MAX:
                text = _json_of({**_names_in(public), "cut": True})
            who = self.actor_name(self.who())
            self.write(r.CHANGE, 0, NO_PLACE, 0, None, None, who, 0, 0, 0, 0, text)

    def defined(self, change: dict[str, object]) -> None:
        """The log has been told of a definition."""
        if str(change["kind"]).split(".")[0] in CHANGES:
            self.changed(change)

    def confirmed(self, session: Session, count: i64) -> None:
        """A client has been told that `count` messages are safe (Journal)."""
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
        """The number of a message, which it has from now on. `origin`: that of what it was made of, or 0."""
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
        """What the publisher calls a message, of which memory has the content; empty: nothing."""
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
        """A name that the records to come can use."""
        self._names += 1
        return Name(self._names, kind, fields)

    def queue(self, queue: Queue) -> Name:
        """A name for a queue. One that the log has no number for gets one of those that it will not give."""
        number = queue.number
        if number == 0:
            self._given += 1
            number = self._given
        return self.new_name(QUEUE, (queue.vhost, queue.name, str(int(number))))

    def renamed(self, name: Name, queue: Queue) -> Name:
        """The name for a queue that is the same and has another one from now on."""
        return self.new_name(QUEUE, (queue.vhost, queue.name, name.fields[2]))

    def peer(self, queue: QueueState) -> Name:
        """The name for a queue that something went to."""
        journal = queue.journal if isinstance(queue, Queue) else None
        if isinstance(journal, WatchedQueue):
            return journal.name
        key = (queue.vhost, queue.name)
        found = self._peers.get(key)
        if found is None:
            if len(self._peers) >= NAMES_MAX:
                self._peers.clear()
            found = self._peers[key] = self.new_name(QUEUE, (*key, "0"))
        return found

    def route(self, address: Address) -> Name:
        """The name of an exchange and a routing key."""
        name = address.name
        if isinstance(name, Name):
            return name
        key = (address.exchange, address.routing_key)
        found = self._routes.get(key)
        if found is None:
            if len(self._routes) >= NAMES_MAX:
                self._routes.clear()
            found = self._routes[key] = self.new_name(ROUTE, key)
        address.name = found
        return found

    def connection(self, session: Session | None) -> Name | None:
        """The name of a connection and its channel; of a session that no client has, that of its operator."""
        if session is None:
            return None
        name = session.name
        if isinstance(name, Name):
            return name
        connection = session.connection
        operator = CURRENT.get()
        if not connection.address and operator is not None:
            found = self.operator(operator)
        else:
            fields = (connection.name, str(int(session.number)), connection.user, connection.address)
            found = self.new_name(SESSION, fields)
        session.name = found
        return found

    def consumer(self, consumer: Holder) -> Name:
        """The name of a consumer; of a holder that no client has, with the operator of each step."""
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
        found = self.new_name(LINK, fields)
        consumer.name = found
        return found

    def _acting_for(self, operator: Operator, tag: str) -> Name:
        name = operator.consumers.get(tag)
        if isinstance(name, Name):
            return name
        if len(operator.consumers) >= NAMES_MAX:
            operator.consumers.clear()
        found = self.new_name(DEPUTY, (tag, operator.user, operator.address, operator.request))
        operator.consumers[tag] = found
        return found

    def operator(self, operator: Operator) -> Name:
        """The name of an operator with the request."""
        name = operator.name
        if isinstance(name, Name):
            return name
        found = self.new_name(OPERATOR, (operator.user, operator.address, operator.request))
        operator.name = found
        return found

    def maker(self, way: i64) -> Name | None:
        """The name of the actor who brings a message into a queue in this way; None: the broker does."""
        if way == PUBLISHED and self.publisher is not None:
            return self.connection(self.publisher)
        if way in (PUBLISHED, MOVED, COPIED, EDITED, REDRIVEN):
            return self.actor_name(self.who())
        return None

    def _of_connection(self, connection: Connection) -> Name:
        """The name of a connection without a channel."""
        name = connection.label
        if isinstance(name, Name):
            return name
        found = self.new_name(SESSION, (connection.name, "", connection.user, connection.address))
        connection.label = found
        return found

    def actor_name(self, actor: object | None) -> Name | None:
        """The name of an actor of `who`."""
        if isinstance(actor, Operator):
            return self.operator(actor)
        if isinstance(actor, Session):
            return self.connection(actor)
        if isinstance(actor, Connection):
            return self._of_connection(actor)
        return None
