"""A virtual host with a delayed exchange, and bound queues."""

from typing import Any

from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.publishing.delay import Delays
from broker.core.publishing.publisher import Outcome
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.properties import Properties
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import RecordingStore, add_exchange, new_broker, publish


class DelayBench:
    """A virtual host with a delayed exchange `x` of some type, and its clock."""

    def __init__(self, kind: str = "direct", durable: bool = False) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.broker = new_broker(self.store, self.clock)
        self.counters = self.broker.counters
        self.vhost = self.broker.declare_vhost("/")
        add_exchange(self.vhost, "x", "x-delayed-message", durable=durable, **{"x-delayed-type": kind})

    def publish(self, delay: object, key: str = "k", exchange: str = "x", **options: Any) -> Outcome:
        headers = {"x-delay": delay, **options.pop("headers", {})}
        return publish(self.vhost, exchange, key, headers=headers, **options)

    @property
    def delayed(self) -> int:
        delays = self.vhost.topology.exchanges["x"].delays  # type: ignore[attr-defined]
        assert isinstance(delays, Delays)
        return len(delays)


def bind_new_queue(
    vhost: VirtualHost, name: str, exchange: str = "x", key: str = "k", **options: Any
) -> Queue:
    queue = vhost.declarations.declare_queue(
        name, options.get("durable", False), None, False, options.get("limits", {})
    )
    vhost.declarations.bind_queue(name, exchange, key, options.get("arguments", {}))
    return queue


def entries(queue: Queue) -> list[QueueEntry]:
    return list(queue.entries)


def headers_of(message: Message) -> dict[str, object]:
    assert message.content is not None
    return Properties(message.content).headers()
