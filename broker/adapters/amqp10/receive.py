"""Incoming links: deliveries of the peer are assembled and published, and get outcomes. [amqp-1.0 2.6]"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.assembly import Assembly, ReceivedMessage, read_message
from broker.adapters.amqp10.errors import condition_of
from broker.adapters.amqp10.link import NOTHING_RECEIVED, Link10
from broker.adapters.amqp10.names import Expiry, link_names
from broker.adapters.amqp10.resume import ResumedOutcomes
from broker.adapters.amqp10.routes import is_deleted, resolve_target, routes_of
from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.transactions import Transaction10, transactions_of
from broker.adapters.formats.amqp10 import View10
from broker.adapters.peers import direct_reply
from broker.adapters.peers.requests import mark_receipts
from broker.adapters.peers.server import ReplyReceiver
from broker.auth.terms import WRITE
from broker.core.delivery.journal import INVALID
from broker.core.durations import SAMPLE
from broker.core.errors import AccessRefused, BrokerError, ExchangeReplaced, NotFound, PreconditionFailed
from broker.core.message import ON_ITS_WAY, Address, Message
from broker.core.publishing.delay import mark_delay
from broker.core.publishing.publisher import DUPLICATE, REFUSED, ROUTED, UNROUTED, Outcome
from broker.core.remotes.remote import RemoteWaiter
from broker.core.routing.graph import Route
from broker.core.schedule import METHOD, PROPERTIES
from broker.core.transactions.transaction import INDEPENDENT, is_independent
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import AddressError, node_of
from protocol.amqp10.conditions import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    PeerError,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import TRANSACTIONAL_STATE
from protocol.amqp10.encoding import encode
from protocol.amqp10.flows import Flow
from protocol.amqp10.headers import Header
from protocol.amqp10.outcomes import ACCEPTED_VALUE, RELEASED_VALUE, rejected, transactional
from protocol.amqp10.outcomes import error as fault
from protocol.amqp10.properties import SUBJECT, TO, read_text, read_user_id
from protocol.amqp10.transfers import MESSAGE_FORMAT, Transfer
from protocol.amqp10.types import Symbol
from protocol.conversion.names import X_CC

FREE_MAX: Final = 64  # freed tags that may stay, because removing each would cost more


@final
class Tags:
    """The delivery-tags of a link's unsettled deliveries.

    With rcv-settle-mode first, tags are freed in the order in which they were claimed. With second, each tag
    is freed by its delivery-id.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}  # each tag's place among all that have been claimed
        self._claimed: i64 = 0
        self._freed: i64 = 0
        self._by_id: dict[int, bytes] = {}

    def claim(self, tag: bytes) -> bool:
        """Claim a tag; False if it is not free."""
        number: int = self._claimed
        known = self._numbers.setdefault(tag, number)
        if known != number:
            if known >= self._freed:
                return False
            self._numbers[tag] = number
        self._claimed += 1
        return True

    def free(self, count: i64) -> None:
        """Free the oldest `count` tags."""
        self._freed += count
        numbers = self._numbers
        if len(numbers) <= FREE_MAX:
            return
        left = self._claimed - self._freed
        if left == 0:
            numbers.clear()
        elif len(numbers) > 2 * (left + FREE_MAX):
            self._numbers = {tag: number for tag, number in numbers.items() if number >= self._freed}

    def claim_by_id(self, tag: bytes, delivery_id: i64) -> bool:
        """Claim a tag for the delivery with this id, for `free_by_id`; False if the tag is not free."""
        if tag in self._numbers:
            return False
        self._numbers[tag] = 0
        self._by_id[delivery_id] = tag
        return True

    def claimed_by_id(self) -> list[tuple[int, bytes]]:
        """Return the deliveries whose tags were claimed by id, oldest first."""
        return list(self._by_id.items())

    def free_by_id(self, delivery_id: i64) -> None:
        """Free the tag of this delivery."""
        tag = self._by_id.pop(delivery_id, None)
        if tag is not None:
            self._numbers.pop(tag, None)


