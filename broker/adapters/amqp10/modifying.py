"""Annotations that the receiver of deliveries adds to their messages, which go back. [amqp-1.0 3.4.5]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.target import Target10
from broker.core.annotating import Addition, annotate
from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry
from protocol.amqp10.annotations import entries_of, map_with
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED
from protocol.amqp10.deaths import DEATHS, FIRST, LAST
from protocol.amqp10.states import DeliveryState
from protocol.conversion.names import X_CC, is_internal

ANNOTATIONS_BYTES_MAX: Final[i64] = 8192  # of all that is added to one message
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
    keys, values = _allowed(state.annotations)
    return Modification(keys, values) if keys else None


@final
class Modification(Addition):
    """These annotations.

    Of a message that would have too many nothing changes; the link hears of that, and ends.
    """

    def __init__(self, keys: list[bytes], values: list[bytes]) -> None:
        super().__init__(1 + sum([len(part) for part in keys + values]) // BYTES_OF_ONE)
        self._keys = keys
        self._values = values

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Add them (Addition)."""
        queue = consumer.queue
        made: dict[bytes, bytes] = {}  # most have the same ones already, or none
        too_long: i64 = 0
        for entry in entries:
            if not entry.is_with(consumer):
                continue
            before = queue.entries.annotations_of(entry)
            after = made.get(before)
            if after is None:
                after = made[before] = map_with(before, self._keys, self._values)
            if len(after) <= ANNOTATIONS_BYTES_MAX:
                annotate(queue, entry, after)
            else:
                too_long = len(after)
        if too_long > 0:
            _refuse(consumer, too_long)


def _refuse(consumer: QueueConsumer, length: i64) -> None:
    target = consumer.target
    if isinstance(target, Target10):
        target.link.detach(
            RESOURCE_LIMIT_EXCEEDED,
            f"message-annotations of {length} bytes would be added to a message of queue "
            f"'{consumer.queue.name}', at most {ANNOTATIONS_BYTES_MAX} are",
        )


def _allowed(said: bytes) -> tuple[list[bytes], list[bytes]]:
    keys: list[bytes] = []
    values: list[bytes] = []
    for key, value in zip(*entries_of(said), strict=True):
        if key.startswith(_MARK) and not (is_internal(key) or key in _OURS or key.startswith(_OURS_BEGIN)):
            keys.append(key)
            values.append(value)
    return keys, values
