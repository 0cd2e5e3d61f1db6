"""Consumers' shares of a queue, and wake-ups without a message, in a real broker."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from broker.bench.cpu import cpu_seconds
from tests.bench.crowd import Crowd, End, End091, End10, Feeder, jain
from tests.bench.loop import Figure
from tests.support.amqp091.frames import publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon

MESSAGES: Final = 40_000  # many more would measure the socket buffers, of which each connection has one
SHARED: Final = 25  # consumers of a connection that is shared; as many have connections of their own
EACH: Final = 10  # messages for a consumer in one look: equal consumers are equally fast
PAUSE_S: Final = 0.001  # between two looks
BODY: Final = b"x" * 16
UNFAIR_MAX: Final = 0.02
EMPTY_MAX: Final = 0.1
RATE: Final = 1_000  # messages a second, where they are paced
PRIORITIES: Final = 1_000
PRIORITY_ROUNDS: Final = 7
CONNECTIONS: Final = 50
METRICS: Final = ("messages_made_ready", "consumer_wakeups", "consumer_empty_wakeups")


def shares(scale: float) -> list[Figure]:
    """Shares of 50 equal consumers, of which 25 share a connection; with AMQP 1.0, of as many more."""
    count = int(MESSAGES * min(scale, 1))
    samples = max(1, int(scale))
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        figures = []
        for protocols in ("0-9-1", "0-9-1 and 1.0"):
            for prefetch in (0, 1, 10, 250):
                for flood in (False, True):
                    what = f"{'flood' if flood else 'backlog'}, {_told(prefetch)}, {protocols}"
                    mixed = "1.0" in protocols
                    worst = min(jain(share(daemon, count, prefetch, flood, mixed)) for _ in range(samples))
                    figures.append(Figure(f"{what}: 1 - Jain's index", 1 - worst, "", UNFAIR_MAX))
        figures += [_window(daemon, max(1000, int(count / 40)), window) for window in (1, 10)]
        daemon.stop()
    return figures


def share(
    daemon: Daemon,
    count: int,
    prefetch: int,
    flood: bool,
    mixed: bool = False,
    consumers: int = SHARED,
    pause: float = PAUSE_S,
) -> list[int]:
    """Return the messages that each consumer gets of `count` messages, consumers of shared connections first.

    Twice as many are published, so the sample ends before the messages do.
    `pause`: seconds between two looks for messages. A broker that takes longer to answer all consumers serves
    the consumers that it answers first more often.
    """
    queue = f"q-{prefetch}-{flood}-{mixed}"
    peer = Peer(daemon.address).open()
    channel = peer.channel(1)
    everybody = 2 * consumers * (2 if mixed else 1)
    channel.declare(queue, arguments={"x-consumers-before-dispatch": everybody})
    one = publish_bytes(queue, BODY)
    if not flood:
        _publish(peer, queue, one * 2 * count, 2 * count)
    ends: list[End] = [End091(daemon.address, queue, prefetch, [{}] * consumers)]
    ends += [End10(daemon.address, queue, prefetch, consumers)] if mixed else []
    ends += [End10(daemon.address, queue, prefetch, 1) for _ in range(consumers if mixed else 0)]
    # last, since dispatch begins with the last consumer, and a link has its credit only after it is attached
    ends += [End091(daemon.address, queue, prefetch, [{}]) for _ in range(consumers)]
    crowd = Crowd(ends)
    feeder = Feeder(daemon.address, one * 2 * count) if flood else None
    crowd.consume(count, feeder=feeder, pause=pause, each=EACH)
    got = crowd.shares
    crowd.close()
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    peer.close()
    return got


def _window(daemon: Daemon, count: int, window: int) -> Figure:
    """The shares of three queues in a single window of their channel."""
    peer = Peer(daemon.address).open()
    channel = peer.channel(1)
    queues = [channel.declare(exclusive=True) for _ in range(3)]
    for queue in queues:
        _publish(peer, queue, publish_bytes(queue, BODY) * count, count)
    channel.qos(window, whole_channel=True)
    for queue in queues:
        channel.consume(queue, queue)
    got = dict.fromkeys(queues, 0)
    for _ in range(count):
        message = channel.delivery()
        got[str(message.consumer_tag)] += 1
        channel.ack(message.tag)
    peer.close()
    name = f"3 queues in a channel's window of {window}: 1 - Jain's index"
    return Figure(name, 1 - jain(got.values()), "", UNFAIR_MAX)


def _told(prefetch: int) -> str:
    return f"prefetch {prefetch}" if prefetch else "no-ack"


def _publish(peer: Peer, queue: str, data: bytes, count: int) -> None:
    peer.send(data)
    channel = peer.channel(2)
    assert channel.counts(queue)[0] == count
    channel.close()


# ---- wake-ups


class Case(NamedTuple):
    """Sixty consumers of a single queue."""

    name: str
    queue: FieldTable = {}  # noqa: RUF012  it is never changed
    consumer: Callable[[int], FieldTable] = lambda _: {}
    headers: Callable[[int], FieldTable] = lambda _: {}
    prefetch: int = 1
    consumers: int = 60


def _selected(count: int) -> Callable[[int], FieldTable]:
    return lambda n: {"x-filter-jms-selector": f"k = {n % count}"}


def _keyed(count: int) -> Callable[[int], FieldTable]:
    return lambda n: {"k": n % count}


CASES: Final = (
    Case("plain"),
    Case("plain, prefetch 10", prefetch=10),
    Case("4 selectors", consumer=_selected(4), headers=_keyed(4)),
    Case("20 selectors", consumer=_selected(20), headers=_keyed(20)),
    Case("60 selectors", consumer=_selected(60), headers=_keyed(60)),
    Case("60 selectors, index", queue={"x-index": "k"}, consumer=_selected(60), headers=_keyed(60)),
    Case("40 shared groups", queue={"x-group-kind": "shared"}, headers=lambda n: {"x-group-id": n % 40}),
    Case("40 groups", queue={"x-group-key": "k"}, headers=_keyed(40)),
    Case("strict order", queue={"x-strict-order": True}),
)


def wakeups(scale: float) -> list[Figure]:
    """Wake-ups of 60 consumers for each message, and those without a message; prefetch 1."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        for rate in (RATE, 0):
            for case in CASES:
                what = f"{case.name}, {f'{rate:,}/s' if rate else 'flood'}"
                woken, empty, cost = woken_for(daemon, case, max(500, int(6_000 * scale)), rate)
                figures += [
                    Figure(f"{what}: wake-ups for each message", woken, ""),
                    Figure(f"{what}: empty ones", empty, "", EMPTY_MAX),
                    Figure(f"{what}: broker CPU for each message", cost, "us"),
                ]
        daemon.stop()
    return figures


