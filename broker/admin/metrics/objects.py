"""The metrics of each queue, exchange, connection and channel, and their sums.

Objects are read in slices, between which the event loop does other work: with 100,000 queues a scrape must
not delay messages. An object that is deleted during a scrape keeps its last values.

The names without their prefix are RabbitMQ's, and amqpd's where they mean the same. Those of counters end in
`_total`. `family` is the name by which `/metrics/detailed` chooses metrics. [RabbitMQ rabbitmq_prometheus]
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.connection import Connection091, channels_of
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.peers.connections import Connections
from broker.admin.metrics.text import COUNTER, GAUGE, label_text
from broker.admin.shapes import estimated_memory, head_timestamp, queue_capacity
from broker.admin.statistics import read_all
from broker.core.broker import Broker
from broker.core.partitions.partitioned import Totals, totals_of
from broker.core.policies.policy import queue_type_of
from broker.core.ports import MessageStore
from broker.core.queues.duplicates import memory_of
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.statistics import QueueReader, head_age
from broker.core.vhosts.vhost import VirtualHost

QUEUES_AT_ONCE: Final = 100
OTHERS_AT_ONCE: Final = 200

Value = float | int | None
"""The value of an object's metric; None: the object has none."""


class ObjectMetric(NamedTuple):
    """A metric of each object of a kind; `read` returns its value.

    `own`, `rabbitmq`: amqpd, and RabbitMQ, has a metric of this name. `summed`: without objects, the metric
    is the sum over all of them.
    """

    name: str
    kind: str
    text: str
    family: str
    read: Callable[[Any], Value]
    own: bool = False
    rabbitmq: bool = True
    summed: bool = True


class QueueRow(NamedTuple):
    """A queue as its metrics see it, or the sum of several queues, which has no `queue`."""

    totals: Totals
    consumers: int
    queue: Queue | None
    store: MessageStore
    now: float

    @property
    def messages(self) -> int:
        """The messages that are in the queue."""
        totals = self.totals
        return int(totals.ready + totals.unacked + totals.held + totals.dead)

    @property
    def bytes(self) -> int:
        """The bytes of the bodies of these messages."""
        totals = self.totals
        return int(totals.ready_bytes + totals.unacked_bytes + totals.held_bytes + totals.dead_bytes)

    @property
    def one(self) -> Queue:
        """The queue."""
        assert self.queue is not None, "this metric has no sum"
        return self.queue

    @property
    def in_memory(self) -> bool:
        """Whether the messages are in memory: a stream's are on disk only."""
        return self.one.stream is None

    @property
    def is_stored(self) -> bool:
        """Whether the messages are on disk."""
        return self.one.logged or self.one.stream is not None


COARSE: Final = "queue_coarse_metrics"
COUNT: Final = "queue_consumer_count"
FINE: Final = "queue_metrics"
DELIVERIES: Final = "queue_delivery_metrics"
QUEUES: Final = (COARSE, COUNT, FINE, DELIVERIES)

