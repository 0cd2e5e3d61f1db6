"""Settlements that wait for the commit of their transaction."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import REJECTED, Death, past_of
from broker.core.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.leaving import drop
from broker.core.outcome import NACK
from broker.core.passage import Passage
from broker.core.ports import MessageStore
from broker.core.settling import restore, settle_all

if TYPE_CHECKING:
    from broker.core.topology import Topology

# what becomes of a delivery
SETTLE: Final = 0
DISCARD: Final = 1
RELEASE: Final = 2
REMOVE: Final = 3  # settled by nobody: an operator takes it away


@final
class HeldSettlement:
    """What is to become of one delivery. `tag`: by what name its holder knows it.

    `returned`: in which way it comes back to its queue, if it does, one of `broker.core.outcome`.
    `deaths`: its own, if it is dead-lettered, and those of its dead letter in queues that take no more.
    """

    def __init__(
        self, tag: i64, entry: QueueEntry, consumer: QueueConsumer, outcome: i64, returned: i64 = NACK
    ) -> None:
        self.tag = tag
        self.entry = entry
        self.consumer = consumer
        self.outcome = outcome
        self.returned = returned
        self.deaths: list[Death] = []

    def is_valid(self) -> bool:
        """Whether the queue has not taken the entry back meanwhile."""
        return self.consumer.acquires and self.entry.is_with(self.consumer)

    def resolve(self, store: MessageStore) -> None:
        """Find out where the dead letter goes, if there will be one, and those of the queues that refuse it.

        Raises PreconditionFailed if it cannot be made, or cannot be logged and would have to be.
        """
        queue = self.consumer.queue
        rules = queue.rules
        if self.outcome != DISCARD or rules is None or not rules.moves(REJECTED) or not self.is_valid():
            return
        own = Death(queue, rules, self.entry.message, REJECTED, None, queue)
        own.past = past_of(queue, self.entry, REJECTED)
        waiting = deque([own])
        while waiting:
            death = waiting.popleft()
            self.deaths.append(death)
            try:
                death.rules.topology.dead_letters.plan(death)
            except Exception as error:  # the disk does not give the message back
                raise PreconditionFailed(self._which(str(error))) from error
            passage = death.passage
            if passage is None:
                continue
            if store.failure and passage.logged:
                raise PreconditionFailed(self._which(store.refusal))
            passage.reserve()
            waiting += passage.deaths

    def append(self, topology: Topology) -> bool:
        """Append it to the log, dead letters included; false if there was nothing to append."""
        appended = False
        if self.deaths:
            for passage in self._passages():
                if passage.append(topology):
                    appended = True
        queue = self.consumer.queue
        message = self.entry.message
        if self.outcome == RELEASE or not self.is_valid() or not queue.logged or message.sequence == 0:
            return appended
        topology.store.append_transacted_settle(message, queue)
        return True

    def put(self, store: MessageStore) -> None:
        """Have an entry leave that is not just settled, and put its dead letters where they go."""
        queue = self.consumer.queue
        if self.is_valid():
            drop(queue, self.entry)
            if self.outcome == DISCARD and not self.deaths:
                queue.counters.discarded[REJECTED] += 1
        for death in self.deaths:  # also if the queue has been deleted since the append
            passage = death.passage
            if passage is not None:
                passage.unreserve()
                passage.leave_out_deleted(store)
            death.rules.topology.dead_letters.put(death)

    def forget_deaths(self) -> None:
        """Nobody dies: give the room back that was kept for dead letters."""
        for passage in self._passages():
            passage.unreserve()
        self.deaths = []

    def _passages(self) -> list[Passage]:
        return [death.passage for death in self.deaths if death.passage is not None]

    def _which(self, why: str) -> str:
        return f"delivery {self.tag}, rejected in the transaction, cannot be dead-lettered: {why}"


def settle_held(settlements: list[HeldSettlement], store: MessageStore) -> None:
    """Settle what is valid, and give back what is to be released, all of one consumer at once."""
    runs = _runs(settlements)
    released: dict[tuple[QueueConsumer, int], list[QueueEntry]] = {}
    for run in runs:
        consumer = run[0].consumer
        outcome = run[0].outcome
        if not consumer.acquires or outcome == SETTLE:
            continue
        if outcome == RELEASE:
            entries = [settlement.entry for settlement in run]
            released.setdefault((consumer, int(run[0].returned)), []).extend(entries)
        else:
            for settlement in run:
                settlement.put(store)
    for (consumer, returned), entries in released.items():
        consumer.queue.release(entries, consumer, returned)
    for run in runs:
        consumer = run[0].consumer
        entries = [settlement.entry for settlement in run]
        if consumer.acquires and run[0].outcome == SETTLE:
            settle_all(consumer.queue, entries, consumer)
        else:
            restore(entries, consumer)


def _runs(settlements: list[HeldSettlement]) -> list[list[HeldSettlement]]:
    """The settlements in their order, in runs of those of one consumer that come to the same."""
    runs: list[list[HeldSettlement]] = []
    last: HeldSettlement | None = None
    for each in settlements:
        if (
            last is not None
            and each.consumer is last.consumer
            and each.outcome == last.outcome
            and each.returned == last.returned
        ):
            runs[-1].append(each)
        else:
            runs.append([each])
        last = each
    return runs
