"""A link on which the peer sends: deliveries put together, published, and answered. [amqp-1.0 2.6]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.assembly import Assembly
from broker.adapters.amqp10.ingest import arrival
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.publishing import publish
from broker.adapters.amqp10.refusing import condition_of
from broker.adapters.amqp10.remembered import Remembered, conclude, remember, resume
from broker.adapters.amqp10.suspended import Expiry
from broker.adapters.amqp10.tags import Tags
from broker.auth.terms import WRITE
from broker.core.errors import BrokerError
from broker.core.message import Address, Message
from broker.core.queues.hooks import INVALID
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp10.conditions import ILLEGAL_STATE, INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import TRANSACTIONAL_STATE
from protocol.amqp10.encoding import encode
from protocol.amqp10.flows import Flow
from protocol.amqp10.headers import Header
from protocol.amqp10.outcomes import error as fault
from protocol.amqp10.outcomes import rejected, transactional
from protocol.amqp10.transfers import MESSAGE_FORMAT, Transfer
from protocol.amqp10.types import Symbol

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10
    from broker.adapters.amqp10.transactions import Transaction10

CREDIT: Final[i64] = 1000  # deliveries that a peer may send and that have no answer yet

# negotiated settlement [amqp-1.0 2.8.2]
UNSETTLED: Final = 0
SETTLED: Final = 1
MIXED: Final = 2


@final
class IncomingLink(Link10):
    """The receiving end of a link.

    Messages go to `exchange` with `key`; None: the key is each message's subject; an exchange that is None:
    each message says where to. `mode`: how the sender settles. `second`: it settles after this side.
    `outcomes`: what it understands, by their descriptors' names; none: all.
    """

    def __init__(
        self,
        session: Session10,
        name: str,
        handle: i64,
        count: i64,
        exchange: str | None,
        key: str | None,
        mode: i64,
        second: bool,
        size_max: i64,
    ) -> None:
        super().__init__(session, name, handle, True, count)
        self.exchange = exchange
        self.key = key
        self.mode = mode
        self.second = second
        self.size_max = size_max
        self.outcomes: tuple[str, ...] = ()
        self.header = Header()
        self.unanswered: i64 = 0
        self.tags = Tags()
        self.delivery_id: i64 = NONE  # of the delivery that is under way
        self.tag = b""
        self.settled = False
        self._format: i64 = MESSAGE_FORMAT
        self.transaction: Transaction10 | None = None  # that the delivery is posted in
        self._size: i64 = 0
        self._assembly = Assembly(session.peer, self.header)
        self._passes = False  # what is under way is not for this side
        self.expiry: Expiry | None = None  # of what is unsettled when it is gone; None: it does not stay
        self.remembered: Remembered | None = None  # what an earlier link of its name has received

    # -- what the peer says

    def on_flow(self, flow: Flow) -> None:
        """The sender says how far it is. [amqp-1.0 2.6.7]"""
        if flow.delivery_count != NONE:
            self.credit.follow(flow.delivery_count)
            self.credit.left = min(self.credit.left, CREDIT - self.unanswered)  # it may count backwards
        if flow.echo:
            self.say_flow()
        self.session.owed.touch(self)

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """A part of a delivery. [amqp-1.0 2.6.14]"""
        first = self.delivery_id == NONE
        if self.leaving:
            if first:
                self.swallow()
            self.delivery_id = 0 if transfer.more and not transfer.aborted else NONE
            return
        try:
            if first:
                self._begin(transfer)
            else:
                self._check(transfer)
            if self._passes:
                self._pass_over(transfer)
                return
            if transfer.aborted:
                self._forget()
                self.session.owed.touch(self)
                return
            if transfer.settled:
                self._settle()
            state = transfer.state
            if state is not None and state.code == TRANSACTIONAL_STATE:
                self.transaction = self.session.peer.transactions.find(state.txn_id)
            self._take(transfer, data, end)
        except PeerError as error:
            more = transfer.more and not transfer.aborted
            self.detach(error.condition, error.text)
            self.delivery_id = 0 if more else NONE

    def _begin(self, transfer: Transfer) -> None:
        """The first transfer of a delivery. Raises PeerError."""
        if transfer.delivery_id == NONE or transfer.delivery_tag is None:
            what = "delivery-id" if transfer.delivery_id == NONE else "delivery-tag"
            raise PeerError(INVALID_FIELD, f"the first transfer of a delivery has no {what}")
        self.transaction = None
        if transfer.rcv_settle_mode == 1 and not self.second:
            raise PeerError(INVALID_FIELD, "rcv-settle-mode second on a link whose receiver settles first")
        self.credit.use()
        self.delivery_id = transfer.delivery_id
        self.tag = transfer.delivery_tag
        self.settled = False
        self._format = MESSAGE_FORMAT if transfer.message_format == NONE else transfer.message_format
        if transfer.resume:
            self._passes = not resume(self)
        elif self.remembered is not None:
            self.remembered.admit(self.tag)

    def _pass_over(self, transfer: Transfer) -> None:
        """Drop what comes with a delivery that has its outcome, or is not known. Raises PeerError."""
        self.settled = self.settled or transfer.settled  # any of its transfers may say so
        if transfer.aborted or not transfer.more:
            self._passes = False
            conclude(self, self.settled or transfer.aborted)
            self._forget()
            self.session.owed.touch(self)

    def _check(self, transfer: Transfer) -> None:
        """A further transfer says the same as the first one, or nothing. Raises PeerError."""
        if transfer.delivery_id != NONE and transfer.delivery_id != self.delivery_id:
            text = f"transfer of delivery {transfer.delivery_id} within delivery {self.delivery_id}"
            raise PeerError(INVALID_FIELD, text)
        tag = transfer.delivery_tag
        if tag is not None and tag != self.tag:
            raise PeerError(INVALID_FIELD, f"the delivery-tag of delivery {self.delivery_id} has changed")
        if transfer.message_format != NONE and transfer.message_format != self._format:
            raise PeerError(INVALID_FIELD, f"the message-format of delivery {self.delivery_id} has changed")

    def _settle(self) -> None:
        """The sender says that it is settled. Raises PeerError."""
        if self.mode == UNSETTLED:
            raise PeerError(INVALID_FIELD, "a settled delivery on a link that has only unsettled ones")
        self.settled = True

    def _take(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Keep the payload of a transfer, and publish the message if it is the last. Raises PeerError."""
        start = transfer.payload
        self._size += end - start
        if self._size > self.size_max:
            text = f"message of more than {self.size_max} bytes, which is the link's max-message-size"
            self._tell_oversized()
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        if self._format != MESSAGE_FORMAT and self._size > WHOLE_BYTES_MAX:
            text = f"message of more than {WHOLE_BYTES_MAX} bytes in message-format {self._format}"
            self._tell_oversized()
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        payload = data[start:end]
        assembly = self._assembly
        if transfer.more or assembly.transfers > 0:
            assembly.add(payload, self._size)
        if transfer.more:
            return
        if assembly.transfers > 0:
            arrived = assembly.whole(self._format)
        else:
            arrived = arrival(payload, self.header, self._format)
        delivery_id, settled = self.delivery_id, self.settled
        if self.mode == SETTLED and not settled:
            raise PeerError(INVALID_FIELD, "an unsettled delivery on a link that has only settled ones")
        if not settled:
            self.claim()
        self._forget()
        publish(self, arrived, delivery_id, settled)
        self.transaction = None
        self.session.owed.touch(self)

    def _tell_oversized(self) -> None:
        """Have the journal know of a message that is too large, as far as it has come."""
        journal = self.session.vhost.journal
        if journal.on:
            message = Message(Address(self.exchange or "", self.key or ""), None, self._size, False, 0)
            journal.refused(self.session, message.address, message, INVALID)

    def claim(self) -> None:
        """No other delivery that the sender waits for may have this one's tag. Raises PeerError."""
        tags, tag = self.tags, self.tag
        if not (tags.claim_for(tag, self.delivery_id) if self.second else tags.claim(tag)):
            text = f"delivery {self.delivery_id} has the delivery-tag of one that is unsettled: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)

    def _forget(self) -> None:
        self.delivery_id = NONE
        self._size = 0
        if self._assembly.transfers > 0:
            self._assembly.clear()

    # -- answers

    def owe(self, delivery_id: i64, state: bytes, logged: bool) -> None:
        """The delivery has this outcome, once the log has what was appended for it."""
        self.unanswered += 1
        if self.transaction is not None:
            state = transactional(self.transaction.txn_id, state)
        self.session.owed.answers.add(self, delivery_id, 1, state, logged)

    def refuse(self, delivery_id: i64, settled: bool, condition: str, text: str) -> None:
        """The message was not taken: say why, as far as the sender wants to hear it.

        On a link for any address the error says which delivery it was. [anonymous terminus 2.2.2]
        """
        info: dict[str, object] | None = None
        if self.exchange is None:
            info = {Symbol("delivery-tag"): self.tag}
        if settled and self.transaction is not None:
            self.transaction.doomed = text
        elif not settled and self.understands("amqp:rejected:list"):
            self.owe(delivery_id, rejected(fault(condition, text, encode(info))), False)
        else:
            self.detach(condition, text, info)

    def understands(self, outcome: str) -> bool:
        """Whether the sender has an outcome of this name."""
        return not self.outcomes or outcome in self.outcomes

    def answered(self, count: i64) -> None:
        """So many deliveries have been settled, the oldest."""
        self.tags.free(count)
        self.unanswered -= count
        self.session.owed.touch(self)

    def settled_last(self, delivery_id: i64) -> None:
        """The sender has settled this delivery, after this side."""
        self.tags.free_of(delivery_id)
        self.unanswered -= 1
        self.session.owed.touch(self)

    # -- credit

    def top_up(self) -> None:
        """Allow more, if it is time for that and there is room for it."""
        if self.leaving or self.credit.left > CREDIT // 2 or self.unanswered > CREDIT // 2:
            return
        if self.session.peer.server.shortage.reason:
            self.session.peer.held_credit.hold()
            return
        self.credit.left = CREDIT - self.unanswered
        self.say_flow()

    def say_flow(self) -> None:
        """Say how much the sender may send. [amqp-1.0 2.7.4]"""
        self.session.write_flow(self.handle, self.credit.delivery_count, self.credit.left, NONE, False)

    def rights_changed(self) -> None:
        """The user may no longer publish there, perhaps (Link10)."""
        exchange, key = self.exchange, self.key
        if exchange is None:
            return  # each message is looked at
        try:
            self.session.peer.rights.require(WRITE, EXCHANGE, exchange)
            if key is not None:
                self.session.peer.routes.find(exchange, key)
        except BrokerError as error:
            self.detach(condition_of(error), error.text)

    def is_under_way(self) -> bool:
        """Whether a delivery has come in part."""
        return self.delivery_id != NONE and not self._passes

    def let_go(self, closed: bool) -> None:
        """What has not arrived as a whole never will; its rest is dropped (Link10)."""
        if not closed and self.expiry is not None:
            remember(self, self.expiry)
        under_way = self.delivery_id != NONE
        self._forget()
        if under_way:
            self.delivery_id = 0
        self.session.halves.forget(self)
