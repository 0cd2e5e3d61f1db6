"""The identity of a message for deduplication: its message-id, and its sequence number from its producer.

A broker that forwards messages exactly once is a producer too. It names itself and the position of each
message in headers of their own, which do not replace those of the application. It also names the position
before: a queue that has not had that message refuses this one. Otherwise a message that was refused, as the
queue was full, would be taken for a duplicate after its successor.

The headers of origins stay in the messages. A message that comes to the queue in another way, such as a dead
letter that is sent to its queue again, is no repetition. So the headers count only in a session whose client
has said that it forwards exactly once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.message import KNOWN, NEVER, Message
from broker.core.message_view import MessageView
from broker.core.names import is_short
from broker.core.queues.duplicates import memory_of, new_mark
from broker.core.queues.queue import Queue
from broker.core.routing.virtual_host import RoutingHost
from broker.core.values import show, type_name

PRODUCER: Final = "x-producer"
SEQUENCE: Final = "x-sequence"
ORIGIN: Final = "x-origin"
POSITION: Final = "x-origin-position"
PRECEDING: Final = "x-origin-preceding"
ANY: Final = -1  # the position before is not known
_SEQUENCE_MAX: Final = 2**63 - 1


@final
class DuplicateCheck:
    """The identity of a message, as far as its queues remember identities.

    `key`: the message-id, "" without one. `producer`: "" without one; otherwise `sequence` is the message's
    number. `preceding`: the number of the message before it, which a queue must have had; ANY: none.
    """

    def __init__(self, key: str, producer: str, sequence: i64, preceding: i64 = ANY) -> None:
        self.key = key
        self.producer = producer
        self.sequence = sequence
        self.preceding = preceding
        self._marks: list[tuple[Message, list[Queue]]] = []
        self._batch: i64 = 0
        self._reserved: list[Queue] = []

    def is_known(self, queue: Queue, date: i64) -> bool:
        """Whether the message is a duplicate for the queue."""
        memory = memory_of(queue)
        if memory is None:
            return False
        return (memory.window > 0 and self.key != "" and memory.knows_id(self.key, date)) or (
            memory.producers_max > 0
            and self.producer != ""
            and memory.knows_sequence(self.producer, self.sequence)
        )

    def has_gap(self, queues: list[Queue]) -> bool:
        """Whether one of the queues remembers producers and has not had the message before this one."""
        if self.preceding == ANY:
            return False
        for queue in queues:
            memory = memory_of(queue)
            if (
                memory is not None
                and memory.producers_max > 0
                and not memory.knows_sequence(self.producer, self.preceding)
            ):
                return True
        return False

    def append(self, message: Message, queues: list[Queue], host: RoutingHost, is_kept: bool = False) -> None:
        """Append that these queues have had the message, in the batch of the message.

        `is_kept`: all these queues accept the message, and `keep` follows in the same step. So a mark of the
        batch may be raised instead: another message must not depend on a mark that may be withdrawn.
        """
        if is_kept and self.key == "" and len(queues) == 1 and message.persistent and queues[0].logged:
            memory = memory_of(queues[0])
            if memory is not None and memory.raise_mark(self.producer, self.sequence):
                return
        date = host.schedule.date()
        self._batch = host.store.batch
        if self.key:
            mark = new_mark(self.key, NEVER, message.persistent, date)
            self._append(mark, [queue for queue in queues if _remembers_ids(queue)], host)
        if self.producer:
            mark = new_mark(self.producer, self.sequence, message.persistent, date)
            self._append(mark, [queue for queue in queues if _remembers_producers(queue)], host)

    def _append(self, mark: Message, queues: list[Queue], host: RoutingHost) -> None:
        logged = [queue for queue in queues if queue.logged] if mark.persistent else []
        if logged and not host.store.failure:
            host.store.append_message(mark, logged)
        if queues:
            self._marks.append((mark, queues))

    def keep(self, takers: list[Queue]) -> None:
        """Remember the message in the queues that have accepted it.

        For other queues the appended marks are settled.
        """
        taken = set(takers)
        for mark, queues in self._marks:
            for queue in queues:
                memory = memory_of(queue)
                if memory is not None and queue in taken:
                    memory.keep(mark, self._batch)
                elif queue.logged and mark.sequence != 0:
                    queue.store.append_settle(mark, queue)
        self._marks = []

    def reserve(self, queues: list[Queue]) -> None:
        """Let these queues treat the message as known until `unreserve`, while its transaction commits."""
        for queue in queues:
            memory = memory_of(queue)
            if memory is not None:
                self._reserved.append(queue)
                if self.key:
                    memory.reserve_id(self.key)
                if self.producer and memory.producers_max > 0:
                    memory.reserve_sequence(self.producer, self.sequence)

    def unreserve(self) -> None:
        """End the reservation: the transaction is over."""
        for queue in self._reserved:
            memory = memory_of(queue)
            if memory is not None:
                memory.unreserve_id(self.key)
                memory.unreserve_sequence(self.producer, self.sequence)
        self._reserved = []


def _remembers_ids(queue: Queue) -> bool:
    memory = memory_of(queue)
    return memory is not None and memory.window > 0


def _remembers_producers(queue: Queue) -> bool:
    memory = memory_of(queue)
    return memory is not None and memory.producers_max > 0


def identity_of(
    message: Message, queues: list[Queue], host: RoutingHost, names_origins: bool
) -> DuplicateCheck | None:
    """Return the identity of a message, as far as these queues remember identities.

    The result is None if no queue does, or if the message has no identity. `names_origins`: the source of the
    message forwards exactly once, see `Source`.

    Raises:
        PreconditionFailed: the identity is malformed.
    """
    ids = False
    producers = False
    for queue in queues:
        ids = ids or _remembers_ids(queue)
        producers = producers or _remembers_producers(queue)
    if not ids and not producers:
        return None
    view = host.views(message, host.store)
    key = _id(view) if ids else ""
    producer = ""
    sequence: i64 = 0
    preceding: i64 = ANY
    if producers:
        origin = view.header_named(ORIGIN) if names_origins else None
        if origin is not None or (names_origins and view.header_named(POSITION) is not None):
            producer = _producer(origin, ORIGIN)
            sequence = _sequence(view.header_named(POSITION), POSITION)
            before = view.header_named(PRECEDING)
            if before is not None:
                preceding = _sequence(before, PRECEDING)
        else:
            headers = view.headers()
            if PRODUCER in headers or SEQUENCE in headers:
                producer = _producer(headers.get(PRODUCER), PRODUCER)
                sequence = _sequence(headers.get(SEQUENCE), SEQUENCE)
    return DuplicateCheck(key, producer, sequence, preceding) if key or producer else None


def find_new_queues(
    identity: DuplicateCheck, message: Message, queues: list[Queue], host: RoutingHost
) -> list[Queue]:
    """Return the queues that have not had the message, and count the duplicates.

    Raises:
        StoreFailed: a queue with a duplicate would have to confirm it as durable, and the log has stopped.
    """
    date = host.schedule.date()
    left: list[Queue] = []
    for queue in queues:
        memory = memory_of(queue)
        if memory is not None and identity.is_known(queue, date):
            if queue.logged and message.persistent:
                host.store.require()
            memory.duplicates += 1
            host.counters.duplicate += 1
            message.marks |= KNOWN
        else:
            left.append(queue)
    return left


def _id(view: MessageView) -> str:
    key = view.property("message_id")
    if not isinstance(key, str):
        return ""
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise PreconditionFailed(f"invalid message-id {key!r}: it is not valid UTF-8") from error
    return key


def _producer(value: object, name: str) -> str:
    if isinstance(value, str) and value != "" and is_short(value):
        return value
    raise _invalid(name, value, "a string of 1 to 255 bytes")


def _sequence(value: object, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _SEQUENCE_MAX:
        return value
    raise _invalid(name, value, f"an integer from 0 to {_SEQUENCE_MAX}")


def _invalid(name: str, value: object, allowed: str) -> BrokerError:
    return PreconditionFailed(
        f"invalid header '{name}' of a message: '{show(value)}' of type '{type_name(value)}' is not {allowed}"
    )
