"""Transactions: publishes and settlements that happen together or not at all. [amqp-0-9-1 1.9]

Publishes and settlements of a transaction are held until the commit. The commit first checks whether
everything can be done. Then it appends everything to the log in one synchronous step, which is one batch and
therefore atomic. When the batch is durable, it does everything in memory, again in one step; only very many
settlements are done in slices. So no consumer sees a message of a transaction that may still fail, and its
settled deliveries stay with their holders until then. Rejected deliveries are dead-lettered in the same two
steps: the letters are written and routed with the checks.

Between the two steps, publishes of other connections get ahead of the transaction's; after a restart they may
be behind it. Their order was never promised: neither publisher had an answer before the other began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import CRASH, NACK
from broker.core.delivery.journal import INVALID, LOG_FAILED, QUEUE_FULL, STOPPED, refusal_of
from broker.core.delivery.session import Session
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, PreconditionFailed, QueueStopped
from broker.core.message import NOWHERE, ON_ITS_WAY, TELLS_CONSUMED, Message
from broker.core.ports import DurableWaiter, MessageStore
from broker.core.publishing.dead_letters import (
    DeadLetters,
    failure_of,
    forget,
    full_in,
    must_line_up,
    passage_of,
    passages_of,
)
from broker.core.publishing.passage import DUPLICATE, Passage, first_full, set_date
from broker.core.publishing.publisher import Publishing
from broker.core.publishing.receipts import Foretelling
from broker.core.queues.backlog import append_wait
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.death import ARRIVES, Death, Past, death_of
from broker.core.queues.election import first_stopped, stop_refusal
from broker.core.queues.hooks import REJECTED, QueueLimits
from broker.core.queues.queue import Queue, append_count, drop, queue_of, take_out
from broker.core.queues.returns import (
    DEAR,
    Addition,
    EndedDeliveries,
    Run,
    are_few,
    note_settled,
    requeue_runs,
    restore_credit,
    settle_owned,
)
from broker.core.queues.state import QueueState, owns
from broker.core.routing.graph import Keeper, Route
from broker.core.routing.topology import Topology

# outcomes of a delivery
SETTLE: Final = 0
DISCARD: Final = 1
RELEASE: Final = 2
REMOVE: Final = 3  # an operator removes the message; no client settles it


@final
class HeldSettlement:
    """A held settlement of deliveries of one consumer. `tags`: the holder's names for the deliveries.

    `returned`: how they are returned to their queue, if they are, an outcome of
    `broker.core.arguments.queue`. `addition`: annotations that their messages get then.
    `deaths`: their own deaths, if they are dead-lettered, and those of their dead letters in full queues.
    `waits`: entries that must wait in their backlog until they can be dead-lettered, with their deaths and
    the full queues.
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
        self.waits: dict[QueueEntry, tuple[Death, list[QueueLimits]]] = {}

    def valid(self) -> list[QueueEntry]:
        """Return the entries that the queue has not taken back meanwhile."""
        consumer = self.consumer
        return (
            [entry for entry in self.entries if owns(consumer, entry, consumer.queue)]
            if consumer.acquires
            else []
        )

    def resolve(self, store: MessageStore, dead_letters: DeadLetters) -> None:
        """Write and route the dead letters, if there are any, and those of queues that refuse them.

        Raises PreconditionFailed if a letter cannot be made, or must be logged and cannot be.
        """
        consumer = self.consumer
        rules = queue_of(consumer).rules
        if self.outcome != DISCARD or rules is None or not rules.moves(REJECTED) or not consumer.acquires:
            return
        for tag, entry in zip(self.tags, self.entries, strict=True):
            if not owns(consumer, entry, consumer.queue):
                continue
            own = death_of(queue_of(consumer), rules, entry, REJECTED)
            own.held = None  # the transaction settles it
            if self.addition is not None:
                own.past = own.past or Past()
                own.past.annotations = self.addition.added_to(own.past.annotations)
            try:
                self._bury(own, entry, store, dead_letters)
            except Exception as error:  # refused, or the disk cannot read the message
                text = f"delivery {tag}, rejected in the transaction, cannot be dead-lettered: {error}"
                raise PreconditionFailed(text) from error

    def _bury(self, own: Death, entry: QueueEntry, store: MessageStore, dead_letters: DeadLetters) -> None:
        if own.sure and must_line_up(own):
            self.waits[entry] = own, []
            return
        chain = dead_letters.foresee(own, own.sure)
        if own.sure and failure_of(chain) != ARRIVES:
            self.waits[entry] = own, full_in(chain)
            forget(chain)
            return
        self.deaths += chain
        for passage in passages_of(chain):
            if store.failure and (passage.logged or passage.streams):
                raise PreconditionFailed(store.refusal)

    def append(self, topology: Topology, receipts: Foretelling) -> bool:
        """Append the settlement to the log, with dead letters and receipts; false if nothing was appended."""
        appended = False
        for passage in self._passages():
            if passage.append(topology):
                appended = True
        if self.outcome == RELEASE:
            return appended
        queue = queue_of(self.consumer)
        for entry in self.valid():
            message = entry.message
            if entry in self.waits:
                append_wait(self.waits[entry][0])
                appended = appended or (queue.logged and message.sequence != 0)
            elif queue.logged and message.sequence != 0:
                topology.store.append_transacted_settle(message, queue)
                appended = True
            if message.marks != 0 and self.outcome == SETTLE:
                receipts.consumed(message, queue)
        return appended

    def put(self, store: MessageStore, dead_letters: DeadLetters) -> None:
        """Remove the entries that are not just settled, and put their dead letters into queues."""
        queue = queue_of(self.consumer)
        note_settled(self.entries, self.consumer)
        journal = queue.journal
        for entry in self.valid():
            waits = self.waits.get(entry)
            if waits is not None:
                death, full = waits
                take_out(queue, entry)
                dead_letters.wait(death, full, told=True)
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
            passage = passage_of(death)
            if passage is not None:
                passage.unreserve()
                passage.leave_out_deleted(store)
            dead_letters.put(death)

    def forget_deaths(self) -> None:
        """Cancel the deaths, and release the room that was reserved for dead letters."""
        for passage in self._passages():
            passage.unreserve()
        self.deaths = []
        self.waits = {}

    def take_back(self) -> None:
        """Undo the records of waiting messages, because the batch of the transaction has failed."""
        for entry in self.waits:
            append_count(queue_of(self.consumer), entry)

    def _passages(self) -> list[Passage]:
        return passages_of(self.deaths)


