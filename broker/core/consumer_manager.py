"""The queue's view of its consumers: who wants work, who has been told of some.

[Qpid: QueueConsumerManager]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import (
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    QueueConsumer,
)

if TYPE_CHECKING:
    from broker.core.context import QueueContext
    from broker.core.discarding import DiscardedLater
    from broker.core.purging import Purge
    from broker.core.returning import ReturnedLater
    from broker.core.start_gate import StartGate

TURN_BITS: Final = 31  # of a rank, below the priority: more consumers than that no queue ever sees
_NO_LEVEL: Final = "a consumer that acquires has a level"


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
    """The acquiring consumers of one rank that see the same entries, those of `context`.

    `members` counts them in whatever state they are. `home` is the list that the level is in. `turn`: when
    one of them was told of work last.
    """

    def __init__(self, rank: i64, context: QueueContext, home: list[ConsumerLevel]) -> None:
        self.rank = rank
        self.context = context
        self.home = home
        self.turn: i64 = 0
        self.members: i64 = 0
        self.interested = QueueConsumerList()
        self.notified = QueueConsumerList()

    @property
    def wants_work(self) -> bool:
        """Whether one of them would take an entry."""
        return self.interested.head is not None or self.notified.head is not None


@final
class QueueConsumerManager:
    """Every consumer is in `all` and in exactly one of the lists of its state.

    Gets that wait for a message are in `gets` instead of `all`, and otherwise consumers like others.
    `levels`: Interested and Notified per rank and context, highest rank first; browsers are in none, and who
    sees one row of an index is in that.
    `strict`: consumers of one priority do not take turns, the one that was attached first goes first, so that
    each has a rank of its own; else the rank is the priority. A change of it holds from when nobody acquires.
    [ActiveMQ strictOrderDispatch]
    `gate`: nobody is served as long as it is shut, if there is one. `purges`: nor as long as one goes on, the
    first of them; the others wait. `returns`: nor as long as there is something on its way back. `discards`:
    what is on its way out, as they have refused it, if that is much.
    `acquiring` counts those that are no browsers, `interested` and `notified` their members over all levels.
    `wakeups` counts how often one of them was told of work since the start, `empty_wakeups` how often one
    that had been told found nothing.
    """

    def __init__(self) -> None:
        self.all: dict[QueueConsumer, None] = {}
        self.gets: dict[QueueConsumer, None] = {}
        self.non_acquiring = QueueConsumerList()
        self.not_interested = QueueConsumerList()
        self.levels: list[ConsumerLevel] = []
        self.acquiring: i64 = 0
        self.interested: i64 = 0
        self.notified: i64 = 0
        self.wakeups: i64 = 0
        self.empty_wakeups: i64 = 0
        self.strict: bool = False
        self.gate: StartGate | None = None
        self.purges: list[Purge] = []
        self.returns: list[ReturnedLater] = []
        self.discards: DiscardedLater | None = None
        self._ranked: bool = False  # whether those that acquire now have ranks of their own
        self._turns: i64 = 0
        self._rotations: i64 = 0

    def add(self, consumer: QueueConsumer) -> None:
        """Take in a REMOVED consumer; `move` gives it a state."""
        (self.gets if consumer.getting else self.all)[consumer] = None
        if consumer.acquires:
            if self.acquiring == 0:
                self._ranked = self.strict
            self.acquiring += 1
            consumer.rank = consumer.priority
            if self._ranked:
                self._turns += 1
                consumer.rank = (consumer.priority << TURN_BITS) - self._turns
            level = self._level(consumer.rank, consumer.context)
            level.members += 1
            consumer.level = level

    def takers(self) -> list[QueueConsumer]:
        """Those that acquire: in the order in which they were attached, gets last."""
        return [consumer for consumer in [*self.all, *self.gets] if consumer.acquires]

    def remove(self, consumer: QueueConsumer) -> None:
        """Let `consumer` go from its list, from its level and from `all`."""
        self.move(consumer, REMOVED)
        del (self.gets if consumer.getting else self.all)[consumer]
        level = consumer.level
        if level is not None:
            consumer.level = None
            self.acquiring -= 1
            level.members -= 1
            if level.members == 0:
                level.home.remove(level)

    def move(self, consumer: QueueConsumer, state: i64) -> None:
        """Put `consumer` at the tail of the list for `state`; nothing happens if it is in that state."""
        if consumer.state == state:
            return
        level = consumer.level
        self._leave(consumer, level)
        consumer.state = state
        if state == INTERESTED:
            assert level is not None, _NO_LEVEL
            level.interested.append(consumer)
            self.interested += 1
        elif state == NOTIFIED:
            assert level is not None, _NO_LEVEL
            level.notified.append(consumer)
            self.notified += 1
        elif state == NOT_INTERESTED:
            self.not_interested.append(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.append(consumer)

    def to_back(self, consumer: QueueConsumer) -> None:
        """Put `consumer` at the tail of the list that it is in: it has just had a message."""
        level = consumer.level
        if consumer.state == INTERESTED and level is not None:
            level.interested.remove(consumer)
            level.interested.append(consumer)

    def outranked(self, consumer: QueueConsumer) -> bool:
        """Whether a consumer of higher rank wants work."""
        for higher in self.levels:
            if higher.rank <= consumer.rank:
                break
            if higher.interested.head is not None or higher.notified.head is not None:
                return True
        return False

    def rotate(self, level: ConsumerLevel) -> None:
        """Have the other levels of the same rank come before `level`, which has been asked."""
        self._rotations += 1
        level.turn = self._rotations
        levels = level.home
        index = levels.index(level)
        last = index
        while last + 1 < len(levels) and levels[last + 1].rank == level.rank:
            last += 1
        if last != index:
            del levels[index]
            levels.insert(last, level)

    def _leave(self, consumer: QueueConsumer, level: ConsumerLevel | None) -> None:
        state = consumer.state
        if state == INTERESTED:
            assert level is not None, _NO_LEVEL
            level.interested.remove(consumer)
            self.interested -= 1
        elif state == NOTIFIED:
            assert level is not None, _NO_LEVEL
            level.notified.remove(consumer)
            self.notified -= 1
        elif state == NOT_INTERESTED:
            self.not_interested.remove(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.remove(consumer)

    def _level(self, rank: i64, context: QueueContext) -> ConsumerLevel:
        home = self.levels if context.row is None else context.row.levels
        index = 0
        for level in home:
            if level.rank == rank and level.context is context:
                return level
            if level.rank < rank:
                break
            index += 1
        level = ConsumerLevel(rank, context, home)
        home.insert(index, level)
        return level