_RELEASED: Final = "amqp:released:list"
_REJECTED: Final = "amqp:rejected:list"


def publish(link: IncomingLink, received: ReceivedMessage, delivery_id: i64, settled: bool) -> None:
    """Publish the message of a delivery, and add the outcome to the pending frames.

    Raises PeerError to detach the link.
    """
    message: Message | None = None
    try:
        route = _find_route(link, received)
        message = _make_message(route, received)
        link.session.traffic.published += 1
        outcome = _publish(link, route, message, received)
    except ExchangeReplaced:
        link.session.traffic.published -= 1
        routes_of(link.session.peer).forget()
        publish(link, received, delivery_id, settled)
        return
    except AddressError as fault:
        _journal_refusal(link, received, message, NotFound(str(fault)))
        _refuse_message(link, delivery_id, settled, INVALID_FIELD, str(fault))
        return
    except BrokerError as error:
        _journal_refusal(link, received, message, error)
        _refuse_message(link, delivery_id, settled, condition_of(error), error.text)
        return
    if outcome is ROUTED or outcome is DUPLICATE:
        if not settled and link.holds_outcome(delivery_id, message):
            return
        if not settled:
            logged = message.sequence != 0 or message.marks & ON_ITS_WAY != 0
            link.add_outcome(delivery_id, ACCEPTED_VALUE, logged)
    elif outcome is REFUSED:
        if not settled:
            text = f"a queue to which key '{route.address.routing_key}' routes is full"
            link.refuse(delivery_id, False, RESOURCE_LIMIT_EXCEEDED, text)
    else:
        _refuse_unroutable(link, route, delivery_id, settled)


def _journal_refusal(
    link: IncomingLink, received: ReceivedMessage, message: Message | None, error: BrokerError
) -> None:
    """Record a refused message in the journal. Without a `message` no route was found."""
    journal = link.session.vhost.journal
    if journal.on:
        if message is None:
            address = Address(link.exchange or "", link.key or "")
            message = Message(address, received.content, received.size, received.durable, 0)
        journal.refused_by(link.session, message, error)


def _make_message(route: Route, received: ReceivedMessage) -> Message:
    priority = 0 if received.priority == NONE else received.priority
    message = Message(route.address, received.content, received.size, received.durable, priority)
    if received.body is not None:
        message.body = received.body
    return message


def _find_route(link: IncomingLink, received: ReceivedMessage) -> Route:
    """Return the route of the message. Raises AddressError, and what Routes.find raises."""
    exchange, key = link.exchange, link.key
    routes = routes_of(link.session.peer)
    layout = received.layout
    if exchange is None:
        to = None
        if layout.properties != NONE:
            to = read_text(received.data, layout.properties, layout.properties_end, TO)
        node = node_of(to)
        if node.kind in (addresses.ANONYMOUS, addresses.MANAGEMENT):
            raise AddressError(f"address '{to or ''}' of a message is neither a queue nor an exchange")
        exchange, key, _ = resolve_target(link.session, node, ())
    if key is None:
        key = ""
        if layout.properties != NONE:
            key = read_text(received.data, layout.properties, layout.properties_end, SUBJECT) or ""
    return routes.find(exchange, key)


