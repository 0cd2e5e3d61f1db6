"""The list that a queue must behave like."""

from bisect import insort
from dataclasses import dataclass, field

from broker.core.consumer import QueueConsumer
from broker.core.queue import Queue

READY, OUT, GONE = "ready", "out", "gone"


@dataclass(order=True)
class Item:
    """What the model knows of one message in one queue; sorted as the queue must be."""

    rank: int
    number: int
    size: int = field(compare=False)
    state: str = field(compare=False, default=READY)
    owner: QueueConsumer | None = field(compare=False, default=None)
    sends: int = field(compare=False, default=0)
    due: int | None = field(compare=False, default=None)  # when its time is over

    def is_late(self, now: int) -> bool:
        return self.due is not None and self.due <= now


class Model:
    """The list that a queue must behave like."""

    def __init__(self, queue: Queue, single_active: bool = False) -> None:
        self.queue = queue
        self.single_active = single_active
        self.items: list[Item] = []

    def first_ready(self) -> Item | None:
        return next((item for item in self.items if item.state == READY), None)

    def may_be_served(self, consumer: QueueConsumer) -> bool:
        """Where one is served at a time: it is the most urgent one, and nobody else has anything."""
        if not self.single_active or not consumer.acquires:
            return True
        candidates = [other for other in self.queue.manager.all if other.acquires]
        active = max(candidates, key=lambda other: other.priority)  # the first of the highest
        return consumer is active and all(item.owner in (None, active) for item in self.items)

    def drop(self, item: Item) -> None:
        item.state = GONE
        item.owner = None
        self.items.remove(item)

    def add(self, item: Item) -> None:
        insort(self.items, item)

    def expire(self, now: int) -> None:
        """What is ready and late goes; what is with somebody stays there."""
        for item in [item for item in self.items if item.state == READY and item.is_late(now)]:
            self.drop(item)
