"""A publisher and a consumer in step: the cost of a message through a queue."""

import struct
import time
from typing import Final

from pamqp.common import FieldTable

from tests.bench.loop import LoopBench
from tests.support.adapters.connection_without_socket import Client091
from tests.support.amqp091.frames import publish_bytes

BATCH: Final = 200
BODY: Final = b"x" * 1024
ACK: Final = struct.Struct(">BHIHHQBB")


class Traffic:
    """Transient messages of 1 KiB, acknowledged singly; the consumer has a batch at most."""

    def __init__(self, bench: LoopBench, queue: str, arguments: FieldTable | None = None) -> None:
        self.bench = bench
        self._publisher = bench.open()
        self._consumer = bench.consumer(queue, BATCH, arguments)
        self._data = publish_bytes(queue, BODY) * BATCH
        self._tag = 0
        bench.loop.run()

    def cost(self, batches: int) -> float:
        """CPU microseconds per message, in and out and acknowledged, others' turns included."""
        loop = self.bench.loop
        acks = [self._acks() for _ in range(batches)]
        began = time.thread_time()
        for acknowledgements in acks:
            self._send(self._publisher, self._data)
            self._send(self._consumer, acknowledgements)
            self._consumer.edge.written.clear()
        took = time.thread_time() - began
        self._publisher.edge.written.clear()
        assert loop.turns
        return took * 1e6 / (batches * BATCH)

    def _send(self, client: Client091, data: bytes) -> None:
        """Send a client's bytes, and run a turn for the resulting work."""
        self.bench.loop.turn(lambda: client.connection.receive(data))
        self.bench.loop.step()

    def _acks(self) -> bytes:
        first = self._tag + 1
        self._tag += BATCH
        return b"".join(ACK.pack(1, 1, 13, 60, 80, tag, 0, 0xCE) for tag in range(first, first + BATCH))