OF_QUEUES: Final = (
    ObjectMetric(
        "queue_messages_ready", GAUGE, "Ready messages.", COARSE, lambda row: int(row.totals.ready), own=True
    ),
    ObjectMetric(
        "queue_messages_unacked",
        GAUGE,
        "Unacknowledged messages.",
        COARSE,
        lambda row: int(row.totals.unacked),
        own=True,
    ),
    ObjectMetric(
        "queue_messages", GAUGE, "Messages in the queue.", COARSE, lambda row: row.messages, own=True
    ),
    ObjectMetric(
        "queue_messages_held",
        GAUGE,
        "Messages that wait for a retry, or for another member of a partitioned queue.",
        COARSE,
        lambda row: int(row.totals.held),
        own=True,
        rabbitmq=False,
    ),
    ObjectMetric(
        "queue_messages_dlx",
        GAUGE,
        "Messages that wait to be dead-lettered.",
        COARSE,
        lambda row: int(row.totals.dead),
        own=True,
        rabbitmq=False,
    ),
    ObjectMetric(
        "queue_head_age_seconds",
        GAUGE,
        "Time that the first message has been in the queue, seen since the start of the broker.",
        COARSE,
        lambda row: head_age(row.one, row.now),
        own=True,
        rabbitmq=False,
        summed=False,
    ),
    ObjectMetric(
        "queue_consumers", GAUGE, "Consumers of the queue.", COUNT, lambda row: row.consumers, own=True
    ),
    ObjectMetric(
        "queue_consumer_capacity",
        GAUGE,
        "Share of the time in which the queue could deliver at once.",
        FINE,
        lambda row: queue_capacity(row.one),
        own=True,
        summed=False,
    ),
    ObjectMetric(
        "queue_consumer_utilisation",
        GAUGE,
        "The same as the capacity.",
        FINE,
        lambda row: queue_capacity(row.one),
        summed=False,
    ),
    ObjectMetric(
        "queue_process_memory_bytes",
        GAUGE,
        "Estimated memory of the queue.",
        FINE,
        lambda row: estimated_memory(row.one, row.messages, row.bytes),
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_ram",
        GAUGE,
        "Messages in memory.",
        FINE,
        lambda row: row.messages if row.in_memory else 0,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_ram_bytes",
        GAUGE,
        "Bytes of the bodies of messages in memory.",
        FINE,
        lambda row: row.bytes if row.in_memory else 0,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_ready_ram",
        GAUGE,
        "Ready messages in memory.",
        FINE,
        lambda row: int(row.totals.ready) if row.in_memory else 0,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_unacked_ram",
        GAUGE,
        "Unacknowledged messages in memory.",
        FINE,
        lambda row: int(row.totals.unacked),
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_persistent",
        GAUGE,
        "Messages on disk.",
        FINE,
        lambda row: row.messages if row.is_stored else 0,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_persistent_bytes",
        GAUGE,
        "Bytes of the bodies of messages on disk.",
        FINE,
        lambda row: row.bytes if row.is_stored else 0,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_bytes",
        GAUGE,
        "Bytes of the bodies of messages.",
        FINE,
        lambda row: row.bytes,
        own=True,
    ),
    ObjectMetric(
        "queue_messages_ready_bytes",
        GAUGE,
        "Bytes of the bodies of ready messages.",
        FINE,
        lambda row: int(row.totals.ready_bytes),
        own=True,
    ),
    ObjectMetric(
        "queue_messages_unacked_bytes",
        GAUGE,
        "Bytes of the bodies of unacknowledged messages.",
        FINE,
        lambda row: int(row.totals.unacked_bytes),
        own=True,
    ),
    ObjectMetric(
        "queue_head_message_timestamp",
        GAUGE,
        "Property timestamp of the first message, in seconds since 1970.",
        FINE,
        lambda row: head_timestamp(row.one, row.store),
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_lost_at_restart",
        COUNTER,
        "Messages that a volatile queue lost at restarts.",
        FINE,
        lambda row: None if row.one.volatile is None else int(row.one.volatile.lost),
        own=True,
        rabbitmq=False,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_duplicate",
        COUNTER,
        "Messages that the queue dropped as duplicates.",
        FINE,
        lambda row: _duplicates(row.one),
        own=True,
        rabbitmq=False,
        summed=False,
    ),
    ObjectMetric(
        "queue_messages_enqueued_total",
        COUNTER,
        "Messages that came into the queue.",
        DELIVERIES,
        lambda row: int(row.totals.published),
        own=True,
        rabbitmq=False,
    ),
    ObjectMetric(
        "queue_messages_delivered_ack_total",
        COUNTER,
        "Messages sent to consumers that acknowledge.",
        DELIVERIES,
        lambda row: row.totals.numbers()[1],
        own=True,
    ),
    ObjectMetric(
        "queue_messages_delivered_total",
        COUNTER,
        "Messages sent to consumers that acknowledge nothing.",
        DELIVERIES,
        lambda row: int(row.totals.delivered_no_ack),
        own=True,
    ),
    ObjectMetric(
        "queue_get_ack_total",
        COUNTER,
        "Messages sent to basic.get that need an acknowledgement.",
        DELIVERIES,
        lambda row: int(row.totals.got),
        own=True,
    ),
    ObjectMetric(
        "queue_get_total",
        COUNTER,
        "Messages sent to basic.get that need no acknowledgement.",
        DELIVERIES,
        lambda row: int(row.totals.got_no_ack),
        own=True,
    ),
    ObjectMetric(
        "queue_get_empty_total",
        COUNTER,
        "Answers to basic.get that the queue has no message.",
        DELIVERIES,
        lambda row: int(row.totals.got_empty),
        own=True,
    ),
    ObjectMetric(
        "queue_messages_redelivered_total",
        COUNTER,
        "Deliveries of messages that had been delivered before.",
        DELIVERIES,
        lambda row: int(row.totals.redelivered),
        own=True,
    ),
    ObjectMetric(
        "queue_messages_acked_total",
        COUNTER,
        "Deliveries that consumers acknowledged.",
        DELIVERIES,
        lambda row: int(row.totals.acked),
        own=True,
    ),
)
"""The metrics of a QueueRow."""


