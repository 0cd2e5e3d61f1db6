"""The metrics of the broker as a whole under the names of RabbitMQ's Prometheus plugin.

Its dashboards find them by these names. Metrics of Erlang, of Raft and of RabbitMQ's stream protocol have no
counterpart here, and are not shown as 0. [RabbitMQ rabbitmq_prometheus, rabbit_global_counters]
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from broker.adapters.amqp091.connection import Connection091, channels_of
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.send import OutgoingLink
from broker.adapters.peers.connections import AMQP091, AMQP10, Connections
from broker.admin.metrics.objects import OTHERS_AT_ONCE, QueueSums, attribute
from broker.admin.metrics.text import (
    COUNTER,
    DETAILED,
    GAUGE,
    HISTOGRAM,
    INFO,
    RABBITMQ,
    Described,
    label_text,
    lines,
)
from broker.admin.node import NODE, files_max, node_meter
from broker.admin.state import AdminState, MeasuredLog, MeasuredResources
from broker.admin.statistics import open_connections
from broker.core.counters import Counters, Traffic

PROTOCOL_LABELS: Final = ("protocol",)
DELIVERY_LABELS: Final = ("protocol", "queue_type")
QUEUE_TYPE: Final = "rabbit_classic_queue"
"""RabbitMQ's name for the type of all queues: amqpd has one kind of queue, whatever `x-queue-type` is."""


class ProtocolRow(NamedTuple):
    """A protocol as its metrics see it.

    `traffic` has the counts of all its channels or sessions since the start. `publishers` are those that have
    published, `consumers` the consumers now.
    """

    traffic: Traffic
    publishers: int
    consumers: int


async def sum_protocols(connections: Connections) -> dict[str, ProtocolRow]:
    """Return the sums over the channels of AMQP 0-9-1 and the sessions of AMQP 1.0."""
    publishers = dict.fromkeys(connections.traffic, 0)
    consumers = dict.fromkeys(connections.traffic, 0)
    for number, connection in enumerate(open_connections(connections), start=1):
        if isinstance(connection, Connection091):
            for channel in channels_of(connection):
                channel.count_confirms().flush(connections.traffic[AMQP091])
                publishers[AMQP091] += channel.traffic.published > 0
                consumers[AMQP091] += len(channel.targets)
        else:
            for session in connection.mapped.all():
                session.traffic.flush(connections.traffic[AMQP10])
                links = session.links.values()
                publishers[AMQP10] += sum(isinstance(link, IncomingLink) for link in links)
                consumers[AMQP10] += sum(isinstance(link, OutgoingLink) for link in links)
        if number % OTHERS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return {
        protocol: ProtocolRow(traffic, publishers[protocol], consumers[protocol])
        for protocol, traffic in connections.traffic.items()
    }


class Source(NamedTuple):
    """The source of the metrics of the broker as a whole.

    `started` is the time of its start on the monotonic clock, in seconds. `node` are the numbers of the
    process by RabbitMQ's names. `consumers` are those of all queues.
    """

    counters: Counters
    resources: MeasuredResources
    log: MeasuredLog
    started: float
    node: dict[str, int]
    queues: int
    consumers: int = 0


class WholeMetric(NamedTuple):
    """A metric of the broker as a whole, or of a protocol; `read` returns its value."""

    kind: str
    name: str
    read: Callable[[Any], float]
    text: str


def _counter(name: str, read: str | Callable[[Any], float], text: str) -> WholeMetric:
    """Return a counter; a `read` in text is a path of attributes."""
    return WholeMetric(COUNTER, name, attribute(read) if isinstance(read, str) else read, text)


def _gauge(name: str, read: str | Callable[[Any], float], text: str) -> WholeMetric:
    return _counter(name, read, text)._replace(kind=GAUGE)


CHURN: Final = (
    _counter("connections_opened_total", "counters.connections_opened", "Connections opened."),
    _counter("connections_closed_total", "counters.connections_closed", "Connections closed."),
    _counter("channels_opened_total", "counters.channels_opened", "Channels and sessions opened."),
    _counter("channels_closed_total", "counters.channels_closed", "Channels and sessions closed."),
    _counter("queues_declared_total", "counters.queues_declared", "Declarations of queues, new or present."),
    _counter("queues_created_total", "counters.queues_created", "Queues created."),
    _counter("queues_deleted_total", "counters.queues_deleted", "Queues deleted."),
)
NODE_USE: Final = (
    _gauge("process_open_fds", lambda source: source.node["fd_used"], "Open file descriptors."),
    _gauge(
        "process_resident_memory_bytes",
        lambda source: source.node["mem_used"],
        "Resident memory of the broker.",
    ),
    _gauge(
        "disk_space_available_bytes",
        lambda source: source.node["disk_free"],
        "Free disk space for the data.",
    ),
)
NODE_LIMITS: Final = (
    _gauge("process_max_fds", lambda source: files_max(), "File descriptors that the process may open."),
    _gauge(
        "resident_memory_limit_bytes",
        "resources.memory_max",
        "Resident memory above which publishers wait; 0: no limit.",
    ),
    _gauge(
        "disk_space_available_limit_bytes",
        "resources.disk_free_min",
        "Free disk space below which publishers wait.",
    ),
    _gauge(
        "erlang_uptime_seconds",
        lambda source: time.monotonic() - source.started,
        "Time since the start of the broker.",
    ),
)
PERSISTER: Final = (
    _counter("io_read_ops_total", lambda source: source.node["io_read_count"], "System calls that read."),
    _counter("io_read_bytes_total", lambda source: source.node["io_read_bytes"], "Bytes read from the disk."),
    _counter("io_write_ops_total", lambda source: source.node["io_write_count"], "System calls that write."),
    _counter(
        "io_write_bytes_total", lambda source: source.node["io_write_bytes"], "Bytes written to the disk."
    ),
    _counter("io_sync_ops_total", lambda source: source.node["io_sync_count"], "Syncs of the log."),
    _counter(
        "io_sync_time_seconds_total",
        lambda source: source.log.sync_latency.sum,
        "Sum of the durations of the log's syncs.",
    ),
    _counter("msg_store_read_total", "log.message_reads", "Messages read from the disk."),
    _counter("msg_store_write_total", "counters.disk_writes", "Persistent messages appended to the log."),
)

