"""The rules by which a queue may hold items back, as plain as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import QueueConsumer
from broker.core.fifo_list import INDEX
from broker.core.index import new_index
from broker.core.message import Message
from broker.core.queue import Queue
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


def impose(name: str, queue: Queue) -> None:
    """Give `queue` the discipline, or the index, of this name; "": none."""
    if name == "strict":
        queue.discipline = StrictOrder(queue)
    elif name.startswith("index"):
        arguments: dict[str, object] = {INDEX: name.removeprefix("index ")}
        queue.index = new_index(queue, arguments, lambda message, _: DivisorView(message))


RULES: dict[str, type[Rule]] = {
    "": Rule,
    "strict": StrictRule,
    "index by 2": Rule,
    "index by 2, by 3": Rule,
}
