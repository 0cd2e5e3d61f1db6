"""Statistics: what the broker and its objects have done, how fast, and when.

Every INTERVAL_SECONDS a pass reads all objects in slices, between which messages are handled. An object keeps
the numbers and rates of the last pass, so that the first request for it has its rates. The broker and its
virtual hosts have histories. Another object has a history from the first request for one until there was no
request for WATCHED_SECONDS. So the memory does not depend on the number of queues.
[RabbitMQ management: sample retention policies]
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import structlog

from broker.adapters.amqp091.connection import Connection091, channels_of
from broker.adapters.amqp091.state import ChannelState
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.peers.connections import Connections, Octets
from broker.admin.node import NODE, node_meter
from broker.admin.state import Measured
from broker.core.broker import Broker
from broker.core.counters import SECONDS_MIN, Counters, Reading, next_reading
from broker.core.partitions.partitioned import Totals, totals_of
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.statistics import QueueReader, numbers_of
from broker.core.vhosts.vhost import VirtualHost

INTERVAL_SECONDS: Final = 5.0
WATCHED_SECONDS: Final = 600.0
WATCHED_MAX: Final = 256
VHOSTS_MAX: Final = 256
"""Virtual hosts with a history; the others have rates only."""

QUEUES_AT_ONCE: Final = 500
OTHERS_AT_ONCE: Final = 200

Policy = tuple[tuple[int, int], ...]
"""For each resolution of a history, its age and its interval in seconds."""

GLOBAL: Final[Policy] = ((600, 5), (3600, 60), (28800, 600), (86400, 1800))
BASIC: Final[Policy] = ((600, 5), (3600, 60))
RETENTION: Final = {"global": GLOBAL, "basic": BASIC, "detailed": BASIC[:1]}
"""RabbitMQ's names for the policies: of the broker and virtual hosts, and of other objects."""

COUNTERS: Final = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver_get",
    "redeliver",
    "ack",
    "replaced",
)
"""RabbitMQ's names for `Flows.numbers`; `replaced` is amqpd's own."""

LENGTHS: Final = (
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "messages_held",
    "messages_dlx",
)
"""The names for the messages that are in a queue, behind COUNTERS in `numbers_of`."""

OF_QUEUE: Final = COUNTERS + LENGTHS
UNROUTABLE: Final = ("confirm", "return_unroutable", "drop_unroutable")
OF_CHANNEL: Final = COUNTERS + UNROUTABLE
MESSAGES: Final = (*OF_CHANNEL, "disk_reads", "disk_writes")
"""The counters of messages of the whole broker."""

CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
"""The counters of objects that come and go."""

TRAFFIC: Final = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")
"""The counters of a connection."""

OF_BROKER: Final = (*MESSAGES, *LENGTHS, *CHURN, *NODE)
OF_VHOST: Final = (*OF_QUEUE, "recv_oct", "send_oct")
OF_EXCHANGE: Final = ("publish_in", "publish_out")
Shown = dict[str, object]

_log = structlog.get_logger("amqpd.admin")


class Span(NamedTuple):
    """The history that a request wants: the last `age` seconds, with a sample for each `incr` seconds."""

    age: int
    incr: int


@dataclass(frozen=True)
class Spans:
    """The histories that a request wants, by the kind of numbers. None: none. [RabbitMQ *_age, *_incr]"""

    lengths: Span | None = None
    msg_rates: Span | None = None
    data_rates: Span | None = None
    node_stats: Span | None = None

    @property
    def any(self) -> bool:
        """Whether the request wants a history at all."""
        return self != NO_SPANS


NO_SPANS: Final = Spans()


