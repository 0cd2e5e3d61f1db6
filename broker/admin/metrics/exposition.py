"""The answer to a scrape: all metrics in sums, those of each object, or chosen families of these.

The queues are read and written in slices, between which the event loop does other work.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.admin.metrics import objects, own, rabbitmq
from broker.admin.metrics.objects import (
    CHANNEL_KIND,
    CONNECTION_KIND,
    EXCHANGE_KIND,
    KINDS,
    QUEUE_KIND,
    QUEUES,
    Table,
    add_up,
    count_bindings,
    exchange_labels,
    in_slices,
    queue_info,
    read_each,
    sum_queues,
)
from broker.admin.metrics.text import (
    DETAILED,
    GAUGE,
    OWN,
    RABBITMQ,
    Described,
    heading,
    histogram,
    label_text,
    lines,
)
from broker.admin.state import AdminState
from broker.core.vhosts.vhost import VirtualHost

SLICE: Final = 1000
"""Samples written in one turn of the event loop: about a millisecond."""

AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"
CHOSEN: Final = "detailed"
"""RabbitMQ's names for the three views."""

VHOSTS: Final = "vhost_status"
EXCHANGES: Final = "exchange_names"
BINDINGS: Final = "exchange_bindings"

FAMILIES: Final = frozenset(
    {
        *(metric.family for kind in KINDS for metric in kind.metrics),
        *rabbitmq.WHOLE,
        rabbitmq.ATTEMPTS,
        VHOSTS,
        EXCHANGES,
        BINDINGS,
    }
)
"""The families that `/metrics/detailed` has."""

OTHER_FAMILIES: Final = frozenset(
    {
        "auth_attempt_detailed_metrics",
        "channel_process_metrics",
        "channel_queue_exchange_metrics",
        "queue_exchange_metrics",
        "ra_metrics",
        "stream_consumer_metrics",
    }
)
"""The families that RabbitMQ has and amqpd has no numbers for. They are empty."""


@dataclass(frozen=True)
class View:
    """The metrics that a scrape wants.

    `families`, `vhosts`: those that `/metrics/detailed` chooses; None: all virtual hosts.
    """

    kind: str = AGGREGATED
    families: frozenset[str] = frozenset()
    vhosts: frozenset[str] | None = None


