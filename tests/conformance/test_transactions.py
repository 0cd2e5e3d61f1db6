"""Transactions as clients see them: nothing before the commit, all with it, nothing after a rollback."""

import pytest
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from tests.support.amqp091.peer import Connector, PeerChannel

PERSISTENT = Basic.Properties(delivery_mode=2)


@pytest.fixture
def tx(channel: PeerChannel) -> PeerChannel:
    """A channel in transactional mode."""
    channel.call(Tx.Select(), Tx.SelectOk)
    return channel


@pytest.fixture
def other(connect: Connector) -> PeerChannel:
    """A channel of another connection."""
    return connect().channel()


def commit(channel: PeerChannel) -> None:
    channel.call(Tx.Commit(), Tx.CommitOk)


def rollback(channel: PeerChannel) -> None:
    channel.call(Tx.Rollback(), Tx.RollbackOk)


@pytest.mark.spec("amqp-0-9-1", "1.9.2.3")
@pytest.mark.parametrize("properties", [None, PERSISTENT], ids=["transient", "persistent"])
def test_publishes_come_with_the_commit(
    tx: PeerChannel, other: PeerChannel, durable_queue: str, properties: Basic.Properties | None
) -> None:
    for body in (b"1", b"2", b"3"):
        tx.publish(body, durable_queue, properties=properties)
    tx.round_trip()
    assert other.counts(durable_queue) == (0, 0)
    commit(tx)
    assert other.counts(durable_queue) == (3, 0)
    bodies = [other.take(durable_queue).body for _ in range(3)]
    assert bodies == [b"1", b"2", b"3"]
    assert not other.peer.kept(1)


@pytest.mark.spec("amqp-0-9-1", "1.9.2.5")
def test_a_rollback_forgets_publishes_and_goes_on(tx: PeerChannel, other: PeerChannel) -> None:
    queue = other.declare()
    tx.publish(b"never", queue)
    rollback(tx)
    commit(tx)
    assert other.counts(queue) == (0, 0)
    tx.publish(b"now", queue)
    commit(tx)
    assert other.counts(queue) == (1, 0)
    other.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "1.9.1")
def test_settlements_come_with_the_commit(tx: PeerChannel, durable_queue: str) -> None:
    for body in (b"1", b"2", b"3", b"4", b"5"):
        tx.publish(body, durable_queue, properties=PERSISTENT)
    commit(tx)
    tags = [tx.take(durable_queue).tag for _ in range(5)]
    tx.ack(tags[0])
    tx.reject(tags[1], requeue=False)
    tx.nack(tags[2], requeue=True)
    tx.ack(tags[3], multiple=True)
    assert tx.counts(durable_queue) == (0, 0)
    commit(tx)
    assert tx.counts(durable_queue) == (1, 0)
    again = tx.take(durable_queue)
    assert (again.body, again.redelivered) == (b"3", True)


@pytest.mark.spec("amqp-0-9-1", "1.9.2.5")
def test_deliveries_stay_unacknowledged_on_the_channel_after_a_rollback(tx: PeerChannel) -> None:
    queue = tx.declare(exclusive=True)
    for number in range(2000):  # more than the table of deliveries keeps before it removes settled ones
        tx.publish(b"%d" % number, queue)
    commit(tx)
    tx.consume(queue, "c")
    first = tx.deliveries(2000)
    tx.ack(first[-1].tag, multiple=True)
    for number in range(2000, 4000):
        tx.publish(b"%d" % number, queue)
    rollback(tx)
    tx.expect_silence()
    tx.ack(first[0].tag)
    commit(tx)
    tx.recover()
    assert [message.body for message in tx.deliveries(1999)] == [b"%d" % n for n in range(1, 2000)]
    tx.ack(0, multiple=True)
    commit(tx)
    tx.cancel("c")
    assert tx.counts(queue) == (0, 0)


@pytest.mark.spec("amqp-0-9-1", "1.8.3.13")
def test_a_tag_can_be_settled_once_in_a_transaction(tx: PeerChannel) -> None:
    queue = tx.declare(exclusive=True)
    tx.publish(b"1", queue)
    commit(tx)
    tag = tx.take(queue).tag
    tx.ack(tag)
    text = tx.refused(Basic.Nack(tag), 406)
    assert text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
def test_an_end_without_a_commit_is_a_rollback(
    connect: Connector, other: PeerChannel, end: str, durable_queue: str
) -> None:
    other.publish(b"kept", durable_queue, properties=PERSISTENT)
    other.round_trip()
    tx = connect().channel()
    tx.call(Tx.Select(), Tx.SelectOk)
    tx.ack(tx.take(durable_queue).tag)
    tx.publish(b"never", durable_queue, properties=PERSISTENT)
    tx.round_trip()
    other.consume(durable_queue, "c")
    if end == "channel":
        tx.close()
    elif end == "connection":
        tx.peer.close()
    else:
        tx.peer.drop()
    back = other.delivery()
    assert (back.body, back.redelivered) == (b"kept", True)
    other.expect_silence()


def test_returns_come_before_the_commit_is_answered(tx: PeerChannel) -> None:
    queue = tx.declare(exclusive=True)
    tx.publish(b"lost", "nowhere", mandatory=True)
    tx.publish(b"kept", queue, mandatory=True)
    tx.publish(b"late", queue, immediate=True)
    tx.write(Tx.Commit())
    first, second = tx.returned(), tx.returned()
    assert isinstance(first.method, Basic.Return)
    assert isinstance(second.method, Basic.Return)
    assert (first.method.reply_code, first.body) == (312, b"lost")
    assert (second.method.reply_code, second.body) == (313, b"late")
    tx.expect(Tx.CommitOk)
    assert tx.counts(queue) == (1, 0)


