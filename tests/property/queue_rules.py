"""The messages of a queue in the model, and the plain rules for the messages and for the consumers.

`ByPriority` and its subclasses are the orders. `Serving` is the rule of an election or of a start gate. A
`Rule` says which items a discipline of the queue holds back.
"""

from dataclasses import dataclass, field
from typing import Protocol

from broker.core.arguments.queue import ALL_CONSUMERS_EXCLUSIVE, EXCLUSIVE_TAKEOVER, INDEX
from broker.core.delivery.session import PullingTarget
from broker.core.entries.index import new_index
from broker.core.entries.last_value import LastValueEntryList
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.entries.sorted import SortedEntryList
from broker.core.message import Message
from broker.core.message_view import MessageView
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.election import Election, declared_election
from broker.core.queues.gate import StartGate
from broker.core.queues.group import GroupKeys
from broker.core.queues.groups import Groups
from broker.core.queues.order import StrictOrder
from broker.core.queues.queue import Queue
from broker.core.schedule import Schedule
from tests.support.core.hand_clock import HandClock
from tests.support.core.key_header import HEADERS, KEY

READY, OUT, KEPT, GONE = "ready", "out", "kept", "gone"  # kept: until it is to be tried again

EVERYBODY, SINGLE, ALL, SOME = "everybody", "single active", "all exclusive", "some exclusive"
DRAINING_ALL, DRAINING_SOME = "all exclusive, drain", "some exclusive, drain"
IN_ORDER, GATED = "strict", "gated"
WANTED = 2  # consumers that open the gate
SERVINGS = (EVERYBODY, IN_ORDER, GATED, SINGLE, ALL, SOME, DRAINING_ALL, DRAINING_SOME)


@dataclass(order=True)
class Item:
    """The model's knowledge of a message in a queue; items are sorted as the queue must be."""

    rank: int
    number: int
    size: int = field(compare=False)
    state: str = field(compare=False, default=READY)
    owner: QueueConsumer | None = field(compare=False, default=None)
    sends: int = field(compare=False, default=0)
    was_out: bool = field(compare=False, default=False)  # a browser may have passed it meanwhile
    due: int | None = field(compare=False, default=None)  # when its time is over
    until: int = field(compare=False, default=0)  # when it is to be tried again
    key: int = field(compare=False, default=0)
    outdated: bool = field(compare=False, default=False)  # the message was replaced while a consumer had it
    promised: bool = field(compare=False, default=False)  # the message leaves with a transaction

    def is_late(self, now: int) -> bool:
        return self.due is not None and self.due <= now


class ByPriority:
    """The higher priority first, of so many levels."""

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def entries(self) -> QueueEntryList:
        return FifoEntryList() if self.levels == 1 else PriorityEntryList(self.levels)

    def rank(self, priority: int, number: int) -> int:
        return -min(priority, self.levels - 1)

    def replaced(self, items: list[Item], item: Item) -> list[Item]:
        """Return the items of `items` that the new `item` replaces."""
        return []


class Sorted(ByPriority):
    """The lower priority first: it is the key, and small blocks are the test."""

    def entries(self) -> QueueEntryList:
        entries = SortedEntryList(KEY, HEADERS)
        entries.block = 3
        return entries

    def rank(self, priority: int, number: int) -> int:
        return priority


class LastValue(ByPriority):
    """The order of arrival with a single item for each priority, the key; 0 is no key."""

    def entries(self) -> QueueEntryList:
        return LastValueEntryList(KEY, HEADERS)

    def rank(self, priority: int, number: int) -> int:
        return number

    def replaced(self, items: list[Item], item: Item) -> list[Item]:
        return [other for other in items if other.key == item.key != 0 and not other.outdated]


ORDERS = {"": ByPriority, "sorted": Sorted, "last value": LastValue}