WHOLE: Final = {
    "connection_churn_metrics": CHURN,
    "node_coarse_metrics": NODE_USE,
    "node_metrics": NODE_LIMITS,
    "node_persister_metrics": PERSISTER,
}
"""The metrics of a Source that `/metrics/detailed` has too, by family."""

TOTALS: Final = (
    _gauge("connections", lambda source: source.node["sockets_used"], "Open connections."),
    _gauge(
        "channels",
        lambda source: int(source.counters.channels_opened - source.counters.channels_closed),
        "Open channels and sessions.",
    ),
    _gauge("consumers", "consumers", "Consumers."),
    _gauge("queues", "queues", "Queues."),
    _gauge(
        "alarms_memory_used_watermark",
        "resources.shortage.memory",
        "1 while publishers wait for memory, else 0.",
    ),
    _gauge(
        "alarms_free_disk_space_watermark",
        "resources.shortage.disk",
        "1 while publishers wait for disk space, else 0.",
    ),
    _gauge(
        "alarms_file_descriptor_limit",
        lambda source: int(source.node["fd_used"] >= files_max()),
        "1 while no file can be opened, else 0.",
    ),
    _counter(
        "global_messages_routed_total",
        lambda source: int(source.counters.made_ready - source.counters.requeued),
        "Messages put into queues, counted for each queue.",
    ),
)
"""The metrics of a Source that only the whole broker has."""

ATTEMPTS: Final = "auth_attempt_metrics"
AUTH: Final = (
    _counter("auth_attempts_total", sum, "Log-ins, accepted or refused."),
    _counter("auth_attempts_succeeded_total", itemgetter(0), "Log-ins accepted."),
    _counter("auth_attempts_failed_total", itemgetter(1), "Log-ins refused."),
)
"""The metrics of the counts of log-ins: accepted, refused."""

BY_PROTOCOL: Final = (
    _counter("messages_received_total", "traffic.published", "Messages received."),
    _counter(
        "messages_received_confirm_total",
        "traffic.to_confirm",
        "Messages received whose publishers wait for a confirm.",
    ),
    _counter("messages_confirmed_total", "traffic.confirmed", "Messages confirmed."),
    _counter(
        "messages_unroutable_dropped_total", "traffic.dropped", "Messages dropped because no queue took them."
    ),
    _counter(
        "messages_unroutable_returned_total", "traffic.returned", "Messages returned to their publishers."
    ),
    _gauge("publishers", "publishers", "Channels that have published, and links that publish."),
    _gauge("consumers", "consumers", "Consumers, and links that consume."),
)
"""The metrics of a ProtocolRow."""

BY_QUEUE_TYPE: Final = (
    _counter("messages_delivered_total", "traffic.delivered", "Messages delivered."),
    _counter(
        "messages_delivered_consume_manual_ack_total",
        "traffic.delivered_by_hand",
        "Messages sent to consumers that acknowledge.",
    ),
    _counter(
        "messages_delivered_consume_auto_ack_total",
        "traffic.delivered_no_ack",
        "Messages sent to consumers that acknowledge nothing.",
    ),
    _counter(
        "messages_delivered_get_manual_ack_total",
        "traffic.got",
        "Messages sent to basic.get that need an acknowledgement.",
    ),
    _counter(
        "messages_delivered_get_auto_ack_total",
        "traffic.got_no_ack",
        "Messages sent to basic.get that need no acknowledgement.",
    ),
    _counter(
        "messages_get_empty_total",
        "traffic.got_empty",
        "Answers to basic.get that the queue has no message.",
    ),
    _counter(
        "messages_redelivered_total",
        "traffic.redelivered",
        "Deliveries of messages that had been delivered before.",
    ),
    _counter("messages_acknowledged_total", "traffic.acked", "Deliveries acknowledged."),
)
"""The metrics of a ProtocolRow that RabbitMQ has for each type of queue."""

GLOBAL: Final = f"{RABBITMQ}global_"