def settle_held(settlements: list[HeldSettlement], topology: Publishing, over: Callable[[], None]) -> None:
    """Settle the valid deliveries, and requeue those to be released; `over` is called when all is done.

    This is done at once, unless very many are settled: then in slices.
    """
    runs = [(held.consumer, held.entries) for held in settlements if held.outcome == SETTLE]
    if not are_few(runs):
        CommittedDeliveries(settlements, runs, topology, over).begin()
        return
    for held in settlements:
        if held.outcome == SETTLE:
            settle_owned(held.entries, held.consumer)
        elif held.outcome != RELEASE:
            held.put(topology.store, topology.dead_letters)
    _release(settlements)
    for held in settlements:
        restore_credit(held.entries, held.consumer)
    over()


def release_held(settlements: list[HeldSettlement]) -> None:
    """Release everything instead, because the transaction has failed."""
    for held in settlements:
        held.outcome = RELEASE
        held.returned = CRASH
        held.addition = None
    _release(settlements)
    for held in settlements:
        restore_credit(held.entries, held.consumer)


def _release(settlements: list[HeldSettlement]) -> None:
    """Requeue the deliveries to be released, all of one consumer at once."""
    released: dict[tuple[QueueConsumer, int, Addition | None], list[QueueEntry]] = {}
    for held in settlements:
        if held.outcome == RELEASE:
            released.setdefault((held.consumer, int(held.returned), held.addition), []).extend(held.entries)
    for (consumer, returned, addition), entries in released.items():
        if consumer.acquires:
            requeue_runs([(consumer, entries)], returned, None, queue_of(consumer).host, addition)


def _nothing() -> None:
    """Report nothing."""


