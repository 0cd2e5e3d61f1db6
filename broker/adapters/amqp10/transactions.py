"""The transactions of a connection: posted, retired and acquired deliveries. [amqp-1.0 4.4]"""

from __future__ import annotations

from collections import deque
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.entry_filters import exclude_undeliverable
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.state import Connection10State, ConnectionTransactions, Session10State
from broker.adapters.amqp10.target import LinkTransaction, Target10, default_outcome_of
from broker.adapters.peers.server import ReplyReceiver, Server
from broker.core.entries.entry import QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import Message, held_bytes
from broker.core.publishing.publisher import ROUTED, Outcome, Publisher
from broker.core.queues import returns
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import Addition
from broker.core.queues.source import Source
from broker.core.routing.graph import Route
from broker.core.schedule import TimedTask
from broker.core.transactions.transaction import RELEASE, HeldPublish, HeldSettlement
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.conditions import TRANSACTION_TIMEOUT, TRANSACTION_UNKNOWN_ID, PeerError

PUBLISH_OVERHEAD: Final = 512  # bytes of memory, roughly, that a held publish takes beside its content
TIMED_OUT_MAX: Final = 100  # remembered txn-ids: as many as a link may have open

_log = structlog.get_logger("amqpd.transaction")


class ControllerLink(Link10):
    """The link of a controller, as transactions know it; `coordinator.CoordinatorLink` extends this class.

    `open_count`: transactions that the link has declared and not discharged.
    """

    def __init__(self, session: Session10State, name: str, handle: i64, count: i64) -> None:
        super().__init__(session, name, handle, True, count)
        self.open_count: i64 = 0

    def answer_discharge(self, delivery_id: i64, failure: str) -> None:
        """Answer a discharge: the commit has succeeded, or has failed for this reason."""
        raise NotImplementedError


@final
class HeldPublish10(HeldPublish):
    """A message that waits for its transaction's discharge. `replies`: the receiver of a direct reply."""

    def __init__(
        self, route: Route, message: Message, keys: list[str], replies: ReplyReceiver | None
    ) -> None:
        super().__init__(route, message, keys, False)
        self.replies = replies

    def resolve(self, publisher: Publisher, source: Source) -> str:
        """Find the route: a direct reply needs no queue."""
        return super().resolve(publisher, source) if self.replies is None else ""

    def put(self, publisher: Publisher) -> Outcome:
        """Enqueue the message, or deliver the direct reply."""
        replies = self.replies
        if replies is None:
            return super().put(publisher)
        replies.deliver(self.message, publisher.host.counters)
        return ROUTED

    def report_outcome(self, outcome: Outcome) -> None:
        """Do nothing: the sender has its outcome already."""


