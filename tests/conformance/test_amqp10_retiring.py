"""AMQP 1.0: deliveries that are retired and acquired in transactions. [amqp-1.0 4.3, 4.4.2, 4.4.3]"""

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import (
    Accepted,
    Discharge,
    Header,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from protocol.amqp10.performatives import Disposition, Transfer
from protocol.amqp10.types import Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.controller import CONTROLLER, Controller, condition, within
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no transactions of AMQP 1.0")

UNKNOWN = "amqp:transaction:unknown-id"


def acquire(session: PeerSession10, handle: int, txn_id: bytes, credit: int, count: int = 0) -> None:
    """Allow deliveries that are acquired in a transaction."""
    session.allow(handle, credit, count, properties={Symbol("txn-id"): txn_id})


@pytest.mark.spec("amqp-1.0", "4.3")
@pytest.mark.parametrize("closed", [False, True], ids=["detached", "closed"])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_a_retired_delivery_stays_retired_though_the_link_has_ended(
    session: PeerSession10, channel: PeerChannel, node: str, closed: bool, settled: bool, fails: bool
) -> None:
    channel.publish(b"x", node)
    controller = Controller(session)
    session.receives(node, 0, 1)
    delivery = session.delivery(0)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=settled)
    session.detach(0, closed)
    assert channel.counts(node) == (0, 0)  # the message is not given to others yet
    if fails:
        controller.roll_back(txn_id)
    elif settled:
        controller.commit(txn_id)
    else:
        session.transfer(CONTROLLER, controller.message(Discharge(txn_id=txn_id)), 5000)
        dispositions = [session.expect(Disposition) for _ in range(2)]
        assert Accepted() in [each.state for each in dispositions if each.role]
    assert channel.counts(node)[0] == (1 if fails else 0)


