"""Settlements that wait for the commit of their transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.annotating import Addition
from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import ARRIVES, REJECTED, Death, death_of
from broker.core.dead_letter_backlog import tell_log
from broker.core.dead_letters import failure_of, forget, full_in, must_line_up
from broker.core.delivery_limit import append_count
from broker.core.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.leaving import drop, take_out
from broker.core.letter import Past
from broker.core.passage import Passage
from broker.core.ports import MessageStore
from broker.core.settling import seen

if TYPE_CHECKING:
    from broker.core.foretelling import Foretelling
    from broker.core.rules import Rules
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
    `waits`: entries that are to wait in their backlog until they can be dead-lettered, with their deaths and
    the queues that are full.
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
        self.waits: dict[QueueEntry, tuple[Death, list[Rules]]] = {}

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
            own = death_of(consumer.queue, rules, entry, REJECTED)
            own.held = None  # the transaction settles it
            if self.addition is not None:
                own.past = own.past or Past()
                own.past.annotations = self.addition.added_to(own.past.annotations)
            try:
                self._bury(own, entry, store)
            except Exception as error:  # refused, or the disk does not give the message back
                text = f"delivery {tag}, rejected in the transaction, cannot be dead-lettered: {error}"
                raise PreconditionFailed(text) from error

    def _bury(self, own: Death, entry: QueueEntry, store: MessageStore) -> None:
        if own.sure and must_line_up(own):
            self.waits[entry] = own, []
            return
        chain = own.rules.topology.dead_letters.foresee(own, own.sure)
        if own.sure and failure_of(chain) != ARRIVES:
            self.waits[entry] = own, full_in(chain)
            forget(chain)
            return
        self.deaths += chain
        for passage in [death.passage for death in chain if death.passage is not None]:
            if store.failure and (passage.logged or passage.streams):
                raise PreconditionFailed(store.refusal)

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
            if entry in self.waits:
                tell_log(self.waits[entry][0])
                appended = appended or (queue.logged and message.sequence != 0)
            elif queue.logged and message.sequence != 0:
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
            waits = self.waits.get(entry)
            if waits is not None:
                death, full = waits
                take_out(queue, entry)
                death.rules.topology.dead_letters.wait(death, full, told=True)
                continue
            is_discarded = self.outcome == DISCARD and not self.deaths and not self.waits
            if journal is not None and self.outcome == REMOVE:
                journal.removed(entry.message, entry.order, entry.delivery_count)
            elif journal is not None and is_discarded:
                journal.discarded(entry, REJECTED)
            drop(queue, entry)
            if is_discarded:
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
        self.waits = {}

    def take_back(self) -> None:
        """The batch of the transaction has failed: what it says of messages that wait must not hold."""
        for entry in self.waits:
            append_count(self.consumer.queue, entry)

    def _passages(self) -> list[Passage]:
        return [death.passage for death in self.deaths if death.passage is not None]
