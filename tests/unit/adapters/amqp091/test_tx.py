"""Transactions of a channel without a socket: waiting for the log, and the state after each failure."""

import pytest
from pamqp.commands import Basic, Channel, Queue, Tx

from broker.adapters.amqp091.channel import Channel as ChannelOf091
from broker.adapters.peers.connections import HELD_FOR_REPLY
from broker.core.queues.queue import Queue as CoreQueue
from tests.support.adapters.connection_without_socket import BrokerBench, Client091


@pytest.fixture
def house() -> BrokerBench:
    house = BrokerBench()
    client = house.open()
    for name in ("in", "out", "aside"):
        client.send(Queue.Declare(queue=name, durable=True), 1)
        house.store.complete()
    client.publish("in", b"work", persistent=True)
    house.store.complete()
    return house


def queue(house: BrokerBench, name: str) -> CoreQueue:
    return house.broker.vhosts["/"].queues[name]


def counts(house: BrokerBench, name: str) -> tuple[int, int]:
    """Ready and unacked."""
    found = queue(house, name)
    return found.ready, found.unacked


def working(house: BrokerBench) -> Client091:
    """A client that has taken work, published two results, acknowledged the work, and asks for the commit."""
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.publish("out", b"result", persistent=True)
    client.publish("aside", b"result", persistent=True)
    client.send(Basic.Ack(1), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    return client


def test_everything_is_appended_at_once_and_seen_when_it_is_durable(house: BrokerBench) -> None:
    batch = house.store.batch
    appended = len(house.store.appended)
    client = working(house)
    assert house.store.batch == batch
    assert [message.content for message in house.store.transacted] == [house.store.appended[0].content]
    assert len(house.store.appended) == appended + 2
    assert client.frames() == []
    assert client.edge.holds == HELD_FOR_REPLY
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((0, 1), (0, 0), (0, 0))
    house.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert client.edge.holds == 0
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((0, 0), (1, 0), (1, 0))
    assert house.store.settled == house.store.transacted


def test_frames_behind_a_commit_wait_for_it(house: BrokerBench) -> None:
    client = working(house)
    client.publish("out", b"next", persistent=True)
    client.send(Tx.Rollback(), 1)
    client.send(Basic.Ack(1), 1)
    assert client.frames() == []
    house.store.complete()
    committed, rolled_back, closed = client.frames()
    assert isinstance(committed, Tx.CommitOk)
    assert isinstance(rolled_back, Tx.RollbackOk)
    assert isinstance(closed, Channel.Close)
    assert closed.reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert counts(house, "out") == (1, 0)


def test_a_log_that_fails_meanwhile_leaves_nothing_done(house: BrokerBench) -> None:
    client = working(house)
    house.store.fail("no disk")
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert (closed.class_id, closed.method_id) == (90, 20)
    assert "not committed" in closed.reply_text
    assert "no disk" in closed.reply_text
    assert client.edge.holds == 0
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((1, 0), (0, 0), (0, 0))
    assert queue(house, "in").entries.head.next is not None
    assert house.store.settled == []


def test_a_log_that_has_failed_refuses_the_commit(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.send(Basic.Ack(1), 1)
    client.publish("in", b"transient")
    client.publish("out", b"result", persistent=True)
    house.store.fail("no disk")
    client.frames()
    client.send(Tx.Commit(), 1)
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert closed.reply_text.endswith("publish 2 of 2 in the transaction: the log has stopped: no disk")
    assert (counts(house, "in"), counts(house, "out")) == ((1, 0), (0, 0))


def test_a_client_that_goes_meanwhile_has_committed(house: BrokerBench) -> None:
    client = working(house)
    client.connection.lost("reset")
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((0, 1), (0, 0), (0, 0))
    house.store.complete()
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((0, 0), (1, 0), (1, 0))
    assert client.frames() == []


def test_a_client_that_goes_meanwhile_and_a_log_that_fails(house: BrokerBench) -> None:
    client = working(house)
    client.connection.lost("reset")
    house.store.fail("no disk")
    assert (counts(house, "in"), counts(house, "out"), counts(house, "aside")) == ((1, 0), (0, 0), (0, 0))


@pytest.mark.parametrize("fails", [False, True])
def test_a_channel_that_the_broker_closes_meanwhile_holds_nobody_up(house: BrokerBench, fails: bool) -> None:
    client = working(house)
    client.send(Channel.Open(), 2)
    channel = client.connection.wire.channel(1)
    assert isinstance(channel, ChannelOf091)
    channel.fail(406, "a message is too long for it", 0)
    if fails:
        house.store.fail("no disk")
    else:
        house.store.complete()
    assert client.edge.holds == 0
    assert [type(frame) for frame in client.frames()] == [Channel.Close, Channel.OpenOk]
    client.send(Channel.CloseOk(), 1)
    client.send(Channel.Open(), 1)
    assert [type(frame) for frame in client.frames()] == [Channel.OpenOk]


def test_queues_that_are_deleted_meanwhile(house: BrokerBench) -> None:
    other = house.open()
    client = working(house)
    result = house.store.appended[-1]
    other.send(Queue.Delete(queue="in"), 1)
    other.send(Queue.Delete(queue="aside"), 1)
    house.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(house, "out") == (1, 0)
    assert house.store.settled == []
    assert house.store.forgotten == [house.store.appended[0], result]


def test_a_commit_without_durable_work_does_not_wait_for_the_log(house: BrokerBench) -> None:
    client = house.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.publish("in", b"another's", persistent=True)
    client.send(Tx.Select(), 1)
    client.publish("q", b"transient")
    client.frames()
    client.send(Tx.Commit(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(house, "q") == (1, 0)


def test_a_transaction_is_bounded(house: BrokerBench) -> None:
    house.server.transaction_bytes_max = 10_000
    client = house.open()
    client.send(Tx.Select(), 1)
    for _ in range(3):
        client.publish("out", bytes(3000))
        client.publish("out", bytes(3000))
        client.send(Tx.Rollback(), 1)
    client.frames()
    for _ in range(3):
        client.publish("out", bytes(3000))
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert "is larger than configured max size 10000" in closed.reply_text


def test_a_browser_in_a_transaction(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-browse": True}), 1)
    house.turns.run()
    client.send(Basic.Ack(1), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(house, "in") == (1, 0)


def test_consumers_of_a_client_take_what_it_released(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Qos(0, 1, False), 1)
    client.send(Basic.Consume(queue="in"), 1)
    house.turns.run()
    client.send(Basic.Nack(1, requeue=True), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    house.turns.run()
    delivered = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert [(frame.delivery_tag, frame.redelivered) for frame in delivered] == [(2, True)]


def test_a_lease_goes_on_until_the_commit(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-consumer-timeout": 60_000}), 1)
    house.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Tx.Rollback(), 1)
    client.send(Basic.Ack(1), 1)
    client.frames()
    house.clock.advance(60_000)
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert "transaction of 1 settlements was not committed in time" in closed.reply_text
    assert counts(house, "in") == (1, 0)


def test_a_lease_goes_on_after_a_rollback(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-consumer-timeout": 60_000}), 1)
    house.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Tx.Rollback(), 1)
    client.frames()
    house.clock.advance(60_000)
    house.turns.run()
    (again,) = client.frames()
    assert isinstance(again, Basic.Deliver)
    assert again.redelivered


def test_a_window_made_for_the_channel_counts_what_the_transaction_holds(house: BrokerBench) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in"), 1)
    house.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Basic.Qos(prefetch_count=1, global_=True), 1)
    channel = client.connection.wire.channels[1]
    assert isinstance(channel, ChannelOf091)
    assert channel.window is not None
    assert channel.window.used == 1
    client.send(Tx.Commit(), 1)
    house.store.complete()
    assert channel.window.used == 0


def test_a_transaction_knows_which_deliveries_it_has_settled(house: BrokerBench) -> None:
    client = house.open()
    client.send(Queue.Declare(queue="q"), 1)
    for _ in range(9):
        client.publish("q")
    client.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
    house.turns.run()
    client.send(Tx.Select(), 1)
    (channel,) = [each for each in client.connection.wire.channels if isinstance(each, ChannelOf091)]
    assert channel.transaction is not None
    held: set[int] = set()
    for tag in (1, 2, 4, 3, 5, 6, 8):
        client.send(Basic.Ack(tag) if tag < 4 or tag > 5 else Basic.Reject(tag, True), 1)
        held.add(tag)
        if tag != 4:
            assert channel.transaction.tags() == held
    client.send(Tx.Rollback(), 1)
    assert channel.transaction.tags() == set()
    client.send(Basic.Ack(0, True), 1)
    assert channel.transaction.tags() == set(range(1, 10))
