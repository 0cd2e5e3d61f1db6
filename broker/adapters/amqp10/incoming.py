"""A link on which the peer sends: deliveries put together, published, and answered. [amqp-1.0 2.6]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.ingest import Arrival, arrival
from broker.adapters.amqp10.large import LargeArrival
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.publishing import publish
from broker.adapters.amqp10.refusing import condition_of
from broker.adapters.amqp10.tags import Tags
from broker.auth.terms import WRITE
from broker.core.errors import BrokerError
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp10.conditions import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_IMPLEMENTED,
    TRANSFER_LIMIT_EXCEEDED,
    PeerError,
)
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
TRANSFERS_MAX: Final = 100_000  # transfers of one delivery

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
        self._tags = Tags()
        self.delivery_id: i64 = NONE  # of the delivery that is under way
        self.tag = b""
        self.settled = False
        self._format: i64 = MESSAGE_FORMAT
        self.transaction: Transaction10 | None = None  # that the delivery is posted in
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._transfers: i64 = 0  # of a delivery that has several
        self._large: LargeArrival | None = None

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
        if transfer.resume:
            raise PeerError(NOT_IMPLEMENTED, "a delivery is resumed, and there is nothing to resume")
        if transfer.rcv_settle_mode == 1 and not self.second:
            raise PeerError(INVALID_FIELD, "rcv-settle-mode second on a link whose receiver settles first")
        self.credit.use()
        self.delivery_id = transfer.delivery_id
        self.tag = transfer.delivery_tag
        self.settled = False
        self._format = MESSAGE_FORMAT if transfer.message_format == NONE else transfer.message_format

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
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        if self._format != MESSAGE_FORMAT:
            raise PeerError(NOT_IMPLEMENTED, f"message-format {self._format}, only 0 is known")
        payload = data[start:end]
        if transfer.more or self._transfers > 0:
            self._gather(payload)
        if transfer.more:
            return
        arrived = self._arrived() if self._transfers > 0 else arrival(payload, self.header)
        delivery_id, settled = self.delivery_id, self.settled
        if self.mode == SETTLED and not settled:
            raise PeerError(INVALID_FIELD, "an unsettled delivery on a link that has only settled ones")
        if not settled:
            self._claim()
        self._forget()
        publish(self, arrived, delivery_id, settled)
        self.transaction = None
        self.session.owed.touch(self)

    def _claim(self) -> None:
        """No other delivery that the sender waits for may have this one's tag. Raises PeerError."""
        tags, tag = self._tags, self.tag
        if not (tags.claim_for(tag, self.delivery_id) if self.second else tags.claim(tag)):
            text = f"delivery {self.delivery_id} has the delivery-tag of one that is unsettled: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)

    def _gather(self, payload: bytes) -> None:
        """Keep one of several payloads. Raises PeerError."""
        self._transfers += 1
        if self._transfers > TRANSFERS_MAX:
            raise PeerError(TRANSFER_LIMIT_EXCEEDED, f"a delivery of more than {TRANSFERS_MAX} transfers")
        if self._large is not None:
            self._large.feed(payload)
            return
        self._parts.append(payload)
        if self._size > WHOLE_BYTES_MAX:
            parts, self._parts = self._parts, []
            self._large = LargeArrival(self.session.peer, b"".join(parts), self.header)

    def _arrived(self) -> Arrival:
        """The message, all of which has come. Raises PeerError."""
        large = self._large
        return arrival(b"".join(self._parts), self.header) if large is None else large.end()

    def _forget(self) -> None:
        self.delivery_id = NONE
        self._size = 0
        if self._transfers > 0:
            self._transfers = 0
            self._parts = []
            self._large = None

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
        self._tags.free(count)
        self.unanswered -= count
        self.session.owed.touch(self)

    def settled_last(self, delivery_id: i64) -> None:
        """The sender has settled this delivery, after this side."""
        self._tags.free_of(delivery_id)
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

    def let_go(self) -> None:
        """What has not arrived as a whole never will; its rest is dropped (Link10)."""
        under_way = self.delivery_id != NONE
        self._forget()
        if under_way:
            self.delivery_id = 0
        self.session.halves.forget(self)
