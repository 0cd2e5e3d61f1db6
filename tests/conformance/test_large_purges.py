"""queue.purge of more messages than fit in a turn of the broker: still a single step for clients."""

import pytest
from pamqp.commands import Basic, Confirm, Queue

from tests.support.amqp091.peer import Connector, PeerChannel

MANY = 20_000


def fill(channel: PeerChannel, queue: str, persistent: bool = False) -> None:
    """Publish many messages, and see that they are there."""
    properties = Basic.Properties(delivery_mode=2) if persistent else None
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.peer.send(channel.encode_publish(b"old", queue, properties=properties) * MANY)
    channel.expect_confirms(MANY)
    assert channel.counts(queue)[0] == MANY


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.spec("amqp-0-9-1", "queue.purge")
def test_the_answer_comes_with_the_count_when_all_are_gone(
    connect: Connector, durable_queue: str, persistent: bool
) -> None:
    channel, other = connect().channel(), connect().channel()
    fill(channel, durable_queue, persistent)
    other.call(Basic.Qos(prefetch_count=3), Basic.QosOk)
    other.consume(durable_queue)
    held = other.deliveries(3)
    assert channel.call(Queue.Purge(queue=durable_queue), Queue.PurgeOk).message_count == MANY - 3
    assert channel.counts(durable_queue) == (0, 1)
    channel.publish(b"new", durable_queue)
    other.ack(held[-1].tag, multiple=True)
    assert other.delivery().body == b"new"


@pytest.mark.spec("amqp-0-9-1", "queue.purge#no-wait")
def test_requests_behind_a_purge_are_done_after_it(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    fill(channel, queue)
    channel.write(Queue.Purge(queue=queue, nowait=True))
    channel.publish(b"new", queue)
    channel.expect_confirms(MANY + 1, MANY + 1)
    assert channel.take(queue).body == b"new"
    assert channel.get(queue) is None


@pytest.mark.spec("amqp-0-9-1", "queue.purge")
def test_a_purge_does_not_delay_other_clients(connect: Connector, durable_queue: str) -> None:
    first, second = connect().channel(), connect().channel()
    fill(first, durable_queue)
    for channel in (first, second):
        channel.write(Queue.Purge(queue=durable_queue))
    counts = [channel.expect(Queue.PurgeOk).message_count for channel in (first, second)]
    assert set(counts) == {0, MANY}


@pytest.mark.spec("amqp-0-9-1", "queue.purge")
def test_deleting_a_queue_during_its_purge_counts_the_rest(connect: Connector, durable_queue: str) -> None:
    channel, other = connect().channel(), connect().channel()
    fill(channel, durable_queue)
    channel.write(Queue.Purge(queue=durable_queue))
    while other.counts(durable_queue)[0] == MANY:
        pass  # the broker has not read it yet
    other.call(Queue.Delete(queue=durable_queue), Queue.DeleteOk)
    count = channel.expect(Queue.PurgeOk).message_count
    assert count is not None
    assert 0 < count <= MANY
    assert channel.declare(durable_queue, durable=True) == durable_queue
    assert channel.counts(durable_queue) == (0, 0)


@pytest.mark.spec("amqp-0-9-1", "queue.purge")
def test_a_purge_goes_on_when_its_client_disconnects(connect: Connector, durable_queue: str) -> None:
    channel, other = connect().channel(), connect().channel()
    fill(channel, durable_queue)
    channel.write(Queue.Purge(queue=durable_queue))
    channel.peer.drop()
    other.publish(b"new", durable_queue)
    other.call(Queue.Purge(queue=durable_queue), Queue.PurgeOk)
    assert other.counts(durable_queue) == (0, 0)