def _duplicates(queue: Queue) -> int | None:
    memory = memory_of(queue)
    return None if memory is None else int(memory.duplicates)


EXCHANGE_FLOWS: Final = "exchange_metrics"

OF_EXCHANGES: Final = (
    ObjectMetric(
        "exchange_messages_published_total",
        COUNTER,
        "Messages published to the exchange.",
        EXCHANGE_FLOWS,
        lambda exchange: int(exchange.published_in),
        own=True,
    ),
    ObjectMetric(
        "exchange_messages_routed_total",
        COUNTER,
        "Messages that the exchange has put into queues, counted for each queue.",
        EXCHANGE_FLOWS,
        lambda exchange: int(exchange.published_out),
        own=True,
        rabbitmq=False,
    ),
)
"""The metrics of an Exchange."""

BYTES: Final = "connection_coarse_metrics"
PACKETS: Final = "connection_metrics"

OF_CONNECTIONS: Final = (
    ObjectMetric(
        "connection_incoming_bytes_total",
        COUNTER,
        "Bytes received.",
        BYTES,
        lambda connection: int(connection.octets.received),
        own=True,
    ),
    ObjectMetric(
        "connection_outgoing_bytes_total",
        COUNTER,
        "Bytes sent.",
        BYTES,
        lambda connection: int(connection.octets.sent),
        own=True,
    ),
    ObjectMetric(
        "connection_incoming_packets_total",
        COUNTER,
        "Reads of the socket.",
        PACKETS,
        lambda connection: int(connection.octets.reads),
        own=True,
    ),
    ObjectMetric(
        "connection_outgoing_packets_total",
        COUNTER,
        "Writes to the socket.",
        PACKETS,
        lambda connection: int(connection.octets.writes),
        own=True,
    ),
    ObjectMetric(
        "connection_channels",
        GAUGE,
        "Open channels or sessions.",
        PACKETS,
        lambda connection: connection.channels_open(),
        own=True,
    ),
)
"""The metrics of a Connection091 or Connection10."""

CHANNELS: Final = "channel_metrics"
CHANNEL_PUBLISHES: Final = "channel_exchange_metrics"
CHANNEL_DELIVERIES: Final = "channel_queue_metrics"


def _unconfirmed(channel: Channel) -> int:
    confirms = channel.confirms
    return 0 if confirms is None else int(confirms.published - confirms.answered)


