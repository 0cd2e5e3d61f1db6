"""The link on which transactions are declared and discharged. [amqp-1.0 4.2, 4.3]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.assembly import IncompleteDelivery
from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.transactions import ControllerLink, Transaction10, transactions_of
from broker.core.errors import BrokerError
from broker.core.schedule import METHOD
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Declare, Discharge
from protocol.amqp10.conditions import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    DecodeError,
    PeerError,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import AMQP_VALUE
from protocol.amqp10.flows import Flow
from protocol.amqp10.outcomes import ACCEPTED_VALUE, declared, rejected
from protocol.amqp10.outcomes import error as fault
from protocol.amqp10.outgoing import disposition
from protocol.amqp10.sections import Sections
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite

CREDIT: Final[i64] = 100
BYTES_MAX: Final = 4096  # the size of a message to the coordinator
OPEN_MAX: Final = 100  # transactions that a link may have declared and not discharged
REJECTED: Final = "amqp:rejected:list"


@final
class CoordinatorLink(ControllerLink):
    """A link to the coordinator. `outcomes`: the outcomes that the controller supports, none: all of them."""

    def __init__(
        self, session: Session10State, name: str, handle: i64, count: i64, outcomes: tuple[str, ...]
    ) -> None:
        super().__init__(session, name, handle, count)
        self.outcomes = outcomes
        self._delivery = IncompleteDelivery(self.credit, BYTES_MAX)

    def on_flow(self, flow: Flow) -> None:
        """Take the delivery-count of the controller."""
        if flow.delivery_count != NONE:
            self.credit.follow(flow.delivery_count)
        if flow.echo:
            self.send_flow()

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Take a transfer of a declare or a discharge."""
        if self.is_detached:
            return
        try:
            self._handle_transfer(transfer, data, end)
        except PeerError as error:
            self.detach(error.condition, error.text)

    def send_flow(self) -> None:
        """Send the credit of the controller."""
        self.session.write_flow(self.handle, self.credit.delivery_count, self.credit.left, NONE, False)

    def grant_credit(self) -> None:
        """Grant more credit when half is used up."""
        if self.credit.left <= CREDIT // 2:
            self.credit.left = CREDIT
            self.send_flow()

    def release_all(self, closed: bool) -> None:
        """Roll back the declared transactions that are not discharged. [amqp-1.0 4.3]"""
        transactions_of(self.session.peer).roll_back("the link to the coordinator ended", self)

    def answer_discharge(self, delivery_id: i64, failure: str) -> None:
        """Answer a discharge: the commit has succeeded, or has failed for this reason."""
        if failure:
            self._reject(delivery_id, TRANSACTION_ROLLBACK, failure)
        else:
            self._answer(delivery_id, ACCEPTED_VALUE)
        connection = self.session.peer
        connection.end_turn()

    def _handle_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        delivery = self._delivery
        message = delivery.add(transfer, data, end)
        if message is None:
            return
        if delivery.settled:
            raise PeerError(NOT_ALLOWED, "a message to a coordinator is settled, expected an unsettled one")
        self.session.vhost.schedule.allowance.use(METHOD)
        request = _decode_request(message)
        if isinstance(request, Declare):
            self._declare(request, delivery.delivery_id)
        elif isinstance(request, Discharge):
            self._discharge(request, delivery.delivery_id)
        else:
            raise DecodeError("a message to a coordinator is neither declare nor discharge")
        self.grant_credit()

    def _declare(self, request: Declare, delivery_id: i64) -> None:
        """Begin a transaction. [amqp-1.0 4.2]"""
        if request.global_id is not None:
            self._reject(delivery_id, NOT_IMPLEMENTED, "there are no transactions with a global-id")
        elif self.open_count >= OPEN_MAX:
            text = f"{OPEN_MAX} transactions are open on the link, which is the limit"
            self._reject(delivery_id, RESOURCE_LIMIT_EXCEEDED, text)
        else:
            self.open_count += 1
            transaction = transactions_of(self.session.peer).declare(self)
            self._answer(delivery_id, declared(transaction.txn_id))

    def _discharge(self, request: Discharge, delivery_id: i64) -> None:
        """End a transaction. [amqp-1.0 4.3]"""
        transactions = transactions_of(self.session.peer)
        try:
            transaction = transactions.find(request.txn_id)
        except PeerError as error:
            self._reject(delivery_id, error.condition, error.text)
            return
        transactions.end(transaction)
        transaction.link.open_count -= 1
        if request.fail:
            transaction.roll_back("")
            self._answer(delivery_id, ACCEPTED_VALUE)
        else:
            self._commit(transaction, delivery_id)

    def _commit(self, transaction: Transaction10, delivery_id: i64) -> None:
        reason = transaction.rollback_reason
        if not reason:
            transaction.link = self
            try:
                transaction.discharge(delivery_id)
            except BrokerError as error:
                reason = error.text
        if reason:
            transaction.roll_back(reason)
            self._reject(delivery_id, TRANSACTION_ROLLBACK, reason)

    def _reject(self, delivery_id: i64, condition: str, text: str) -> None:
        if self.outcomes and REJECTED not in self.outcomes:
            self.detach(condition, text)
        else:
            self._answer(delivery_id, rejected(fault(condition, text)))

    def _answer(self, delivery_id: i64, state: bytes) -> None:
        if not self.is_detached:
            session = self.session
            out = session.peer.out
            out.write(disposition(session.channel, True, delivery_id, delivery_id, True, state))


def _decode_request(payload: bytes) -> Composite:
    """Return the declare or discharge in the body of a message. Raises DecodeError."""
    sections = Sections(payload, 0, len(payload))
    while sections.advance():
        if sections.code == AMQP_VALUE:
            composite, _ = decode_composite(payload, int(sections.value), int(sections.end))
            return composite
    raise DecodeError("a message to a coordinator has no amqp-value")
