"""Outgoing links: their credit, and their end with unsettled deliveries. [amqp-1.0 2.6]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.link import Sender, abort_delivery
from broker.adapters.amqp10.names import KEPT_MAX, Expiry, link_names, release_deliveries
from broker.adapters.amqp10.resume import resumed_deliveries_of
from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.target import Target10
from broker.adapters.amqp10.transactions import Transaction10, transactions_of
from broker.auth.terms import READ
from broker.core.entries.entry import QueueEntry
from broker.core.queues.attach import detach
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import release_entries
from broker.core.schedule import ENTRIES
from protocol.amqp10.conditions import UNAUTHORIZED_ACCESS, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.amqp10.flows import Flow

_TXN_ID: Final = "txn-id"


@final
class OutgoingLink(Sender):
    """The sending end of a link.

    `settled`: deliveries are sent settled. `settles_second`: the rcv-settle-mode is second. `size_max`: the
    peer's max-message-size in bytes, 0: unlimited.
    """

    def __init__(
        self,
        session: Session10State,
        name: str,
        handle: i64,
        settled: bool,
        settles_second: bool,
        size_max: i64,
    ) -> None:
        super().__init__(session, name, handle)
        self.settled = settled
        self.settles_second = settles_second
        self.size_max = size_max
        self.expiry: Expiry | None = None  # None: unsettled deliveries are not kept after the link's end
        self._target: Target10 | None = Target10(self, settled, size_max)

    @property
    def target(self) -> Target10:
        """The target; the link must not have ended."""
        assert self._target is not None, "a link that has ended has no target"
        return self._target

    # -- frames of the receiver

    def on_flow(self, flow: Flow) -> None:
        """Take the receiver's credit. [amqp-1.0 2.6.7]"""
        try:
            self.target.transaction = self._transaction(flow)
        except PeerError as error:
            self.detach(error.condition, error.text)
            return
        if flow.link_credit != NONE:
            self.credit.grant(flow.delivery_count, flow.link_credit)
        self.target.draining = flow.drain
        if self.target.resumption is not None:
            self._send_resumed()
        self.target.set_credit(self.credit.left)
        if flow.drain:
            self.target.notify_work()  # the drain ends when no messages are found
            self.target.end_drain()
        elif flow.echo:
            self.send_flow(False)

    def _transaction(self, flow: Flow) -> Transaction10 | None:
        """Return the transaction in which a flow acquires deliveries. Raises PeerError. [amqp-1.0 4.4.3]"""
        if flow.properties is None:
            return None
        properties, _ = decode(flow.properties)
        txn_id = properties.get(_TXN_ID) if isinstance(properties, dict) else None
        return transactions_of(self.session.peer).find(txn_id) if isinstance(txn_id, bytes) else None

    def continue_sending(self) -> None:
        """Continue with the next delivery, if the incomplete one has been sent."""
        if self._target is None:  # the link has ended meanwhile
            return
        if self.sending is None:
            if self.target.resumption is not None:
                self._send_resumed()
            self.target.end_drain()
        self.target.update()

    def _send_resumed(self) -> None:
        """Send more resumed deliveries; after the last one, deliver from the queue."""
        resumed = resumed_deliveries_of(self.target)
        if resumed is None:
            return
        resumed.send_more()
        if resumed.is_complete():
            self.target.resumption = None
            self.target.update()
        elif resumed.is_stuck() and self.target.draining:
            pending_frames_of(self.session).note_drained(self)
        self.target.set_credit(self.credit.left)

    # -- flows

    def complete_drain(self) -> None:
        """Use up the rest of a draining receiver's credit: no more messages are available. [amqp-1.0 2.6.7]

        Nothing happens unless the receiver drains (Link10).
        """
        if not self.target.draining:
            return
        self.target.draining = False
        self.credit.drain()
        self.target.set_credit(0)
        self.send_flow(True)

    def send_flow(self, drain: bool) -> None:
        """Send a flow with the delivery-count, and the number of available messages. [amqp-1.0 2.7.4]"""
        credit = self.credit
        available: i64 = 0
        for consumer in self.target.consumers:
            available += consumer.queue.ready
        self.session.write_flow(self.handle, credit.delivery_count, credit.left, available, drain)

    # -- the end

    def consumed_queues(self) -> list[Queue]:
        """Return the queues from which the link receives; partitioned ones, not their members."""
        return [queue_of(consumer) for consumer in self.target.consumers if consumer.front is None]

    def stop_deliveries(self) -> None:
        """Stop all deliveries to the link."""
        self.target.close()

    def release_all(self, closed: bool) -> None:
        """Release unsettled deliveries, unless they are suspended, and remove the consumers."""
        session = self.session
        self.target.close()
        aborted = NONE if self.sending is None else abort_delivery(session, self)
        session.sending.pop(self, None)  # present without an incomplete delivery while resuming
        if not closed and self.expiry is not None:
            suspend_sender(self, self.expiry, aborted)
        else:
            resumed = resumed_deliveries_of(self.target)
            if resumed is not None:
                release_deliveries(list(resumed.unsent().values()), self.target.default_outcome)
        deliveries = _take_deliveries(session, self.target)
        for consumer in list(self.target.consumers):
            entries = deliveries.pop(consumer, []) if consumer.acquires else []
            detach(queue_of(consumer), consumer, entries, self.target.default_outcome)
            session.vhost.declarations.delete_if_unused(queue_of(consumer))
        for consumer, entries in deliveries.items():
            if consumer.acquires:
                release_entries(queue_of(consumer), entries, consumer, self.target.default_outcome)
        self.drop_target()

    def drop_target(self) -> None:
        """Cut the references between the link, which has ended or was refused, and its closed target."""
        target = self._target
        if target is not None and target.resumption is not None:
            self.session.vhost.schedule.cancel(target.resumption)
            target.resumption = None
        self._target = None

    def on_rights_changed(self) -> None:
        """Detach the link if the user may no longer read a queue."""
        rights = self.session.peer.rights
        for queue in self.consumed_queues():
            if not rights.has_right(READ, queue.name):
                text = f"read access to queue '{queue.name}' in vhost '{queue.vhost}' refused for user"
                self.detach(UNAUTHORIZED_ACCESS, f"{text} '{rights.user}'")
                return


