"""Redeliveries: to the same consumer, through the queue, with their counts and costs."""

from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.amqp091.deliver import OUTPUT_BYTES_MAX
from broker.adapters.amqp091.settle import RESEND_MAX
from tests.support.adapters.connection_without_socket import BrokerBench, Client091


def test_the_second_connection_gets_back_what_the_first_held(bench: BrokerBench) -> None:
    client, other = bench.open(), bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Channel.Open(), 2)
    client.send(Basic.Consume(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 2)
    for _ in range(6):
        client.publish("q")
    bench.turns.run()
    client.frames()
    client.connection.on_lost("")
    bench.turns.run()
    assert client.frames() == []
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 6
    other.send(Basic.Get(queue="q"), 1)
    (got,) = other.frames()
    assert isinstance(got, Basic.GetOk)
    assert got.redelivered


def consume_three(bench: BrokerBench, client: Client091) -> None:
    """Three messages are on their way to a consumer of the queue q."""
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(3):
        client.publish("q")
    bench.turns.run()
    client.frames()


def test_redelivery_to_the_same_consumer_uses_no_more_credit(bench: BrokerBench) -> None:
    client: Client091 = bench.open()
    client.send(Basic.Qos(0, 2, False), 1)
    consume_three(bench, client)
    client.send(Basic.Recover(False), 1)
    bench.turns.run()
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


def test_many_recovered_deliveries_are_redelivered_in_order(bench: BrokerBench) -> None:
    count = int(RESEND_MAX) + 300
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(count):
        client.publish("q")
    bench.turns.run()
    client.frames()
    client.send(Basic.Recover(False), 1)
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert (queue.unacked, queue.ready) == (RESEND_MAX, 300)
    bench.turns.run()
    again = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert [frame.delivery_tag for frame in again] == list(range(count + 1, 2 * count + 1))
    assert all(frame.redelivered for frame in again)
    assert [entry.delivery_count for entry in queue.entries] == [2] * count


def test_recovered_deliveries_of_a_client_that_does_not_read_return_to_the_queue(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(8):
        client.publish("q", bytes(OUTPUT_BYTES_MAX))
    bench.turns.run()
    client.frames()
    client.edge.room = 2 * OUTPUT_BYTES_MAX  # the second is one too many
    for _ in range(50):
        client.send(Basic.Recover(False), 1)
    assert len(client.edge.written) < 3 * OUTPUT_BYTES_MAX
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert (queue.ready, queue.unacked) == (8, 0)
    assert tags(client) == [9, 10]
    client.edge.room = 1 << 40
    client.connection.set_blocked(False)
    bench.turns.run()
    assert tags(client) == list(range(11, 19))
    client.send(Basic.Ack(18, multiple=True), 1)
    assert (queue.ready, queue.unacked) == (0, 0)


def tags(client: Client091) -> list[int | None]:
    """Return the tags of the deliveries since the last call; all must be redelivered."""
    deliveries = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert all(delivery.redelivered for delivery in deliveries)
    return [delivery.delivery_tag for delivery in deliveries]


def test_a_disk_that_fails_while_deliveries_are_recovered_loses_none(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q", durable=True), 1)
    bench.store.complete()
    client.send(Basic.Consume(queue="q"), 1)
    for _ in range(3):
        client.publish("q", b"x", persistent=True)
    bench.turns.run()
    bench.store.complete()
    bench.store.drop_contents()
    bench.store.unreadable = True
    client.send(Basic.Recover(False), 1)
    assert isinstance(client.frames()[-1], Connection.Close)
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert (queue.ready, queue.unacked) == (3, 0)


def test_a_new_channel_window_counts_outstanding_deliveries(bench: BrokerBench) -> None:
    client = bench.open()
    consume_three(bench, client)
    client.send(Basic.Qos(0, 3, True), 1)
    client.publish("q")
    bench.turns.run()
    assert [type(frame) for frame in client.frames()] == [Basic.QosOk]
    client.send(Basic.Ack(2), 1)
    bench.turns.run()
    assert [type(frame) for frame in client.frames()] == [Basic.Deliver]
