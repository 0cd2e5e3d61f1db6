"""basic.get that waits for a message, and what of its connection goes on meanwhile."""

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue

from broker.adapters.amqp091.get import KEPT_FRAMES_BYTES_MAX
from broker.core.queues.election import Election
from tests.support.adapters.connection_without_socket import House, Wired
from tests.support.amqp091.frames import method_bytes, publish_bytes

WAIT = "x-get-wait"


@pytest.fixture
def client(house: House) -> Wired:
    """Has declared the queue `q`, whose gets wait a second, and has two channels."""
    client = house.open()
    client.send(Queue.Declare(queue="q", arguments={WAIT: 1000}), 1)
    client.send(Channel.Open(), 2)
    client.frames()
    return client


def get(client: Wired, channel: int = 1, **options: bool) -> None:
    client.send(Basic.Get(queue="q", **options), channel)


def names(client: Wired) -> list[str]:
    """What was written since the last call, after everything that waits had its turn and its alarm."""
    client.house.turns.run()
    client.house.clock.advance(0)
    client.house.turns.run()
    return [frame.name for frame in client.frames()]


def queue_of(house: House) -> tuple[int, int, int]:
    queue = house.broker.vhosts["/"].queues["q"]
    return queue.ready, queue.unacked, len(queue.manager.gets)