@final
class History:
    """Rows of numbers over time, in rings of some resolutions. Times are in seconds of the system's clock."""

    def __init__(self, names: Sequence[str], policy: Policy) -> None:
        self._columns = {name: column for column, name in enumerate(names)}
        self._policy = policy
        self._rings: list[deque[tuple[float, list[int]]]] = [
            deque(maxlen=age // interval + 1) for age, interval in policy
        ]

    def add(self, at: float, row: list[int]) -> None:
        """Add a row. A ring takes the rows that are an interval or more behind its last one."""
        for (_, interval), ring in zip(self._policy, self._rings, strict=True):
            if not ring or not ring[-1][0] <= at < ring[-1][0] + interval - INTERVAL_SECONDS / 2:
                ring.append((at, row))

    def samples(self, name: str, span: Span, now: float) -> list[tuple[int, int]]:
        """Return pairs of a time in milliseconds and the number then, the latest first.

        The times are multiples of `span.incr`. There are none before the first row.
        """
        column = self._columns[name]
        ring = self._rings[-1]
        for (age, _), each in zip(self._policy, self._rings, strict=True):
            if span.age <= age:
                ring = each
                break
        found: list[tuple[int, int]] = []
        at = int(now) // span.incr * span.incr
        oldest = at - span.age
        for time_of_row, row in reversed(ring):
            while at >= time_of_row and at >= oldest:
                found.append((at * 1000, row[column]))
                at -= span.incr
        return found


def details(rate: float, samples: list[tuple[int, int]] | None) -> Shown:
    """Return the object that RabbitMQ's API has for a number's rate, and its history if that is wanted."""
    if samples is None:
        return {"rate": rate}
    shown: Shown = {
        "rate": rate,
        "samples": [{"sample": number, "timestamp": at} for at, number in samples],
        "avg_rate": 0.0,
        "avg": 0.0,
    }
    if samples:
        (last_at, last), (first_at, first) = samples[0], samples[-1]
        shown["avg"] = sum(number for _, number in samples) / len(samples)
        if last_at > first_at:
            shown["avg_rate"] = (last - first) * 1000 / (last_at - first_at)
    return shown


@final
class Measurement:
    """The numbers of an object with their rates, and their history if there is one.

    `consumers` and `bytes`: the consumers of its queues and the bytes of the bodies in them, where several
    queues are measured together.
    """

    def __init__(
        self,
        names: Sequence[str],
        numbers: Sequence[int],
        rates: Sequence[float] | None,
        history: History | None,
        now: float,
        consumers: int = 0,
        size: int = 0,
    ) -> None:
        self.consumers = consumers
        self.bytes = size
        self._numbers = dict(zip(names, numbers, strict=True))
        self._rates = dict(zip(names, rates, strict=True)) if rates is not None else {}
        self._history = history
        self._now = now

    def number(self, name: str) -> int:
        """Return a number."""
        return self._numbers[name]

    def rate(self, name: str) -> float:
        """Return the rate of a number."""
        return self._rates.get(name, 0.0)

    def details(self, name: str, span: Span | None) -> Shown:
        """Return the rate of a number, with its history over `span`."""
        samples = None
        if span is not None:
            samples = [] if self._history is None else self._history.samples(name, span, self._now)
        return details(self.rate(name), samples)

    def show(self, names: Iterable[str], span: Span | None) -> Shown:
        """Return numbers as RabbitMQ's API has them: each beside its `_details`."""
        shown: Shown = {}
        for name in names:
            shown[name] = self._numbers[name]
            shown[f"{name}_details"] = self.details(name, span)
        return shown


@final
class _Watch:
    """The history of an object, and the time of the last request for it."""

    def __init__(self, history: History, read: Callable[[], list[int]], asked: float) -> None:
        self.history = history
        self.read = read
        self.asked = asked


@final
class _Vhost:
    """The last reading of a virtual host, and its history."""

    def __init__(self, history: History | None) -> None:
        self.reading: Reading | None = None
        self.history = history
        self.received = 0
        self.sent = 0


def read_channel(channel: ChannelState) -> list[int]:
    """Return the numbers of a channel in the order of OF_CHANNEL."""
    traffic = channel.count_confirms()
    return [*traffic.numbers(), int(traffic.confirmed), int(traffic.returned), int(traffic.dropped)]


def read_exchange(exchange: Exchange) -> list[int]:
    """Return the numbers of an exchange in the order of OF_EXCHANGE."""
    return [int(exchange.published_in), int(exchange.published_out)]


def read_octets(octets: Octets) -> list[int]:
    """Return the numbers of a connection in the order of TRAFFIC."""
    return [int(octets.received), int(octets.sent), int(octets.reads), int(octets.writes)]


def _reading_of_active(
    before: Reading | None, numbers: list[int], now: float, seconds: float
) -> Reading | None:
    """Return the reading after `before`. None: nothing has happened yet."""
    return None if before is None and not any(numbers) else next_reading(before, now, seconds, numbers)


def open_connections(connections: Connections) -> list[Connection091 | Connection10]:
    """Return the open connections of clients."""
    return [each for each in connections.all if isinstance(each, Connection091 | Connection10)]


async def read_all(reader: QueueReader) -> None:
    """Read all queues, a part in each turn of the event loop."""
    while True:
        if not reader.read(QUEUES_AT_ONCE):
            return
        await asyncio.sleep(0)


@final
class Statistics:
    """The readings and histories of a daemon. `start` begins the passes, `stop` ends them."""

    def __init__(
        self,
        broker: Broker,
        connections: Connections,
        measured: Measured,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._measured = measured
        self._measure = node_meter(measured)
        self._clock = clock
        self._date = date
        self._task: asyncio.Task[None] | None = None
        self._last: float | None = None
        self._whole: Reading | None = None
        self._history = History(OF_BROKER, GLOBAL)
        self._vhosts: dict[str, _Vhost] = {}
        self._watched: OrderedDict[Hashable, _Watch] = OrderedDict()
        self._lengths = [0] * len(LENGTHS)

    def start(self) -> None:
        """Begin the passes, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="statistics")

    async def stop(self) -> None:
        """End the passes. Nothing happens if they were not begun."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self.read()
            except Exception:
                _log.exception("statistics could not be read")
            await asyncio.sleep(INTERVAL_SECONDS)

    # ---- a pass

    async def read(self) -> None:
        """Read all objects once."""
        now = self._clock()
        seconds = 0.0 if self._last is None else max(SECONDS_MIN, now - self._last)
        self._last = now
        lengths = [0] * len(LENGTHS)
        for name, vhost in list(self._broker.vhosts.items()):
            reader = QueueReader(vhost, True, now, seconds)
            await read_all(reader)
            numbers = reader.finish()
            for index, length in enumerate(numbers[len(COUNTERS) :]):
                lengths[index] += length
            kept = self._vhosts.get(name)
            if kept is None:
                history = History(OF_VHOST, BASIC) if len(self._vhosts) < VHOSTS_MAX else None
                kept = self._vhosts[name] = _Vhost(history)
            await self._read_exchanges(list(vhost.topology.exchanges.values()), now, seconds)
            row = [*numbers, kept.received, kept.sent]
            kept.reading = next_reading(kept.reading, now, seconds, row)
            if kept.history is not None:
                kept.history.add(self._date(), row)
        for name in [name for name in self._vhosts if name not in self._broker.vhosts]:
            del self._vhosts[name]
        await self._read_connections(now, seconds)
        self._lengths = lengths
        row = self._numbers()
        self._whole = next_reading(self._whole, now, seconds, row)
        self._history.add(self._date(), row)
        self._read_watched(now)

    async def _read_exchanges(self, exchanges: list[Exchange], now: float, seconds: float) -> None:
        for start in range(0, len(exchanges), OTHERS_AT_ONCE):
            for exchange in exchanges[start : start + OTHERS_AT_ONCE]:
                numbers = read_exchange(exchange)
                exchange.reading = _reading_of_active(exchange.reading, numbers, now, seconds)
            await asyncio.sleep(0)

    async def _read_connections(self, now: float, seconds: float) -> None:
        connections = open_connections(self._connections)
        for start in range(0, len(connections), OTHERS_AT_ONCE):
            for connection in connections[start : start + OTHERS_AT_ONCE]:
                self._read_connection(connection, now, seconds)
            await asyncio.sleep(0)

    def _read_connection(self, connection: Connection091 | Connection10, now: float, seconds: float) -> None:
        octets, vhost = connection.octets, connection.virtual_host
        before = octets.reading
        received, sent = (0, 0) if before is None else (before.numbers[0], before.numbers[1])
        octets.reading = _reading_of_active(before, read_octets(octets), now, seconds)
        kept = self._vhosts.get(vhost.name) if vhost is not None else None
        if kept is not None:
            kept.received += int(octets.received) - received
            kept.sent += int(octets.sent) - sent
        if isinstance(connection, Connection091):
            for channel in channels_of(connection):
                traffic = channel.traffic
                numbers = read_channel(channel)
                traffic.reading = _reading_of_active(traffic.reading, numbers, now, seconds)

    def _read_watched(self, now: float) -> None:
        date = self._date()
        while self._watched:
            item, watch = next(iter(self._watched.items()))
            if now - watch.asked <= WATCHED_SECONDS:
                break
            del self._watched[item]
        for watch in self._watched.values():
            watch.history.add(date, watch.read())

    def forget_histories(self) -> None:
        """Forget all histories. They begin anew; counts and rates continue."""
        self._history = History(OF_BROKER, GLOBAL)
        for kept in self._vhosts.values():
            if kept.history is not None:
                kept.history = History(OF_VHOST, BASIC)
        self._watched.clear()

    # ---- answers to requests

    async def of_broker(self) -> Measurement:
        """Return the numbers of the whole broker, OF_BROKER."""
        numbers, consumers, size = await self._sum(self._broker.vhosts.values())
        self._lengths = numbers[len(COUNTERS) :]
        rates = None if self._whole is None else self._whole.rates
        return Measurement(OF_BROKER, self._numbers(), rates, self._history, self._date(), consumers, size)

    async def of_vhosts(self, vhosts: Sequence[VirtualHost]) -> Measurement:
        """Return the sums of the numbers of virtual hosts, OF_VHOST; a history only for a single one."""
        numbers, consumers, size = await self._sum(vhosts)
        kept = [each for each in (self._vhosts.get(vhost.name) for vhost in vhosts) if each is not None]
        numbers += [sum(each.received for each in kept), sum(each.sent for each in kept)]
        all_rates = [each.reading.rates for each in kept if each.reading is not None]
        rates = [sum(column) for column in zip(*all_rates, strict=True)]
        history = kept[0].history if len(vhosts) == len(kept) == 1 else None
        return Measurement(OF_VHOST, numbers, rates or None, history, self._date(), consumers, size)

    async def _sum(self, vhosts: Iterable[VirtualHost]) -> tuple[list[int], int, int]:
        """Return the sums of the numbers of all queues, OF_QUEUE, as they are now.

        The sums of their consumers, and of the bytes of their messages, follow.
        """
        sums = [0] * len(OF_QUEUE)
        consumers = size = 0
        for vhost in list(vhosts):
            reader = QueueReader(vhost)
            await read_all(reader)
            consumers += int(reader.consumers)
            size += reader.totals.bytes
            for index, number in enumerate(reader.finish()):
                sums[index] += number
        return sums, consumers, size

    def of_queue(self, queue: Queue, totals: Totals, spans: Spans = NO_SPANS) -> Measurement:
        """Return the numbers of a queue with these totals, OF_QUEUE."""

        def read() -> list[int]:
            return numbers_of(totals_of(queue))

        return self._measurement(queue, OF_QUEUE, queue.reading, numbers_of(totals), read, spans)

    def of_exchange(self, exchange: Exchange, spans: Spans = NO_SPANS) -> Measurement:
        """Return the numbers of an exchange, OF_EXCHANGE."""

        def read() -> list[int]:
            return read_exchange(exchange)

        return self._measurement(exchange, OF_EXCHANGE, exchange.reading, read(), read, spans)

    def of_channel(self, channel: ChannelState, spans: Spans = NO_SPANS) -> Measurement:
        """Return the numbers of a channel, OF_CHANNEL."""
        traffic = channel.traffic

        def read() -> list[int]:
            return read_channel(channel)

        return self._measurement(traffic, OF_CHANNEL, traffic.reading, read(), read, spans)

    def of_connection(self, octets: Octets, spans: Spans = NO_SPANS) -> Measurement:
        """Return the numbers of a connection, TRAFFIC."""

        def read() -> list[int]:
            return read_octets(octets)

        return self._measurement(octets, TRAFFIC, octets.reading, read(), read, spans)

    def _measurement(
        self,
        item: Hashable,
        names: Sequence[str],
        reading: Reading | None,
        numbers: list[int],
        read: Callable[[], list[int]],
        spans: Spans,
    ) -> Measurement:
        history = self._history_of(item, names, read) if spans.any else None
        rates = None if reading is None else reading.rates
        return Measurement(names, numbers, rates, history, self._date())

    def _history_of(self, item: Hashable, names: Sequence[str], read: Callable[[], list[int]]) -> History:
        """Return the history of an object, which begins now if it has none."""
        watch = self._watched.pop(item, None)
        if watch is None:
            watch = _Watch(History(names, BASIC), read, 0.0)
            watch.history.add(self._date(), read())
        watch.asked = self._clock()
        self._watched[item] = watch
        if len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)
        return watch.history

    def _numbers(self) -> list[int]:
        """Return the numbers of the broker in the order of OF_BROKER; the lengths are of the last pass."""
        counters: Counters = self._broker.counters
        return [
            *counters.numbers(),
            int(counters.confirmed),
            int(counters.returned),
            int(counters.unroutable),
            self._measured.log.message_reads,
            int(counters.disk_writes),
            *self._lengths,
            int(counters.connections_opened),
            int(counters.connections_closed),
            int(counters.channels_opened),
            int(counters.channels_closed),
            int(counters.queues_declared),
            int(counters.queues_created),
            int(counters.queues_deleted),
            *self._measure(),
        ]
