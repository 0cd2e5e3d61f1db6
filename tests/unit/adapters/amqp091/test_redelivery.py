"""Deliveries that come again: to the consumer that has them, through the queue, what they count and cost."""

from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.amqp091.deliver import OUTPUT_BYTES_MAX
from broker.adapters.amqp091.settle import RESEND_MAX
from tests.support.adapters.connection_without_socket import House, Wired


def test_the_second_connection_gets_back_what_the_first_held(house: House) -> None:
    client, other = house.open(), house.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Channel.Open(), 2)
    client.send(Basic.Consume(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 2)
    for _ in range(6):
        client.publish("q")
    house.turns.run()
    client.frames()
    client.connection.lost("")
    house.turns.run()
    assert client.frames() == []
    assert house.broker.vhosts["/"].queues["q"].ready == 6
    other.send(Basic.Get(queue="q"), 1)
    (got,) = other.frames()
    assert isinstance(got, Basic.GetOk)
    assert got.redelivered


def consume_three(house: House, client: Wired) -> None:
    """Three messages are on their way to a consumer of the queue q."""
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(3):
        client.publish("q")
    house.turns.run()
    client.frames()


def test_redelivery_to_the_same_consumer_uses_no_more_credit(house: House) -> None:
    client: Wired = house.open()
    client.send(Basic.Qos(0, 2, False), 1)
    consume_three(house, client)
    client.send(Basic.Recover(False), 1)
    house.turns.run()
    again = client.frames()
    assert [
        (frame.delivery_tag, frame.redelivered) for frame in again if isinstance(frame, Basic.Deliver)
    ] == [
        (3, True),
        (4, True),
    ]
    client.send(Basic.Ack(1), 1)  # a tag of before
    closed = client.frames()[-1]
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 406


def test_very_many_come_again_in_their_order_whoever_sends_them_again(house: House) -> None:
    count = int(RESEND_MAX) + 300
    client = house.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(count):
        client.publish("q")
    house.turns.run()
    client.frames()
    client.send(Basic.Recover(False), 1)
    queue = house.broker.vhosts["/"].queues["q"]
    assert (queue.unacked, queue.ready) == (RESEND_MAX, 300)
    house.turns.run()
    again = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert [frame.delivery_tag for frame in again] == list(range(count + 1, 2 * count + 1))
    assert all(frame.redelivered for frame in again)
    assert [entry.delivery_count for entry in queue.entries] == [2] * count


def test_what_a_client_that_does_not_read_has_recovered_goes_back_to_the_queue(house: House) -> None:
    client = house.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(8):
        client.publish("q", bytes(OUTPUT_BYTES_MAX))
    house.turns.run()
    client.frames()
    client.edge.room = 2 * OUTPUT_BYTES_MAX  # the second is one too many
    for _ in range(50):
        client.send(Basic.Recover(False), 1)
    assert len(client.edge.written) < 3 * OUTPUT_BYTES_MAX
    queue = house.broker.vhosts["/"].queues["q"]
    assert (queue.ready, queue.unacked) == (8, 0)
    assert tags(client) == [9, 10]
    client.edge.room = 1 << 40
    client.connection.set_blocked(False)
    house.turns.run()
    assert tags(client) == list(range(11, 19))
    client.send(Basic.Ack(18, multiple=True), 1)
    assert (queue.ready, queue.unacked) == (0, 0)


def tags(client: Wired) -> list[int | None]:
    """Of the deliveries since the last call, which have all come before."""
    deliveries = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert all(delivery.redelivered for delivery in deliveries)
    return [delivery.delivery_tag for delivery in deliveries]


def test_a_disk_that_fails_while_deliveries_are_recovered_loses_none(house: House) -> None:
    client = house.open()
    client.send(Queue.Declare(queue="q", durable=True), 1)
    house.store.complete()
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(3):
        client.publish("q", b"x", persistent=True)
    house.turns.run()
    house.store.complete()
    house.store.drop_contents()
    house.store.unreadable = True
    client.send(Basic.Recover(False), 1)
    assert isinstance(client.frames()[-1], Connection.Close)
    queue = house.broker.vhosts["/"].queues["q"]
    assert (queue.ready, queue.unacked) == (3, 0)


def test_a_window_for_the_channel_counts_what_is_out_already(house: House) -> None:
    client = house.open()
    consume_three(house, client)
    client.send(Basic.Qos(0, 3, True), 1)
    client.publish("q")
    house.turns.run()
    assert [type(frame) for frame in client.frames()] == [Basic.QosOk]
    client.send(Basic.Ack(2), 1)
    house.turns.run()
    assert [type(frame) for frame in client.frames()] == [Basic.Deliver]
