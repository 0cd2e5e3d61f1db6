"""A transaction: publishes and settlements that happen together or not at all. [amqp-0-9-1 1.9]

What takes part is held until the commit. The commit first finds out whether everything can be done, then
appends everything to the log in one synchronous step, which is one batch and so atomic whatever happens, and
does it in memory when that batch is durable, again in one step, but for very many settlements, which leave
in slices. So nobody sees a message of a transaction that may yet fail, and what it settles stays with its
holder until then. What it rejects is dead-lettered in the same two steps: what the letter says and where it
goes is found out with everything else.

Between the two steps publishes of other connections go ahead of the transaction's; after a restart they may
be behind it. Their order was never promised: neither publisher had an answer before the other began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from broker.core.admission import first_full, set_date
from broker.core.annotating import Addition
from broker.core.committing import release_held, settle_held
from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry
from broker.core.errors import BrokerError, PreconditionFailed, QueueStopped
from broker.core.foretelling import Foretelling
from broker.core.held_settlement import HeldSettlement
from broker.core.journal import INVALID, LOG_FAILED, QUEUE_FULL, STOPPED, refusal_of
from broker.core.keeper import Keeper
from broker.core.message import NOWHERE, ON_ITS_WAY, Message
from broker.core.outcome import NACK
from broker.core.passage import Passage
from broker.core.ports import DurableWaiter
from broker.core.publishing import DUPLICATE
from broker.core.route import Route
from broker.core.stopping import first_stopped, stop_refusal

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session
    from broker.core.vhost import VirtualHost


NO_KEEPERS: Final[list[Keeper]] = []
UNRESOLVED: Final = Passage(Message(NOWHERE, None, 0, False, 0), [], NO_KEEPERS)
"""The passage of what has not been resolved, or was refused: it goes nowhere."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldPublish:
    """A publish that waits for its commit. `keys` are all its routing keys, [] for just that of its route.

    `own`: it is the broker's: queues that are stopped take it, and those that have had it before.
    `reason`: why `resolve` refused it, as the journal has it; `full`: the queue that is full or stopped.
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
        """The commit has published it; `count` is what VirtualHost.publish returns."""
        raise NotImplementedError

    def resolve(self, virtual_host: VirtualHost) -> str:
        """Find out where it goes; returns why it would not be kept there, "" if it would.

        Raises what VirtualHost.refresh raises, PreconditionFailed and StoreFailed.
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

    def put(self, virtual_host: VirtualHost) -> i64:
        """Put the message, which has been appended, where it goes; returns what VirtualHost.publish does."""
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
    """Made for one commit. A subclass implements `committed` and `failed`: one of them is called, once.

    `publisher`: whose publishes these are, if anybody's.
    """

    def __init__(self, virtual_host: VirtualHost, publisher: Session | None = None) -> None:
        self.virtual_host = virtual_host
        self.publisher = publisher
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self.receipts = Foretelling(virtual_host.receipts)

    def committed(self) -> None:
        """Everything has been done and is durable."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """The log has failed: nothing was done, and what was to be settled has been released."""
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
        """Have the commit settle a delivery; `outcome`: SETTLE, DISCARD, RELEASE or REMOVE."""
        held = self.held(consumer, outcome, returned, addition)
        held.tags.append(tag)
        held.entries.append(entry)

    def held(
        self, consumer: QueueConsumer, outcome: i64, returned: i64, addition: Addition | None = None
    ) -> HeldSettlement:
        """Where the next delivery of `consumer` is held that is settled in this way."""
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
        except Exception:  # whatever it was, the room is given back
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
            settlement.resolve(self.virtual_host.store)

    def _tell_refusal(self, publish: HeldPublish, reason: i64, queue: object | None) -> None:
        """Have the journal know which publish of a client is refused, and why."""
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
        """The batch with all of it is on disk, or nothing of it has to be (DurableWaiter)."""
        self.virtual_host.journal.publisher = self.publisher
        try:
            for publish in self.publishes:
                publish.taken(publish.put(self.virtual_host))
            settle_held(self.settlements, self.virtual_host, self._done)
        except Exception:  # whatever it was, the room is given back
            self._unreserve()
            raise

    def _done(self) -> None:
        self._unreserve()
        self.committed()

    def on_store_failed(self, reason: str) -> None:
        """It is not, or nobody knows (DurableWaiter)."""
        for settlement in self.settlements:
            settlement.take_back()
        self._unreserve()
        release_held(self.settlements)
        self.failed(reason)
