"""A client that returns a delivery with any outcome, and waits for the redelivery."""

from broker.core.arguments.queue import NACK
from broker.core.queues.queue import Queue
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench


def retry_delay(bench: VhostBench, queue: Queue, client: Client, outcome: int = NACK) -> int:
    """Give the only delivery back with `outcome`; return the milliseconds until its redelivery."""
    client.nack(outcome=outcome)
    bench.run()
    passed = 0
    while not client.held:
        bench.clock.advance(1)
        bench.run()
        passed += 1
        assert passed < 100_000
    return passed
