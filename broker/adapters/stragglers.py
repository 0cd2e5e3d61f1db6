"""Deliveries that are still outstanding when most of the later ones have been settled, by delivery tag."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer

GAPS_MIN: Final = 64

Delivery = tuple[QueueEntry, QueueConsumer]


@final
class Stragglers:
    """Lists in the order of the tags, with gaps of None where something has been settled.

    The gaps are closed when they are more than what is left: memory follows what is outstanding.
    """

    def __init__(self) -> None:
        self.count: i64 = 0  # of those that are outstanding
        self._tags: list[int] = []
        self._deliveries: list[Delivery | None] = []
        self._first: i64 = 0  # nothing before it is outstanding

    def append(self, tag: i64, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Have one more, whose tag is above all others."""
        self._tags.append(tag)
        self._deliveries.append((entry, consumer))
        self.count += 1

    def find(self, tag: i64) -> Delivery | None:
        """The outstanding delivery with this tag, if there is one."""
        index = self._index(tag)
        return self._deliveries[index] if index >= 0 else None

    def take(self, tag: i64) -> Delivery | None:
        """The outstanding delivery with this tag, if there is one: it is settled."""
        index = self._index(tag)
        delivery = self._deliveries[index] if index >= 0 else None
        if delivery is not None:
            self._deliveries[index] = None
            self.count -= 1
            if len(self._tags) > 2 * self.count + GAPS_MIN:
                self._arrange(self._outstanding())
        return delivery

    def up_to(self, tag: i64) -> list[i64]:
        """Tags of what is outstanding up to and including `tag`, oldest first; 0 means all."""
        deliveries = self._deliveries
        end: i64 = len(deliveries) if tag == 0 else bisect_right(self._tags, tag)
        i = self._first
        while i < end and deliveries[i] is None:
            i += 1
        self._first = i
        found: list[i64] = []
        while i < end:
            if deliveries[i] is not None:
                found.append(self._tags[i])
            i += 1
        return found

    def put_back(self, deliveries: dict[int, Delivery]) -> None:
        """Have these outstanding again, which had been settled."""
        closed: dict[int, Delivery] = {}  # there is no gap for them any more
        for tag, delivery in deliveries.items():
            index = self._index(tag)
            if index < 0:
                closed[tag] = delivery
            else:
                self._deliveries[index] = delivery
                self._first = min(self._first, index)
                self.count += 1
        if closed:
            self._arrange(self._outstanding() | closed)

    def forget(self, most: i64) -> i64:
        """Forget up to `most`, the latest first, settled ones too; returns how many those were."""
        count: i64 = min(most, len(self._tags))
        if count > 0:
            left = len(self._tags) - count
            self.count -= count - self._deliveries[left:].count(None)
            del self._tags[left:]
            del self._deliveries[left:]
            self._first = min(self._first, left)
        return count

    def _index(self, tag: i64) -> i64:
        """Where this tag is, with a delivery or a gap; -1 if it is nowhere."""
        index: i64 = bisect_left(self._tags, tag)
        return index if index < len(self._tags) and self._tags[index] == tag else -1

    def _outstanding(self) -> dict[int, Delivery]:
        pairs = zip(self._tags, self._deliveries, strict=True)
        return {tag: delivery for tag, delivery in pairs if delivery is not None}

    def _arrange(self, deliveries: dict[int, Delivery]) -> None:
        """Have these and no gaps."""
        self._tags = sorted(deliveries)
        self._deliveries = [deliveries[tag] for tag in self._tags]
        self.count = len(self._tags)
        self._first = 0