def suspend_sender(link: OutgoingLink, expiry: Expiry, aborted: i64) -> None:
    """Suspend a link with the sent deliveries that its receiver has not settled.

    `aborted`: the delivery-id of the aborted delivery, or NONE.
    """
    session = link.session
    suspended = link_names(session.peer.server).suspend(session, link.name, False, expiry)
    resumed = resumed_deliveries_of(link.target)
    left = {} if resumed is None else resumed.unsent()
    if suspended is None:
        release_deliveries(list(left.values()), link.target.default_outcome)
        return
    sent = suspended.sent
    unsettled = session.unsettled
    for number in _unsettled_numbers(session, link.target):
        if len(sent) + len(left) >= KEPT_MAX:
            break
        entry = unsettled.find(number)
        consumer = unsettled.holder
        if entry is None or consumer is None or consumer.target is not link.target or not consumer.acquires:
            continue
        if aborted == NONE or number - 1 & 0xFFFFFFFF != aborted:
            unsettled.take(number)
            sent[link.target.tag_of(number)] = consumer, entry
    sent.update(left)  # deliveries that were not sent again yet come after those that were
    suspended.default_outcome = link.target.default_outcome
    if sent:
        lease = next(iter(sent.values()))[0].lease  # all deliveries have the link's lease
        suspended.lease = 0 if lease is None else lease.milliseconds
        suspended.wait(session)
    else:
        suspended.end_suspension()


def _unsettled_numbers(session: Session10State, target: ConsumerTarget) -> list[i64]:
    """Return numbers of unsettled deliveries of the session that include all those of `target`."""
    if session.unsettled_numbers is not None:
        return session.unsettled_numbers.get(target, [])
    numbers = session.unsettled.tags_up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    return numbers


def _take_deliveries(
    session: Session10State, target: ConsumerTarget
) -> dict[QueueConsumer, list[QueueEntry]]:
    """Remove a receiver's deliveries from `unsettled` and return them, oldest first."""
    unsettled = session.unsettled
    deliveries: dict[QueueConsumer, list[QueueEntry]] = {}
    for number in _unsettled_numbers(session, target):
        entry = unsettled.find(number)
        consumer = unsettled.holder
        if entry is not None and consumer is not None and consumer.target is target:
            unsettled.take(number)
            deliveries.setdefault(consumer, []).append(entry)
    return deliveries
