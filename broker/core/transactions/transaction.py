"""Transactions: publishes and settlements that happen together or not at all. [amqp-0-9-1 1.9]

Publishes and settlements of a transaction are held until the commit. The commit first checks whether
everything can be done. The commit then appends everything to the log in one synchronous step, which is one
batch and therefore atomic. When the batch is durable, it does everything in memory, again in one step; only
very many settlements are done in slices. So no consumer sees a message of a transaction that may still fail,
and its settled deliveries stay with their holders until then. Rejected deliveries are dead-lettered in the
same two steps: the letters are written and routed with the checks.

A message whose header `x-independent` is true is no part of its transaction: the adapters publish it at once.
[Bernstein & Newcomer 4.5, Nontransactional Queuing]

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
    cancel_plan,
    failure_of,
    full_queue_rules,
    has_waiting_predecessor,
    passage_of,
    passages_of,
)
from broker.core.publishing.publisher import DUPLICATE, ROUTED, Outcome, Publisher
from broker.core.publishing.receipts import PreparedReceipts
from broker.core.publishing.routed_message import RoutedMessage, find_full_queue, set_date
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.dead_letter_backlog import append_wait
from broker.core.queues.death import ARRIVES, Death, Past, death_of
from broker.core.queues.hooks import REJECTED, LimitsHook
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
from broker.core.queues.source import BROKER, Source
from broker.core.queues.state import QueueState, owns
from broker.core.queues.stops import first_stopped, stop_refusal
from broker.core.remotes.remote import RemoteWait, RemoteWaiter
from broker.core.routing.graph import Keeper, Route
from broker.core.routing.virtual_host import RoutingHost
from broker.core.values import show, type_name

INDEPENDENT: Final = "x-independent"


def is_independent(value: object) -> bool:
    """Whether a message is published at once, whatever happens to the transaction in which it is sent.

    `value`: the value of the message's header `x-independent`; None without the header.
    [Bernstein & Newcomer 4.5, Nontransactional Queuing]

    Raises:
        PreconditionFailed: the value is not a boolean.
    """
    if value is None or isinstance(value, bool):
        return value is True
    raise PreconditionFailed(
        f"invalid header '{INDEPENDENT}' of a message: '{show(value)}' of type '{type_name(value)}' "
        "is not a boolean"
    )


# outcomes of a delivery
SETTLE: Final = 0
DISCARD: Final = 1
RELEASE: Final = 2
REMOVE: Final = 3  # an operator removes the message; no client settles it


@final
class HeldSettlement:
    """A held settlement of deliveries of one consumer. `tags`: the adapter's numbers of the deliveries.

    `returned`: for released deliveries, the cause of their return, a constant of
    `broker.core.arguments.queue`. `addition`: annotations for the messages of returned deliveries.
    `deaths`: the deaths of dead-lettered deliveries, and the deaths of their dead letters in full queues.
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
        self.waits: dict[QueueEntry, tuple[Death, list[LimitsHook]]] = {}

    def valid_entries(self) -> list[QueueEntry]:
        """Return the entries that the queue has not taken back meanwhile."""
        consumer = self.consumer
        return (
            [entry for entry in self.entries if owns(consumer, entry, consumer.queue)]
            if consumer.acquires
            else []
        )

    def resolve(self, store: MessageStore, dead_letters: DeadLetters) -> None:
        """Write and route the dead letters, and the dead letters of queues that refuse these.

        Raises PreconditionFailed if a letter cannot be written, or must be logged and the log has stopped.
        """
        consumer = self.consumer
        limits = queue_of(consumer).limits
        if self.outcome != DISCARD or limits is None or not limits.moves(REJECTED) or not consumer.acquires:
            return
        for tag, entry in zip(self.tags, self.entries, strict=True):
            if not owns(consumer, entry, consumer.queue):
                continue
            own = death_of(queue_of(consumer), limits, entry, REJECTED)
            own.held = None  # the transaction settles it
            if self.addition is not None:
                own.past = own.past or Past()
                own.past.annotations = self.addition.added_to(own.past.annotations)
            try:
                self._plan_death(own, entry, store, dead_letters)
            except Exception as error:  # refused, or the disk cannot read the message
                text = f"delivery {tag}, rejected in the transaction, cannot be dead-lettered: {error}"
                raise PreconditionFailed(text) from error

    def _plan_death(
        self, own: Death, entry: QueueEntry, store: MessageStore, dead_letters: DeadLetters
    ) -> None:
        if own.sure and has_waiting_predecessor(own):
            self.waits[entry] = own, []
            return
        chain = dead_letters.plan_chain(own, own.sure)
        if own.sure and failure_of(chain) != ARRIVES:
            self.waits[entry] = own, full_queue_rules(chain)
            cancel_plan(chain)
            return
        self.deaths += chain
        for passage in passages_of(chain):
            if store.failure and (passage.logged or passage.streams):
                raise PreconditionFailed(store.refusal)

    def append(self, host: RoutingHost, receipts: PreparedReceipts) -> bool:
        """Append the settlement to the log, with dead letters and receipts; false if nothing was appended."""
        appended = False
        for passage in self._passages():
            if passage.append(host):
                appended = True
        if self.outcome == RELEASE:
            return appended
        queue = queue_of(self.consumer)
        for entry in self.valid_entries():
            message = entry.message
            if entry in self.waits:
                append_wait(self.waits[entry][0])
                appended = appended or (queue.logged and message.sequence != 0)
            elif queue.logged and message.sequence != 0:
                host.store.append_transacted_settle(message, queue)
                appended = True
            if message.marks != 0 and self.outcome == SETTLE:
                receipts.prepare_consumption(message, queue)
        return appended

    def put(self, store: MessageStore, dead_letters: DeadLetters, way: i64) -> None:
        """Remove the entries that are not just settled, and put their dead letters into queues.

        `way`: for the journal, the `Source.way` of the transaction.
        """
        queue = queue_of(self.consumer)
        note_settled(self.entries, self.consumer)
        journal = queue.journal
        for entry in self.valid_entries():
            waits = self.waits.get(entry)
            if waits is not None:
                death, full = waits
                take_out(queue, entry)
                dead_letters.wait(death, full, is_logged=True)
                continue
            is_discarded = self.outcome == DISCARD and not self.deaths and not self.waits
            if journal is not None and self.outcome == REMOVE:
                journal.removed(entry.message, entry.order, entry.delivery_count, way)
            elif journal is not None and is_discarded:
                journal.discarded(entry, REJECTED)
            drop(queue, entry)
            if is_discarded:
                queue.counters.discarded[REJECTED] += 1
        for death in self.deaths:  # also if the queue has been deleted since the append
            passage = passage_of(death)
            if passage is not None:
                passage.unreserve()
                passage.remove_deleted_queues(store)
            dead_letters.put(death)

    def cancel_deaths(self) -> None:
        """Cancel the deaths, and release the room that was reserved for dead letters."""
        for passage in self._passages():
            passage.unreserve()
        self.deaths = []
        self.waits = {}

    def restore_counts(self) -> None:
        """Undo the records of waiting messages, because the batch of the transaction has failed."""
        for entry in self.waits:
            append_count(queue_of(self.consumer), entry)

    def _passages(self) -> list[RoutedMessage]:
        return passages_of(self.deaths)