class _Prepared(Collector):
    """The collector of the metrics of a scrape, which are prepared before they are collected."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        """Return the prepared metrics."""
        return self.metrics


class Exposition:
    """Writes the metrics of one daemon."""

    def __init__(self, state: AdminState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._prepared = _Prepared()
        self._registry = CollectorRegistry()
        self._registry.register(self._prepared)
        ProcessCollector(registry=self._registry)

    async def write(self, view: View) -> AsyncIterator[bytes]:
        """Yield the text of all metrics of a view, in pieces between which other work may run."""
        state = self._state
        yield rabbitmq.identity(state, view.kind).encode()
        if view.kind == CHOSEN:
            async for piece in self._chosen(view):
                yield piece
            return
        broker, connections = state.measured.broker, state.measured.connections
        store, now = broker.store, self._clock()
        sums = await sum_queues(broker, now)
        protocols = await rabbitmq.sum_protocols(connections)
        self._prepared.metrics = [
            *own.collect_whole(state, sums),
            histogram(*rabbitmq.SIZE, broker.counters.message_sizes),
        ]
        yield generate_latest(self._registry)
        yield "".join(rabbitmq.whole(state, sums, protocols)).encode()
        vhosts = list(broker.vhosts.values())
        if view.kind == AGGREGATED:
            tables = [
                await add_up(QUEUE_KIND, [((), sums.row)]),
                await add_up(EXCHANGE_KIND, objects.exchanges(vhosts)),
                await add_up(CONNECTION_KIND, objects.connections(connections)),
                await add_up(CHANNEL_KIND, objects.channels(connections)),
            ]
        else:
            tables = [
                await read_each(QUEUE_KIND, objects.queues(vhosts, store, now)),
                await read_each(EXCHANGE_KIND, objects.exchanges(vhosts)),
                await read_each(CONNECTION_KIND, objects.connections(connections)),
                await read_each(CHANNEL_KIND, objects.channels(connections)),
            ]
        async for piece in _write(tables, ""):
            yield piece
        if view.kind == PER_OBJECT:
            async for piece in _write_queue_info(vhosts, RABBITMQ):
                yield piece

    async def _chosen(self, view: View) -> AsyncIterator[bytes]:
        state, families = self._state, view.families
        broker, connections = state.measured.broker, state.measured.connections
        vhosts = [
            vhost for vhost in broker.vhosts.values() if view.vhosts is None or vhost.name in view.vhosts
        ]
        store, now = broker.store, self._clock()
        yield "".join(rabbitmq.detailed(state, families)).encode()
        wanted = sorted(families)
        tables = [
            await read_each(QUEUE_KIND, objects.queues(vhosts, store, now), wanted),
            await read_each(EXCHANGE_KIND, objects.exchanges(vhosts), wanted),
            await read_each(CONNECTION_KIND, objects.connections(connections), wanted),
            await read_each(CHANNEL_KIND, objects.channels(connections), wanted),
        ]
        async for piece in _write(tables, DETAILED):
            yield piece
        if families.intersection(QUEUES):
            async for piece in _write_queue_info(vhosts, RABBITMQ + DETAILED):
                yield piece
        if VHOSTS in families:
            samples = [(label_text({"vhost": vhost.name}), 1.0) for vhost in vhosts]
            yield lines(rabbitmq.VHOST_STATUS[0], GAUGE, rabbitmq.VHOST_STATUS[1], samples).encode()
        if EXCHANGES in families:
            name, text = rabbitmq.EXCHANGE_NAME
            yield heading(name, GAUGE, text).encode()
            async for part in in_slices(exchange_labels(vhosts), SLICE):
                yield "".join([f"{name}{label} 1\n" for label, _ in part]).encode()
        if BINDINGS in families:
            name, text = rabbitmq.EXCHANGE_BINDINGS
            yield heading(name, GAUGE, text).encode()
            async for part in in_slices(exchange_labels(vhosts), SLICE):
                rows = [f"{name}{label} {count_bindings(exchange)}\n" for label, exchange in part]
                yield "".join(rows).encode()


def _prefixes(own_too: bool, rabbitmq_too: bool) -> Iterable[str]:
    return [prefix for prefix, shown in ((OWN, own_too), (RABBITMQ, rabbitmq_too)) if shown]


async def _write(tables: list[Table], infix: str) -> AsyncIterator[bytes]:
    """Yield a sample for each row of each table; `infix` follows the prefix of the names."""
    for table in tables:
        for metric, column in zip(table.metrics, table.columns, strict=True):
            for prefix in _prefixes(metric.own, metric.rabbitmq):
                name = f"{prefix}{infix}{metric.name}"
                pieces = [heading(name, metric.kind, metric.text)]
                samples = zip(table.labels, column, strict=True)
                async for part in in_slices(samples, SLICE):
                    pieces += [f"{name}{label} {value}\n" for label, value in part if value is not None]
                    yield "".join(pieces).encode()
                    pieces.clear()
                if pieces:
                    yield pieces[0].encode()


async def _write_queue_info(vhosts: list[VirtualHost], prefix: str) -> AsyncIterator[bytes]:
    name, text = f"{prefix}{rabbitmq.QUEUE_INFO[0]}", rabbitmq.QUEUE_INFO[1]
    yield heading(name, GAUGE, text).encode()
    async for part in in_slices(queue_info(vhosts), SLICE):
        yield "".join([f"{name}{label} 1\n" for label in part]).encode()


def describe_metrics() -> list[Described]:
    """Return all metrics but those of the process.

    Those of objects have their labels only where a scrape shows each object.
    """
    return [
        *own.describe_whole(),
        *rabbitmq.describe(),
        *(
            Described(f"{prefix}{metric.name}", metric.kind, kind.labels, metric.text)
            for kind in KINDS
            for metric in kind.metrics
            for prefix in _prefixes(metric.own, metric.rabbitmq)
        ),
        Described(
            f"{RABBITMQ}{rabbitmq.QUEUE_INFO[0]}",
            GAUGE,
            rabbitmq.QUEUE_INFO_LABELS,
            rabbitmq.QUEUE_INFO[1],
        ),
        Described(rabbitmq.VHOST_STATUS[0], GAUGE, ("vhost",), rabbitmq.VHOST_STATUS[1]),
        Described(rabbitmq.EXCHANGE_NAME[0], GAUGE, rabbitmq.EXCHANGE_KIND_LABELS, rabbitmq.EXCHANGE_NAME[1]),
        Described(
            rabbitmq.EXCHANGE_BINDINGS[0],
            GAUGE,
            rabbitmq.EXCHANGE_KIND_LABELS,
            rabbitmq.EXCHANGE_BINDINGS[1],
        ),
    ]
