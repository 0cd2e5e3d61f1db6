"""The list that a queue must behave like."""

from bisect import insort

from broker.core.counters import Counters
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.ports import MessageStore
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.stops import DEQUEUE, stopped
from broker.core.schedule import Schedule
from tests.property.queue_rules import (
    EVERYBODY,
    GONE,
    KEPT,
    OUT,
    READY,
    RULES,
    ByPriority,
    Item,
    Serving,
    impose,
)
from tests.support.core.queue_bench import number_of


class Multiples(EntryFilter):
    """Lets pass the messages whose number `divisor` divides."""

    def __init__(self, divisor: int) -> None:
        super().__init__(str(divisor))
        self.demands = [(f"by {divisor}", 0)]
        self.divisor = divisor

    def passes(self, entry: QueueEntry) -> bool:
        return number_of(entry) % self.divisor == 0


def sees(consumer: QueueConsumer, item: Item) -> bool:
    """Whether the consumer's filter lets the item pass."""
    assert consumer.filter is None or isinstance(consumer.filter, Multiples)
    return consumer.filter is None or item.number % consumer.filter.divisor == 0


def attached(queue: Queue) -> list[QueueConsumer]:
    """Everybody who is, gets that wait included."""
    return [*queue.manager.all, *queue.manager.gets]


def precedence(consumer: QueueConsumer) -> tuple[int, ...]:
    """Return the precedence of a consumer: the greatest goes first."""
    manager = queue_of(consumer).manager
    return (consumer.priority, -list(manager.all).index(consumer) if manager.strict else 0)


def new_queue(
    name: str, store: MessageStore, counters: Counters, order: ByPriority, rule: str, schedule: Schedule
) -> Queue:
    """A queue with this order, and this rule."""
    queue = Queue(name, store, order.entries(), counters)
    impose(rule, queue, schedule)
    return queue


class Model:
    """The list that a queue must behave like."""

    def __init__(self, queue: Queue, order: ByPriority, serving: str = EVERYBODY, rule: str = "") -> None:
        self.queue = queue
        self.order = order
        self.rule = RULES[rule](self)
        self.serving = Serving(queue, serving)
        self.items: list[Item] = []
        self.requests: set[PullingTarget] = set()  # basic.gets

    def is_stopped(self) -> bool:
        """Whether the queue gives nothing out."""
        return DEQUEUE in stopped(self.queue)

    def may_have(self, consumer: QueueConsumer, item: Item) -> bool:
        """Whether `consumer` sees `item` and the queue's rule, which is not for browsers, lets it have it.

        While the queue is purged, or many groups are freed, those that are attached get nothing.
        """
        discipline = self.queue.discipline
        pauses = self.queue.manager.purges or (discipline is not None and discipline.pauses)
        if consumer.acquires and consumer.state != REMOVED and pauses:
            return False
        if consumer.acquires and (self.is_stopped() or not self.rule.allows(consumer, item)):
            return False
        return sees(consumer, item)

    def first_for(self, consumer: QueueConsumer) -> Item | None:
        """The first ready item that `consumer` may have."""
        ready = (item for item in self.items if item.state == READY)
        return next((item for item in ready if self.may_have(consumer, item)), None)

    def refuses(self, consumer: QueueConsumer) -> bool:
        """Whether an exclusive consumer would not be alone, or an exclusive consumer is there already."""
        others = list(self.queue.manager.all)
        alone = consumer.exclusive or any(other.exclusive for other in others)
        return (bool(others) and alone) or (consumer.exclusive and self.serving.refuses_exclusive())

    def attached(self, consumer: QueueConsumer) -> None:
        self.serving.attached(consumer)
        self.rule.attached(consumer)

    def may_be_served(self, consumer: QueueConsumer) -> bool:
        """Whether `consumer` is elected where a single one is served, and no earlier owner is waited for."""
        return self.serving.may_be_served(consumer, {item.owner for item in self.items if item.owner})

    def refuses_get(self) -> bool:
        """Whether a basic.get is an error."""
        return self.is_stopped() or self.serving.refuses_get()

    def drop(self, item: Item) -> None:
        item.state = GONE
        item.owner = None
        self.items.remove(item)
        self.rule.withdrawn(item)
        self.rule.look()

    def add(self, item: Item) -> None:
        """Add an item, which takes the place of a replaced item; an acquired replaced item dies on return."""
        for other in self.order.replaced(self.items, item):
            if other.state == OUT:
                other.outdated = True
            else:
                item.rank = other.rank
                self.drop(other)
        insort(self.items, item)
        self.rule.look()

    def back(self, item: Item, now: int, retry: int) -> None:
        """`item` comes back. It waits: `retry` ms, the second time twice as long, then four times."""
        if item.is_late(now) or item.outdated:
            self.drop(item)
        else:
            item.until = now + min(retry << (item.sends - 1), 4 * retry)
            item.state, item.owner = KEPT if retry else READY, None
            self.rule.withdrawn(item)

    def expire(self, now: int) -> None:
        """Expire items that are late and not acquired, and make items ready whose delay has ended."""
        for item in [item for item in self.items if item.state != OUT]:
            if item.is_late(now):
                self.drop(item)
            elif item.state == KEPT and item.until <= now:
                item.state = READY
