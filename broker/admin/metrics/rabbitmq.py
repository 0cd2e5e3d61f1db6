"""The metrics of the broker as a whole under the names of RabbitMQ's Prometheus plugin.

Its dashboards find them by these names. What belongs to Erlang, to Raft or to RabbitMQ's stream protocol has
no counterpart here, and is not shown as 0. [RabbitMQ rabbitmq_prometheus, rabbit_global_counters]
"""

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from broker.adapters.amqp091.connection import Connection091, channels_of
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.send import OutgoingLink
from broker.adapters.peers.connections import AMQP091, AMQP10, Connections
from broker.admin.metrics.objects import OTHERS_AT_ONCE, QueueSums, open_connections
from broker.admin.metrics.text import (
    COUNTER,
    DETAILED,
    GAUGE,
    HISTOGRAM,
    INFO,
    RABBITMQ,
    Described,
    bound_text,
    label_text,
    lines,
)
from broker.admin.node import NODE, node_meter, open_files
from broker.admin.state import AdminState
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

    `node` are the numbers of the process by RabbitMQ's names. `consumers`: those of all queues.
    """

    state: AdminState
    counters: Counters
    node: dict[str, int]
    consumers: int = 0


class WholeMetric(NamedTuple):
    """A metric of the broker as a whole; `read` returns its value."""

    name: str
    kind: str
    text: str
    family: str
    read: Callable[[Source], float]


CHURN: Final = "connection_churn_metrics"
NODE_USE: Final = "node_coarse_metrics"
NODE_LIMITS: Final = "node_metrics"
PERSISTER: Final = "node_persister_metrics"

WHOLE: Final = (
    WholeMetric(
        "connections_opened_total",
        COUNTER,
        "Connections opened.",
        CHURN,
        lambda source: int(source.counters.connections_opened),
    ),
    WholeMetric(
        "connections_closed_total",
        COUNTER,
        "Connections closed.",
        CHURN,
        lambda source: int(source.counters.connections_closed),
    ),
    WholeMetric(
        "channels_opened_total",
        COUNTER,
        "Channels and sessions opened.",
        CHURN,
        lambda source: int(source.counters.channels_opened),
    ),
    WholeMetric(
        "channels_closed_total",
        COUNTER,
        "Channels and sessions closed.",
        CHURN,
        lambda source: int(source.counters.channels_closed),
    ),
    WholeMetric(
        "queues_declared_total",
        COUNTER,
        "Declarations of queues, new or present.",
        CHURN,
        lambda source: int(source.counters.queues_declared),
    ),
    WholeMetric(
        "queues_created_total",
        COUNTER,
        "Queues created.",
        CHURN,
        lambda source: int(source.counters.queues_created),
    ),
    WholeMetric(
        "queues_deleted_total",
        COUNTER,
        "Queues deleted.",
        CHURN,
        lambda source: int(source.counters.queues_deleted),
    ),
    WholeMetric("process_open_fds", GAUGE, "Open file descriptors.", NODE_USE, lambda source: open_files()),
    WholeMetric(
        "process_resident_memory_bytes",
        GAUGE,
        "Resident memory of the broker.",
        NODE_USE,
        lambda source: source.state.measured.resources.memory,
    ),
    WholeMetric(
        "disk_space_available_bytes",
        GAUGE,
        "Free disk space for the data.",
        NODE_USE,
        lambda source: source.state.measured.resources.disk_free,
    ),
    WholeMetric(
        "process_max_fds",
        GAUGE,
        "File descriptors that the process may open.",
        NODE_LIMITS,
        lambda source: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ),
    WholeMetric(
        "resident_memory_limit_bytes",
        GAUGE,
        "Resident memory above which publishers wait; 0: no limit.",
        NODE_LIMITS,
        lambda source: source.state.measured.resources.memory_max,
    ),
    WholeMetric(
        "disk_space_available_limit_bytes",
        GAUGE,
        "Free disk space below which publishers wait.",
        NODE_LIMITS,
        lambda source: source.state.measured.resources.disk_free_min,
    ),
    WholeMetric(
        "erlang_uptime_seconds",
        GAUGE,
        "Time since the start of the broker.",
        NODE_LIMITS,
        lambda source: time.monotonic() - source.state.started,
    ),
    WholeMetric(
        "io_read_ops_total",
        COUNTER,
        "System calls that read.",
        PERSISTER,
        lambda source: source.node["io_read_count"],
    ),
    WholeMetric(
        "io_read_bytes_total",
        COUNTER,
        "Bytes read from the disk.",
        PERSISTER,
        lambda source: source.node["io_read_bytes"],
    ),
    WholeMetric(
        "io_write_ops_total",
        COUNTER,
        "System calls that write.",
        PERSISTER,
        lambda source: source.node["io_write_count"],
    ),
    WholeMetric(
        "io_write_bytes_total",
        COUNTER,
        "Bytes written to the disk.",
        PERSISTER,
        lambda source: source.node["io_write_bytes"],
    ),
    WholeMetric(
        "io_sync_ops_total",
        COUNTER,
        "Syncs of the log.",
        PERSISTER,
        lambda source: sum(source.state.measured.log.sync_latency.counts),
    ),
    WholeMetric(
        "io_sync_time_seconds_total",
        COUNTER,
        "Sum of the durations of the log's syncs.",
        PERSISTER,
        lambda source: source.state.measured.log.sync_latency.sum,
    ),
    WholeMetric(
        "msg_store_read_total",
        COUNTER,
        "Messages read from the disk.",
        PERSISTER,
        lambda source: source.state.measured.log.message_reads,
    ),
    WholeMetric(
        "msg_store_write_total",
        COUNTER,
        "Persistent messages appended to the log.",
        PERSISTER,
        lambda source: int(source.counters.disk_writes),
    ),
)
"""The metrics without labels that `/metrics/detailed` has too."""

TOTALS: Final = (
    WholeMetric(
        "connections",
        GAUGE,
        "Open connections.",
        "",
        lambda source: int(source.counters.connections_opened - source.counters.connections_closed),
    ),
    WholeMetric(
        "channels",
        GAUGE,
        "Open channels and sessions.",
        "",
        lambda source: int(source.counters.channels_opened - source.counters.channels_closed),
    ),
    WholeMetric("consumers", GAUGE, "Consumers.", "", lambda source: source.consumers),
    WholeMetric(
        "queues",
        GAUGE,
        "Queues.",
        "",
        lambda source: sum(
            len(vhost.topology.queues) for vhost in source.state.measured.broker.vhosts.values()
        ),
    ),
    WholeMetric(
        "alarms_memory_used_watermark",
        GAUGE,
        "1 while publishers wait for memory, else 0.",
        "",
        lambda source: int(source.state.measured.resources.shortage.memory),
    ),
    WholeMetric(
        "alarms_free_disk_space_watermark",
        GAUGE,
        "1 while publishers wait for disk space, else 0.",
        "",
        lambda source: int(source.state.measured.resources.shortage.disk),
    ),
    WholeMetric(
        "alarms_file_descriptor_limit",
        GAUGE,
        "1 while no file can be opened, else 0.",
        "",
        lambda source: int(open_files() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ),
    WholeMetric(
        "global_messages_routed_total",
        COUNTER,
        "Messages put into queues, counted for each queue.",
        "",
        lambda source: int(source.counters.made_ready - source.counters.requeued),
    ),
)
"""The metrics without labels that only the whole broker has."""

ATTEMPTS: Final = "auth_attempt_metrics"
AUTH: Final = (
    ("auth_attempts_total", "Log-ins, accepted or refused.", sum),
    ("auth_attempts_succeeded_total", "Log-ins accepted.", lambda pair: pair[0]),
    ("auth_attempts_failed_total", "Log-ins refused.", lambda pair: pair[1]),
)

BY_PROTOCOL: Final = (
    ("messages_received_total", COUNTER, "Messages received.", lambda row: int(row.traffic.published)),
    (
        "messages_received_confirm_total",
        COUNTER,
        "Messages received whose publishers wait for a confirm.",
        lambda row: int(row.traffic.to_confirm),
    ),
    ("messages_confirmed_total", COUNTER, "Messages confirmed.", lambda row: int(row.traffic.confirmed)),
    (
        "messages_unroutable_dropped_total",
        COUNTER,
        "Messages dropped because no queue took them.",
        lambda row: int(row.traffic.dropped),
    ),
    (
        "messages_unroutable_returned_total",
        COUNTER,
        "Messages returned to their publishers.",
        lambda row: int(row.traffic.returned),
    ),
    (
        "publishers",
        GAUGE,
        "Channels that have published, and links that publish.",
        lambda row: row.publishers,
    ),
    ("consumers", GAUGE, "Consumers, and links that consume.", lambda row: row.consumers),
)
BY_QUEUE_TYPE: Final = (
    ("messages_delivered_total", "Messages delivered.", lambda row: int(row.traffic.delivered)),
    (
        "messages_delivered_consume_manual_ack_total",
        "Messages sent to consumers that acknowledge.",
        lambda row: row.traffic.numbers()[1],
    ),
    (
        "messages_delivered_consume_auto_ack_total",
        "Messages sent to consumers that acknowledge nothing.",
        lambda row: int(row.traffic.delivered_no_ack),
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "Messages sent to basic.get that need an acknowledgement.",
        lambda row: int(row.traffic.got),
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "Messages sent to basic.get that need no acknowledgement.",
        lambda row: int(row.traffic.got_no_ack),
    ),
    (
        "messages_get_empty_total",
        "Answers to basic.get that the queue has no message.",
        lambda row: int(row.traffic.got_empty),
    ),
    (
        "messages_redelivered_total",
        "Deliveries of messages that had been delivered before.",
        lambda row: int(row.traffic.redelivered),
    ),
    ("messages_acknowledged_total", "Deliveries acknowledged.", lambda row: int(row.traffic.acked)),
)
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


def _node(state: AdminState) -> dict[str, int]:
    return dict(zip(NODE, node_meter(state.measured)(), strict=True))


def detailed(state: AdminState, families: frozenset[str]) -> Iterator[str]:
    """Yield the metrics of the broker as a whole that are in `families`."""
    counters = state.measured.broker.counters
    source = Source(state, counters, _node(state) if PERSISTER in families else {})
    prefix = RABBITMQ + DETAILED
    for metric in WHOLE:
        if metric.family in families:
            yield lines(f"{prefix}{metric.name}", metric.kind, metric.text, [("", metric.read(source))])
    if ATTEMPTS in families:
        yield from _attempts(counters, prefix)


def _attempts(counters: Counters, prefix: str) -> Iterator[str]:
    attempts = sorted(counters.attempts.items())
    for name, text, read in AUTH:
        samples = [(label_text({"protocol": protocol}), read(pair)) for protocol, pair in attempts]
        yield lines(f"{prefix}{name}", COUNTER, text, samples)


def whole(state: AdminState, sums: QueueSums, protocols: dict[str, ProtocolRow]) -> Iterator[str]:
    """Yield the metrics of the broker as a whole."""
    counters = state.measured.broker.counters
    source = Source(state, counters, _node(state), sums.row.consumers)
    for metric in (*WHOLE, *TOTALS):
        yield lines(f"{RABBITMQ}{metric.name}", metric.kind, metric.text, [("", metric.read(source))])
    yield from _attempts(counters, RABBITMQ)
    for name, kind, text, read in BY_PROTOCOL:
        samples = [(label_text({"protocol": protocol}), read(row)) for protocol, row in protocols.items()]
        yield lines(f"{GLOBAL}{name}", kind, text, samples)
    for name, text, read_delivery in BY_QUEUE_TYPE:
        samples = [
            (label_text({"protocol": protocol, "queue_type": QUEUE_TYPE}), read_delivery(row))
            for protocol, row in protocols.items()
        ]
        yield lines(f"{GLOBAL}{name}", COUNTER, text, samples)
    sizes = counters.message_sizes
    bounds = [bound_text(bound) for bound in sizes.bounds] + ["+Inf"]
    buckets = zip(bounds, accumulate(sizes.counts), strict=True)
    name, text = SIZE
    yield (
        lines(name, HISTOGRAM, text, ())
        + "".join([f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in buckets])
        + f"{name}_sum {sizes.sum}\n{name}_count {sum(sizes.counts)}\n"
    )


def describe() -> list[Described]:
    """Return RabbitMQ's metrics of the broker as a whole, as `/metrics` shows them."""
    return [
        Described(BUILD[0], INFO, BUILD_LABELS, BUILD[1]),
        Described(IDENTITY[0], INFO, IDENTITY_LABELS, IDENTITY[1]),
        *(Described(f"{RABBITMQ}{each.name}", each.kind, (), each.text) for each in (*WHOLE, *TOTALS)),
        *(Described(f"{RABBITMQ}{name}", COUNTER, PROTOCOL_LABELS, text) for name, text, _ in AUTH),
        *(Described(f"{GLOBAL}{name}", kind, PROTOCOL_LABELS, text) for name, kind, text, _ in BY_PROTOCOL),
        *(Described(f"{GLOBAL}{name}", COUNTER, DELIVERY_LABELS, text) for name, text, _ in BY_QUEUE_TYPE),
        Described(SIZE[0], HISTOGRAM, (), SIZE[1]),
    ]
