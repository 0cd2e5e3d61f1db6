"""The rate at which a shovel forwards durable messages between two brokers, and its cost at both sides."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from pamqp.commands import Confirm, Queue
from pamqp.common import FieldTable

from broker.bench.cpu import cpu_seconds
from tests.bench.loop import Figure
from tests.support.admin.api import Api
from tests.support.amqp091.frames import publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon

MESSAGES: Final = 200_000  # in a round
SIZE: Final = 1024
CHUNK: Final = 1000
PREFETCH: Final = 5000
ROUNDS: Final = 3
ARGUMENTS: Final[dict[str, FieldTable]] = {"on-confirm": {}, "exactly-once": {"x-dedup-producers": 1000}}
"""The destination queue's arguments in each mode of a shovel."""

GOAL_US: Final = 4.0  # microseconds of CPU for a message at each side
GOAL_US_EACH: Final = 20.0  # microseconds for a message: 50,000 messages in a second


def forwarding(scale: float) -> list[Figure]:
    """Durable messages of 1 KiB from a queue of one broker to a queue of another one, each on a core."""
    cores = sorted(os.sched_getaffinity(0))
    count = max(CHUNK, int(MESSAGES * scale) // CHUNK * CHUNK)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        daemons = [Daemon(Path(folder, name)) for name in ("source", "destination")]
        for daemon, core in zip(daemons, (cores[0], cores[-1]), strict=True):
            daemon.wait_until_ready()
            os.sched_setaffinity(daemon.pid, {core})
        route = Route(*daemons)
        for mode in ARGUMENTS:
            route.run(mode, CHUNK)
            rounds = [route.run(mode, count) for _ in range(ROUNDS)]
            seconds, source, destination = (median(each) for each in zip(*rounds, strict=True))
            figures += [
                Figure(f"{mode}: time per message", seconds / count * 1e6, "us", GOAL_US_EACH),
                Figure(f"{mode}: CPU per message, source", source / count * 1e6, "us", GOAL_US),
                Figure(f"{mode}: CPU per message, destination", destination / count * 1e6, "us", GOAL_US),
            ]
        route.close()
        for daemon in daemons:
            daemon.stop()
    return figures


class Route:
    """A queue here, a queue there, and a shovel between them for each round."""

    def __init__(self, here: Daemon, there: Daemon) -> None:
        self._daemons = (here, there)
        self._url = there.address.url()
        self._peers = [Peer(daemon.address).open() for daemon in self._daemons]
        self._source, self._destination = (peer.channel(1) for peer in self._peers)
        self._source.call(Queue.Declare(queue="out", durable=True), Queue.DeclareOk)
        self._source.call(Confirm.Select(), Confirm.SelectOk)
        for mode, arguments in ARGUMENTS.items():
            declare = Queue.Declare(queue=mode, durable=True, arguments=arguments)
            self._destination.call(declare, Queue.DeclareOk)
        self._chunk = publish_bytes("out", b"x" * SIZE, persistent=True) * CHUNK
        self._api = Api(here.admin)
        self._published = 0

    def run(self, mode: str, count: int) -> tuple[float, float, float]:
        """Forward messages. Return the seconds, and the CPU seconds of the source and of the destination."""
        for _ in range(count // CHUNK):
            self._peers[0].send(self._chunk)
            self._published += CHUNK
            self._source.expect_confirms(self._published)
        value = {
            "src-uri": "amqp://",
            "src-queue": "out",
            "dest-uri": self._url,
            "dest-queue": mode,
            "ack-mode": mode,
            "src-prefetch-count": PREFETCH,
        }
        before = [cpu_seconds(daemon.pid) for daemon in self._daemons]
        began = time.perf_counter()
        self._api.put("parameters", "shovel", "/", "s", value=value)
        while self._stored(mode) < count:  # a request for the status of the shovel would cost the source more
            time.sleep(0.1)
        while self._confirmed() < count:
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        spent = [cpu_seconds(daemon.pid) - cpu for daemon, cpu in zip(self._daemons, before, strict=True)]
        self._api.delete("shovels", "vhost", "/", "s")
        self._destination.call(Queue.Purge(queue=mode), Queue.PurgeOk)
        return seconds, spent[0], spent[1]

    def _stored(self, queue: str) -> int:
        found = self._destination.call(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk)
        return int(found.message_count or 0)

    def _confirmed(self) -> int:
        return int(self._api.get("shovels", "vhost", "/", "s")["status"]["confirmed"])

    def close(self) -> None:
        """Close the connections."""
        self._api.close()
        for peer in self._peers:
            peer.close()
