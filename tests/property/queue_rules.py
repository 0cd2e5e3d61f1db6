"""The rules by which a queue may hold items back, as plain as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.consumer import QueueConsumer
from broker.core.queue import Queue
from broker.core.strict_order import StrictOrder

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


def impose(name: str, queue: Queue) -> None:
    """Give `queue` the discipline of this name; "": none."""
    if name == "strict":
        queue.discipline = StrictOrder(queue)


RULES: dict[str, type[Rule]] = {"": Rule, "strict": StrictRule}
