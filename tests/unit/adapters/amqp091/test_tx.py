"""Transactions of a channel without a socket: waiting for the log, and the state after each failure."""

import pytest
from pamqp.commands import Basic, Channel, Queue, Tx

from broker.adapters.amqp091.channel import Channel as ChannelOf091
from broker.adapters.peers.connections import HELD_FOR_REPLY
from broker.core.queues.queue import Queue as CoreQueue
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import publish_bytes


@pytest.fixture
def bench() -> BrokerBench:
    bench = BrokerBench()
    client = bench.open()
    for name in ("in", "out", "aside"):
        client.send(Queue.Declare(queue=name, durable=True), 1)
        bench.store.complete()
    client.publish("in", b"work", persistent=True)
    bench.store.complete()
    return bench


def queue(bench: BrokerBench, name: str) -> CoreQueue:
    return bench.broker.vhosts["/"].topology.queues[name]


def counts(bench: BrokerBench, name: str) -> tuple[int, int]:
    """Ready and unacked."""
    found = queue(bench, name)
    return found.ready, found.unacked


def working(bench: BrokerBench) -> Client091:
    """A client that has taken work, published two results, acknowledged the work, and asks for the commit."""
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.publish("out", b"result", persistent=True)
    client.publish("aside", b"result", persistent=True)
    client.send(Basic.Ack(1), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    return client


def test_commit_appends_all_work_at_once_and_takes_effect_when_durable(bench: BrokerBench) -> None:
    batch = bench.store.batch
    appended = len(bench.store.appended)
    client = working(bench)
    assert bench.store.batch == batch
    assert [message.content for message in bench.store.transacted] == [bench.store.appended[0].content]
    assert len(bench.store.appended) == appended + 2
    assert client.frames() == []
    assert client.edge.holds == HELD_FOR_REPLY
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((0, 1), (0, 0), (0, 0))
    bench.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert client.edge.holds == 0
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((0, 0), (1, 0), (1, 0))
    assert bench.store.settled == bench.store.transacted


def test_frames_behind_a_commit_wait_for_its_sync(bench: BrokerBench) -> None:
    client = working(bench)
    client.publish("out", b"next", persistent=True)
    client.send(Tx.Rollback(), 1)
    client.send(Basic.Ack(1), 1)
    assert client.frames() == []
    bench.store.complete()
    committed, rolled_back, closed = client.frames()
    assert isinstance(committed, Tx.CommitOk)
    assert isinstance(rolled_back, Tx.RollbackOk)
    assert isinstance(closed, Channel.Close)
    assert closed.reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert counts(bench, "out") == (1, 0)


def test_a_store_failure_before_the_sync_undoes_the_commit(bench: BrokerBench) -> None:
    client = working(bench)
    bench.store.fail("no disk")
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert (closed.class_id, closed.method_id) == (90, 20)
    assert "not committed" in closed.reply_text
    assert "no disk" in closed.reply_text
    assert client.edge.holds == 0
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((1, 0), (0, 0), (0, 0))
    assert queue(bench, "in").entries.head.next is not None
    assert bench.store.settled == []


def test_a_log_that_has_failed_refuses_the_commit(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.send(Basic.Ack(1), 1)
    client.publish("in", b"transient")
    client.publish("out", b"result", persistent=True)
    bench.store.fail("no disk")
    client.frames()
    client.send(Tx.Commit(), 1)
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert closed.reply_text.endswith("publish 2 of 2 in the transaction: the log has stopped: no disk")
    assert (counts(bench, "in"), counts(bench, "out")) == ((1, 0), (0, 0))


def test_a_connection_lost_before_the_sync_does_not_undo_the_commit(bench: BrokerBench) -> None:
    client = working(bench)
    client.connection.on_lost("reset")
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((0, 1), (0, 0), (0, 0))
    bench.store.complete()
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((0, 0), (1, 0), (1, 0))
    assert client.frames() == []


def test_a_store_failure_after_a_lost_connection_undoes_the_commit(bench: BrokerBench) -> None:
    client = working(bench)
    client.connection.on_lost("reset")
    bench.store.fail("no disk")
    assert (counts(bench, "in"), counts(bench, "out"), counts(bench, "aside")) == ((1, 0), (0, 0), (0, 0))


@pytest.mark.parametrize("fails", [False, True])
def test_a_channel_error_before_the_sync_does_not_delay_other_channels(
    bench: BrokerBench, fails: bool
) -> None:
    client = working(bench)
    client.send(Channel.Open(), 2)
    channel = client.connection.wire.channel(1)
    assert isinstance(channel, ChannelOf091)
    channel.fail(406, "a message is too long for it", 0)
    if fails:
        bench.store.fail("no disk")
    else:
        bench.store.complete()
    assert client.edge.holds == 0
    assert [type(frame) for frame in client.frames()] == [Channel.Close, Channel.OpenOk]
    client.send(Channel.CloseOk(), 1)
    client.send(Channel.Open(), 1)
    assert [type(frame) for frame in client.frames()] == [Channel.OpenOk]


def test_a_commit_succeeds_when_its_queues_are_deleted_before_the_sync(bench: BrokerBench) -> None:
    other = bench.open()
    client = working(bench)
    result = bench.store.appended[-1]
    other.send(Queue.Delete(queue="in"), 1)
    other.send(Queue.Delete(queue="aside"), 1)
    bench.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(bench, "out") == (1, 0)
    assert bench.store.settled == []
    assert bench.store.forgotten == [bench.store.appended[0], result]


def test_a_commit_without_durable_work_does_not_wait_for_the_log(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.publish("in", b"another's", persistent=True)
    client.send(Tx.Select(), 1)
    client.publish("q", b"transient")
    client.frames()
    client.send(Tx.Commit(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(bench, "q") == (1, 0)


def test_a_transaction_is_bounded(bench: BrokerBench) -> None:
    bench.server.transaction_bytes_max = 10_000
    client = bench.open()
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


def test_a_browser_in_a_transaction(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-browse": True}), 1)
    bench.turns.run()
    client.send(Basic.Ack(1), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    assert counts(bench, "in") == (1, 0)


def test_consumers_of_a_client_take_what_it_released(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Qos(0, 1, False), 1)
    client.send(Basic.Consume(queue="in"), 1)
    bench.turns.run()
    client.send(Basic.Nack(1, requeue=True), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    bench.turns.run()
    delivered = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert [(frame.delivery_tag, frame.redelivered) for frame in delivered] == [(2, True)]


def test_a_lease_goes_on_until_the_commit(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-consumer-timeout": 60_000}), 1)
    bench.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Tx.Rollback(), 1)
    client.send(Basic.Ack(1), 1)
    client.frames()
    bench.clock.advance(60_000)
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406
    assert "transaction of 1 settlements was not committed in time" in closed.reply_text
    assert counts(bench, "in") == (1, 0)


def test_a_lease_goes_on_after_a_rollback(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in", arguments={"x-consumer-timeout": 60_000}), 1)
    bench.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Tx.Rollback(), 1)
    client.frames()
    bench.clock.advance(60_000)
    bench.turns.run()
    (again,) = client.frames()
    assert isinstance(again, Basic.Deliver)
    assert again.redelivered


def test_a_window_made_for_the_channel_counts_what_the_transaction_holds(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(queue="in"), 1)
    bench.turns.run()
    client.send(Basic.Ack(1), 1)
    client.send(Basic.Qos(prefetch_count=1, global_=True), 1)
    channel = client.connection.wire.channels[1]
    assert isinstance(channel, ChannelOf091)
    assert channel.window is not None
    assert channel.window.used == 1
    client.send(Tx.Commit(), 1)
    bench.store.complete()
    assert channel.window.used == 0


def test_a_transaction_knows_which_deliveries_it_has_settled(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    for _ in range(9):
        client.publish("q")
    client.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
    bench.turns.run()
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


def independent(client: Client091) -> None:
    """Publish an independent message to `out` in a transaction."""
    client.send(Tx.Select(), 1)
    client.frames()
    properties = Basic.Properties(headers={"x-independent": True}, delivery_mode=2)
    client.connection.receive(publish_bytes("out", b"violation", properties=properties))


def test_a_rollback_waits_for_independent_messages_to_be_on_disk(bench: BrokerBench) -> None:
    client = bench.open()
    independent(client)
    client.send(Tx.Rollback(), 1)
    assert client.frames() == []
    assert client.edge.holds == HELD_FOR_REPLY
    bench.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.RollbackOk)
    assert client.edge.holds == 0
    client.send(Tx.Rollback(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.RollbackOk)
    assert counts(bench, "out") == (1, 0)


def test_an_otherwise_empty_commit_waits_for_independent_messages(bench: BrokerBench) -> None:
    client = bench.open()
    independent(client)
    client.send(Tx.Commit(), 1)
    assert client.frames() == []
    bench.store.complete()
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)
    client.send(Tx.Commit(), 1)
    (answer,) = client.frames()
    assert isinstance(answer, Tx.CommitOk)


def test_a_store_failure_before_the_sync_of_an_independent_message_fails_the_rollback(
    bench: BrokerBench,
) -> None:
    client = bench.open()
    independent(client)
    client.send(Tx.Rollback(), 1)
    bench.store.fail("no disk")
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert (closed.class_id, closed.method_id) == (90, 30)
    assert closed.reply_text == (
        "PRECONDITION_FAILED - independent messages of the transaction were not stored: "
        "the log has failed: no disk"
    )
    assert client.edge.holds == 0


def test_a_connection_lost_during_a_rollback_gets_no_answer(bench: BrokerBench) -> None:
    client = bench.open()
    independent(client)
    client.send(Tx.Rollback(), 1)
    client.connection.on_lost("reset")
    bench.store.complete()
    assert client.frames() == []
    assert counts(bench, "out") == (1, 0)