def _publish(link: IncomingLink, route: Route, message: Message, received: ReceivedMessage) -> Outcome:
    """Publish the message; return and raise what Publisher.publish does."""
    virtual_host = link.session.vhost
    publisher = virtual_host.publisher
    layout = received.layout
    view: View10 | None = None
    if link.transaction is not None:
        view = View10(received.content)
        if is_independent(view.header_named(INDEPENDENT)):
            link.transaction = None  # the outcome and a refusal do not concern the transaction either
    transaction = link.transaction
    if layout.properties != NONE:
        user = read_user_id(received.data, layout.properties, layout.properties_end)
        if user is not None:
            _check_user(link, user)
    if not route.queues:
        replies = direct_reply.receiver_at_address(link.session.peer.server, virtual_host, route.address)
        if replies is not None:
            return _send_reply(link, replies, route, message)
    if not received.needs_view and received.ttl == NONE and not route.by_message and transaction is None:
        return publisher.publish(route, message, link.session)
    virtual_host.schedule.allowance.use(PROPERTIES)
    if view is None:
        view = View10(received.content)
    rights = link.session.peer.rights
    keys: list[str] = []
    if received.ttl != NONE:
        message.expiration = received.ttl
    if received.needs_view:
        _check_copies(view)
        keys = view.further_keys()
        for key in keys:
            rights.require_topic(WRITE, route.exchange, key)
        mark_delay(message, view, virtual_host.schedule)
        mark_receipts(message, view.headers(), rights)
    if keys:
        keys = [route.address.routing_key, *keys]
    if transaction is not None:
        return _post_message(link, transaction, route, message, keys)
    if not keys and not route.by_message:
        return publisher.publish_carefully(route, message, link.session)
    keys = keys or [route.address.routing_key]
    return publisher.publish_by_message(route, message, keys, view, link.session)


def _post_message(
    link: IncomingLink, transaction: Transaction10, route: Route, message: Message, keys: list[str]
) -> Outcome:
    """Hold a message until its transaction is discharged; an unroutable message is reported at once."""
    link.session.vhost.publisher.refresh(route)
    if not route.queues and not keys and not route.by_message:
        link.session.peer.server.counters.unroutable += 1
        if link.session.vhost.journal.on:
            link.session.vhost.journal.unroutable(message, link.session)
        return UNROUTED
    transaction.post(route, message, keys)
    return ROUTED


def _send_reply(link: IncomingLink, replies: ReplyReceiver, route: Route, message: Message) -> Outcome:
    """Send a direct reply to a requester of AMQP 0-9-1, or hold it in a transaction; counts as routed."""
    if link.transaction is not None:
        link.transaction.post(route, message, [], replies)
    else:
        replies.deliver(message, link.session.peer.server.counters)
    return ROUTED


def _check_user(link: IncomingLink, name: bytes) -> None:
    """Check that the user-id is the sender's own name, unless the sender is an impersonator.

    Raises AccessRefused.
    """
    connection = link.session.peer
    if name != connection.user.encode() and not connection.rights.may_impersonate():
        shown = name[:64].decode(errors="replace")
        raise AccessRefused(f"user-id is '{shown}' but the authenticated user is '{connection.user}'")


def _check_copies(view: View10) -> None:
    """Check that the annotation with further routing keys is a list of strings. Raises PreconditionFailed."""
    name = X_CC.decode()
    copies = view.header_named(name)
    if copies is None:
        return
    if not isinstance(copies, list) or not all(isinstance(copy, str) for copy in copies):
        raise PreconditionFailed(f"annotation '{name}' is not a list of strings")


def _refuse_unroutable(link: IncomingLink, route: Route, delivery_id: i64, settled: bool) -> None:
    """Release or reject a message that no queue has enqueued. [amqp-1.0 3.4.4; anonymous terminus 2.2.2]"""
    traffic = link.session.traffic
    if is_deleted(link.destination):
        traffic.dropped += 1
        return
    outcome = _REJECTED if link.exchange is None else _RELEASED
    if settled or not link.supports(outcome):
        traffic.dropped += 1
    else:
        counters = link.session.peer.server.counters
        counters.unroutable -= 1  # the message is returned instead
        counters.returned += 1
        traffic.returned += 1
    if link.exchange is None:
        link.session.vhost.schedule.allowance.use(METHOD)
        address = route.address
        text = f"no queue takes messages to exchange '{address.exchange}' with key '{address.routing_key}'"
        link.refuse(delivery_id, settled, NOT_FOUND, text)
    elif not settled:
        if link.supports(_RELEASED):
            link.add_outcome(delivery_id, RELEASED_VALUE, False)
        else:
            link.detach(NOT_FOUND, f"no queue takes messages with key '{route.address.routing_key}'")


