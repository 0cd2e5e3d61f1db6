"""Very many deliveries go back to their queues by one step of their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.annotating import Addition
from broker.core.consumer import BLOCKED_BY_RETURNS, QueueConsumer
from broker.core.entry import QueueEntry
from broker.core.later import DEAR, Later, Run, are_few
from broker.core.outcome import NACK
from broker.core.overflow import DROP_HEAD
from broker.core.release import release
from broker.core.settling import restore
from broker.core.waiting import clear_blocker, suspend

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session
    from broker.core.topology import Topology

KNOWN_BYTES_OF_ONE: Final = 16  # of annotations that others are added to: as dear as one that only goes back


def give_back(
    runs: list[Run],
    outcome: i64,
    session: Session | None,
    topology: Topology | None,
    addition: Addition | None = None,
) -> None:
    """Release all of `runs`, the deliveries of one consumer together; `session`, if any, had them.

    `addition`: what is added to their messages before.

    They go back in slices. As long as there is more to come no consumer of their queues is served, so that
    none of them gets a later one before an earlier one is back.
    """
    if topology is None or are_few(runs):
        for consumer, entries in runs:
            _return(entries, consumer, outcome, addition)
            if session is not None:
                restore(entries, consumer)
    else:
        ReturnedLater(runs, outcome, session, topology, addition).begin()


def release_entries(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64 = NACK
) -> None:
    """ACQUIRED → AVAILABLE or HELD, in place, for the entries that `consumer` still owns (`give_back`)."""
    give_back([(consumer, entries)], outcome, None, queue.topology)


def finish_returns(queue: Queue) -> None:
    """Have all be back now that is on its way, unless that is dear: somebody is about to take what is next.

    What is back is in order as far as it is, so that who takes it before the rest has what comes first.
    """
    if not _is_dear(queue):
        for later in list(queue.manager.returns):
            later.finish(queue)


def _is_dear(queue: Queue) -> bool:
    """Whether what comes back may push something out, which may be dead-lettered."""
    rules = queue.rules
    return rules is not None and rules.limited and rules.overflow == DROP_HEAD


def _return(
    entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64, addition: Addition | None
) -> None:
    if consumer.acquires:
        if addition is not None:
            addition.add(entries, consumer)
        release(consumer.queue, entries, consumer, outcome)


@final
class ReturnedLater(Later):
    """Deliveries that go back, in the way that `outcome` says, in turns to come.

    If the queue takes them back meanwhile, as when it is deleted, nothing is left to be done. What waits
    before it is tried again keeps nobody from being served.
    """

    def __init__(
        self,
        runs: list[Run],
        outcome: i64,
        session: Session | None,
        topology: Topology,
        addition: Addition | None,
    ) -> None:
        super().__init__(runs, session, topology)
        self._outcome = outcome
        self._addition = addition
        self._paused: dict[Queue, i64] = {}  # and how many runs it has
        for consumer, _ in runs:
            queue = consumer.queue
            if consumer.acquires and not (queue.retry is not None and queue.retry.delays(outcome)):
                self._pause(queue)

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Release these (Later)."""
        _return(entries, consumer, self._outcome, self._addition)
        if self.session is not None:
            restore(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """What has a time, or rules for what comes back, is a little more (Later)."""
        queue = consumer.queue
        more: i64 = 0
        if self._addition is not None:
            more = self._addition.cost + len(queue.entries.annotations_of(entry)) // KNOWN_BYTES_OF_ONE
        if _is_dear(queue):
            return DEAR + more
        return more + (2 if entry.timer is not None or queue.retry is not None else 1)

    def taken_all(self, consumer: QueueConsumer) -> None:
        """Have consumers be served again if that was all of a queue (Later)."""
        queue = consumer.queue
        runs = self._paused.get(queue, 0) if consumer.acquires else 0
        if runs > 1:
            self._paused[queue] = runs - 1
        elif runs == 1:
            del self._paused[queue]
            queue.manager.returns.remove(self)
            if not queue.manager.returns:
                clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_RETURNS)
                if queue.manager.purges:
                    self._topology.schedule.set(queue.manager.purges[0], self._topology.schedule.now())

    def deleting(self, queue: Queue) -> None:
        """What has come back too often has a way to go; all else goes with the queue (Later)."""
        if queue.delivery_limit >= 0:
            self.finish(queue)

    def _pause(self, queue: Queue) -> None:
        runs = self._paused.get(queue, 0)
        self._paused[queue] = runs + 1
        if runs == 0:
            queue.manager.returns.append(self)
            for consumer in queue.manager.takers():
                suspend(queue, consumer, BLOCKED_BY_RETURNS)  # nobody takes over
