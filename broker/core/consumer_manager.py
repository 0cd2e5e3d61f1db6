"""The queue's view of its consumers: who wants work, who has been told of some.

[Qpid: QueueConsumerManager]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from mypy_extensions import i64

from broker.core.consumer import (
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    QueueConsumer,
)


@final
class QueueConsumerList:
    """Consumers in one state, linked through themselves: O(1) append at the tail, O(1) removal of any."""

    def __init__(self) -> None:
        self.head: QueueConsumer | None = None
        self.tail: QueueConsumer | None = None

    def append(self, consumer: QueueConsumer) -> None:
        """Put `consumer`, which is in no list, at the tail: this is what rotates consumers fairly."""
        tail = self.tail
        consumer.prev = tail
        if tail is None:
            self.head = consumer
        else:
            tail.next = consumer
        self.tail = consumer

    def remove(self, consumer: QueueConsumer) -> None:
        """Take out `consumer`, which is in this list."""
        before = consumer.prev
        after = consumer.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.tail = before
        else:
            after.prev = before
        consumer.prev = None
        consumer.next = None

    def __iter__(self) -> Iterator[QueueConsumer]:
        """All in order, for cold use; the list must not change meanwhile."""
        consumer = self.head
        while consumer is not None:
            yield consumer
            consumer = consumer.next


@final
class ConsumerLevel:
    """The acquiring consumers of one priority. `members` counts them in whatever state they are."""

    def __init__(self, priority: i64) -> None:
        self.priority = priority
        self.members: i64 = 0
        self.interested = QueueConsumerList()
        self.notified = QueueConsumerList()


@final
class QueueConsumerManager:
    """Every consumer is in `all` and in exactly one of the lists of its state.

    `levels`: Interested and Notified per priority, highest first. `interested` and `notified` count their
    members over all levels.
    """

    def __init__(self) -> None:
        self.all: dict[QueueConsumer, None] = {}
        self.non_acquiring = QueueConsumerList()
        self.not_interested = QueueConsumerList()
        self.levels: list[ConsumerLevel] = []
        self.interested: i64 = 0
        self.notified: i64 = 0

    def add(self, consumer: QueueConsumer) -> None:
        """Take in a REMOVED consumer; `move` gives it a state."""
        self.all[consumer] = None
        level = self._level(consumer.priority)
        level.members += 1
        consumer.level = level

    def remove(self, consumer: QueueConsumer) -> None:
        """Let `consumer` go from its list, from its level and from `all`."""
        self.move(consumer, REMOVED)
        del self.all[consumer]
        level = consumer.level
        assert level is not None, "an attached consumer has a level"
        consumer.level = None
        level.members -= 1
        if level.members == 0:
            self.levels.remove(level)

    def move(self, consumer: QueueConsumer, state: i64) -> None:
        """Put `consumer` at the tail of the list for `state`; nothing happens if it is in that state."""
        if consumer.state == state:
            return
        level = consumer.level
        assert level is not None, "an attached consumer has a level"
        self._leave(consumer, level)
        consumer.state = state
        if state == INTERESTED:
            level.interested.append(consumer)
            self.interested += 1
        elif state == NOTIFIED:
            level.notified.append(consumer)
            self.notified += 1
        elif state == NOT_INTERESTED:
            self.not_interested.append(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.append(consumer)

    def to_back(self, consumer: QueueConsumer) -> None:
        """Put `consumer` at the tail of the list that it is in: it has just had a message."""
        level = consumer.level
        assert level is not None, "an attached consumer has a level"
        if consumer.state == INTERESTED:
            level.interested.remove(consumer)
            level.interested.append(consumer)

    def outranked(self, consumer: QueueConsumer) -> bool:
        """Whether a consumer of higher priority wants work."""
        level = consumer.level
        if self.levels[0] is level:
            return False
        for higher in self.levels:
            if higher is level:
                break
            if higher.interested.head is not None or higher.notified.head is not None:
                return True
        return False

    def _leave(self, consumer: QueueConsumer, level: ConsumerLevel) -> None:
        state = consumer.state
        if state == INTERESTED:
            level.interested.remove(consumer)
            self.interested -= 1
        elif state == NOTIFIED:
            level.notified.remove(consumer)
            self.notified -= 1
        elif state == NOT_INTERESTED:
            self.not_interested.remove(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.remove(consumer)

    def _level(self, priority: i64) -> ConsumerLevel:
        index = 0
        for level in self.levels:
            if level.priority == priority:
                return level
            if level.priority < priority:
                break
            index += 1
        level = ConsumerLevel(priority)
        self.levels.insert(index, level)
        return level