def _refuse_message(link: IncomingLink, delivery_id: i64, settled: bool, condition: str, text: str) -> None:
    """Reject a message, or detach a link whose target does not exist any more."""
    link.session.vhost.schedule.allowance.use(METHOD)
    link.session.peer.server.counters.refused += 1
    if is_deleted(link.destination):
        return
    if link.exchange is not None and condition == NOT_FOUND:
        link.detach(condition, text)
    else:
        link.refuse(delivery_id, settled, condition, text)


_TRANSACTIONAL: Final = bytes((0x00, 0x53, TRANSACTIONAL_STATE))


def suspend_receiver(link: IncomingLink, expiry: Expiry) -> None:
    """Suspend a link with the received deliveries that its sender has not settled.

    Transactions end with the session, so their deliveries are not kept. With rcv-settle-mode first, only
    incomplete deliveries are unsettled.
    """
    session = link.session
    suspended = link_names(session.peer.server).suspend(session, link.name, True, expiry)
    if suspended is None:
        return
    received = suspended.received
    if link.resumed_outcomes is not None:
        received.update(link.resumed_outcomes.outcomes)
    if link.settles_second:
        pending = pending_frames_of(session)
        outcomes, suspended.batch = pending.outcomes.outcomes_for(link)
        outcomes.update(pending.unsettled_by_sender.outcomes_of(link))
        for delivery_id, tag in link.tags.claimed_by_id():
            outcome = outcomes.get(delivery_id)
            if outcome is not None and not outcome.startswith(_TRANSACTIONAL):
                received[tag] = outcome
    if link.has_incomplete_delivery():
        received[link.tag] = NOTHING_RECEIVED
    if received:
        suspended.wait(session)
    else:
        suspended.end_suspension()


def begin_resumed(link: IncomingLink) -> bool:
    """Begin a delivery that the sender resumes; return whether its message is still needed.

    All other resumed deliveries have an outcome, or are unknown. Their transfers are dropped.
    """
    resumed_outcomes = link.resumed_outcomes
    if resumed_outcomes is None or resumed_outcomes.outcomes.get(link.tag) != NOTHING_RECEIVED:
        return False
    del resumed_outcomes.outcomes[link.tag]
    return True


def end_resumed(link: IncomingLink, settled: bool) -> None:
    """Send the outcome of a resumed delivery once more, unless the sender has settled the delivery.

    Raises PeerError.
    """
    resumed_outcomes = link.resumed_outcomes
    outcome = None if resumed_outcomes is None else resumed_outcomes.outcomes.pop(link.tag, None)
    if outcome is not None and not settled:
        link.claim()
        link.add_outcome(link.delivery_id, outcome, False)


CREDIT: Final[i64] = 1000  # deliveries without an outcome that a peer may send

# negotiated settlement [amqp-1.0 2.8.2]
UNSETTLED: Final = 0
SETTLED: Final = 1
MIXED: Final = 2


@final
class HeldOutcome(RemoteWaiter):
    """An outcome that waits for other brokers, or behind such an outcome. `state`: empty until it is known.

    `logged`: the outcome depends on the batch that is being appended.
    """

    def __init__(self, link: IncomingLink, delivery_id: i64) -> None:
        self.delivery_id = delivery_id
        self.state = b""
        self.logged = False
        self._link = link

    def on_remote_answer(self, accepted: bool) -> None:
        """Set the outcome, and send the outcomes that wait for no broker any more."""
        link = self._link
        text = "another broker has refused the message, or it has left the queue here"
        if accepted:
            self.state = ACCEPTED_VALUE
        elif link.supports(_REJECTED):
            self.state = rejected(fault(RESOURCE_LIMIT_EXCEEDED, text))
        elif not link.is_detached:
            link.detach(RESOURCE_LIMIT_EXCEEDED, text)
        link.send_held_outcomes()


