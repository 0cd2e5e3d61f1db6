"""Messages that are stored although their transaction is rolled back: header `x-independent`.

[Bernstein & Newcomer 4.5, Nontransactional Queuing]
"""

import pytest
from pamqp.commands import Basic, Queue, Tx

from protocol.amqp10.composites import Accepted, Rejected, TransactionalState
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no independent messages")

INDEPENDENT = Basic.Properties(headers={"x-independent": True}, delivery_mode=2)


@pytest.fixture
def tx(channel: PeerChannel) -> PeerChannel:
    """A channel in transactional mode."""
    channel.call(Tx.Select(), Tx.SelectOk)
    return channel


@pytest.fixture
def other(connect: Connector) -> PeerChannel:
    """A channel of another connection."""
    return connect().channel()


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "drop"])
def test_an_independent_message_stays_whatever_the_end_of_its_transaction(
    connect: Connector, other: PeerChannel, durable_queue: str, end: str
) -> None:
    tx = connect().channel()
    tx.call(Tx.Select(), Tx.SelectOk)
    tx.publish(b"held", durable_queue, properties=Basic.Properties(delivery_mode=2))
    tx.publish(b"violation", durable_queue, properties=INDEPENDENT)
    tx.round_trip()
    assert other.counts(durable_queue) == (1, 0)
    if end == "commit":
        tx.call(Tx.Commit(), Tx.CommitOk)
    elif end == "rollback":
        tx.call(Tx.Rollback(), Tx.RollbackOk)
    elif end == "close":
        tx.close()
    else:
        tx.peer.drop()
    first = other.take(durable_queue)
    assert first.body == b"violation"
    assert first.properties.headers == {"x-independent": True}
    if end == "commit":
        assert other.take(durable_queue).body == b"held"
    assert other.get(durable_queue) is None


@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_an_independent_message_is_on_disk_before_the_transaction_is_answered(
    start_daemon: DaemonStarter, connect: Connector, fails: bool
) -> None:
    for turn in range(5):
        daemon = start_daemon()
        channel = connect(daemon.address).channel()
        assert channel.declare("audit", durable=True) is not None
        assert channel.counts("audit") == (turn, 0)
        channel.call(Tx.Select(), Tx.SelectOk)
        channel.publish(b"%d" % turn, "audit", properties=INDEPENDENT)
        if fails:
            channel.call(Tx.Rollback(), Tx.RollbackOk)
        else:
            channel.call(Tx.Commit(), Tx.CommitOk)
        daemon.kill()


@pytest.mark.parametrize("value", [1, "true"], ids=["integer", "string"])
def test_a_value_other_than_a_boolean_is_refused(
    tx: PeerChannel, durable_queue: str, value: int | str
) -> None:
    tx.publish(b"", durable_queue, properties=Basic.Properties(headers={"x-independent": value}))
    text = tx.expect_close(406)
    assert "invalid header 'x-independent' of a message: " in text
    assert f"'{value}'" in text
    assert text.endswith("is not a boolean")


def test_false_and_malformed_headers_leave_a_message_in_the_transaction(
    tx: PeerChannel, other: PeerChannel, durable_queue: str
) -> None:
    tx.publish(b"", durable_queue, properties=Basic.Properties(headers={"x-independent": False}))
    tx.round_trip()
    assert other.counts(durable_queue) == (0, 0)
    tx.call(Tx.Commit(), Tx.CommitOk)
    assert other.counts(durable_queue) == (1, 0)


@pytest.mark.parametrize("value", [True, 1], ids=["true", "integer"])
def test_the_header_has_no_effect_without_a_transaction(channel: PeerChannel, value: bool | int) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"plain", queue, properties=Basic.Properties(headers={"x-independent": value}))
    message = channel.take(queue)
    assert (message.body, message.properties.headers) == (b"plain", {"x-independent": value})


def test_a_full_queue_refuses_an_independent_message_at_once(tx: PeerChannel) -> None:
    queue = tx.declare(exclusive=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    tx.publish(b"", queue, properties=INDEPENDENT)
    why = f"independent message: a queue to which key '{queue}' routes is full"
    assert tx.expect_close(406) == f"PRECONDITION_FAILED - {why}"


def test_an_unroutable_independent_message_is_returned_at_once(tx: PeerChannel) -> None:
    tx.publish(b"lost", "nowhere", mandatory=True, properties=INDEPENDENT)
    assert tx.returned().body == b"lost"


def test_an_independent_message_is_routed_by_its_headers_and_further_keys(
    tx: PeerChannel, other: PeerChannel
) -> None:
    queue = tx.declare(exclusive=False)
    tx.call(Queue.Bind(queue=queue, exchange="amq.headers", arguments={"kind": "audit"}), Queue.BindOk)
    by_header = Basic.Properties(headers={"x-independent": True, "kind": "audit"})
    tx.publish(b"by header", "", exchange="amq.headers", properties=by_header)
    by_key = Basic.Properties(headers={"x-independent": True, "CC": [queue]})
    tx.publish(b"by key", "nowhere", properties=by_key)
    tx.round_trip()
    assert [other.take(queue).body for _ in range(2)] == [b"by header", b"by key"]
    other.call(Queue.Delete(queue=queue), Queue.DeleteOk)


# ---- AMQP 1.0


@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_an_independent_post_has_its_outcome_at_once_and_stays(
    session: PeerSession10, channel: PeerChannel, node: str, fails: bool
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    txn_id = controller.declare()
    session.transfer(0, bare10(body=b"\0Su\xa0\x04held"), 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    body = b"\0Su\xa0\x05alone"
    session.transfer(0, bare10({"x-independent": True}, body), 1, state=within(txn_id))
    assert session.outcome(1) == Accepted()
    assert channel.counts(node)[0] == 1
    if fails:
        controller.roll_back(txn_id)
    else:
        controller.commit(txn_id)
    message = channel.take(node)
    assert (message.body, message.properties.headers) == (b"alone", {"x-independent": True})
    assert channel.counts(node)[0] == (0 if fails else 1)


def test_a_refused_independent_post_leaves_its_transaction_usable(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    full = channel.declare(exclusive=False, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    controller = Controller(session)
    session.sends(node, 0)
    session.sends(full, 1)
    txn_id = controller.declare()
    session.transfer(0, bare10(), 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    session.transfer(1, bare10({"x-independent": True}), 1, state=within(txn_id))
    assert isinstance(session.outcome(1), Rejected)
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 1
    channel.call(Queue.Delete(queue=full), Queue.DeleteOk)


def test_a_post_whose_header_is_not_a_boolean_is_rejected_in_its_transaction(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    txn_id = controller.declare()
    session.transfer(0, bare10({"x-independent": "yes"}), 0, state=within(txn_id))
    state = session.outcome(0)
    assert isinstance(state, TransactionalState)
    assert state.txn_id == txn_id
    assert isinstance(state.outcome, Rejected)
    assert state.outcome.error is not None
    assert "'yes' of type 'longstr' is not a boolean" in (state.outcome.error.description or "")
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 0