class Serving:
    """The consumers and the acquired items of a queue, and the last elected consumer."""

    def __init__(self, queue: Queue, kind: str) -> None:
        self.queue = queue
        self.kind = kind
        self.active: QueueConsumer | None = None
        self.open = kind != GATED
        self.ending = False  # nobody is to be elected, but what is out is waited for
        self.drains = kind in (SINGLE, DRAINING_ALL, DRAINING_SOME)
        queue.arguments[EXCLUSIVE_TAKEOVER] = "drain" if self.drains else "immediate"
        if kind == SINGLE:
            queue.election = Election(queue)
        elif kind == GATED:
            queue.manager.gate = StartGate(queue, HandClock().schedule)
            queue.manager.gate.apply(WANTED, -1)
        elif kind == IN_ORDER:
            queue.manager.strict = True
        elif kind in (ALL, DRAINING_ALL):
            queue.arguments[ALL_CONSUMERS_EXCLUSIVE] = True
            queue.election = declared_election(queue)

    def is_candidate(self, consumer: QueueConsumer) -> bool:
        if not consumer.acquires or self.kind in (EVERYBODY, IN_ORDER, GATED):
            return False
        return consumer.candidate or self.kind not in (SOME, DRAINING_SOME)

    def attached(self, newcomer: QueueConsumer) -> None:
        if not self.is_candidate(newcomer):
            return
        active = self.active
        equal = active is not None and newcomer.priority == active.priority
        if (
            active is None
            or newcomer.priority > active.priority
            or (equal and newcomer.priority == 127 and self.kind != SINGLE)
        ):
            self.active = newcomer

    def look(self) -> None:
        """Follow the changes since the last call: consumers may have left or returned their deliveries."""
        if self.kind == GATED:
            taking = sum(consumer.acquires for consumer in self.queue.manager.all)
            self.open = taking >= WANTED or (self.open and taking > 0)
        if self.active is not None and self.active not in self.queue.manager.all:
            candidates = [consumer for consumer in self.queue.manager.all if self.is_candidate(consumer)]
            self.active = max(candidates, key=lambda consumer: consumer.priority, default=None)
            self.ending = self.active is None and self.drains
        if self.active is not None or not self.queue.unacked:
            self.ending = False

    def may_be_served(self, consumer: QueueConsumer, owners: set[QueueConsumer]) -> bool:
        """Whether the consumer may be served; `owners` are the consumers with deliveries."""
        self.look()
        if not consumer.acquires or (self.active is None and not self.ending):
            return True
        return consumer is self.active and (not self.drains or owners <= {consumer})

    def lets_in(self, consumer: QueueConsumer) -> bool:
        """Whether the gate is open to it."""
        self.look()
        return self.open or consumer.getting

    def refuses_get(self) -> bool:
        self.look()
        return self.kind == SINGLE or self.active is not None or self.ending

    def refuses_exclusive(self) -> bool:
        """Whether a consumer is refused that wants to be alone, also if it is."""
        return self.kind in (SINGLE, ALL, DRAINING_ALL)


class RuledQueue(Protocol):
    """The parts of the model that a rule reads."""

    queue: Queue
    items: list[Item]
    serving: Serving
    requests: set[PullingTarget]  # basic.gets


class Rule:
    """The rule of a plain queue: every consumer that sees an item may have it."""

    def __init__(self, model: RuledQueue) -> None:
        self.model = model

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        """Whether `consumer` may have `item`, which is ready or about to come, as far as the rule goes."""
        return True

    def taken(self, consumer: QueueConsumer, item: Item) -> None:
        """`consumer` has just been given `item`, and the model knows it."""

    def attached(self, consumer: QueueConsumer) -> None:
        """`consumer` is new."""

    def promised(self, item: Item) -> None:
        """Record that a transaction takes `item`, which is acquired."""

    def withdrawn(self, item: Item) -> None:
        """No transaction takes `item` out any more."""

    def is_batching(self, item: Item) -> bool:
        """Whether a transaction takes the items before `item`."""
        return False

    def look(self) -> None:
        """Follow the changes since the last call."""