def test_it_answers_when_a_message_comes(house: House, client: Wired) -> None:
    get(client)
    assert names(client) == []
    house.clock.advance(999)
    assert names(client) == []
    client.connection.receive(publish_bytes("q", b"m", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(house) == (0, 1, 0)
    client.send(Basic.Ack(1), 1)
    assert queue_of(house) == (0, 0, 0)
    house.clock.advance(10_000)
    assert names(client) == []


def test_it_answers_empty_when_its_time_is_over(house: House, client: Wired) -> None:
    get(client)
    house.clock.advance(999)
    assert names(client) == []
    house.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    assert queue_of(house) == (0, 0, 0)


def test_it_need_not_wait_when_there_is_a_message(house: House, client: Wired) -> None:
    client.publish("q")
    get(client, no_ack=True)
    assert [frame.name for frame in client.frames()] == ["Basic.GetOk"]
    assert queue_of(house) == (0, 0, 0)


def test_without_acknowledgement_the_message_is_gone(house: House, client: Wired) -> None:
    get(client, no_ack=True)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(house) == (0, 0, 0)
    client.publish("q")
    get(client)
    (answer,) = client.frames()
    assert isinstance(answer, Basic.GetOk)
    assert answer.delivery_tag == 2


def test_the_channel_s_next_methods_wait_their_turn_and_other_channels_do_not(
    house: House, client: Wired
) -> None:
    client.send(Confirm.Select(), 1)
    client.frames()
    get(client)
    client.publish("other")
    client.publish("nowhere", b"in pieces" * 2000)
    client.send(Queue.Declare(queue="later"), 1)
    client.send(Exchange.Declare(exchange="x"), 2)
    assert names(client) == ["Exchange.DeclareOk"]
    assert "later" not in house.broker.vhosts["/"].queues
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk", "Queue.DeclareOk", "Basic.Ack"]


def test_what_is_acknowledged_behind_it_includes_its_message(house: House, client: Wired) -> None:
    get(client)
    client.send(Basic.Ack(0, multiple=True), 1)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    assert queue_of(house) == (0, 0, 0)


def test_a_get_behind_a_get_waits_in_its_turn(house: House, client: Wired) -> None:
    for _ in range(3):
        get(client)
    house.clock.advance(900)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]
    house.clock.advance(999)
    assert names(client) == []
    house.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    house.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty"]


def test_gets_are_served_in_the_order_of_their_arrival(house: House, client: Wired) -> None:
    others = [house.open() for _ in range(3)]
    for other in others:
        get(other)
    for count in range(1, 4):
        client.publish("q")
        assert [bool(names(other)) for other in others] == [n == count - 1 for n in range(3)]


def test_it_takes_turns_with_consumers(house: House, client: Wired) -> None:
    consumer = house.open()
    consumer.send(Basic.Consume(queue="q", consumer_tag="t"), 1)
    assert names(consumer) == ["Basic.ConsumeOk"]
    get(client)
    for _ in range(4):
        consumer.publish("q")
        house.turns.run()
    assert (names(consumer), names(client)) == (["Basic.Deliver"] * 3, ["Basic.GetOk"])


def test_it_is_no_consumer(house: House, client: Wired) -> None:
    get(client)
    client.send(Queue.Declare(queue="q", passive=True), 2)
    (answer,) = client.frames()
    assert isinstance(answer, Queue.DeclareOk)
    assert answer.consumer_count == 0
    client.send(Basic.Consume(queue="q", exclusive=True), 2)
    assert names(client) == ["Basic.ConsumeOk"]
    client.send(Queue.Delete(queue="q", if_unused=True), 2)
    assert names(client) == ["Channel.Close"]


def test_it_is_use_of_a_queue_that_expires(house: House) -> None:
    client = house.open()
    client.send(Queue.Declare(queue="q", arguments={WAIT: 1000, "x-expires": 300}), 1)
    get(client)
    house.clock.advance(999)
    assert names(client) == ["Queue.DeclareOk"]
    house.clock.advance(1)
    assert names(client) == ["Basic.GetEmpty"]
    house.clock.advance(299)
    assert "q" in house.broker.vhosts["/"].queues
    house.clock.advance(1)
    assert "q" not in house.broker.vhosts["/"].queues


def test_deleting_the_queue_answers_it(house: House, client: Wired) -> None:
    get(client)
    client.send(Queue.Declare(queue="q", passive=True), 1)
    client.send(Queue.Delete(queue="q"), 2)
    assert names(client) == ["Queue.DeleteOk", "Basic.GetEmpty", "Channel.Close"]


def test_closing_the_channel_ends_it_behind_what_came_before(house: House, client: Wired) -> None:
    get(client)
    client.publish("q")
    client.send(Channel.Close(0, "", 0, 0), 1)
    assert names(client) == ["Basic.GetEmpty", "Channel.CloseOk"]
    assert queue_of(house) == (1, 0, 0)
    client.send(Channel.Open(), 1)
    assert names(client) == ["Channel.OpenOk"]


def test_closing_and_losing_the_connection_ends_it(house: House, client: Wired) -> None:
    get(client)
    client.send(Connection.Close(0, "", 0, 0), 0)
    assert names(client) == ["Connection.CloseOk"]
    other = house.open()
    get(other)
    other.connection.lost("")
    other.publish("q")
    house.clock.advance(2000)
    assert queue_of(house) == (0, 0, 0)
    assert other.frames() == []


def test_who_sends_too_much_behind_it_is_answered(house: House, client: Wired) -> None:
    get(client)
    piece = publish_bytes("elsewhere", b"x" * 100_000)
    for _ in range(KEPT_FRAMES_BYTES_MAX // len(piece)):
        client.connection.receive(piece)
    assert names(client) == []
    for _ in range(3):
        client.connection.receive(piece)
    assert names(client) == ["Basic.GetEmpty"]
    assert house.broker.counters.published == KEPT_FRAMES_BYTES_MAX // len(piece) + 3


def test_frames_that_arrive_in_pieces_are_kept_whole(house: House, client: Wired) -> None:
    get(client)
    data = publish_bytes("q2", b"x" * 10_000) + method_bytes(Queue.Declare(queue="q2"), 1)
    for start in range(0, len(data), 7):
        client.connection.receive(data[start : start + 7])
        if start == 7 * 100:
            client.connection.receive(b"")
    half = publish_bytes("q2", b"y" * 100)
    client.connection.receive(half[:50])
    house.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty", "Queue.DeclareOk"]
    client.connection.receive(half[50:])
    assert house.broker.vhosts["/"].queues["q2"].ready == 1


def test_the_client_s_property_comes_before_the_queue_s_argument(house: House) -> None:
    for asked, answered in ((0, ["Basic.GetEmpty"]), (50, [])):
        client = house.connect()
        client.send(Connection.StartOk({WAIT: asked}, "PLAIN", "\0guest\0guest"))
        client.send(Connection.TuneOk(2047, 131072, 0))
        client.send(Connection.Open("/"))
        client.send(Channel.Open(), 1)
        client.send(Queue.Declare(queue="q", arguments={WAIT: 1000}), 1)
        client.frames()
        get(client)
        assert names(client) == answered
        house.clock.advance(50)
        assert len(names(client)) == 1 - len(answered)


@pytest.mark.parametrize("value", [-1, "soon", True])
def test_a_property_that_cannot_be(house: House, value: object) -> None:
    client = house.connect()
    client.frames()
    client.send(Connection.StartOk({WAIT: value}, "PLAIN", "\0guest\0guest"))  # type: ignore[dict-item]
    (refusal,) = client.frames()
    assert isinstance(refusal, Connection.Close)
    assert refusal.reply_code == 530
    assert WAIT in refusal.reply_text


def test_flow_is_none_of_its_business(house: House, client: Wired) -> None:
    client.send(Channel.Flow(False), 1)
    client.frames()
    get(client)
    client.connection.receive(publish_bytes("q", channel=2))
    assert names(client) == ["Basic.GetOk"]


def test_an_exclusive_consumer_that_comes_has_it_stand_by(house: House, client: Wired) -> None:
    get(client)
    client.send(Basic.Consume(queue="q", arguments={"x-exclusive-consumer": True}), 2)
    other = house.open()
    other.publish("q")
    assert names(client) == ["Basic.ConsumeOk", "Basic.Deliver"]
    assert isinstance(house.broker.vhosts["/"].queues["q"].election, Election)
    house.clock.advance(1000)
    assert names(client) == ["Basic.GetEmpty"]


def test_a_message_that_cannot_be_read_back_is_not_lost(house: House, client: Wired) -> None:
    client.send(Queue.Declare(queue="d", durable=True, arguments={WAIT: 1000}), 1)
    house.store.complete()
    other = house.open()
    client.send(Basic.Get(queue="d"), 1)
    names(client)
    other.publish("d", b"m", persistent=True)
    house.store.drop_contents()
    house.store.unreadable = True
    assert names(client) == ["Connection.Close"]
    queue = house.broker.vhosts["/"].queues["d"]
    assert (queue.ready, queue.unacked) == (1, 0)