@final
class CommittedDeliveries(EndedDeliveries):
    """Deliveries that a transaction has settled, and its other settlements, in order, done in slices.

    The log gets all settles first, in one step: the code that copies messages forward must not find there any
    message that the log says is settled.
    """

    def __init__(
        self,
        settlements: list[HeldSettlement],
        runs: list[Run],
        publishing: Publishing,
        over: Callable[[], None],
    ) -> None:
        super().__init__(runs, None, publishing)
        self._publishing = publishing
        self._settlements = settlements
        self._next: i64 = 0  # the first of them that is not done yet
        self._over = over

    def begin(self) -> None:
        """Append the settles to the log, and settle in memory in later turns."""
        topology = self._publishing
        for consumer, entries in reversed(self._left):
            queue = consumer.queue
            if not queue.logged or not consumer.acquires:
                continue
            for entry in reversed(entries):
                message = entry.message
                if message.sequence != 0 and owns(consumer, entry, consumer.queue):
                    topology.store.append_settle(message, queue)
        topology.settlements.append(self)
        self.continue_soon()
        self._go_on()

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle these."""
        settle_owned(entries, consumer, True)
        restore_credit(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of an entry; one with a receipt costs as much as a message."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1

    def end_run(self, consumer: QueueConsumer) -> None:
        """Continue behind the run."""
        self._next += 1
        self._go_on()

    def finish_before_deletion(self, queue: QueueState) -> None:
        """Finish the whole transaction before the queue is deleted.

        The owner of the transaction learns this in a later turn, not while the queue is being deleted.
        """
        if any(run[0].queue is queue for run in self._left):
            self.drop_all()

    def drop_all(self) -> None:
        """Finish the whole transaction: the log has its settles, and must not get them again."""
        over, self._over = self._over, _nothing
        self.finish()
        self._over = over
        self.continue_soon()

    def do_due_work(self) -> None:
        """Settle a slice, or report that all is done."""
        if self in self._publishing.settlements:
            super().do_due_work()
        else:
            self._over()

    def _go_on(self) -> None:
        """Do the other settlements, up to the next deliveries that are just settled."""
        settlements = self._settlements
        while self._next < len(settlements):
            held = settlements[self._next]
            if held.outcome == SETTLE:
                return
            self._next += 1
            if held.outcome != RELEASE:
                held.put(self._publishing.store, self._publishing.dead_letters)
        _release(settlements)
        for held in settlements:
            if held.outcome != SETTLE:
                restore_credit(held.entries, held.consumer)
        self._over()


NO_KEEPERS: Final[list[Keeper]] = []
UNRESOLVED: Final = Passage(Message(NOWHERE, None, 0, False, 0), [], NO_KEEPERS)
"""The passage of a publish that has not been resolved, or was refused: it has no queues."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldPublish:
    """A publish that waits for its commit. `keys` are all its routing keys, [] for that of its route alone.

    `own`: the broker publishes it: stopped queues accept it, and so do queues that have had it before.
    `reason`: why `resolve` refused it, for the journal; `full`: the queue that is full or stopped.
    """

    def __init__(self, route: Route, message: Message, keys: list[str], immediate: bool) -> None:
        self.route = route
        self.message = message
        self.keys = keys
        self.immediate = immediate
        self.own = False
        self.passage = UNRESOLVED
        self.reason: i64 = INVALID
        self.full: Queue | None = None

    def taken(self, count: i64) -> None:
        """Note that the commit has published the message; `count` is the result of Publishing.publish."""
        raise NotImplementedError

    def resolve(self, virtual_host: Publishing) -> str:
        """Resolve the queues of the message. Return why they would not keep it, "" if they would.

        Raises the errors of Publishing.refresh, PreconditionFailed and StoreFailed.
        """
        route = self.route
        message = self.message
        if route.epoch != virtual_host.epoch:
            virtual_host.refresh(route)
        if self.keys or route.by_message:
            view = virtual_host.views(message, virtual_host.store)
            found = virtual_host.resolve(route, message, self.keys or [route.address.routing_key], view)
            passage = Passage(message, list(found.queues), found.keepers)
        else:
            passage = Passage(message, route.queues, NO_KEEPERS)
        if not self.own:
            passage.identify(virtual_host)
        everywhere = passage.queues
        if passage.keepers:
            everywhere = everywhere + [keeper.queue for keeper in passage.keepers]
        refusal = "" if self.own else stop_refusal(everywhere)
        if refusal:
            self.reason = STOPPED
            self.full = first_stopped(everywhere)
        else:
            refusal = virtual_host.refusal(message, everywhere, self.immediate)
            if refusal and refusal == virtual_host.store.refusal:
                self.reason = LOG_FAILED
            elif refusal:
                self.reason = QUEUE_FULL
                self.full = first_full(message, everywhere)
        if not refusal:
            set_date(virtual_host, message, passage.queues)
            passage.reserve()
            self.passage = passage
        return refusal

    def put(self, virtual_host: Publishing) -> i64:
        """Put the message, which has been appended, into its queues.

        Return the result of Publishing.publish.
        """
        virtual_host.counters.published += 1
        passage = self.passage
        if passage.known:
            return DUPLICATE
        wanted: i64 = len(passage.queues)
        passage.unreserve()
        passage.leave_out_deleted(virtual_host.store)
        count = virtual_host.put(passage, self.immediate)
        return count if len(passage.queues) == wanted else wanted


