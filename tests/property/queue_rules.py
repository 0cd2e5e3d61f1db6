"""The rules by which a queue may hold items back, as plain as can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.core.consumer import QueueConsumer
from broker.core.fifo_list import INDEX
from broker.core.group_key import GroupKeys
from broker.core.groups import Groups
from broker.core.index import new_index
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queue import Queue
from broker.core.schedule import Schedule
from broker.core.strict_order import StrictOrder
from broker.core.view import MessageView

if TYPE_CHECKING:
    from tests.property.queue_model import Item, Model


class Rule:
    """Whoever sees an item may have it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        """Whether `consumer` may have `item`, which is ready or about to come, as far as the rule goes."""
        return True

    def taken(self, consumer: QueueConsumer, item: Item) -> None:
        """`consumer` has just been given `item`, and the model knows it."""

    def attached(self, consumer: QueueConsumer) -> None:
        """`consumer` is new."""

    def look(self) -> None:
        """Follow what has happened since the last look."""


class StrictRule(Rule):
    """Only the first item, and only while nothing is out."""

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        return not any(other.owner is not None or other < item for other in self.model.items)


class DivisorView(MessageView):
    """A message whose content is a number, with a header `by 2` for what is left if it is divided by 2."""

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
    """Who has a group, and whether he gets no more of it."""

    owner: QueueConsumer
    shut: bool = False


class GroupRule(Rule):
    """What `Groups` promises, from a look at everything whenever something has happened."""

    sticky, strict, rebalances, idle_max = True, False, False, 1000
    slow = False  # several groups are not freed in one turn, but one by one

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.holders: dict[str, Holder] = {}
        self.idle: list[str] = []

    def allows(self, consumer: QueueConsumer, item: Item) -> bool:
        self.look()
        key = key_of(item.number)
        if not key:
            return True
        if self.strict and any(other.owner is not None or other < item for other in self._of(key)):
            return False
        holder = self.holders.get(key)
        return holder is None or (holder.owner is consumer and not holder.shut)

    def taken(self, consumer: QueueConsumer, item: Item) -> None:
        key = key_of(item.number)
        if key:
            holder = self.holders.setdefault(key, Holder(consumer))
            holder.shut = holder.shut or closes(item.number)
        self.look()

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
        """The groups that are to be free in their turn: until then each is its owner's."""
        groups = self.model.queue.discipline
        waiting: set[str] = set()
        if not isinstance(groups, Groups) or groups.later is None:
            return waiting
        for group in groups.by_key.values():
            if group.owner is not None and group.inflight == 0 and groups.later.waits(group):
                holder = self.holders.setdefault(group.key, Holder(group.owner, True))
                if holder.owner is group.owner:
                    waiting.add(group.key)
        return waiting

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
    """The view of a message that tests.dispatch has made."""
    assert message.content is not None
    return NumberView(int(message.content))


def impose(name: str, queue: Queue, schedule: Schedule) -> None:
    """Give `queue` the discipline, or the index, of this name."""
    rule = RULES[name]
    if rule is StrictRule:
        queue.discipline = StrictOrder(queue)
    elif issubclass(rule, GroupRule):
        keys = GroupKeys(view_of_number, queue.store, "")
        groups = Groups(queue, keys, schedule, rule.sticky, rule.strict, rule.rebalances, rule.idle_max)
        if rule.slow:
            groups.most = 1
        queue.discipline = groups
    elif name.startswith("index"):
        arguments: dict[str, object] = {INDEX: name.removeprefix("index ")}
        queue.index = new_index(queue, arguments, lambda message, _: DivisorView(message))
