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
    from broker.core.counters import Counters
    from broker.core.discarding import DiscardedLater
    from broker.core.purging import Purge
    from broker.core.returning import ReturnedLater
    from broker.core.start_gate import StartGate
    from broker.core.undeliverable import Undeliverable

TURN_BITS: Final = 31  # of a rank, below the priority: more consumers than that no queue ever sees
_NO_LEVEL: Final = "a consumer that acquires has a level"


@final
class QueueConsumerList:
    """Consumers in one state, linked through themselves: O(1) append at the tail, O(1) removal of any."""

    def __init__(self) -> None:
        self.count: i64 = 0
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
        self.count += 1

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
        self.count -= 1

    def __iter__(self) -> Iterator[QueueConsumer]:
        """All in order, for cold use; the list must not change meanwhile."""
        consumer = self.head
        while consumer is not None:
            yield consumer
            consumer = consumer.next


@final
class ConsumerLevel:
    """The acquiring consumers of one rank that see the same entries, those of `context`.

    `members` counts them in whatever state they are. `home` is the list that the level is in while one of
    them wants work; `listed`: it is there. `turn`: when one of them was told of work last.
    """

    def __init__(self, rank: i64, context: QueueContext, home: list[ConsumerLevel]) -> None:
        self.rank = rank
        self.context = context
        self.home = home
        self.listed: bool = False
        self.turn: i64 = 0
        self.members: i64 = 0
        self.interested = QueueConsumerList()
        self.notified = QueueConsumerList()

    @property
    def wants_work(self) -> bool:
        """Whether one of them would take an entry."""
        return self.interested.head is not None or self.notified.head is not None

    def enlist(self) -> None:
        """Put the level into `home`: behind higher ranks, and behind levels of its rank that wait longer."""
        home = self.home
        self.listed = True
        if len(home) == 1 and not home[0].wants_work:
            home[0].listed = False
            home[0] = self
        else:
            home.insert(self._place(), self)

    def delist(self) -> None:
        """Take the level, which is in `home`, out of it."""
        home = self.home
        self.listed = False
        if home[0] is self:  # as it mostly is
            del home[0]
            return
        index = self._place() - 1
        while home[index] is not self:  # equals that came later stand behind it
            index -= 1
        del home[index]

    def _place(self) -> i64:
        """Find the place behind all levels of `home` that do not come after this one."""
        home = self.home
        low: i64 = 0
        high: i64 = len(home)
        while low < high:
            middle = (low + high) >> 1
            other = home[middle]
            if other.rank < self.rank or (other.rank == self.rank and other.turn > self.turn):
                high = middle
            else:
                low = middle + 1
        return low


@final
class QueueConsumerManager:
    """Every consumer is in `all` and in exactly one of the lists of its state.

    Gets that wait for a message are in `gets` instead of `all`, and otherwise consumers like others.
    `levels`: Interested and Notified per rank and context, highest rank first, as far as one of these wants
    work: what a message costs does not grow with the number of priorities. A level that is alone may stay
    there without. Browsers are in none, and who sees one row of an index is in that.
    `strict`: consumers of one priority do not take turns, the one that was attached first goes first, so that
    each has a rank of its own; else the rank is the priority. A change of it holds from when nobody acquires.
    [ActiveMQ strictOrderDispatch]
    `gate`: nobody is served as long as it is shut, if there is one. `purges`: nor as long as one goes on, the
    first of them; the others wait. `returns`: nor as long as there is something on its way back. `discards`:
    what is on its way out, as they have refused it, if that is much. `undeliverable`: what one of them has
    sent away for itself, if anything.
    `acquiring` counts those that are no browsers, `interested` and `notified` their members over all levels.
    `wakeups` counts how often one of them was told of work since the start, `empty_wakeups` how often one
    that had been told had no message before it was idle or suspended again. `counters`: the broker's, which
    count the latter too.
    """

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.all: dict[QueueConsumer, None] = {}
        self.gets: dict[QueueConsumer, None] = {}
        self.non_acquiring = QueueConsumerList()
        self.not_interested = QueueConsumerList()
        self.levels: list[ConsumerLevel] = []
        self._levels: dict[tuple[int, QueueContext], ConsumerLevel] = {}
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
        self.undeliverable: Undeliverable | None = None
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
        if consumer.level is not None:
            self.acquiring -= 1
            self._leave_level(consumer)

    def change_context(self, consumer: QueueConsumer, context: QueueContext) -> None:
        """Have `consumer`, which acquires and is attached, see the entries of `context` from now on.

        Its place among all consumers and its rank stay. It is INTERESTED then, or NOT_INTERESTED if it has a
        blocker.
        """
        self.move(consumer, NOT_INTERESTED)
        self._leave_level(consumer)
        consumer.context = context
        level = self._level(consumer.rank, context)
        level.members += 1
        consumer.level = level
        if consumer.blockers == 0:
            self.move(consumer, INTERESTED)

    def move(self, consumer: QueueConsumer, state: i64) -> None:
        """Put `consumer` at the tail of the list for `state`; nothing happens if it is in that state."""
        if consumer.state == state:
            return
        level = consumer.level
        self._leave(consumer, level)
        consumer.state = state
        if level is None:
            if state == NOT_INTERESTED:
                self.not_interested.append(consumer)
            elif state == NON_ACQUIRING:
                self.non_acquiring.append(consumer)
            return
        if state == INTERESTED:
            level.interested.append(consumer)
            self.interested += 1
        elif state == NOTIFIED:
            level.notified.append(consumer)
            self.notified += 1
        else:
            if state == NOT_INTERESTED:
                self.not_interested.append(consumer)
            if level.listed and len(level.home) > 1 and not level.wants_work:
                level.delist()
            return
        if not level.listed:
            level.enlist()

    def to_back(self, consumer: QueueConsumer) -> None:
        """Put `consumer` at the tail of the list that it is in: it has just had a message."""
        level = consumer.level
        if consumer.state == INTERESTED and level is not None:
            level.interested.remove(consumer)
            level.interested.append(consumer)

    def outranked(self, consumer: QueueConsumer) -> bool:
        """Whether a consumer of higher rank than `consumer`, which wants work, wants work too."""
        return self.levels[0].rank > consumer.rank

    def rotate(self, level: ConsumerLevel) -> None:
        """Have the other levels of the same rank come before `level`, which has been asked."""
        self._rotations += 1
        if len(level.home) > 1:
            level.delist()
            level.turn = self._rotations
            level.enlist()
        else:
            level.turn = self._rotations

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
            if consumer.woken:
                consumer.woken = False
                self.empty_wakeups += 1
                self.counters.consumer_empty_wakeups += 1
        elif state == NOT_INTERESTED:
            self.not_interested.remove(consumer)
        elif state == NON_ACQUIRING:
            self.non_acquiring.remove(consumer)

    def _leave_level(self, consumer: QueueConsumer) -> None:
        """Have `consumer`, in no list of its level, leave the level, which ends with the last one."""
        level = consumer.level
        assert level is not None, _NO_LEVEL
        consumer.level = None
        level.members -= 1
        if level.members == 0:
            if level.listed:
                level.delist()
            del self._levels[int(level.rank), level.context]

    def _level(self, rank: i64, context: QueueContext) -> ConsumerLevel:
        level = self._levels.get((int(rank), context))
        if level is None:
            home = self.levels if context.row is None else context.row.levels
            level = self._levels[int(rank), context] = ConsumerLevel(rank, context, home)
        return level