OF_CHANNELS: Final = (
    ObjectMetric(
        "channel_consumers", GAUGE, "Consumers.", CHANNELS, lambda channel: len(channel.targets), own=True
    ),
    ObjectMetric(
        "channel_messages_unacked",
        GAUGE,
        "Deliveries that are not acknowledged yet.",
        CHANNELS,
        lambda channel: int(channel.unacked.count()),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_unconfirmed",
        GAUGE,
        "Publishes that are not confirmed yet.",
        CHANNELS,
        _unconfirmed,
        own=True,
    ),
    ObjectMetric(
        "channel_messages_uncommitted",
        GAUGE,
        "Publishes of the open transaction.",
        CHANNELS,
        lambda channel: 0 if channel.transaction is None else len(channel.transaction.publishes),
        own=True,
    ),
    ObjectMetric(
        "channel_acks_uncommitted",
        GAUGE,
        "Acknowledgements of the open transaction.",
        CHANNELS,
        lambda channel: 0 if channel.transaction is None else len(channel.transaction.tags()),
        own=True,
    ),
    ObjectMetric(
        "consumer_prefetch",
        GAUGE,
        "Prefetch count of each new consumer; 0: no limit.",
        CHANNELS,
        lambda channel: int(channel.prefetch_count),
    ),
    ObjectMetric(
        "channel_prefetch",
        GAUGE,
        "Prefetch count of the whole channel; 0: no limit.",
        CHANNELS,
        lambda channel: 0 if channel.window is None else int(channel.window.count_max),
    ),
    ObjectMetric(
        "channel_messages_published_total",
        COUNTER,
        "Messages published.",
        CHANNEL_PUBLISHES,
        lambda channel: int(channel.traffic.published),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_confirmed_total",
        COUNTER,
        "Publishes confirmed.",
        CHANNEL_PUBLISHES,
        lambda channel: int(channel.count_confirms().confirmed),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_unroutable_returned_total",
        COUNTER,
        "Publishes returned.",
        CHANNEL_PUBLISHES,
        lambda channel: int(channel.traffic.returned),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_unroutable_dropped_total",
        COUNTER,
        "Publishes dropped because no queue took them and they were not mandatory.",
        CHANNEL_PUBLISHES,
        lambda channel: int(channel.traffic.dropped),
        own=True,
    ),
    ObjectMetric(
        "channel_get_ack_total",
        COUNTER,
        "Messages sent to basic.get that need an acknowledgement.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.got),
        own=True,
    ),
    ObjectMetric(
        "channel_get_total",
        COUNTER,
        "Messages sent to basic.get that need no acknowledgement.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.got_no_ack),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_delivered_ack_total",
        COUNTER,
        "Messages sent to consumers that acknowledge.",
        CHANNEL_DELIVERIES,
        lambda channel: channel.traffic.numbers()[1],
        own=True,
    ),
    ObjectMetric(
        "channel_messages_delivered_total",
        COUNTER,
        "Messages sent to consumers that acknowledge nothing.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.delivered_no_ack),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_redelivered_total",
        COUNTER,
        "Deliveries of messages that had been delivered before.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.redelivered),
        own=True,
    ),
    ObjectMetric(
        "channel_messages_acked_total",
        COUNTER,
        "Deliveries acknowledged.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.acked),
        own=True,
    ),
    ObjectMetric(
        "channel_get_empty_total",
        COUNTER,
        "Answers to basic.get that the queue has no message.",
        CHANNEL_DELIVERIES,
        lambda channel: int(channel.traffic.got_empty),
        own=True,
    ),
)
"""The metrics of a Channel of AMQP 0-9-1."""

QUEUE_LABELS: Final = ("queue", "vhost")
EXCHANGE_LABELS: Final = ("exchange", "vhost")
CONNECTION_LABELS: Final = ("connection", "user", "vhost", "protocol")
CHANNEL_LABELS: Final = ("channel", "user", "vhost")

KINDS: Final = (
    (OF_QUEUES, QUEUE_LABELS),
    (OF_EXCHANGES, EXCHANGE_LABELS),
    (OF_CONNECTIONS, CONNECTION_LABELS),
    (OF_CHANNELS, CHANNEL_LABELS),
)
"""The metrics of each kind of object, with their labels."""


class Table(NamedTuple):
    """The values of metrics for all objects of a kind: a column for each metric, a label for each row."""

    metrics: Sequence[ObjectMetric]
    labels: list[str]
    columns: list[list[Value]]


class QueueSums(NamedTuple):
    """The sums over all queues.

    `row` has the totals. `by_state` are the consumers by their states. `head_age` is the age of the first
    message of the queue whose first message is the oldest, in seconds.
    """

    row: QueueRow
    by_state: dict[str, int]
    head_age: float


INTERESTED: Final = "interested"
NOTIFIED: Final = "notified"
SUSPENDED: Final = "not_interested"
BROWSER: Final = "browser"


async def sum_queues(broker: Broker, store: MessageStore, now: float) -> QueueSums:
    """Return the sums over the queues of all virtual hosts; `now` is the time of readings, in seconds."""
    totals = Totals()
    consumers = interested = notified = acquiring = browsers = 0
    oldest = 0.0
    for vhost in list(broker.vhosts.values()):
        reader = QueueReader(vhost, now=now)
        await read_all(reader)
        totals.add_totals(reader.totals)
        totals.add_past(vhost.topology.past)
        consumers += int(reader.consumers)
        interested += int(reader.interested)
        notified += int(reader.notified)
        acquiring += int(reader.acquiring)
        browsers += int(reader.browsers)
        oldest = max(oldest, reader.head_age)
    by_state = {
        INTERESTED: interested,
        NOTIFIED: notified,
        SUSPENDED: max(0, acquiring - interested - notified),
        BROWSER: browsers,
    }
    return QueueSums(QueueRow(totals, consumers, None, store, now), by_state, oldest)


