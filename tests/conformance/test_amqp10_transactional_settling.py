"""AMQP 1.0: messages at the end of a transaction, by settlement and acquisition. [amqp-1.0 4.4]"""

import pytest

from protocol.amqp10.composites import Accepted, Discharge, Released, TransactionalState
from protocol.amqp10.performatives import Disposition
from protocol.amqp10.types import Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.controller import CONTROLLER, Controller, within
from tests.support.amqp10.peer_session import Delivery, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


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
def test_acquired_messages_return_at_the_rollback(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    for number in range(2):
        channel.publish(b"%d" % number, node)
    session.receives(node, 1)
    txn_id = controller.declare()
    first = acquired(session, txn_id, 2)
    controller.roll_back(txn_id)
    session.allow(1, 2, 2)
    again = [session.delivery(1) for _ in range(2)]
    assert [delivery.payload[-1:] for delivery in again] == [delivery.payload[-1:] for delivery in first]
    assert [delivery.transfer.state for delivery in again] == [None, None]


@pytest.mark.spec("amqp-1.0", "4.4.3")
@pytest.mark.spec("amqp-1.0", "4.5.6")
def test_acquired_and_retired_messages_leave_at_the_commit(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    for number in range(2):
        channel.publish(b"%d" % number, node)
    session.receives(node, 1)
    txn_id = controller.declare()
    first, second = acquired(session, txn_id, 2)
    session.settle(first.id, state=within(txn_id, Accepted()))
    session.settle(second.id, state=within(txn_id, Released()))
    controller.commit(txn_id)
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
def test_settled_posts_have_no_disposition_and_are_committed(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    session.receives(node, 1, 10)
    one, other = controller.declare(), controller.declare()
    session.transfer(0, None, 0, state=within(one), settled=True)
    session.transfer(0, None, 1, state=within(other), settled=True)
    session.expect_silence()
    controller.roll_back(other)
    session.expect_silence()
    controller.commit(one)
    session.settle(session.delivery(1).id)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.4.4.1")
def test_posts_on_an_ended_link_are_committed(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    txn_id = controller.declare()
    session.transfer(0, None, 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    session.detach(0)
    controller.commit(txn_id)
    session.receives(node, 1, 1)
    session.delivery(1)


@pytest.mark.spec("amqp-1.0", "4.4.4.2")
@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_unsettled_retired_messages_are_settled_by_the_commit(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    channel.publish(b"x", node)
    session.receives(node, 1, 1)
    delivery = session.delivery(1)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=False)
    session.expect_silence()
    session.transfer(CONTROLLER, controller.message(Discharge(txn_id=txn_id)), 5000)
    states = {}
    for _ in range(2):
        disposition = session.expect(Disposition)
        states[disposition.role] = disposition
    assert states[True].state == Accepted()
    assert (states[False].first, states[False].settled) == (delivery.id, True)
    assert isinstance(states[False].state, TransactionalState | Accepted)
    session.allow(1, 1, 1)
    session.expect_silence()