class Order:
    """Items that are delivered in order. `last`: the last item in a transaction."""

    def __init__(self) -> None:
        self.last: Item | None = None

    def allows(self, consumer: QueueConsumer, item: Item, items: list[Item]) -> bool:
        """Whether `item` is next: only items of the same session's transaction are acquired."""
        out = [other for other in items if other.owner is not None]
        session = consumer.target.peers
        if any(not o.promised or o.owner is None or o.owner.target.peers is not session for o in out):
            return False
        if any(other < item for other in items if other not in out):
            return False
        return self.last is None or item.sends == 0 or not item < self.last

    def promised(self, item: Item) -> None:
        """`item` leaves with a transaction."""
        item.promised = True
        self.last = max(item, self.last or item)

    def withdrawn(self, item: Item, items: list[Item]) -> None:
        """`item` does not."""
        item.promised = False
        if not any(other.promised for other in items):
            self.last = None


class StrictRule(Rule):
    """The rule that delivers only the first item, and only without unacknowledged ones."""

    def __init__(self, model: RuledQueue) -> None:
        super().__init__(model)
        self.order = Order()

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        items = self.model.items
        if any(other.promised for other in items) and self.model.queue.held:
            return False
        return self.order.allows(consumer, item, items)

    def promised(self, item: Item) -> None:
        self.order.promised(item)

    def withdrawn(self, item: Item) -> None:
        self.order.withdrawn(item, self.model.items)

    def is_batching(self, item: Item) -> bool:
        return self.order.last is not None


class DivisorView(MessageView):
    """The view of a message whose content is a number, with the header `by 2`, the number modulo 2."""

    def __init__(self, message: Message) -> None:
        self.number = int(message.content or b"0")

    def lookup(self, name: str) -> object | None:
        return self.number % int(name.removeprefix("by ")) if name.startswith("by ") else None


