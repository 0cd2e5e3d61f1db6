"""Clients that give very much back, and the turns in which it is back."""

from broker.core.arguments.queue import NACK
from broker.core.queues.attach import detach
from broker.core.queues.queue import Queue
from broker.core.queues.returns import requeue_runs
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench


def run_schedule(bench: VhostBench) -> None:
    """Run the schedule once."""
    bench.clock.wakes.clear()
    bench.clock.schedule.run()


def close_client(queue: Queue, client: Client) -> None:
    """Close the client faster than `Client.vanish` does with many deliveries."""
    entries, client.held = client.held, []
    client.close()
    detach(queue, client.consumer, entries)


def nack_all(client: Client) -> None:
    """Reject all deliveries of the client in a single frame, so that they are requeued."""
    entries, client.held = client.held, []
    requeue_runs([(client.consumer, entries)], NACK, client.session, client.queue.host)


def state(queue: Queue) -> tuple[int, int, int]:
    return queue.ready, queue.unacked, queue.held
