"""A consumer by pika, step by step."""

from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial
from tests.support.daemon.daemon import PATIENCE_S


class Worker:
    """A consumer with a small window, and its deliveries: delivery tag, redelivered, number."""

    def __init__(self, dial: Dial, queue: str, prefetch: int = 5, **arguments: object) -> None:
        self.connection = dial()
        self.channel: BlockingChannel = self.connection.channel()
        self.prefetch = prefetch
        self.channel.basic_qos(prefetch_count=prefetch)
        self.received: list[tuple[int, bool, int]] = []
        named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
        self.tag = self.channel.basic_consume(queue, self._on_message, arguments=named)

    def _on_message(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.received.append((method.delivery_tag, method.redelivered, int(body)))

    def receive(self, count: int) -> list[tuple[int, bool, int]]:
        """Wait until it has received as many; returns the last of them, taken off the list."""
        while len(self.received) < count:
            before = len(self.received)
            self.connection.process_data_events(time_limit=PATIENCE_S)
            assert len(self.received) > before, "nothing more came"
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def look(self) -> int:
        """Read everything that the broker has sent so far; return the number of deliveries."""
        self.channel.basic_qos(prefetch_count=self.prefetch)
        self.connection.process_data_events(time_limit=0)
        return len(self.received)