@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_a_receiver_that_retires_without_settling_gets_the_settlement_at_the_commit(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    controller = Controller(session)
    session.receives(node, 0, 1, rcv_settle_mode=1)
    delivery = session.delivery(0)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=False)
    session.expect_silence()
    session.transfer(CONTROLLER, controller.message(Discharge(txn_id=txn_id)), 5000)
    dispositions = {each.role: each for each in (session.expect(Disposition), session.expect(Disposition))}
    assert (dispositions[True].first, dispositions[True].state) == (5000, Accepted())
    assert (dispositions[False].first, dispositions[False].settled, dispositions[False].state) == (
        delivery.id,
        True,
        Accepted(),
    )
    session.detach(0)
    assert channel.counts(node)[0] == 0


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_retiring_in_an_unknown_transaction_detaches_the_link(
    session: PeerSession10, channel: PeerChannel, node: str, settled: bool
) -> None:
    channel.publish(b"x", node)
    Controller(session)
    session.receives(node, 0, 1)
    delivery = session.delivery(0)
    session.settle(delivery.id, state=within(b"none", Accepted()), settled=settled)
    session.expect_detach(0, UNKNOWN)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_some_are_retired_in_a_transaction_and_some_are_not(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for number in range(6):
        channel.publish(b"%d" % number, node)
    controller = Controller(session)
    session.receives(node, 0, 6)
    ids = [session.delivery(0).id for _ in range(6)]
    txn_id = controller.declare()
    session.settle(ids[0], state=within(txn_id, Accepted()))
    session.settle(ids[1])
    session.settle(ids[2], ids[3], within(txn_id, Rejected()))
    session.settle(ids[4], state=within(txn_id, Released()))
    session.detach(0)  # the last one is settled by nobody
    assert channel.counts(node)[0] == 1
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 2
    assert [channel.take(node).body for _ in range(2)] == [b"4", b"5"]


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("failed", [False, True])
def test_a_failure_counts_when_the_transaction_is_committed(
    session: PeerSession10, channel: PeerChannel, node: str, failed: bool
) -> None:
    channel.publish(b"x", node)
    controller = Controller(session)
    session.receives(node, 0, 2)
    first = session.delivery(0)
    txn_id = controller.declare()
    session.settle(first.id, state=within(txn_id, Modified(delivery_failed=failed)))
    session.expect_silence()
    session.transfer(CONTROLLER, controller.message(Discharge(txn_id=txn_id)), 5000)
    frames = [session.read() for _ in range(2)]
    (payload,) = [payload for each, payload in frames if isinstance(each, Transfer)]
    header, _ = decode_composite(payload)
    assert isinstance(header, Header)
    assert (header.first_acquirer, header.delivery_count) == (False, int(failed))


@pytest.mark.spec("amqp-1.0", "4.4.3")
@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_acquired_messages_return_if_the_transaction_fails(
    session: PeerSession10, channel: PeerChannel, node: str, fails: bool
) -> None:
    for number in range(2):
        channel.publish(b"%d" % number, node)
    controller = Controller(session)
    session.receives(node, 0)
    txn_id = controller.declare()
    acquire(session, 0, txn_id, 2)
    deliveries = [session.delivery(0) for _ in range(2)]
    for each in deliveries:
        assert isinstance(each.transfer.state, TransactionalState)
        assert each.transfer.state.txn_id == txn_id
    session.settle(deliveries[0].id, state=within(txn_id, Accepted()))
    session.expect_silence()
    if fails:
        controller.roll_back(txn_id)
        assert channel.counts(node)[0] == 2
    else:
        controller.commit(txn_id)
        assert channel.counts(node)[0] == 0
        session.settle(deliveries[1].id, state=Released())  # the receiver still has this delivery
        session.expect_silence()
        assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.3")
def test_acquiring_in_an_unknown_transaction_detaches_the_link(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    Controller(session)
    session.receives(node, 0)
    acquire(session, 0, b"none", 1)
    session.expect_detach(0, UNKNOWN)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.3")
def test_nothing_is_acquired_in_a_transaction_that_is_over(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    """Credit allowed in the transaction stays valid, and its deliveries are in no transaction."""
    controller = Controller(session)
    txn_id = controller.declare()
    session.receives(node, 0)
    acquire(session, 0, txn_id, 3)
    channel.publish(b"in it", node)
    assert session.delivery().transfer.state == within(txn_id)
    controller.commit(txn_id)
    channel.publish(b"in none", node)
    assert session.delivery().transfer.state is None


@pytest.mark.spec("amqp-1.0", "4.4.3")
def test_a_flow_without_a_transaction_ends_acquiring_in_it(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for number in range(2):
        channel.publish(b"%d" % number, node)
    controller = Controller(session)
    session.receives(node, 0)
    txn_id = controller.declare()
    acquire(session, 0, txn_id, 1)
    assert isinstance(session.delivery(0).transfer.state, TransactionalState)
    session.allow(0, 1, 1)
    assert session.delivery(0).transfer.state is None
    controller.roll_back(txn_id)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
@pytest.mark.parametrize("acquired", [False, True], ids=["retired", "acquired"])
def test_a_transaction_ends_when_a_queue_of_its_retired_messages_is_deleted(
    session: PeerSession10, channel: PeerChannel, node: str, name: str, fails: bool, acquired: bool
) -> None:
    controller = Controller(session)
    gone = channel.declare(name + ".gone")
    channel.publish(b"x", gone)
    channel.publish(b"x", node)
    session.receives(gone, 0)
    session.receives(node, 1, 1)
    other = session.delivery(1)
    txn_id = controller.declare()
    if acquired:
        acquire(session, 0, txn_id, 1)
    else:
        session.allow(0, 1)
    session.settle(session.delivery(0).id, state=within(txn_id, Accepted()))
    session.settle(other.id, state=within(txn_id, Accepted()))
    channel.call(Queue.Delete(queue=gone), Queue.DeleteOk)
    session.expect_detach(0, "amqp:resource-deleted")
    if fails:
        controller.roll_back(txn_id)
    else:
        controller.commit(txn_id)
    assert condition(controller.ask(Discharge(txn_id=txn_id))) == UNKNOWN
    assert channel.counts(node)[0] == (1 if fails else 0)
