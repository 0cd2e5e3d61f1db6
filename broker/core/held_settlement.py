"""Settlements that wait for the commit of their transaction."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.annotating import Addition
from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import REJECTED, Death, past_of
from broker.core.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.leaving import drop
from broker.core.letter import Past
from broker.core.passage import Passage
from broker.core.ports import MessageStore
from broker.core.settling import seen

if TYPE_CHECKING:
    from broker.core.foretelling import Foretelling
    from broker.core.topology import Topology

# what becomes of a delivery
SETTLE: Final = 0
DISCARD: Final = 1
RELEASE: Final = 2
REMOVE: Final = 3  # settled by nobody: an operator takes it away


@final
class HeldSettlement:
    """What is to become of deliveries of one consumer. `tags`: by what names its holder knows them.

    `returned`: in which way they come back to their queue, if they do, one of `broker.core.outcome`.
    `addition`: what is added to their messages then.
    `deaths`: their own, if they are dead-lettered, and those of their dead letters in queues that are full.
    """

    def __init__(
        self, consumer: QueueConsumer, outcome: i64, returned: i64, addition: Addition | None = None
    ) -> None:
        self.consumer = consumer
        self.outcome = outcome
        self.returned = returned
        self.addition = addition
        self.tags: list[int] = []
        self.entries: list[QueueEntry] = []
        self.deaths: list[Death] = []

    def valid(self) -> list[QueueEntry]:
        """The entries that the queue has not taken back meanwhile."""
        consumer = self.consumer
        return [entry for entry in self.entries if entry.is_with(consumer)] if consumer.acquires else []

    def resolve(self, store: MessageStore) -> None:
        """Find out where dead letters go, if there will be some, and those of the queues that refuse them.

        Raises PreconditionFailed if one cannot be made, or cannot be logged and would have to be.
        """
        consumer = self.consumer
        rules = consumer.queue.rules
        if self.outcome != DISCARD or rules is None or not rules.moves(REJECTED) or not consumer.acquires:
            return
        for tag, entry in zip(self.tags, self.entries, strict=True):
            if not entry.is_with(consumer):
                continue
            own = Death(consumer.queue, rules, entry.message, REJECTED, None, consumer.queue)
            own.past = past_of(consumer.queue, entry, REJECTED)
            if self.addition is not None:
                own.past = own.past or Past()
                own.past.annotations = self.addition.added_to(own.past.annotations)
            own.order = entry.order
            try:
                self._bury(own, store)
            except Exception as error:  # refused, or the disk does not give the message back
                text = f"delivery {tag}, rejected in the transaction, cannot be dead-lettered: {error}"
                raise PreconditionFailed(text) from error

    def _bury(self, own: Death, store: MessageStore) -> None:
        waiting = deque([own])
        while waiting:
            death = waiting.popleft()
            self.deaths.append(death)
            death.rules.topology.dead_letters.plan(death)
            passage = death.passage
            if passage is None:
                continue
            if store.failure and (passage.logged or passage.streams):
                raise PreconditionFailed(store.refusal)
            passage.reserve()
            waiting += passage.deaths

    def append(self, topology: Topology, receipts: Foretelling) -> bool:
        """Append it to the log, dead letters and receipts included; false if there was nothing to append."""
        appended = False
        for passage in self._passages():
            if passage.append(topology):
                appended = True
        if self.outcome == RELEASE:
            return appended
        queue = self.consumer.queue
        for entry in self.valid():
            message = entry.message
            if queue.logged and message.sequence != 0:
                topology.store.append_transacted_settle(message, queue)
                appended = True
            if message.marks != 0 and self.outcome == SETTLE:
                receipts.consumed(message, queue)
        return appended

    def put(self, store: MessageStore) -> None:
        """Have entries leave that are not just settled, and put their dead letters where they go."""
        queue = self.consumer.queue
        seen(self.entries, self.consumer)
        journal = queue.journal
        for entry in self.valid():
            if journal is not None and self.outcome == REMOVE:
                journal.removed(entry)
            elif journal is not None and not self.deaths:
                journal.discarded(entry, REJECTED)
            drop(queue, entry)
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