SIZE: Final = (f"{RABBITMQ}message_size_bytes", "Sizes of the bodies of published messages.")
BUILD: Final = (f"{RABBITMQ}build_info", "Version of amqpd, and of the RabbitMQ that its HTTP API follows.")
BUILD_LABELS: Final = (
    "rabbitmq_version",
    "prometheus_plugin_version",
    "prometheus_client_version",
    "erlang_version",
    "product_name",
    "product_version",
)
IDENTITY: Final = (f"{RABBITMQ}identity_info", "Name of the broker and of its cluster.")
IDENTITY_LABELS: Final = (
    "rabbitmq_node",
    "rabbitmq_cluster",
    "rabbitmq_cluster_permanent_id",
    "rabbitmq_endpoint",
)
VHOST_STATUS: Final = (f"{RABBITMQ}cluster_vhost_status", "1: the virtual host takes connections.")
EXCHANGE_NAME: Final = (f"{RABBITMQ}cluster_exchange_name", "1 for each exchange.")
EXCHANGE_BINDINGS: Final = (f"{RABBITMQ}cluster_exchange_bindings", "Bindings of the exchange.")
EXCHANGE_KIND_LABELS: Final = ("vhost", "exchange", "type")
QUEUE_INFO: Final = ("queue_info", "1 for each queue, with its type.")
QUEUE_INFO_LABELS: Final = ("vhost", "queue", "queue_type", "membership")


def identity(state: AdminState, endpoint: str) -> str:
    """Return the metrics that name the broker. `endpoint`: RabbitMQ's name for the path of the scrape."""
    broker = state.measured.broker
    versions = (state.rabbitmq_version, state.version, "", "none", "amqpd", state.version)
    build = dict(zip(BUILD_LABELS, versions, strict=True))
    node = broker.node
    names = dict(zip(IDENTITY_LABELS, (node, broker.cluster_name, node, endpoint), strict=True))
    return lines(BUILD[0], GAUGE, BUILD[1], [(label_text(build), 1)]) + lines(
        IDENTITY[0], GAUGE, IDENTITY[1], [(label_text(names), 1)]
    )


def _source(state: AdminState, consumers: int = 0) -> Source:
    measured = state.measured
    broker = measured.broker
    node = dict(zip(NODE, node_meter(measured)(), strict=True))
    count = sum(len(vhost.topology.queues) for vhost in broker.vhosts.values())
    return Source(broker.counters, measured.resources, measured.log, state.started, node, count, consumers)


def _write(prefix: str, metrics: Iterable[WholeMetric], rows: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield metrics with a sample for each row, which is the text of its labels and what the metrics read."""
    rows = list(rows)
    for metric in metrics:
        samples = [(labels, metric.read(each)) for labels, each in rows]
        yield lines(f"{prefix}{metric.name}", metric.kind, metric.text, samples)


def _attempts(counters: Counters, prefix: str) -> Iterator[str]:
    attempts = sorted(counters.attempts.items())
    return _write(prefix, AUTH, [(label_text({"protocol": name}), pair) for name, pair in attempts])


def detailed(state: AdminState, families: frozenset[str]) -> Iterator[str]:
    """Yield the metrics of the broker as a whole that are in `families`."""
    prefix = RABBITMQ + DETAILED
    chosen = [metrics for family, metrics in WHOLE.items() if family in families]
    if chosen:
        yield from _write(prefix, chain(*chosen), [("", _source(state))])
    if ATTEMPTS in families:
        yield from _attempts(state.measured.broker.counters, prefix)


def whole(state: AdminState, sums: QueueSums, protocols: Mapping[str, ProtocolRow]) -> Iterator[str]:
    """Yield the metrics of the broker as a whole."""
    source = _source(state, sums.row.consumers)
    yield from _write(RABBITMQ, chain(*WHOLE.values(), TOTALS), [("", source)])
    yield from _attempts(source.counters, RABBITMQ)
    yield from _write(
        GLOBAL, BY_PROTOCOL, [(label_text({"protocol": name}), row) for name, row in protocols.items()]
    )
    rows = [
        (label_text({"protocol": name, "queue_type": QUEUE_TYPE}), row) for name, row in protocols.items()
    ]
    yield from _write(GLOBAL, BY_QUEUE_TYPE, rows)


def describe() -> list[Described]:
    """Return RabbitMQ's metrics of the broker as a whole, as `/metrics` shows them."""
    return [
        Described(BUILD[0], INFO, BUILD_LABELS, BUILD[1]),
        Described(IDENTITY[0], INFO, IDENTITY_LABELS, IDENTITY[1]),
        *(
            Described(f"{prefix}{each.name}", each.kind, labels, each.text)
            for prefix, labels, metrics in (
                (RABBITMQ, (), chain(*WHOLE.values(), TOTALS)),
                (RABBITMQ, PROTOCOL_LABELS, AUTH),
                (GLOBAL, PROTOCOL_LABELS, BY_PROTOCOL),
                (GLOBAL, DELIVERY_LABELS, BY_QUEUE_TYPE),
            )
            for each in metrics
        ),
        Described(SIZE[0], HISTOGRAM, (), SIZE[1]),
    ]
