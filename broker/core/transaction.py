"""A transaction: publishes and settlements that happen together or not at all. [amqp-0-9-1 1.9]

What takes part is held until the commit. The commit first finds out whether everything can be done, then
appends everything to the log in one synchronous step, which is one batch and so atomic whatever happens, and
does it in memory when that batch is durable, again in one step. So nobody sees a message of a transaction
that may yet fail, and what it settles stays with its holder until then. What it refuses on a queue with a
dead-letter exchange leaves the queue in the second step, in one batch with the dead letter: until that is
durable a crash leaves it there. The answer to the commit waits for that too.

Between the two steps publishes of other connections go ahead of the transaction's; after a restart they may
be behind it. Their order was never promised: neither publisher had an answer before the other began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.admission import set_date
from broker.core.consumer import QueueConsumer
from broker.core.entry import ACQUIRED, QueueEntry
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.keeper import Keeper
from broker.core.message import Message
from broker.core.ports import DurableWaiter
from broker.core.queue import Queue
from broker.core.route import Route
from broker.core.rules import Rules

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost

# what becomes of a delivery
SETTLE: Final = 0
DISCARD: Final = 1
RELEASE: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldPublish:
    """A publish that waits for its commit. `keys` are all its routing keys, [] for just that of its route."""

    def __init__(self, route: Route, message: Message, keys: list[str], immediate: bool) -> None:
        self.route = route
        self.message = message
        self.keys = keys
        self.immediate = immediate
        self.queues: list[Queue] = []
        self.keepers: list[Keeper] = []
        self.logged: list[Queue] = []
        self.reserved: list[Rules] = []

    def taken(self, count: i64) -> None:
        """The commit has published it; `count` is what VirtualHost.publish returns."""
        raise NotImplementedError

    def resolve(self, virtual_host: VirtualHost) -> str:
        """Find out where it goes; returns why it would not be kept there, "" if it would.

        Raises what VirtualHost.refresh raises.
        """
        route = self.route
        message = self.message
        if route.epoch != virtual_host.epoch:
            virtual_host.refresh(route)
        if self.keys or route.by_message:
            view = virtual_host.views(message, virtual_host.store)
            found = virtual_host.resolve(route, message, self.keys or [route.address.routing_key], view)
            self.queues = list(found.queues)
            self.keepers = found.keepers
        else:
            self.queues = route.queues
        everywhere = self.queues + [keeper.queue for keeper in self.keepers]
        self.logged = [queue for queue in everywhere if queue.logged] if message.persistent else []
        refusal = virtual_host.refusal(message, everywhere, self.immediate)
        if not refusal:
            set_date(virtual_host, message, self.queues)
            self._reserve()
        return refusal

    def _reserve(self) -> None:
        """Keep room in queues that refuse what is too much: also for what the same transaction publishes."""
        for queue in self.queues:
            rules = queue.rules
            if rules is not None and rules.limited:
                rules.reserve(1, self.message.size)
                self.reserved.append(rules)

    def unreserve(self) -> None:
        """Give the room back."""
        for rules in self.reserved:
            rules.reserve(-1, -self.message.size)
        self.reserved = []

    def put(self, virtual_host: VirtualHost) -> i64:
        """Put the message, which has been appended, where it goes; returns what VirtualHost.publish does."""
        virtual_host.counters.published += 1
        self.unreserve()
        for queue in self.logged:
            if queue.deleted:  # since the commit, when it did not have this message yet
                virtual_host.store.forget(self.message)
        queues = [queue for queue in self.queues if not queue.deleted]
        keepers = [keeper for keeper in self.keepers if not keeper.queue.deleted]
        count = virtual_host.put(self.message, queues, keepers, self.immediate)
        return count if len(queues) == len(self.queues) else len(self.queues)


@final
class HeldSettlement:
    """What is to become of one delivery. `tag`: by what name its holder knows it."""

    def __init__(self, tag: i64, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        self.tag = tag
        self.entry = entry
        self.consumer = consumer
        self.outcome = outcome

    def is_valid(self) -> bool:
        """Whether the queue has not taken the entry back meanwhile."""
        entry = self.entry
        return self.consumer.acquires and entry.state == ACQUIRED and entry.owner is self.consumer

    def is_dead_lettered(self) -> bool:
        """Whether the queue sends it to its dead-letter exchange."""
        rules = self.consumer.queue.rules
        return self.outcome == DISCARD and rules is not None and rules.dead_letters

    def append(self) -> bool:
        """Append it to the log; false if there was nothing to append.

        What will be dead-lettered is appended with its letter, when the rest is durable: if the broker dies
        in between, the message is where it was, and not lost.
        """
        queue = self.consumer.queue
        message = self.entry.message
        if self.is_dead_lettered():
            return False
        if self.outcome == RELEASE or not self.is_valid() or not queue.logged or message.sequence == 0:
            return False
        queue.store.append_transacted_settle(message, queue)
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Transaction(DurableWaiter):
    """Made for one commit. A subclass implements `committed` and `failed`: one of them is called, once."""

    def __init__(self, virtual_host: VirtualHost) -> None:
        self.virtual_host = virtual_host
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self._done = False  # in memory; what it has dead-lettered need not be durable yet

    def committed(self) -> None:
        """Everything has been done and is durable."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """The log has failed: nothing was done, and what was to be settled has been released.

        Or all has been done, and it is not known whether what was dead-lettered is on disk.
        """
        raise NotImplementedError

    def commit(self) -> None:
        """Do everything, publishes first; `committed` is called when it is durable, perhaps at once.

        Raises:
            NotFound, AccessRefused, PreconditionFailed: a publish is refused, and the text says which one and
                why. Nothing was done.
        """
        try:
            self._check()
        except BrokerError:
            self._unreserve()
            raise
        appended = False
        for publish in self.publishes:
            if publish.logged:
                self.virtual_host.store.append_message(publish.message, publish.logged)
                appended = True
        for settlement in self.settlements:
            if settlement.append():
                appended = True
        if appended:
            self.virtual_host.store.wait(self)
        else:
            self._apply()

    def _check(self) -> None:
        for number, publish in enumerate(self.publishes, 1):
            try:
                refusal = publish.resolve(self.virtual_host)
            except BrokerError as error:
                raise type(error)(self._which(number, error.text)) from error
            if refusal:
                raise PreconditionFailed(self._which(number, refusal))

    def _unreserve(self) -> None:
        for publish in self.publishes:
            publish.unreserve()

    def _which(self, number: int, why: str) -> str:
        return f"publish {number} of {len(self.publishes)} in the transaction: {why}"

    def on_durable(self, batch: i64) -> None:
        """The batch with all of it is on disk, or with its dead letters (DurableWaiter)."""
        if self._done:
            self.committed()
        else:
            self._apply()

    def on_store_failed(self, reason: str) -> None:
        """It is not, or nobody knows (DurableWaiter)."""
        if self._done:
            self.failed(reason)
            return
        self._unreserve()
        for settlement in self.settlements:
            settlement.outcome = RELEASE
        self._settle()
        self.failed(reason)

    def _apply(self) -> None:
        dead_letters = False
        for settlement in self.settlements:
            if settlement.is_dead_lettered() and settlement.is_valid() and settlement.consumer.queue.logged:
                dead_letters = True
        for publish in self.publishes:
            publish.taken(publish.put(self.virtual_host))
        self._settle()
        self._done = True
        if dead_letters:
            self.virtual_host.store.wait(self)
        else:
            self.committed()

    def _settle(self) -> None:
        """Settle what is valid, and give back what is to be released, all of one consumer at once."""
        released: dict[QueueConsumer, list[QueueEntry]] = {}
        for settlement in self.settlements:
            consumer = settlement.consumer
            if settlement.outcome == RELEASE:
                released.setdefault(consumer, []).append(settlement.entry)
            elif settlement.is_valid() and settlement.outcome == SETTLE:
                consumer.queue.settle(settlement.entry)
            elif settlement.is_valid():
                consumer.queue.discard(settlement.entry)
        for consumer, entries in released.items():
            if consumer.acquires:
                consumer.queue.release(entries, consumer)
        for settlement in self.settlements:
            settlement.consumer.target.restore_credit(settlement.entry.message.size)
