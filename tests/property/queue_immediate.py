"""The consumers that can take a message at the moment of its publication."""

from __future__ import annotations

from broker.core.queues.consumer import BLOCKED_BY_SIZE, QueueConsumer
from tests.property.queue_checks import has_room, probe_of, wants_work
from tests.property.queue_items import Item
from tests.property.queue_model import Model, attached, precedence


def immediate_taker_exists(model: Model, item: Item) -> bool:
    """Whether a consumer could take `item` at this moment, before its publication."""
    able = [c for c in attached(model.queue) if c.acquires and not c.blockers & ~BLOCKED_BY_SIZE]
    able = [c for c in able if wants_work(probe_of(c)) and not lacks_room_before(model, c, item)]
    able = [consumer for consumer in able if model.may_have(consumer, item)]
    top = max(map(precedence, able), default=None)
    for consumer in able:
        first = model.first_for(consumer)
        is_next = first is None or item < first
        if is_next and precedence(consumer) == top and has_room(probe_of(consumer), item.size):
            return True
    return False


def lacks_room_before(model: Model, consumer: QueueConsumer, item: Item) -> bool:
    """Whether `consumer` waits for room, for something that comes before `item`, or has none for `item`."""
    first = model.first_for(consumer)
    if not consumer.blockers & BLOCKED_BY_SIZE or first is None:
        return False
    return first < item or not has_room(probe_of(consumer), item.size)