def woken_for(daemon: Daemon, case: Case, count: int, rate: int) -> tuple[float, float, float]:
    """Wake-ups, empty ones and microseconds of CPU for each of `count` messages."""
    queue = f"{case.name} {rate}"
    peer = Peer(daemon.address).open()
    peer.channel(1).declare(queue, arguments=case.queue)
    crowd = Crowd(
        [End091(daemon.address, queue, case.prefetch, [case.consumer(n)]) for n in range(case.consumers)]
    )
    data = [
        publish_bytes(queue, BODY, properties=Basic.Properties(headers=case.headers(n))) for n in range(count)
    ]
    before, spent = _metrics(daemon), cpu_seconds(daemon.pid)
    if rate:
        crowd.consume(count, feed=_paced(peer, data, rate))
    else:
        crowd.consume(count, feeder=Feeder(daemon.address, b"".join(data)))
    cost = (cpu_seconds(daemon.pid) - spent) / count * 1e6
    made_ready, woken, empty = (b - a for a, b in zip(before, _metrics(daemon), strict=True))
    assert made_ready == count
    crowd.close()
    peer.close()
    return woken / count, empty / count, cost


def _paced(peer: Peer, data: list[bytes], rate: int) -> Callable[[], None]:
    began = time.monotonic()
    sent = 0

    def feed() -> None:
        nonlocal sent
        due = min(len(data), int((time.monotonic() - began) * rate))
        if due > sent:
            peer.send(b"".join(data[sent:due]))
            sent = due

    return feed


def _metrics(daemon: Daemon) -> list[float]:
    return [daemon.metric(f"amqpd_{name}_total") for name in METRICS]


# ---- priorities


def priorities(scale: float) -> list[Figure]:
    """The cost of a message with 1,000 consumers of the same priority, and of different ones; prefetch 1."""
    count = max(500, int(20_000 * scale))  # the CPU time of fewer is too short for the kernel to count
    rounds = max(1, int(PRIORITY_ROUNDS * scale))
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder)).wait_until_ready()
        equal, different = (_Ranks(daemon, each) for each in (False, True))
        costs = [(equal.cost(count), different.cost(count)) for _ in range(rounds)]
        equal.close()
        different.close()
        daemon.stop()
    return [
        Figure(f"{PRIORITIES:,} consumers of one priority", median(one for one, _ in costs), "us"),
        Figure("ratio: as many different priorities", median(other / one for one, other in costs), "", 1.3),
    ]


class _Ranks:
    """A queue and its consumers, on fifty connections."""

    def __init__(self, daemon: Daemon, different: bool) -> None:
        self._daemon = daemon
        self._queue = f"different {different}"
        peer = Peer(daemon.address).open()
        peer.channel(1).declare(self._queue)
        peer.close()
        arguments: list[FieldTable] = [{"x-priority": n if different else 0} for n in range(PRIORITIES)]
        each = PRIORITIES // CONNECTIONS
        self._crowd = Crowd(
            [
                End091(daemon.address, self._queue, 1, arguments[first : first + each])
                for first in range(0, PRIORITIES, each)
            ]
        )

    def cost(self, count: int) -> float:
        """Microseconds of the broker's CPU for each of `count` messages more."""
        spent = cpu_seconds(self._daemon.pid)
        data = publish_bytes(self._queue, BODY) * count
        self._crowd.consume(sum(self._crowd.shares) + count, feeder=Feeder(self._daemon.address, data))
        return (cpu_seconds(self._daemon.pid) - spent) / count * 1e6

    def close(self) -> None:
        """Close all connections."""
        self._crowd.close()