def test_messages_are_routed_when_they_are_committed(tx: PeerChannel, exchange: str) -> None:
    queue = tx.declare(exclusive=True)
    tx.call(Exchange.Declare(exchange=exchange, exchange_type="headers"), Exchange.DeclareOk)
    tx.publish(b"1", "", exchange=exchange, properties=Basic.Properties(headers={"a": 1}))
    tx.publish(b"2", "", exchange=exchange, properties=Basic.Properties(headers={"a": 2}))
    tx.publish(b"3", "x", exchange="amq.direct", properties=Basic.Properties(headers={"CC": ["y"]}))
    tx.call(Queue.Bind(queue=queue, exchange=exchange, arguments={"a": 1}), Queue.BindOk)
    tx.call(Queue.Bind(queue=queue, exchange="amq.direct", routing_key="y"), Queue.BindOk)
    commit(tx)
    assert [tx.take(queue).body for _ in range(2)] == [b"1", b"3"]
    assert tx.counts(queue) == (0, 0)


def test_a_commit_that_is_refused_does_nothing(tx: PeerChannel, other: PeerChannel, exchange: str) -> None:
    queue = other.declare()
    other.publish(b"held", queue)
    other.call(Exchange.Declare(exchange=exchange), Exchange.DeclareOk)
    tx.ack(tx.take(queue).tag)
    tx.publish(b"first", queue)
    tx.publish(b"second", "k", exchange=exchange)
    tx.round_trip()
    other.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
    text = tx.refused(Tx.Commit(), 404)
    why = f"publish 2 of 2 in the transaction: no exchange '{exchange}' in vhost '/'"
    assert text == f"NOT_FOUND - {why}"
    back = other.take(queue)
    assert (back.body, back.redelivered) == (b"held", True)
    assert other.get(queue) is None
    other.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_publish_that_is_wrong_is_refused_at_once(tx: PeerChannel) -> None:
    tx.publish(b"", "k", exchange="no.such.exchange")
    assert "no exchange 'no.such.exchange'" in tx.expect_close(404)


def test_a_user_id_is_checked_at_once(tx: PeerChannel) -> None:
    tx.publish(b"", "k", properties=Basic.Properties(user_id="somebody"))
    assert "user_id property set to 'somebody'" in tx.expect_close(406)


@pytest.mark.parametrize("method", [Tx.Commit(), Tx.Rollback()], ids=["commit", "rollback"])
def test_without_select(channel: PeerChannel, method: Tx.Commit | Tx.Rollback) -> None:
    assert channel.refused(method, 406) == "PRECONDITION_FAILED - channel is not transactional"


def test_confirms_and_transactions_exclude_each_other(connect: Connector) -> None:
    peer = connect()
    tx, confirming = peer.channel(1), peer.channel(2)
    tx.call(Tx.Select(), Tx.SelectOk)
    tx.call(Tx.Select(), Tx.SelectOk)
    assert tx.refused(Confirm.Select(), 406) == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    confirming.confirm_select()
    text = confirming.refused(Tx.Select(), 406)
    assert text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"


def test_select_leaves_earlier_publishes_untouched_by_a_rollback(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"1", queue)
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(b"2", queue)
    assert channel.counts(queue) == (1, 0)
    rollback(channel)
    assert channel.take(queue).body == b"1"
    assert channel.get(queue) is None


def test_credit_comes_back_with_the_commit(tx: PeerChannel) -> None:
    queue = tx.declare(exclusive=True)
    for body in (b"1", b"2"):
        tx.publish(body, queue)
    commit(tx)
    tx.qos(1)
    tx.consume(queue, "c")
    tx.ack(tx.delivery().tag)
    tx.expect_silence()
    commit(tx)
    assert tx.delivery().body == b"2"


def test_commits_one_after_the_other_without_waiting(tx: PeerChannel, durable_queue: str) -> None:
    count = 50
    for number in range(count):
        tx.publish(b"%d" % number, durable_queue, properties=PERSISTENT)
        tx.write(Tx.Commit())
    for _ in range(count):
        tx.expect(Tx.CommitOk)
    tx.consume(durable_queue, "c", no_ack=True)
    assert [message.body for message in tx.deliveries(count)] == [b"%d" % number for number in range(count)]


def test_a_queue_that_is_deleted_before_the_commit(tx: PeerChannel, other: PeerChannel) -> None:
    queue = other.declare()
    other.publish(b"1", queue)
    tx.ack(tx.take(queue).tag)
    tx.publish(b"2", queue, mandatory=True)
    tx.round_trip()
    other.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    tx.write(Tx.Commit())
    assert tx.returned().body == b"2"
    tx.expect(Tx.CommitOk)


def test_channels_of_a_connection_have_transactions_of_their_own(connect: Connector) -> None:
    peer = connect()
    first, second, plain = peer.channel(1), peer.channel(2), peer.channel(3)
    queue = plain.declare(exclusive=True)
    first.call(Tx.Select(), Tx.SelectOk)
    second.call(Tx.Select(), Tx.SelectOk)
    first.publish(b"1", queue)
    second.publish(b"2", queue)
    plain.publish(b"3", queue)
    rollback(first)
    commit(second)
    plain.write(Channel.Flow(True))
    plain.expect(Channel.FlowOk)
    assert [plain.take(queue).body for _ in range(2)] == [b"3", b"2"]
    assert plain.get(queue) is None
