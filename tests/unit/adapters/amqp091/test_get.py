"""basic.get that waits for a message, and other work of its connection meanwhile."""

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue

from broker.adapters.amqp091.get import KEPT_FRAMES_BYTES_MAX
from broker.core.queues.election import Election
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import method_bytes, publish_bytes

WAIT = "x-get-wait"


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    """Has declared the queue `q`, whose gets wait a second, and has two channels."""
    client = bench.open()
    client.send(Queue.Declare(queue="q", arguments={WAIT: 1000}), 1)
    client.send(Channel.Open(), 2)
    client.frames()
    return client


def get(client: Client091, channel: int = 1, **options: bool) -> None:
    client.send(Basic.Get(queue="q", **options), channel)


def names(client: Client091) -> list[str]:
    """Return the names of the methods written since the last call, after all waiting turns and alarms."""
    client.bench.turns.run()
    client.bench.clock.advance(0)
    client.bench.turns.run()
    return [frame.name for frame in client.frames()]


def queue_of(bench: BrokerBench) -> tuple[int, int, int]:
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    return queue.ready, queue.unacked, len(queue.manager.gets)


def test_get_answers_when_a_message_arrives(bench: BrokerBench, client: Client091) -> None:
    get(client)
    assert names(client) == []
    bench.clock.advance(999)
    assert names(client) == []
    client.connection.receive(publish_bytes("q", b"m", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(bench) == (0, 1, 0)
    client.send(Basic.Ack(1), 1)
    assert queue_of(bench) == (0, 0, 0)
    bench.clock.advance(10_000)
    assert names(client) == []


def test_get_answers_empty_after_the_time_out(bench: BrokerBench, client: Client091) -> None:
    get(client)
    bench.clock.advance(999)
    assert names(client) == []
    bench.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    assert queue_of(bench) == (0, 0, 0)


def test_get_answers_at_once_when_there_is_a_message(bench: BrokerBench, client: Client091) -> None:
    client.publish("q")
    get(client, no_ack=True)
    assert [frame.name for frame in client.frames()] == ["Basic.GetOk"]
    assert queue_of(bench) == (0, 0, 0)


def test_without_acknowledgement_the_message_is_gone(bench: BrokerBench, client: Client091) -> None:
    get(client, no_ack=True)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(bench) == (0, 0, 0)
    client.publish("q")
    get(client)
    (answer,) = client.frames()
    assert isinstance(answer, Basic.GetOk)
    assert answer.delivery_tag == 2


def test_a_waiting_get_delays_the_methods_of_its_channel_only(bench: BrokerBench, client: Client091) -> None:
    client.send(Confirm.Select(), 1)
    client.frames()
    get(client)
    client.publish("other")
    client.publish("nowhere", b"in pieces" * 2000)
    client.send(Queue.Declare(queue="later"), 1)
    client.send(Exchange.Declare(exchange="x"), 2)
    assert names(client) == ["Exchange.DeclareOk"]
    assert "later" not in bench.broker.vhosts["/"].topology.queues
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk", "Queue.DeclareOk", "Basic.Ack"]


def test_a_multiple_ack_behind_get_includes_the_message(bench: BrokerBench, client: Client091) -> None:
    get(client)
    client.send(Basic.Ack(0, multiple=True), 1)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(bench) == (0, 0, 0)


def test_a_get_behind_a_get_waits_in_its_turn(bench: BrokerBench, client: Client091) -> None:
    for _ in range(3):
        get(client)
    bench.clock.advance(900)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    bench.clock.advance(999)
    assert names(client) == []
    bench.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    bench.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty"]


def test_gets_are_served_in_the_order_of_their_arrival(bench: BrokerBench, client: Client091) -> None:
    others = [bench.open() for _ in range(3)]
    for other in others:
        get(other)
    for count in range(1, 4):
        client.publish("q")
        assert [bool(names(other)) for other in others] == [n == count - 1 for n in range(3)]


def test_get_alternates_with_consumers(bench: BrokerBench, client: Client091) -> None:
    consumer = bench.open()
    consumer.send(Basic.Consume(queue="q", consumer_tag="t"), 1)
    assert names(consumer) == ["Basic.ConsumeOk"]
    get(client)
    for _ in range(4):
        consumer.publish("q")
        bench.turns.run()
    assert (names(consumer), names(client)) == (["Basic.Deliver"] * 3, ["Basic.GetOk"])


def test_a_waiting_get_is_no_consumer(bench: BrokerBench, client: Client091) -> None:
    get(client)
    client.send(Queue.Declare(queue="q", passive=True), 2)
    (answer,) = client.frames()
    assert isinstance(answer, Queue.DeclareOk)
    assert answer.consumer_count == 0
    client.send(Basic.Consume(queue="q", exclusive=True), 2)
    assert names(client) == ["Basic.ConsumeOk"]
    client.send(Queue.Delete(queue="q", if_unused=True), 2)
    assert names(client) == ["Channel.Close"]


def test_a_waiting_get_keeps_an_expiring_queue(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q", arguments={WAIT: 1000, "x-expires": 300}), 1)
    get(client)
    bench.clock.advance(999)
    assert names(client) == ["Queue.DeclareOk"]
    bench.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    bench.clock.advance(299)
    assert "q" in bench.broker.vhosts["/"].topology.queues
    bench.clock.advance(1)
    assert "q" not in bench.broker.vhosts["/"].topology.queues


def test_deleting_the_queue_answers_a_waiting_get_with_get_empty(
    bench: BrokerBench, client: Client091
) -> None:
    get(client)
    client.send(Queue.Declare(queue="q", passive=True), 1)
    client.send(Queue.Delete(queue="q"), 2)
    assert names(client) == ["Queue.DeleteOk", "Basic.GetEmpty", "Channel.Close"]


def test_closing_the_channel_answers_a_waiting_get_before_close_ok(
    bench: BrokerBench, client: Client091
) -> None:
    get(client)
    client.publish("q")
    client.send(Channel.Close(0, "", 0, 0), 1)
    assert names(client) == ["Basic.GetEmpty", "Channel.CloseOk"]
    assert queue_of(bench) == (1, 0, 0)
    client.send(Channel.Open(), 1)
    assert names(client) == ["Channel.OpenOk"]


def test_closing_or_losing_the_connection_ends_a_waiting_get(bench: BrokerBench, client: Client091) -> None:
    get(client)
    client.send(Connection.Close(0, "", 0, 0), 0)
    assert names(client) == ["Connection.CloseOk"]
    other = bench.open()
    get(other)
    other.connection.on_lost("")
    other.publish("q")
    bench.clock.advance(2000)
    assert queue_of(bench) == (0, 0, 0)
    assert other.frames() == []


def test_an_error_answers_too_many_bytes_behind_a_waiting_get(bench: BrokerBench, client: Client091) -> None:
    get(client)
    piece = publish_bytes("elsewhere", b"x" * 100_000)
    for _ in range(KEPT_FRAMES_BYTES_MAX // len(piece)):
        client.connection.receive(piece)
    assert names(client) == []
    for _ in range(3):
        client.connection.receive(piece)
    assert names(client) == ["Basic.GetEmpty"]
    assert bench.broker.counters.published == KEPT_FRAMES_BYTES_MAX // len(piece) + 3


def test_frames_that_arrive_in_pieces_are_kept_whole(bench: BrokerBench, client: Client091) -> None:
    get(client)
    data = publish_bytes("q2", b"x" * 10_000) + method_bytes(Queue.Declare(queue="q2"), 1)
    for start in range(0, len(data), 7):
        client.connection.receive(data[start : start + 7])
        if start == 7 * 100:
            client.connection.receive(b"")
    half = publish_bytes("q2", b"y" * 100)
    client.connection.receive(half[:50])
    bench.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty", "Queue.DeclareOk"]
    client.connection.receive(half[50:])
    assert bench.broker.vhosts["/"].topology.queues["q2"].ready == 1


def test_the_client_s_property_comes_before_the_queue_s_argument(bench: BrokerBench) -> None:
    for asked, answered in ((0, ["Basic.GetEmpty"]), (50, [])):
        client = bench.connect()
        client.send(Connection.StartOk({WAIT: asked}, "PLAIN", "\0guest\0guest"))
        client.send(Connection.TuneOk(2047, 131072, 0))
        client.send(Connection.Open("/"))
        client.send(Channel.Open(), 1)
        client.send(Queue.Declare(queue="q", arguments={WAIT: 1000}), 1)
        client.frames()
        get(client)
        assert names(client) == answered
        bench.clock.advance(50)
        assert len(names(client)) == 1 - len(answered)


@pytest.mark.parametrize("value", [-1, "soon", True])
def test_a_property_that_cannot_be(bench: BrokerBench, value: object) -> None:
    client = bench.connect()
    client.frames()
    client.send(Connection.StartOk({WAIT: value}, "PLAIN", "\0guest\0guest"))  # type: ignore[dict-item]
    (refusal,) = client.frames()
    assert isinstance(refusal, Connection.Close)
    assert refusal.reply_code == 530
    assert WAIT in refusal.reply_text


def test_channel_flow_does_not_stop_a_waiting_get(bench: BrokerBench, client: Client091) -> None:
    client.send(Channel.Flow(False), 1)
    client.frames()
    get(client)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]


def test_an_exclusive_consumer_gets_messages_before_a_waiting_get(
    bench: BrokerBench, client: Client091
) -> None:
    get(client)
    client.send(Basic.Consume(queue="q", arguments={"x-exclusive-consumer": True}), 2)
    other = bench.open()
    other.publish("q")
    assert names(client) == ["Basic.ConsumeOk", "Basic.Deliver"]
    assert isinstance(bench.broker.vhosts["/"].topology.queues["q"].election, Election)
    bench.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty"]


def test_a_message_that_cannot_be_read_back_is_not_lost(bench: BrokerBench, client: Client091) -> None:
    client.send(Queue.Declare(queue="d", durable=True, arguments={WAIT: 1000}), 1)
    bench.store.complete()
    other = bench.open()
    client.send(Basic.Get(queue="d"), 1)
    names(client)
    other.publish("d", b"m", persistent=True)
    bench.store.drop_contents()
    bench.store.unreadable = True
    assert names(client) == ["Connection.Close"]
    queue = bench.broker.vhosts["/"].topology.queues["d"]
    assert (queue.ready, queue.unacked) == (1, 0)
