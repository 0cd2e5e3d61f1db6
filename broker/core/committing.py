"""What a transaction settles, once its batch is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.annotating import Addition
from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry
from broker.core.held_settlement import RELEASE, SETTLE, HeldSettlement
from broker.core.later import DEAR, Later, Run, are_few
from broker.core.message import TELLS_CONSUMED
from broker.core.outcome import CRASH
from broker.core.returning import give_back
from broker.core.settling import leave_all, restore

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology


def settle_held(settlements: list[HeldSettlement], topology: Topology, over: Callable[[], None]) -> None:
    """Settle what is valid, and give back what is to be released; `over` is called when all of that is done.

    That is at once, unless very much is settled: then it leaves in slices.
    """
    runs = [(held.consumer, held.entries) for held in settlements if held.outcome == SETTLE]
    if not are_few(runs):
        CommittedLater(settlements, runs, topology, over).begin()
        return
    for held in settlements:
        if held.outcome == SETTLE:
            leave_all(held.entries, held.consumer)
        elif held.outcome != RELEASE:
            held.put(topology.store)
    _release(settlements)
    for held in settlements:
        restore(held.entries, held.consumer)
    over()


def release_held(settlements: list[HeldSettlement]) -> None:
    """Give everything back instead: the transaction has failed."""
    for held in settlements:
        held.outcome = RELEASE
        held.returned = CRASH
        held.addition = None
    _release(settlements)
    for held in settlements:
        restore(held.entries, held.consumer)


def _release(settlements: list[HeldSettlement]) -> None:
    """Give back what is to be released, all of one consumer at once."""
    released: dict[tuple[QueueConsumer, int, Addition | None], list[QueueEntry]] = {}
    for held in settlements:
        if held.outcome == RELEASE:
            released.setdefault((held.consumer, int(held.returned), held.addition), []).extend(held.entries)
    for (consumer, returned, addition), entries in released.items():
        if consumer.acquires:
            give_back([(consumer, entries)], returned, None, consumer.queue.topology, addition)


def _nothing() -> None:
    """Nobody is told."""


@final
class CommittedLater(Later):
    """Deliveries that a transaction has settled, and what it does beside that, in its order.

    The log is told of all of them first, in one step: whoever copies it forward must not find there what it
    says is settled.
    """

    def __init__(
        self,
        settlements: list[HeldSettlement],
        runs: list[Run],
        topology: Topology,
        over: Callable[[], None],
    ) -> None:
        super().__init__(runs, None, topology)
        self._settlements = settlements
        self._next: i64 = 0  # the first of them that is not done yet
        self._over = over

    def begin(self) -> None:
        """Tell the log, and have them leave in turns to come (Later)."""
        topology = self._topology
        for consumer, entries in reversed(self._left):
            queue = consumer.queue
            if not queue.logged or not consumer.acquires:
                continue
            for entry in reversed(entries):
                message = entry.message
                if message.sequence != 0 and entry.is_with(consumer):
                    topology.store.append_settle(message, queue)
        topology.settlements.append(self)
        topology.schedule.set(self, topology.schedule.now())
        self._go_on()

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle these (Later)."""
        leave_all(entries, consumer, True)
        restore(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """A receipt is a message (Later)."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1

    def taken_all(self, consumer: QueueConsumer) -> None:
        """Go on behind them (Later)."""
        self._next += 1
        self._go_on()

    def deleting(self, queue: Queue) -> None:
        """All that the transaction does is done before (Later).

        Whoever it was for learns that in a turn to come, and goes on then: not while the queue is deleted.
        """
        if any(run[0].queue is queue for run in self._left):
            self.vacating()

    def vacating(self) -> None:
        """The same: to the log they have left, and it must not be told so again (Later)."""
        over, self._over = self._over, _nothing
        self.finish(None)
        self._over = over
        self._topology.schedule.set(self, self._topology.schedule.now())

    def ring(self) -> None:
        """Have a slice of them leave, or say that all have (Alarm)."""
        if self in self._topology.settlements:
            super().ring()
        else:
            self._over()

    def _go_on(self) -> None:
        """Do what the transaction does beside settling, up to what it settles next."""
        settlements = self._settlements
        while self._next < len(settlements):
            held = settlements[self._next]
            if held.outcome == SETTLE:
                return
            self._next += 1
            if held.outcome != RELEASE:
                held.put(self._topology.store)
        _release(settlements)
        for held in settlements:
            if held.outcome != SETTLE:
                restore(held.entries, held.consumer)
        self._over()