def _chosen(metrics: Sequence[ObjectMetric], families: Sequence[str] | None) -> list[ObjectMetric]:
    return [metric for metric in metrics if families is None or metric.family in families]


async def _read(metrics: list[ObjectMetric], objects: Iterable[tuple[str, Any]], at_once: int) -> Table:
    table = Table(metrics, [], [[] for _ in metrics])
    for number, (label, each) in enumerate(objects, start=1):
        table.labels.append(label)
        for metric, column in zip(metrics, table.columns, strict=True):
            column.append(metric.read(each))
        if number % at_once == 0:
            await asyncio.sleep(0)
    return table


async def read_queues(
    vhosts: Sequence[VirtualHost], store: MessageStore, now: float, families: Sequence[str] | None = None
) -> Table:
    """Return the metrics of each queue; without `families` all of them."""

    def rows() -> Iterable[tuple[str, QueueRow]]:
        for vhost in vhosts:
            for queue in list(vhost.topology.queues.values()):
                label = label_text({"queue": queue.name, "vhost": vhost.name})
                yield label, QueueRow(totals_of(queue), queue.consumer_count, queue, store, now)

    metrics = _chosen(OF_QUEUES, families)
    return await _read(metrics, rows() if metrics else (), QUEUES_AT_ONCE)


async def read_exchanges(vhosts: Sequence[VirtualHost], families: Sequence[str] | None = None) -> Table:
    """Return the metrics of each exchange that has done anything."""

    def rows() -> Iterable[tuple[str, Exchange]]:
        for vhost in vhosts:
            for exchange in list(vhost.topology.exchanges.values()):
                if exchange.published_in:
                    yield label_text({"exchange": exchange.name, "vhost": vhost.name}), exchange

    metrics = _chosen(OF_EXCHANGES, families)
    return await _read(metrics, rows() if metrics else (), OTHERS_AT_ONCE)


def open_connections(connections: Connections) -> list[Connection091 | Connection10]:
    """Return the open connections."""
    return [each for each in connections.all if isinstance(each, Connection091 | Connection10)]


async def read_connections(connections: Connections, families: Sequence[str] | None = None) -> Table:
    """Return the metrics of each connection."""

    def rows() -> Iterable[tuple[str, Connection091 | Connection10]]:
        for connection in open_connections(connections):
            vhost = connection.virtual_host
            labels = {
                "connection": connection.origin.name,
                "user": connection.user,
                "vhost": "" if vhost is None else vhost.name,
                "protocol": "amqp091" if isinstance(connection, Connection091) else "amqp10",
            }
            yield label_text(labels), connection

    metrics = _chosen(OF_CONNECTIONS, families)
    return await _read(metrics, rows() if metrics else (), OTHERS_AT_ONCE)


async def read_channels(connections: Connections, families: Sequence[str] | None = None) -> Table:
    """Return the metrics of each channel of AMQP 0-9-1."""

    def rows() -> Iterable[tuple[str, Channel]]:
        for connection in open_connections(connections):
            if isinstance(connection, Connection091):
                for channel in channels_of(connection):
                    labels = {
                        "channel": f"{connection.origin.name} ({channel.number})",
                        "user": connection.user,
                        "vhost": channel.virtual_host.name,
                    }
                    yield label_text(labels), channel

    metrics = _chosen(OF_CHANNELS, families)
    return await _read(metrics, rows() if metrics else (), OTHERS_AT_ONCE)


def queue_info(vhosts: Sequence[VirtualHost]) -> Iterable[str]:
    """Return the labels of RabbitMQ's `queue_info` for each queue. The only node is the leader of each."""
    for vhost in vhosts:
        for queue in list(vhost.topology.queues.values()):
            kind = f"rabbit_{queue_type_of(queue.arguments)}_queue"
            yield label_text(
                {"vhost": vhost.name, "queue": queue.name, "queue_type": kind, "membership": "leader"}
            )


def exchange_labels(vhosts: Sequence[VirtualHost]) -> Iterable[tuple[str, int]]:
    """Return the labels of each exchange that clients may publish to, and the number of its bindings.

    The default exchange has neither. [RabbitMQ exchange_bindings]
    """
    for vhost in vhosts:
        for exchange in list(vhost.topology.exchanges.values()):
            if exchange.name and not exchange.internal:
                labels = {"vhost": vhost.name, "exchange": exchange.name, "type": exchange.kind}
                yield label_text(labels), sum(len(each) for each in exchange.outgoing.values())
