"""Annotations that the receiver of deliveries adds to their messages, which go back. [amqp-1.0 3.4.5]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.target import Target10
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.queues.returns import Addition, annotate
from broker.core.schedule import Alarm
from protocol.amqp10.annotations import entries_of, map_of
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED
from protocol.amqp10.deaths import DEATHS, FIRST, LAST
from protocol.amqp10.states import DeliveryState
from protocol.conversion.names import X_CC, is_internal

ANNOTATIONS_MAX: Final[i64] = 64  # that are added to one message
ANNOTATIONS_BYTES_MAX: Final[i64] = 8192  # of all of them
BYTES_OF_ONE: Final = 256  # that cost as much as a delivery that only goes back
_MARK: Final = b"x-"  # what the names begin with that are not reserved [amqp-1.0 3.2.10]
_OURS: Final = frozenset(
    (X_CC, DEATHS, b"x-acquired-count", b"x-delivery-count", b"x-delay", b"x-delivery-time")
)
_OURS_BEGIN: Final = (FIRST, LAST, b"x-expired-", b"x-receipt-", b"x-opt-delivery-")


def modification(state: DeliveryState) -> Addition | None:
    """What the outcome of deliveries adds to their messages, if anything.

    Not annotations that are reserved, nor those by which the broker says or is told something itself.
    """
    if state.annotations is None:
        return None
    added = _allowed(state.annotations)
    return Modification(added) if added else None


@final
class Modification(Addition):
    """These annotations, encoded, by their names.

    Of a message that would have too many nothing changes; the link hears of that, and ends.
    """

    def __init__(self, added: dict[bytes, bytes]) -> None:
        size: i64 = sum([len(name) + len(value) for name, value in added.items()])
        super().__init__(1 + len(added) + size // BYTES_OF_ONE)
        self._added = added
        self._is_too_much = len(added) > ANNOTATIONS_MAX or size > ANNOTATIONS_BYTES_MAX

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Add them (Addition)."""
        queue = consumer.queue
        made: dict[bytes, bytes] = {}  # most have the same ones already, or none
        refused = False
        for entry in entries:
            if not entry.is_with(consumer):
                continue
            before = queue.entries.annotations_of(entry)
            after = made.get(before)
            if after is None:
                after = made[before] = self._combined(before)
            if after:
                annotate(queue, entry, after)
            else:
                refused = True
        target = consumer.target
        if refused and isinstance(target, Target10) and not target.closed:
            TooMuch(target, queue)

    def added_to(self, before: bytes) -> bytes:
        """Return the encoded map with these, or `before` if that is too much for a message (Addition)."""
        return self._combined(before) or before

    def _combined(self, before: bytes) -> bytes:
        """An encoded map, or none, with these; nothing if that is too much for a message."""
        if self._is_too_much:
            return b""
        entries = dict(zip(*entries_of(before), strict=True)) if before else {}
        entries.update(self._added)
        after = map_of(entries)
        return after if len(entries) <= ANNOTATIONS_MAX and len(after) <= ANNOTATIONS_BYTES_MAX else b""


def _allowed(said: bytes) -> dict[bytes, bytes]:
    """Those that are added, by their names; of several with one name it is the last."""
    return {
        key: value
        for key, value in zip(*entries_of(said), strict=True)
        if key.startswith(_MARK) and not (is_internal(key) or key in _OURS or key.startswith(_OURS_BEGIN))
    }


@final
class TooMuch(Alarm):
    """Ends a link that would add too much, in a turn of its own.

    What is added goes back in slices: perhaps while the link attaches, or while the queue is deleted, which
    the end of the link may do too.
    """

    def __init__(self, target: Target10, queue: Queue) -> None:
        super().__init__()
        self._link = target.link
        self._queue = queue
        schedule = target.link.session.vhost.schedule
        schedule.set(self, schedule.now())
        target.close()  # or it would have first what it has just given back

    def ring(self) -> None:
        """Say why (Alarm)."""
        link = self._link
        if not link.leaving:
            link.detach(
                RESOURCE_LIMIT_EXCEEDED,
                f"more than {ANNOTATIONS_MAX} message-annotations, or {ANNOTATIONS_BYTES_MAX} bytes of them, "
                f"would be added to a message of queue '{self._queue.name}'",
            )
            link.session.peer.end_turn()