def settle_held(
    settlements: list[HeldSettlement], publisher: Publisher, way: i64, over: Callable[[], None]
) -> None:
    """Settle the valid deliveries, and requeue the deliveries to be released.

    Very many deliveries are settled in slices, all others at once. `way`: for the journal. `over`: called
    when all settlements are done.
    """
    runs = [(held.consumer, held.entries) for held in settlements if held.outcome == SETTLE]
    if not are_few(runs):
        CommittedSettlements(settlements, runs, publisher, way, over).begin()
        return
    for held in settlements:
        if held.outcome == SETTLE:
            settle_owned(held.entries, held.consumer)
        elif held.outcome != RELEASE:
            held.put(publisher.host.store, publisher.dead_letters, way)
    _release(settlements)
    for held in settlements:
        restore_credit(held.entries, held.consumer)
    over()


def release_held(settlements: list[HeldSettlement]) -> None:
    """Release all deliveries, because the transaction has failed."""
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


def _do_nothing() -> None:
    """Report nothing."""


@final
class CommittedSettlements(EndedDeliveries):
    """The settlements of a transaction that settles very many deliveries; they are done in order, in slices.

    The log gets all settles first, in one step. Otherwise the log might copy a message forward that its
    records call settled.
    """

    def __init__(
        self,
        settlements: list[HeldSettlement],
        runs: list[Run],
        publisher: Publisher,
        way: i64,
        over: Callable[[], None],
    ) -> None:
        super().__init__(runs, None, publisher.host)
        self._publisher = publisher
        self._host = publisher.host
        self._way = way
        self._settlements = settlements
        self._next: i64 = 0  # the index of the first settlement that is not done
        self._over = over

    def begin(self) -> None:
        """Append the settles to the log, and settle in memory in later turns."""
        host = self._host
        for consumer, entries in reversed(self._left):
            queue = consumer.queue
            if not queue.logged or not consumer.acquires:
                continue
            for entry in reversed(entries):
                message = entry.message
                if message.sequence != 0 and owns(consumer, entry, consumer.queue):
                    host.store.append_settle(message, queue)
        host.settlements.append(self)
        self.continue_soon()
        self._do_next()

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle entries of a consumer."""
        settle_owned(entries, consumer, True)
        restore_credit(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of an entry. An entry with a receipt costs as much as a message."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1

    def end_run(self, consumer: QueueConsumer) -> None:
        """Continue behind the run."""
        self._next += 1
        self._do_next()

    def finish_before_deletion(self, queue: QueueState) -> None:
        """Finish the whole transaction before the queue is deleted.

        The transaction reports its end in a later turn, not while the queue is being deleted.
        """
        if any(run[0].queue is queue for run in self._left):
            self.drop_all()

    def drop_all(self) -> None:
        """Finish the whole transaction, because the log has its settles already."""
        over, self._over = self._over, _do_nothing
        self.finish()
        self._over = over
        self.continue_soon()

    def do_due_work(self) -> None:
        """Settle a slice, or report that all is done."""
        if self in self._host.settlements:
            super().do_due_work()
        else:
            self._over()

    def _do_next(self) -> None:
        """Do the other settlements, up to the next deliveries that are just settled."""
        settlements = self._settlements
        while self._next < len(settlements):
            held = settlements[self._next]
            if held.outcome == SETTLE:
                return
            self._next += 1
            if held.outcome != RELEASE:
                held.put(self._host.store, self._publisher.dead_letters, self._way)
        _release(settlements)
        for held in settlements:
            if held.outcome != SETTLE:
                restore_credit(held.entries, held.consumer)
        self._over()


NO_KEEPERS: Final[list[Keeper]] = []
UNRESOLVED: Final = RoutedMessage(Message(NOWHERE, None, 0, False, 0), [], NO_KEEPERS, BROKER)
"""The passage, without queues, of a publish that has not been resolved or was refused."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldPublish:
    """A publish that waits for its commit. `keys`: all its routing keys; []: the key of its route alone.

    `own`: the broker publishes the message, so stopped queues accept it, and queues that have had it before.
    `reason`: why `resolve` refused the message, for the journal. `full`: the queue that is full or stopped.
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
        self.wait: RemoteWait | None = None  # for the answers of other brokers, after `put`

    def report_outcome(self, outcome: Outcome) -> None:
        """Report the outcome: the commit has published the message."""
        raise NotImplementedError

    def resolve(self, publisher: Publisher, source: Source) -> str:
        """Resolve the queues of the message. Return why they would not accept it, "" if they would.

        Raises the errors of Publisher.refresh, PreconditionFailed and StoreFailed.
        """
        route = self.route
        message = self.message
        host = publisher.host
        publisher.refresh(route)
        if self.keys or route.by_message:
            view = host.views(message, host.store)
            resolution = publisher.resolve(route, message, self.keys or [route.address.routing_key], view)
            passage = RoutedMessage(message, list(resolution.queues), resolution.keepers, source)
        else:
            passage = RoutedMessage(message, route.queues, NO_KEEPERS, source)
        if not self.own:
            passage.identify(host)
        if passage.has_gap:
            return "a queue has not had the message before this one of its origin"
        everywhere = passage.queues
        if passage.keepers:
            everywhere = everywhere + [keeper.queue for keeper in passage.keepers]
        refusal = "" if self.own else stop_refusal(everywhere)
        if refusal:
            self.reason = STOPPED
            self.full = first_stopped(everywhere)
        else:
            refusal = publisher.find_refusal(message, everywhere, self.immediate)
            if refusal and refusal == host.store.refusal:
                self.reason = LOG_FAILED
            elif refusal:
                self.reason = QUEUE_FULL
                self.full = find_full_queue(message, everywhere)
        if not refusal:
            set_date(host, message, passage.queues)
            passage.reserve()
            self.passage = passage
        return refusal

    def put(self, publisher: Publisher) -> Outcome:
        """Put the message, which has been appended, into its queues."""
        publisher.host.counters.count_publish(self.passage.message.size)
        exchange = self.route.exchange
        exchange.published_in += 1
        passage = self.passage
        if passage.is_duplicate:
            return DUPLICATE
        wanted: i64 = len(passage.queues)
        exchange.published_out += wanted
        passage.unreserve()
        passage.remove_deleted_queues(publisher.host.store)
        outcome = publisher.put(passage, self.immediate)
        self.wait = publisher.take_remote_wait(self.message)
        return outcome if len(passage.queues) == wanted else ROUTED


@mypyc_attr(allow_interpreted_subclasses=True)
class Transaction(DurableWaiter):
    """A transaction, made for one commit.

    A subclass implements `on_committed` and `on_commit_failed`. The transaction calls one of them, once.
    `source`: the session of the publishes, or how an operation puts messages into queues.
    `independent_batch`: the batch with the latest independent message of the client; 0: none. The client has
    the answer to its commit when this batch is on disk, even if the transaction itself appends nothing.
    """

    def __init__(self, publisher: Publisher, source: Source = BROKER) -> None:
        self.independent_batch: i64 = 0
        self.publisher = publisher
        self.host = publisher.host
        self.source = source
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self.receipts = PreparedReceipts(publisher.receipts)

    def on_committed(self) -> None:
        """Report that everything has been done and is durable."""
        raise NotImplementedError

    def on_commit_failed(self, reason: str) -> None:
        """Report that the log has failed: nothing was done, and the held settlements have been released."""
        raise NotImplementedError

    def hold_settlement(
        self,
        tag: i64,
        entry: QueueEntry,
        consumer: QueueConsumer,
        outcome: i64,
        returned: i64 = NACK,
        addition: Addition | None = None,
    ) -> None:
        """Hold the settlement of a delivery for the commit; `outcome`: SETTLE, DISCARD, RELEASE or REMOVE."""
        held = self.held_settlement(consumer, outcome, returned, addition)
        held.tags.append(tag)
        held.entries.append(entry)

    def held_settlement(
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

    def count_settlements(self) -> i64:
        """Return how many deliveries the transaction settles."""
        count: i64 = 0
        for held in self.settlements:
            count += len(held.entries)
        return count

    def commit(self) -> None:
        """Publish and settle everything, publishes first.

        `on_committed` is called when everything is durable, perhaps at once.

        Raises:
            NotFound, AccessRefused, PreconditionFailed: a publish is refused, or a dead letter cannot be
                stored; the text says which one and why. Nothing was done.
        """
        try:
            self._check()
            appended = self._append()
        except Exception:  # after any error, the room is released
            self._unreserve()
            raise
        if appended or self.independent_batch > self.host.store.durable:
            self.host.store.wait(self)
        else:
            self.on_durable(0)

    def _append(self) -> bool:
        """Append everything to the log. Return whether the commit must wait for the log."""
        appended = False
        for publish in self.publishes:
            if publish.passage.append(self.host) or publish.message.marks & ON_ITS_WAY:
                appended = True
            self.receipts.prepare_arrivals(publish.message, publish.passage.queues)
        for settlement in self.settlements:
            if settlement.append(self.host, self.receipts):
                appended = True
        return appended

    def _check(self) -> None:
        for number, publish in enumerate(self.publishes, 1):
            try:
                refusal = publish.resolve(self.publisher, self.source)
            except BrokerError as error:
                queue = error.queue if isinstance(error, QueueStopped) else None
                self._record_refusal(publish, refusal_of(error), queue)
                raise type(error)(self._refusal_text(number, error.text)) from error
            if refusal:
                self._record_refusal(publish, publish.reason, publish.full)
                raise PreconditionFailed(self._refusal_text(number, refusal))
        for settlement in self.settlements:
            settlement.resolve(self.host.store, self.publisher.dead_letters)

    def _record_refusal(self, publish: HeldPublish, reason: i64, queue: object | None) -> None:
        """Record in the journal which publish of a client is refused, and why."""
        journal = self.host.journal
        if journal.on and isinstance(self.source, Session):
            message = publish.message
            journal.refused(self.source, publish.route.address, message, reason, queue)

    def _unreserve(self) -> None:
        self.receipts.withdraw()
        for publish in self.publishes:
            publish.passage.unreserve()
        for settlement in self.settlements:
            if settlement.deaths or settlement.waits:
                settlement.cancel_deaths()

    def _refusal_text(self, number: int, why: str) -> str:
        return f"publish {number} of {len(self.publishes)} in the transaction: {why}"

    def on_durable(self, batch: i64) -> None:
        """Publish and settle everything: the batch is on disk, or needs no disk."""
        try:
            for publish in self.publishes:
                publish.report_outcome(publish.put(self.publisher))
            settle_held(self.settlements, self.publisher, self.source.way, self._done)
        except Exception:  # after any error, the room is released
            self._unreserve()
            raise

    def _done(self) -> None:
        self._unreserve()
        waits = [publish.wait for publish in self.publishes if publish.wait is not None]
        if waits:
            RemoteCommit(self, waits)
        else:
            self.on_committed()

    def on_store_failed(self, reason: str) -> None:
        """Release everything: the batch is perhaps not on disk."""
        for settlement in self.settlements:
            settlement.restore_counts()
        self._unreserve()
        release_held(self.settlements)
        self.on_commit_failed(reason)


@final
class RemoteCommit(RemoteWaiter):
    """A transaction that is done here, and whose messages other brokers must store before its answer.

    A message that another broker refuses is sent again: the transaction cannot be undone.
    """

    takes_refusals = False

    def __init__(self, transaction: Transaction, waits: list[RemoteWait]) -> None:
        self._transaction = transaction
        self._left = len(waits)
        for wait in waits:
            wait.set_waiter(self)

    def on_remote_answer(self, accepted: bool) -> None:
        """Report the commit after the last answer."""
        self._left -= 1
        if self._left == 0:
            self._transaction.on_committed()