def key_of(number: int) -> str:
    """The group of the message with this number; "": none."""
    return "" if number % 5 == 0 else str(number // 2 % 3)


def closes(number: int) -> bool:
    """Whether the message closes its group."""
    return number % 11 == 0


@dataclass
class Holder:
    """The owner of a group, and whether the owner gets no more of the group."""

    owner: QueueConsumer
    shut: bool = False


class GroupRule(Rule):
    """The contract of `Groups`, computed from the whole state after every operation."""

    sticky, strict, rebalances, idle_max = True, False, False, 1000
    slow = False  # several groups are not freed in one turn, but one by one

    def __init__(self, model: RuledQueue) -> None:
        super().__init__(model)
        self.holders: dict[str, Holder] = {}
        self.orders: dict[str, Order] = {}
        self.idle: list[str] = []

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        self.look()
        key = key_of(item.number)
        if not key:
            return True
        if self.strict and not self._order(key).allows(consumer, item, self._of(key)):
            return False
        holder = self.holders.get(key)
        return holder is None or (self._owns(consumer, holder, key) and not holder.shut)

    def taken(self, consumer: QueueConsumer, item: Item) -> None:
        key = key_of(item.number)
        if key:
            holder = self.holders.setdefault(key, Holder(consumer))
            holder.shut = holder.shut or closes(item.number)
        self.look()

    def promised(self, item: Item) -> None:
        if self.strict and key_of(item.number):
            self._order(key_of(item.number)).promised(item)

    def withdrawn(self, item: Item) -> None:
        key = key_of(item.number)
        if self.strict and key:
            self._order(key).withdrawn(item, self._of(key))

    def attached(self, consumer: QueueConsumer) -> None:
        self.look()
        if self.rebalances and consumer.acquires:
            for holder in self.holders.values():
                holder.shut = True
        self.look()

    def look(self) -> None:
        serving = self.model.serving
        serving.look()
        waiting = self._waiting()
        for key, holder in list(self.holders.items()):
            if serving.active is not None and holder.owner is not serving.active:
                holder.shut = True
            items = self._of(key)
            if items and key in self.idle:
                self.idle.remove(key)
            if key in waiting or any(item.owner is not None for item in items):
                continue
            if not self.sticky or holder.shut or holder.owner not in self.model.queue.manager.all:
                self._free(key)
            elif not items and key not in self.idle:
                self.idle.append(key)
        while len(self.idle) > self.idle_max:
            self._free(self.idle[0])

    def _waiting(self) -> set[str]:
        """Return the groups that are freed in later turns; until then they keep their owners."""
        groups = self.model.queue.discipline
        waiting: set[str] = set()
        if not isinstance(groups, Groups) or groups.release is None:
            return waiting
        for group in groups.by_key.values():
            if group.owner is not None and group.inflight == 0 and groups.release.contains(group):
                holder = self.holders.setdefault(group.key, Holder(group.owner, True))
                if holder.owner is group.owner:
                    waiting.add(group.key)
        return waiting

    def _order(self, key: str) -> Order:
        return self.orders.setdefault(key, Order())

    def _owns(self, consumer: QueueConsumer, holder: Holder, key: str) -> bool:
        """Whether `consumer` owns the group; all requests of a session are the same to a transaction."""
        if holder.owner is consumer:
            return True
        requests = all(each.target in self.model.requests for each in (consumer, holder.owner))
        same = consumer.target.peers is holder.owner.target.peers
        return requests and same and any(item.promised for item in self._of(key))

    def _of(self, key: str) -> list[Item]:
        return [item for item in self.model.items if key_of(item.number) == key]

    def _free(self, key: str) -> None:
        del self.holders[key]
        if key in self.idle:
            self.idle.remove(key)


class ForgetfulRule(GroupRule):
    idle_max = 1


class SharedRule(GroupRule):
    sticky = False


class StrictStickyRule(GroupRule):
    strict = True


class StrictSharedRule(GroupRule):
    sticky, strict = False, True


class RebalancingRule(GroupRule):
    rebalances = True


class SlowRule(GroupRule):
    slow = True


class SlowSharedRule(SharedRule):
    slow = True


class SlowRebalancingRule(RebalancingRule):
    slow = True


RULES: dict[str, type[Rule]] = {
    "": Rule,
    "strict": StrictRule,
    "sticky": GroupRule,
    "sticky, forgetful": ForgetfulRule,
    "shared": SharedRule,
    "rebalancing": RebalancingRule,
    "sticky, slow": SlowRule,
    "shared, slow": SlowSharedRule,
    "rebalancing, slow": SlowRebalancingRule,
    "strict, sticky": StrictStickyRule,
    "strict, shared": StrictSharedRule,
    "index by 2": Rule,
    "index by 2, by 3": Rule,
}


class NumberView(MessageView):
    """A message whose number says which group it is in."""

    def __init__(self, number: int) -> None:
        self.number = number

    def headers(self) -> dict[str, object]:
        headers: dict[str, object] = {"x-group-id": key_of(self.number)}
        return headers | {"x-group-seq": -1} if closes(self.number) else headers


def view_of_number(message: Message, store: MessageStore) -> MessageView:
    """The view of a message that tests.support.core.queue_bench has made."""
    assert message.content is not None
    return NumberView(int(message.content))


def impose(name: str, queue: Queue, schedule: Schedule) -> None:
    """Give `queue` the discipline, or the index, of this name."""
    rule = RULES[name]
    if rule is StrictRule:
        queue.set_discipline(StrictOrder(queue))
    elif issubclass(rule, GroupRule):
        keys = GroupKeys(view_of_number, queue.store, "")
        groups = Groups(queue, keys, schedule, rule.sticky, rule.strict, rule.rebalances, rule.idle_max)
        if rule.slow:
            groups.most = 1
        queue.set_discipline(groups)
    elif name.startswith("index"):
        arguments: dict[str, object] = {INDEX: name.removeprefix("index ")}
        queue.index = new_index(queue.store, arguments, lambda message, _: DivisorView(message))
