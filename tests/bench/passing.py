"""The cost of a message through a queue of a real broker with sockets, beside a backlog."""

import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable, FieldValue

from broker.bench.cpu import cpu_seconds
from tests.bench.loop import Figure
from tests.support.amqp091.frames import method_bytes, publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Address, Daemon

ROUNDS: Final = 7
BATCHES: Final = 3000  # for each round, which takes a hundred of the ticks in which CPU time is counted
BATCHES_MIN: Final = 200  # a round that takes no tick has no figure
BATCH: Final = 200
SIZES: Final = (16, 1024)
MEMBERS: Final = 4
KEYS: Final = 100
ACK: Final = struct.Struct(">BHIHHQBB")


def passing(scale: float) -> list[Figure]:
    """Broker CPU per message through an empty queue, and through a queue with 10^6 ready messages.

    Bodies of 16 B show what the queue costs, those of 1 KiB also what it costs to read them from memory.
    """
    count = int(1_000_000 * scale)
    rounds, batches = max(1, int(ROUNDS * scale)), max(BATCHES_MIN, int(BATCHES * scale))
    return [figure for size in SIZES for figure in _compare(count, size, rounds, batches)]


def partitioned(scale: float) -> list[Figure]:
    """Broker CPU per message through a plain queue, and through a partitioned queue with four members."""
    rounds, batches = max(1, int(ROUNDS * scale)), max(BATCHES_MIN, int(BATCHES * scale))
    body = b"x" * SIZES[-1]
    keys: list[Basic.Properties | None] = [
        Basic.Properties(headers={"key": f"key {number:02}"}) for number in range(KEYS)
    ]
    members: list[FieldValue] = [f"member {number}" for number in range(MEMBERS)]
    arguments: FieldTable = {"x-partition-by": "key", "x-partition-members": members}
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        peer = Peer(daemon.address).open()
        channel = peer.channel(1)
        for member in members:
            channel.declare(str(member))
        peer.close()
        plain = Passage(daemon, "plain", body, batches, keys)
        spread = Passage(daemon, "spread", body, batches, keys, arguments)
        plain.cost(), spread.cost()
        costs = [(plain.cost(), spread.cost()) for _ in range(rounds)]
        plain.close()
        spread.close()
        daemon.stop()
    return [
        Figure("broker CPU per message, plain queue", median(one for one, _ in costs), "us"),
        Figure(f"partitioned queue with {MEMBERS} members", median(other for _, other in costs), "us"),
        Figure("ratio", median(other / one for one, other in costs), "", 1.3),
    ]


def _compare(count: int, size: int, rounds: int, batches: int) -> list[Figure]:
    body = b"x" * size
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        _fill(daemon.address, "full", count, body)
        empty, full = Passage(daemon, "empty", body, batches), Passage(daemon, "full", body, batches)
        empty.cost(), full.cost()
        costs = [(empty.cost(), full.cost()) for _ in range(rounds)]
        empty.close()
        full.close()
        daemon.stop()
    return [
        Figure(f"broker CPU per message of {size} B, empty queue", median(one for one, _ in costs), "us"),
        Figure(f"with {count:,} ready", median(other for _, other in costs), "us"),
        Figure("ratio", median(other / one for one, other in costs), "", 1.2),
    ]


def _fill(address: Address, queue: str, count: int, body: bytes) -> None:
    peer = Peer(address).open()
    channel = peer.channel(1)
    channel.call(Queue.Declare(queue=queue), Queue.DeclareOk)
    for _ in range(count // BATCH):
        peer.send(publish_bytes(queue, body) * BATCH)
    assert channel.counts(queue) == (count, 0)
    peer.close()


class Passage:
    """A publisher and a consumer of `queue` in step: transient messages, acknowledged singly.

    The messages have the `properties` in order, all of one size.
    """

    def __init__(
        self,
        daemon: Daemon,
        queue: str,
        body: bytes,
        batches: int,
        properties: Sequence[Basic.Properties | None] = (None,),
        arguments: FieldTable | None = None,
    ) -> None:
        self._pid = daemon.pid
        self._batches = batches
        self._publisher = Peer(daemon.address).open()
        declare = Queue.Declare(queue=queue, arguments=arguments)
        self._publisher.channel(1).call(declare, Queue.DeclareOk)
        messages = [publish_bytes(queue, body, properties=each) for each in properties]
        assert len({len(message) for message in messages}) == 1
        self._data = b"".join(messages[number % len(messages)] for number in range(BATCH))
        self._consumer = Peer(daemon.address).open()
        channel = self._consumer.channel(1)
        channel.qos(BATCH)
        ready, _ = channel.counts(queue)
        channel.call(Basic.Consume(queue=queue, consumer_tag="t"), Basic.ConsumeOk)
        publish = method_bytes(Basic.Publish(exchange="", routing_key=queue), 1)
        deliver = method_bytes(Basic.Deliver("t", 1, False, "", queue), 1)
        self._delivered = BATCH * (len(messages[0]) - len(publish) + len(deliver))
        self._tag = len(channel.deliveries(min(ready, BATCH)))

    def cost(self) -> float:
        """CPU microseconds of the broker per message, in and out and acknowledged."""
        began = cpu_seconds(self._pid)
        for _ in range(self._batches):
            if self._tag:
                self._acknowledge()
            self._publisher.send(self._data)
            self._receive()
        return (cpu_seconds(self._pid) - began) * 1e6 / (self._batches * BATCH)

    def close(self) -> None:
        """Close the connections."""
        self._publisher.close()
        self._consumer.socket.close()

    def _acknowledge(self) -> None:
        tags = range(self._tag - BATCH + 1, self._tag + 1)
        self._consumer.send(b"".join(ACK.pack(1, 1, 13, 60, 80, tag, 0, 0xCE) for tag in tags))

    def _receive(self) -> None:
        left = self._delivered
        while left:
            left -= len(self._consumer.socket.recv(left))
        self._tag += BATCH