@final
class Transaction10(LinkTransaction):
    """A transaction that a controller has declared.

    `rollback_reason`: the reason why the transaction can only be rolled back, "" without one.
    """

    def __init__(self, link: ControllerLink, txn_id: bytes, vhost: VirtualHost) -> None:
        super().__init__(vhost.publisher, link.session, txn_id)
        self.link = link
        self.rollback_reason = ""
        self._bytes: i64 = 0
        self._targets: list[ConsumerTarget] = []  # the targets of the settlements, in the same order
        self._undeliverable: dict[
            QueueConsumer, list[QueueEntry]
        ] = {}  # entries to release for other links only
        self._discharge_id: i64 = 0  # the delivery-id of the discharge
        self._settled: dict[Session10State, set[int]] = {}  # the numbers that the receiver has settled
        self._outcomes: list[tuple[Session10State, i64, bytes]] = []  # all other numbers, with their outcomes

    # ---- the work of the transaction

    def post(
        self, route: Route, message: Message, keys: list[str], replies: ReplyReceiver | None = None
    ) -> None:
        """Hold a message until the commit. Raises PreconditionFailed if the transaction is too large."""
        self._bytes += held_bytes(message) + PUBLISH_OVERHEAD
        limit = self.link.session.peer.server.transaction_bytes_max
        if self._bytes > limit:
            raise PreconditionFailed(
                f"transaction of {self._bytes} bytes is larger than configured max size {limit}"
            )
        self.publishes.append(HeldPublish10(route, message, keys, replies))

    def retire(
        self,
        number: i64,
        entry: QueueEntry,
        consumer: QueueConsumer,
        outcome: i64,
        returned: i64,
        addition: Addition | None,
    ) -> None:
        """Hold a settlement until the commit, by the delivery's number in the session of its link (`hold`).

        A later link may resume other deliveries of the consumer, with other numbers.
        """
        target = consumer.target
        by = self._targets
        if by and by[-1] is not target:
            self.settlements.append(HeldSettlement(consumer, outcome, returned, addition))
        self.hold_settlement(number, entry, consumer, outcome, returned, addition)
        discipline = queue_of(consumer).discipline
        if discipline is not None and outcome != RELEASE and consumer.acquires:
            discipline.note_promise(entry, consumer)
        if len(by) < len(self.settlements):
            by.append(target)

    def note_settled(self, session: Session10State, number: i64) -> None:
        """Note that the receiver has settled a delivery that it retires."""
        self._settled.setdefault(session, set()).add(number)

    def add_outcome(self, session: Session10State, number: i64, state: bytes) -> None:
        """Note that the receiver gets the outcome of a delivery in a disposition after the commit."""
        self._outcomes.append((session, number, state))

    def exclude(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Exclude from its link a delivery that the commit releases. [amqp-1.0 3.4.5]"""
        self._undeliverable.setdefault(consumer, []).append(entry)

    # ---- discharge

    def discharge(self, delivery_id: i64) -> None:
        """Commit; `link` answers after the commit. Raises what Transaction.commit raises."""
        self._discharge_id = delivery_id
        self.commit()

    def on_durable(self, batch: i64) -> None:
        """Exclude undeliverable entries from their links before they are released."""
        for consumer, entries in self._undeliverable.items():
            if isinstance(consumer.target, Target10):
                exclude_undeliverable(consumer, entries, consumer.target.link.full_name())
        self._undeliverable = {}
        super().on_durable(batch)

    def roll_back(self, why: str) -> None:
        """Roll back. Receivers keep the deliveries that they have not settled. [amqp-1.0 4.4.2]

        `why`: the cause, for the journal; "": the client's discharge has the flag fail.
        """
        journal = self.host.journal
        journal.rolled_back(self.source, len(self.publishes), self.count_settlements(), why)
        self.publishes = []
        to_release: list[tuple[QueueConsumer, list[QueueEntry]]] = []
        for held, target in zip(self.settlements, self._targets, strict=True):
            consumer = held.consumer
            discipline = queue_of(consumer).discipline
            if discipline is not None:
                discipline.note_withdrawal(held.entries)
            link = target.link if isinstance(target, Target10) else None
            if link is None or link.is_detached or link.session.is_released:
                to_release.append((consumer, held.entries))
                continue
            session = link.session
            settled = self._settled.get(session, set())
            kept = [at for at, number in enumerate(held.tags) if number not in settled]
            settled_entries = [
                entry for number, entry in zip(held.tags, held.entries, strict=True) if number in settled
            ]
            session.unsettled.put_back(
                [held.tags[at] for at in kept], [held.entries[at] for at in kept], consumer
            )
            if settled_entries:
                to_release.append((consumer, settled_entries))
        self.settlements = []
        self._targets = []
        self._undeliverable = {}
        for session, number in self.acquired:
            entry = None if session.is_released else session.unsettled.take(number)
            holder = session.unsettled.holder
            if entry is not None and holder is not None:
                to_release.append((holder, [entry]))
        self.acquired = []
        for consumer, entries in to_release:
            if consumer.acquires:
                returns.requeue_runs([(consumer, entries)], default_outcome_of(consumer), None, self.host)

    def on_committed(self) -> None:
        """Send the outcomes, and answer the discharge."""
        for session, number, state in self._outcomes:
            if not session.is_released:
                pending_frames_of(session).outcomes.add(None, number - 1 & 0xFFFFFFFF, 1, state, False)
        self.link.answer_discharge(self._discharge_id, "")

    def on_commit_failed(self, reason: str) -> None:
        """Answer the discharge with the failure."""
        self.link.answer_discharge(self._discharge_id, f"the log has failed: {reason}")


@final
class TransactionTimer(TimedTask):
    """The timed task for a transaction that has been open for too long."""

    def __init__(self, transactions: Transactions, transaction: Transaction10) -> None:
        super().__init__()
        self._transactions = transactions
        self._transaction = transaction

    def do_due_work(self) -> None:
        """Roll back the transaction."""
        self._transactions.time_out(self._transaction)


@final
class Transactions(ConnectionTransactions):
    """The transactions of a connection that are declared and not discharged, by their ids."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: dict[bytes, Transaction10] = {}
        self._timers: dict[bytes, TransactionTimer] = {}
        self._timed_out: deque[bytes] = deque(maxlen=TIMED_OUT_MAX)
        self._count = 0

    def declare(self, link: ControllerLink) -> Transaction10:
        """Declare a new transaction."""
        self._count += 1
        txn_id = self._count.to_bytes(4, "big")
        transaction = Transaction10(link, txn_id, link.session.vhost)
        self._open[txn_id] = transaction
        wait = self._server.transaction_timeout
        if wait > 0:
            schedule = link.session.vhost.schedule
            self._timers[txn_id] = timer = TransactionTimer(self, transaction)
            schedule.set(timer, schedule.after(wait))
        return transaction

    def find(self, txn_id: bytes) -> Transaction10:
        """Return the transaction with this id.

        Raises PeerError: TRANSACTION_UNKNOWN_ID, TRANSACTION_TIMEOUT.
        """
        transaction = self._open.get(txn_id)
        if transaction is None:
            raise self.unknown_error(txn_id)
        return transaction

    def unknown_error(self, txn_id: bytes) -> PeerError:
        """Return the error for an id without a transaction."""
        shown = txn_id[:32].hex()
        if txn_id in self._timed_out:
            wait = self._server.transaction_timeout
            text = f"transaction {shown} was open for {wait} ms and has been rolled back"
            return PeerError(TRANSACTION_TIMEOUT, text)
        return PeerError(TRANSACTION_UNKNOWN_ID, f"there is no transaction {shown}")

    def get(self, txn_id: bytes) -> Transaction10 | None:
        """Return the transaction with this id, None without one."""
        return self._open.get(txn_id)

    def end(self, transaction: Transaction10) -> None:
        """Remove a transaction that is being discharged, or rolled back."""
        transaction.is_over = True
        self._open.pop(transaction.txn_id, None)
        timer = self._timers.pop(transaction.txn_id, None)
        if timer is not None:
            transaction.host.schedule.cancel(timer)

    def time_out(self, transaction: Transaction10) -> None:
        """Roll back a transaction that has been open for too long; later uses of its id are refused."""
        connection = transaction.link.session.peer
        _log.warning(
            "transaction timed out",
            peer=connection.peer,
            user=connection.user,
            link=transaction.link.name,
            transaction=transaction.txn_id.hex(),
        )
        self.end(transaction)
        self._timed_out.append(transaction.txn_id)
        transaction.link.open_count -= 1
        transaction.roll_back("the transaction was open for too long")

    def roll_back(self, why: str, link: ControllerLink | None = None) -> None:
        """Roll back the transactions that `link` has declared, or all transactions; `why`: the cause."""
        for transaction in list(self._open.values()):
            if link is None or transaction.link is link:
                self.end(transaction)
                transaction.roll_back(why)


def transactions_of(connection: Connection10State) -> Transactions:
    """Return the transactions of a connection."""
    transactions = connection.transactions
    assert isinstance(transactions, Transactions), "a connection has Transactions"
    return transactions
