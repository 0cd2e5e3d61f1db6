"""AMQP 1.0: messages posted in transactions, whatever becomes of their links. [amqp-1.0 4.3, 4.4.1]"""

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import (
    Accepted,
)
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer_session import Begins, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no transactions of AMQP 1.0")

UNKNOWN = "amqp:transaction:unknown-id"


def post(session: PeerSession10, handle: int, number: int, txn_id: bytes, body: bytes = b"x") -> None:
    """Post a message, and see that it is accepted if the transaction is."""
    payload = bare10(body=b"\0Su\xa0" + bytes((len(body),)) + body)
    session.transfer(handle, payload, number, state=within(txn_id))
    assert session.outcome(number) == within(txn_id, Accepted())


@pytest.mark.spec("amqp-1.0", "4.3")
@pytest.mark.parametrize("closed", [False, True], ids=["detached", "closed"])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_posted_messages_are_committed_though_the_link_has_ended(
    session: PeerSession10, channel: PeerChannel, node: str, closed: bool, settled: bool
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    txn_id = controller.declare()
    session.transfer(0, None, 0, state=within(txn_id), settled=settled)
    if not settled:
        assert session.outcome(0) == within(txn_id, Accepted())
    session.detach(0, closed)
    assert channel.counts(node)[0] == 0
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.1")
@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_posts_of_a_sender_that_settles_last(
    session: PeerSession10, channel: PeerChannel, node: str, fails: bool
) -> None:
    controller = Controller(session)
    session.sends(node, 0, rcv_settle_mode=1)
    txn_id = controller.declare()
    session.transfer(0, None, 0, state=within(txn_id))
    assert session.outcome(0, settled=False) == within(txn_id, Accepted())
    session.settle(0, state=within(txn_id, Accepted()), receiver=False)
    assert channel.counts(node)[0] == 0
    if fails:
        controller.roll_back(txn_id)
    else:
        controller.commit(txn_id)
    assert channel.counts(node)[0] == (0 if fails else 1)


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_some_are_posted_in_a_transaction_and_some_are_not(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    first, second = controller.declare(), controller.declare()
    post(session, 0, 0, first, b"first")
    session.publish(0, 1, bare10(body=b"\0Su\xa0\x05alone"), first=1)
    post(session, 0, 2, second, b"second")
    post(session, 0, 3, first, b"third")
    assert channel.counts(node)[0] == 1
    controller.commit(second)
    controller.commit(first)
    assert [channel.take(node).body for _ in range(4)] == [b"alone", b"second", b"first", b"third"]


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_a_single_transaction_from_several_sessions(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    other = PeerSession10(session.peer, channel=1)
    other.sends(node, 1)
    txn_id = controller.declare()
    post(session, 0, 0, txn_id)
    post(other, 1, 0, txn_id)
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "4.4")
def test_a_transaction_is_its_connections_own(begin: Begins, session: PeerSession10, node: str) -> None:
    txn_id = Controller(session).declare()
    other = begin()
    other.sends(node, 0)
    other.transfer(0, None, 0, state=within(txn_id))
    other.expect_detach(0, UNKNOWN)


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_a_commit_succeeds_when_a_queue_of_its_posted_messages_is_deleted(
    session: PeerSession10, channel: PeerChannel, node: str, name: str
) -> None:
    controller = Controller(session)
    gone = channel.declare(name + ".gone")
    session.sends(gone, 0)
    session.sends(node, 1)
    txn_id = controller.declare()
    post(session, 0, 0, txn_id)
    post(session, 1, 1, txn_id)
    channel.call(Queue.Delete(queue=gone), Queue.DeleteOk)
    session.expect_detach(0, "amqp:resource-deleted")
    controller.commit(txn_id)  # posts to the queue are deleted with it
    assert channel.counts(node)[0] == 1
