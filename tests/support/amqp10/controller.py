"""A controller of transactions of AMQP 1.0, with its link to the coordinator."""

from typing import Final

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    TransactionalState,
)
from protocol.amqp10.performatives import Attach, Flow
from protocol.amqp10.types import Composite
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.amqp10.reference_codec import described

CONTROLLER: Final = 9


class Controller:
    """The link to the coordinator in a session; its delivery-ids begin at 1000."""

    def __init__(self, session: PeerSession10, **source: object) -> None:
        self.session = session
        self._next = 1000
        session.write(
            Attach(
                name="controller",
                handle=CONTROLLER,
                role=False,
                source=Source(**source),  # type: ignore[arg-type]
                target=Coordinator(),
                initial_delivery_count=0,
            )
        )
        answer = session.expect(Attach)
        assert isinstance(answer.target, Coordinator)
        assert set(answer.target.capabilities) >= {"amqp:local-transactions", "amqp:multi-txns-per-ssn"}
        assert (session.expect(Flow).link_credit or 0) >= 10

    def ask(self, asked: Composite) -> object:
        """Send a message to the coordinator and return its outcome."""
        number = self._next
        self._next += 1
        self.session.transfer(CONTROLLER, self.message(asked), number)
        return self.session.outcome(number)

    def message(self, asked: Composite) -> bytes:
        """Return the encoded message with a request to the coordinator."""
        return described(0x77, encode_composite(asked))

    def declare(self) -> bytes:
        """A new transaction."""
        state = self.ask(Declare())
        assert isinstance(state, Declared)
        assert 0 < len(state.txn_id) <= 32
        return state.txn_id

    def commit(self, txn_id: bytes) -> None:
        """Commit the transaction."""
        assert self.ask(Discharge(txn_id=txn_id)) == Accepted()

    def roll_back(self, txn_id: bytes) -> None:
        """Roll the transaction back."""
        assert self.ask(Discharge(txn_id=txn_id, fail=True)) == Accepted()


def condition(state: object) -> str | None:
    """Why something was rejected."""
    assert isinstance(state, Rejected), state
    return None if state.error is None else state.error.condition


def within(txn_id: bytes, outcome: object = None) -> TransactionalState:
    """The state of a delivery in a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)  # type: ignore[arg-type]