@mypyc_attr(allow_interpreted_subclasses=True)
class Transaction(DurableWaiter):
    """A transaction, made for one commit.

    A subclass implements `committed` and `failed`, one of which is called, once. `publisher`: the session of
    the publishes, if it is a client's transaction.
    """

    def __init__(self, virtual_host: Publishing, publisher: Session | None = None) -> None:
        self.virtual_host = virtual_host
        self.publisher = publisher
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self.receipts = Foretelling(virtual_host.receipts)

    def committed(self) -> None:
        """Report that everything has been done and is durable."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """Report that the log has failed: nothing was done, and the held settlements have been released."""
        raise NotImplementedError

    def hold(
        self,
        tag: i64,
        entry: QueueEntry,
        consumer: QueueConsumer,
        outcome: i64,
        returned: i64 = NACK,
        addition: Addition | None = None,
    ) -> None:
        """Hold the settlement of a delivery for the commit; `outcome`: SETTLE, DISCARD, RELEASE or REMOVE."""
        held = self.held(consumer, outcome, returned, addition)
        held.tags.append(tag)
        held.entries.append(entry)

    def held(
        self, consumer: QueueConsumer, outcome: i64, returned: i64, addition: Addition | None = None
    ) -> HeldSettlement:
        """Return the held settlement for the next delivery of `consumer` with this outcome."""
        settlements = self.settlements
        held = settlements[-1] if settlements else None
        if (
            held is None
            or held.consumer is not consumer
            or held.outcome != outcome
            or held.returned != returned
            or held.addition is not addition
        ):
            held = HeldSettlement(consumer, outcome, returned, addition)
            settlements.append(held)
        return held

    def settlement_count(self) -> i64:
        """Return how many deliveries the transaction settles."""
        count: i64 = 0
        for held in self.settlements:
            count += len(held.entries)
        return count

    def commit(self) -> None:
        """Do everything, publishes first; `committed` is called when it is durable, perhaps at once.

        Raises:
            NotFound, AccessRefused, PreconditionFailed: a publish is refused, or a dead letter cannot be
                stored; the text says which one and why. Nothing was done.
        """
        self.virtual_host.journal.publisher = self.publisher
        try:
            self._check()
            appended = self._append()
        except Exception:  # after any error, the room is released
            self._unreserve()
            raise
        if appended:
            self.virtual_host.store.wait(self)
        else:
            self.on_durable(0)

    def _append(self) -> bool:
        """Append everything to the log; false if there is nothing to wait for."""
        appended = False
        for publish in self.publishes:
            if publish.passage.append(self.virtual_host) or publish.message.marks & ON_ITS_WAY:
                appended = True
            self.receipts.arrival(publish.message, publish.passage.queues)
        for settlement in self.settlements:
            if settlement.append(self.virtual_host, self.receipts):
                appended = True
        return appended

    def _check(self) -> None:
        for number, publish in enumerate(self.publishes, 1):
            try:
                refusal = publish.resolve(self.virtual_host)
            except BrokerError as error:
                queue = error.queue if isinstance(error, QueueStopped) else None
                self._tell_refusal(publish, refusal_of(error), queue)
                raise type(error)(self._which(number, error.text)) from error
            if refusal:
                self._tell_refusal(publish, publish.reason, publish.full)
                raise PreconditionFailed(self._which(number, refusal))
        for settlement in self.settlements:
            settlement.resolve(self.virtual_host.store, self.virtual_host.dead_letters)

    def _tell_refusal(self, publish: HeldPublish, reason: i64, queue: object | None) -> None:
        """Record in the journal which publish of a client is refused, and why."""
        journal = self.virtual_host.journal
        if journal.on and self.publisher is not None:
            message = publish.message
            journal.refused(self.publisher, publish.route.address, message, reason, queue)

    def _unreserve(self) -> None:
        self.receipts.withdraw()
        for publish in self.publishes:
            publish.passage.unreserve()
        for settlement in self.settlements:
            if settlement.deaths or settlement.waits:
                settlement.forget_deaths()

    def _which(self, number: int, why: str) -> str:
        return f"publish {number} of {len(self.publishes)} in the transaction: {why}"

    def on_durable(self, batch: i64) -> None:
        """Do everything: the batch of the transaction is on disk, or none of it has to be (DurableWaiter)."""
        self.virtual_host.journal.publisher = self.publisher
        try:
            for publish in self.publishes:
                publish.taken(publish.put(self.virtual_host))
            settle_held(self.settlements, self.virtual_host, self._done)
        except Exception:  # after any error, the room is released
            self._unreserve()
            raise

    def _done(self) -> None:
        self._unreserve()
        self.committed()

    def on_store_failed(self, reason: str) -> None:
        """Release everything: the batch is not on disk, or may not be (DurableWaiter)."""
        for settlement in self.settlements:
            settlement.take_back()
        self._unreserve()
        release_held(self.settlements)
        self.failed(reason)