@final
class IncomingLink(Link10):
    """The receiving end of a link.

    Messages are published to `exchange` with `key`. If `key` is None, the key is each message's subject. If
    `exchange` is None, each message has its own address. `settles_second`: the rcv-settle-mode is second.
    `outcomes`: the outcomes that the sender supports, by their symbolic descriptors; empty: all.
    """

    def __init__(
        self,
        session: Session10State,
        name: str,
        handle: i64,
        count: i64,
        exchange: str | None,
        key: str | None,
        snd_settle_mode: i64,
        settles_second: bool,
        size_max: i64,
    ) -> None:
        super().__init__(session, name, handle, True, count)
        self.exchange = exchange
        self.key = key
        self.snd_settle_mode = snd_settle_mode
        self.settles_second = settles_second
        self.size_max = size_max
        self.outcomes: tuple[str, ...] = ()
        self.header = Header()
        self.unsettled_count: i64 = 0
        self.held_outcomes: deque[HeldOutcome] = deque()  # outcomes that wait for other brokers, in order
        self.tags = Tags()
        self.delivery_id: i64 = NONE  # the delivery-id of the incomplete delivery
        self.tag = b""
        self.settled = False
        self._format: i64 = MESSAGE_FORMAT
        self.transaction: Transaction10 | None = None  # the transaction in which the delivery is posted
        self._size: i64 = 0
        self._assembly = Assembly(session.peer, self.header)
        self._is_dropped = False  # whether the incomplete delivery is dropped
        self.expiry: Expiry | None = None  # None: unsettled deliveries are not kept after the link's end
        self.resumed_outcomes: ResumedOutcomes | None = (
            None  # the deliveries that the resumed link has received
        )

    # -- frames of the sender

    def on_flow(self, flow: Flow) -> None:
        """Take the sender's delivery-count. [amqp-1.0 2.6.7]"""
        if flow.delivery_count != NONE:
            self.credit.follow(flow.delivery_count)
            # not more than at first, as the delivery-count may also decrease
            self.credit.left = min(self.credit.left, CREDIT - self.unsettled_count)
        if flow.echo:
            self.send_flow()
        pending_frames_of(self.session).check_credit(self)

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Take a transfer of a delivery. [amqp-1.0 2.6.14]"""
        first = self.delivery_id == NONE
        if self.is_detached:
            if first:
                self.drop_delivery()
            self.delivery_id = 0 if transfer.more and not transfer.aborted else NONE
            return
        try:
            if first:
                self._begin(transfer)
            else:
                self._check(transfer)
            if self._is_dropped:
                self._drop_transfer(transfer)
                return
            if transfer.aborted:
                self._clear_delivery()
                pending_frames_of(self.session).check_credit(self)
                return
            if transfer.settled:
                self._settle()
            state = transfer.state
            if state is not None and state.code == TRANSACTIONAL_STATE:
                self.transaction = transactions_of(self.session.peer).find(state.txn_id)
            self._add_payload(transfer, data, end)
        except PeerError as error:
            more = transfer.more and not transfer.aborted
            self.detach(error.condition, error.text)
            self.delivery_id = 0 if more else NONE

    def _begin(self, transfer: Transfer) -> None:
        """Begin a delivery with its first transfer. Raises PeerError."""
        if transfer.delivery_id == NONE or transfer.delivery_tag is None:
            what = "delivery-id" if transfer.delivery_id == NONE else "delivery-tag"
            raise PeerError(INVALID_FIELD, f"the first transfer of a delivery has no {what}")
        self.transaction = None
        if transfer.rcv_settle_mode == 1 and not self.settles_second:
            raise PeerError(INVALID_FIELD, "transfer with rcv-settle-mode second on a link with first")
        self.credit.use()
        self.delivery_id = transfer.delivery_id
        self.tag = transfer.delivery_tag
        self.settled = False
        self._format = MESSAGE_FORMAT if transfer.message_format == NONE else transfer.message_format
        if transfer.resume:
            self._is_dropped = not begin_resumed(self)
        elif self.resumed_outcomes is not None:
            self.resumed_outcomes.check_new_tag(self.tag)

    def _drop_transfer(self, transfer: Transfer) -> None:
        """Drop a transfer of a resumed delivery that has an outcome, or is unknown. Raises PeerError."""
        self.settled = self.settled or transfer.settled  # any transfer may settle the delivery
        if transfer.aborted or not transfer.more:
            self._is_dropped = False
            end_resumed(self, self.settled or transfer.aborted)
            self._clear_delivery()
            pending_frames_of(self.session).check_credit(self)

    def _check(self, transfer: Transfer) -> None:
        """Check that a further transfer does not contradict the first one. Raises PeerError."""
        if transfer.delivery_id != NONE and transfer.delivery_id != self.delivery_id:
            text = (
                f"transfer of delivery {transfer.delivery_id} before the end of delivery {self.delivery_id}"
            )
            raise PeerError(INVALID_FIELD, text)
        tag = transfer.delivery_tag
        if tag is not None and tag != self.tag:
            raise PeerError(INVALID_FIELD, f"the delivery-tag of delivery {self.delivery_id} has changed")
        if transfer.message_format != NONE and transfer.message_format != self._format:
            raise PeerError(INVALID_FIELD, f"the message-format of delivery {self.delivery_id} has changed")

    def _settle(self) -> None:
        """Note that the sender has settled the delivery. Raises PeerError."""
        if self.snd_settle_mode == UNSETTLED:
            raise PeerError(INVALID_FIELD, "a settled delivery on a link with snd-settle-mode unsettled")
        self.settled = True

    def _add_payload(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Keep the payload of a transfer, and publish the message after the last one. Raises PeerError."""
        start = transfer.payload
        self._size += end - start
        if self._size > self.size_max:
            text = f"message of more than {self.size_max} bytes, which is the link's max-message-size"
            self._journal_oversized()
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        if self._format != MESSAGE_FORMAT and self._size > WHOLE_BYTES_MAX:
            text = f"message of more than {WHOLE_BYTES_MAX} bytes in message-format {self._format}"
            self._journal_oversized()
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        payload = data[start:end]
        assembly = self._assembly
        if transfer.more or assembly.transfers > 0:
            assembly.add(payload, self._size)
        if transfer.more:
            return
        if assembly.transfers > 0:
            received = assembly.finish(self._format)
        else:
            received = read_message(payload, self.header, self._format)
        delivery_id, settled = self.delivery_id, self.settled
        if self.snd_settle_mode == SETTLED and not settled:
            raise PeerError(INVALID_FIELD, "an unsettled delivery on a link with snd-settle-mode settled")
        if not settled:
            self.claim()
        self._clear_delivery()
        publish(self, received, delivery_id, settled)
        self.transaction = None
        pending_frames_of(self.session).check_credit(self)

    def _journal_oversized(self) -> None:
        """Record in the journal a message that is too large, with the size that has arrived."""
        journal = self.session.vhost.journal
        if journal.on:
            message = Message(Address(self.exchange or "", self.key or ""), None, self._size, False, 0)
            journal.refused(self.session, message.address, message, INVALID)

    def claim(self) -> None:
        """Claim the delivery's tag, which no other unsettled delivery may have. Raises PeerError."""
        tags, tag = self.tags, self.tag
        if not (tags.claim_by_id(tag, self.delivery_id) if self.settles_second else tags.claim(tag)):
            text = f"delivery {self.delivery_id} has the delivery-tag of an unsettled delivery: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)

    def _clear_delivery(self) -> None:
        self.delivery_id = NONE
        self._size = 0
        if self._assembly.transfers > 0:
            self._assembly.clear()

    # -- outcomes

    def add_outcome(self, delivery_id: i64, state: bytes, logged: bool) -> None:
        """Add the outcome of a delivery; `logged`: it is sent after the log has synced its batch."""
        self.unsettled_count += 1
        if self.transaction is not None:
            state = transactional(self.transaction.txn_id, state)
        else:
            self._count_confirm(delivery_id)
        if self.held_outcomes:
            later = HeldOutcome(self, delivery_id)
            later.state, later.logged = state, logged
            self.held_outcomes.append(later)
            return
        pending_frames_of(self.session).outcomes.add(self, delivery_id, 1, state, logged)

    def holds_outcome(self, delivery_id: i64, message: Message) -> bool:
        """Let the outcome of a published message wait for other brokers, if their queues have the message.

        Outcomes stay in the order of the deliveries, so those of later deliveries wait too.
        """
        wait = self.session.vhost.publisher.take_remote_wait(message)
        if wait is None:
            return False
        held = HeldOutcome(self, delivery_id)
        self.held_outcomes.append(held)
        self.unsettled_count += 1
        self._count_confirm(delivery_id)
        wait.set_waiter(held)
        return True

    def _count_confirm(self, delivery_id: i64) -> None:
        """Count a delivery whose sender waits for the outcome."""
        session = self.session
        session.traffic.to_confirm += 1
        if session.traffic.to_confirm & SAMPLE == 1:
            session.confirm_watch.start(delivery_id + 1)

    def send_held_outcomes(self) -> None:
        """Send the outcomes that wait for no broker any more."""
        held = self.held_outcomes
        session = self.session
        if self.is_detached or session.is_released:
            held.clear()
            return
        while held and held[0].state:
            first = held.popleft()
            pending_frames_of(session).outcomes.add(self, first.delivery_id, 1, first.state, first.logged)
        session.peer.end_turn()

    def refuse(self, delivery_id: i64, settled: bool, condition: str, text: str) -> None:
        """Reject a delivery with an error, or detach the link if the sender does not support this.

        On a link without an address the error names the delivery. [anonymous terminus 2.2.2]
        """
        info: dict[str, object] | None = None
        if self.exchange is None:
            info = {Symbol("delivery-tag"): self.tag}
        if settled and self.transaction is not None:
            self.transaction.rollback_reason = text
        elif not settled and self.supports(_REJECTED):
            self.add_outcome(delivery_id, rejected(fault(condition, text, encode(info))), False)
        else:
            self.detach(condition, text, info)

    def supports(self, outcome: str) -> bool:
        """Whether the sender supports the outcome of this name."""
        return not self.outcomes or outcome in self.outcomes

    def on_settled(self, count: i64) -> None:
        """Note that the oldest `count` deliveries have been settled."""
        self.tags.free(count)
        self.unsettled_count -= count
        pending_frames_of(self.session).check_credit(self)

    def on_sender_settled(self, delivery_id: i64) -> None:
        """Note that the sender has settled a delivery, after this side."""
        self.tags.free_by_id(delivery_id)
        self.unsettled_count -= 1
        pending_frames_of(self.session).check_credit(self)

    # -- credit

    def grant_credit(self) -> None:
        """Grant more credit, if it is time for this and there is room."""
        if self.is_detached or self.credit.left > CREDIT // 2 or self.unsettled_count > CREDIT // 2:
            return
        if self.session.peer.server.shortage.reason:
            self.session.peer.hold_senders()
            return
        self.credit.left = CREDIT - self.unsettled_count
        self.send_flow()

    def send_flow(self) -> None:
        """Send the sender's credit. [amqp-1.0 2.7.4]"""
        self.session.write_flow(self.handle, self.credit.delivery_count, self.credit.left, NONE, False)

    def on_rights_changed(self) -> None:
        """Detach the link if the user may no longer publish there."""
        exchange, key = self.exchange, self.key
        if exchange is None:
            return  # each message is checked
        try:
            self.session.peer.rights.require(WRITE, EXCHANGE, exchange)
            if key is not None:
                routes_of(self.session.peer).find(exchange, key)
        except BrokerError as error:
            self.detach(condition_of(error), error.text)

    def has_incomplete_delivery(self) -> bool:
        """Whether a delivery is incomplete."""
        return self.delivery_id != NONE and not self._is_dropped

    def release_all(self, closed: bool) -> None:
        """Suspend or forget the unsettled deliveries, and drop an incomplete one."""
        if not closed and self.expiry is not None:
            suspend_receiver(self, self.expiry)
        is_incomplete = self.delivery_id != NONE
        self._clear_delivery()
        if is_incomplete:
            self.delivery_id = 0
        pending_frames_of(self.session).unsettled_by_sender.forget(self)
        self.session.confirm_watch.cancel()  # the outcome that it waits for may be one of this link
