"""AMQP 1.0: who has what when a transaction ends, by how it was settled and acquired. [amqp-1.0 4.4]"""

import pytest

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Released,
    TransactionalState,
)
from protocol.amqp10.performatives import Attach, Disposition, Flow
from protocol.amqp10.types import Composite, Symbol
from tests.amqp10_values import described
from tests.peer_channel import PeerChannel
from tests.peer_session10 import Delivery, PeerSession10, sender

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


CONTROLLER = 9


def controls(session: PeerSession10) -> None:
    """Attach the link to the coordinator, whose deliveries count on from 1000."""
    session.write(sender(None, CONTROLLER, target=Coordinator()))
    answer = session.expect(Attach)
    assert isinstance(answer.target, Coordinator)
    assert set(answer.target.capabilities) >= {"amqp:local-transactions", "amqp:multi-txns-per-ssn"}
    session.expect(Flow)


def ask(session: PeerSession10, asked: Composite, number: int) -> None:
    """Send a message to the coordinator."""
    session.transfer(CONTROLLER, described(0x77, encode_composite(asked)), 1000 + number)


def declare(session: PeerSession10, number: int = 0) -> bytes:
    """A new transaction."""
    ask(session, Declare(), number)
    state = session.outcome(1000 + number)
    assert isinstance(state, Declared)
    assert 0 < len(state.txn_id) <= 32
    return state.txn_id


def discharge(session: PeerSession10, txn_id: bytes, fail: bool, number: int = 10) -> None:
    """It happens, or fails."""
    ask(session, Discharge(txn_id=txn_id, fail=fail), number)
    assert session.outcome(1000 + number) == Accepted()


def within(txn_id: bytes, outcome: Accepted | Released | None = None) -> TransactionalState:
    """The state of a delivery in a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def acquired(session: PeerSession10, txn_id: bytes, credit: int) -> list[Delivery]:
    """Allow deliveries on handle 1 in a transaction, and take them."""
    session.allow(1, credit, properties={Symbol("txn-id"): txn_id})
    deliveries = [session.delivery(1) for _ in range(credit)]
    for delivery in deliveries:
        assert delivery.transfer.state == within(txn_id)
        assert not delivery.settled
    return deliveries


@pytest.mark.spec("amqp-1.0", "4.4.3")
@pytest.mark.spec("amqp-1.0", "4.4.4.3")
@pytest.mark.spec("amqp-1.0", "4.5.7")
def test_what_is_acquired_goes_back_when_it_is_rolled_back(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controls(session)
    for number in range(2):
        channel.publish(b"%d" % number, node)
    session.receives(node, 1)
    txn_id = declare(session)
    first = acquired(session, txn_id, 2)
    discharge(session, txn_id, True)
    session.allow(1, 2, 2)
    again = [session.delivery(1) for _ in range(2)]
    assert [delivery.payload[-1:] for delivery in again] == [delivery.payload[-1:] for delivery in first]
    assert [delivery.transfer.state for delivery in again] == [None, None]


@pytest.mark.spec("amqp-1.0", "4.4.3")
@pytest.mark.spec("amqp-1.0", "4.5.6")
def test_what_is_acquired_and_retired_is_gone_when_it_is_committed(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controls(session)
    for number in range(2):
        channel.publish(b"%d" % number, node)
    session.receives(node, 1)
    txn_id = declare(session)
    first, second = acquired(session, txn_id, 2)
    session.settle(first.id, state=within(txn_id, Accepted()))
    session.settle(second.id, state=within(txn_id, Released()))
    discharge(session, txn_id, False)
    session.allow(1, 2, 2)
    assert session.delivery(1).payload.endswith(b"1")
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.2")
@pytest.mark.spec("amqp-1.0", "4.4")
@pytest.mark.spec("amqp-1.0", "4.5.2")
@pytest.mark.spec("amqp-1.0", "4.5.3")
@pytest.mark.spec("amqp-1.0", "4.5.4")
@pytest.mark.spec("amqp-1.0", "4.5.5")
@pytest.mark.spec("amqp-1.0", "4.4.4.1")
def test_of_what_is_posted_settled_nothing_is_said_and_it_is_committed(
    session: PeerSession10, node: str
) -> None:
    controls(session)
    session.sends(node, 0)
    session.receives(node, 1, 10)
    one, other = declare(session, 0), declare(session, 1)
    session.transfer(0, None, 0, state=within(one), settled=True)
    session.transfer(0, None, 1, state=within(other), settled=True)
    session.expect_silence()
    discharge(session, other, True, 10)
    session.expect_silence()
    discharge(session, one, False, 11)
    session.settle(session.delivery(1).id)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.4.4.1")
def test_what_is_posted_on_a_link_that_has_ended_is_committed(session: PeerSession10, node: str) -> None:
    controls(session)
    session.sends(node, 0)
    txn_id = declare(session)
    session.transfer(0, None, 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    session.detach(0)
    discharge(session, txn_id, False)
    session.receives(node, 1, 1)
    session.delivery(1)


@pytest.mark.spec("amqp-1.0", "4.4.4.2")
@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_what_is_retired_unsettled_is_settled_by_the_commit(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controls(session)
    channel.publish(b"x", node)
    session.receives(node, 1, 1)
    delivery = session.delivery(1)
    txn_id = declare(session)
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=False)
    session.expect_silence()
    ask(session, Discharge(txn_id=txn_id), 10)
    states = {}
    for _ in range(2):
        said = session.expect(Disposition)
        states[said.role] = said
    assert states[True].state == Accepted()
    assert (states[False].first, states[False].settled) == (delivery.id, True)
    assert isinstance(states[False].state, TransactionalState | Accepted)
    session.allow(1, 1, 1)
    session.expect_silence()
