"""The orders of queues: their lists, the place of an item, and the item that it replaces."""

from broker.core.entries.last_value import LastValueEntryList
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.entries.sorted import SortedEntryList
from tests.property.queue_items import Item
from tests.support.core.key_header import HEADERS, KEY


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
