"""Consumers with a time-out for settlements, and the cancellations that the client receives."""

from pamqp.commands import Basic, Channel, Queue

from tests.support.adapters.connection_without_socket import BrokerBench, Client091

TIMEOUT = "x-consumer-timeout"


def client_with_queue(bench: BrokerBench) -> Client091:
    """A client that has declared the queue `q`."""
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.frames()
    return client


def consume(client: Client091, milliseconds: int, prefetch: int = 0, tag: str = "t", **options: bool) -> None:
    client.send(Basic.Qos(prefetch_count=prefetch), 1)
    client.send(Basic.Consume(queue="q", consumer_tag=tag, arguments={TIMEOUT: milliseconds}, **options), 1)
    deliveries(client)


def deliveries(client: Client091) -> list[tuple[int | None, bool | None]]:
    """Deliveries since the last call: tag, redelivered; nothing else may have been said."""
    client.bench.turns.run()
    deliveries: list[tuple[int | None, bool | None]] = []
    for frame in client.frames():
        assert not isinstance(frame, Channel.Close), frame.reply_text
        if isinstance(frame, Basic.Deliver):
            deliveries.append((frame.delivery_tag, frame.redelivered))
    return deliveries


def counts(bench: BrokerBench) -> tuple[int, int]:
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    return queue.ready, queue.unacked
