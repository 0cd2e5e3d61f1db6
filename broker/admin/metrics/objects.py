"""The metrics of each queue, exchange, connection and channel, and their sums.

Objects are read in slices, between which the event loop does other work: with 100,000 queues a scrape must
not delay messages. An object that is deleted during a scrape keeps its last values.

The names without their prefix are RabbitMQ's, and amqpd's where they mean the same. Those of counters end in
`_total`. `family` is the name by which `/metrics/detailed` chooses metrics. [RabbitMQ rabbitmq_prometheus]
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from broker.adapters.amqp091.connection import Connection091, channel_name, channels_of
from broker.adapters.peers.connections import AMQP091, AMQP10, Connections
from broker.admin.metrics.text import COUNTER, GAUGE, label_text
from broker.admin.shapes import estimated_memory, head_timestamp, is_stored, queue_capacity
from broker.admin.statistics import open_connections, read_all
from broker.core.broker import Broker
from broker.core.partitions.partitioned import Totals, totals_of
from broker.core.policies.policy import queue_type_of
from broker.core.ports import MessageStore
from broker.core.queues.duplicates import memory_of
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.statistics import ConsumerStates, QueueReader, head_age
from broker.core.vhosts.vhost import VirtualHost

QUEUES_AT_ONCE: Final = 100
OTHERS_AT_ONCE: Final = 200

Item = TypeVar("Item")

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


def attribute(path: str) -> Callable[[Any], int]:
    """Return the function that reads a number at a path of attributes, as `totals.ready`."""
    find = attrgetter(path)
    return lambda each: int(find(each))


def _both(
    kind: str, family: str, name: str, read: str | Callable[[Any], Value], text: str, summed: bool = True
) -> ObjectMetric:
    """Return a metric of amqpd and of RabbitMQ; a `read` in text is a path of attributes."""
    reader = attribute(read) if isinstance(read, str) else read
    return ObjectMetric(name, kind, text, family, reader, own=True, summed=summed)


def _ours(
    kind: str, family: str, name: str, read: str | Callable[[Any], Value], text: str, summed: bool = True
) -> ObjectMetric:
    """Return a metric that RabbitMQ does not have."""
    return _both(kind, family, name, read, text, summed)._replace(rabbitmq=False)


def _theirs(
    kind: str, family: str, name: str, read: str | Callable[[Any], Value], text: str, summed: bool = True
) -> ObjectMetric:
    """Return a metric under RabbitMQ's name only."""
    return _both(kind, family, name, read, text, summed)._replace(own=False)


class QueueRow(NamedTuple):
    """A queue as its metrics see it, or the sum of several queues, which has no `queue`."""

    totals: Totals
    consumers: int
    queue: Queue | None
    store: MessageStore
    now: float

    @property
    def one(self) -> Queue:
        """The queue."""
        assert self.queue is not None, "this metric has no sum"
        return self.queue

    @property
    def in_memory(self) -> bool:
        """Whether the messages are in memory: a stream's are on disk only."""
        return self.one.stream is None


COARSE: Final = "queue_coarse_metrics"
COUNT: Final = "queue_consumer_count"
FINE: Final = "queue_metrics"
DELIVERIES: Final = "queue_delivery_metrics"
QUEUES: Final = (COARSE, COUNT, FINE, DELIVERIES)

OF_QUEUES: Final = (
    _both(GAUGE, COARSE, "queue_messages_ready", "totals.ready", "Ready messages."),
    _both(GAUGE, COARSE, "queue_messages_unacked", "totals.unacked", "Unacknowledged messages."),
    _both(GAUGE, COARSE, "queue_messages", "totals.messages", "Messages in the queue."),
    _ours(
        GAUGE,
        COARSE,
        "queue_messages_held",
        "totals.held",
        "Messages that wait for a retry, or for another member of a partitioned queue.",
    ),
    _ours(GAUGE, COARSE, "queue_messages_dlx", "totals.dead", "Messages that wait to be dead-lettered."),
    _ours(
        GAUGE,
        COARSE,
        "queue_head_age_seconds",
        lambda row: head_age(row.one, row.now),
        "Time that the first message has been in the queue, seen since the start of the broker.",
        summed=False,
    ),
    _both(GAUGE, COUNT, "queue_consumers", "consumers", "Consumers of the queue."),
    _both(
        GAUGE,
        FINE,
        "queue_consumer_capacity",
        lambda row: queue_capacity(row.one),
        "Share of the time in which the queue could deliver at once.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_consumer_utilisation",
        lambda row: queue_capacity(row.one),
        "The same number as `queue_consumer_capacity`.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_process_memory_bytes",
        lambda row: estimated_memory(row.one, row.totals.messages, row.totals.bytes),
        "Estimated memory of the queue.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_ram",
        lambda row: row.totals.messages if row.in_memory else 0,
        "Messages in memory.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_ram_bytes",
        lambda row: row.totals.bytes if row.in_memory else 0,
        "Bytes of the bodies of messages in memory.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_ready_ram",
        lambda row: int(row.totals.ready) if row.in_memory else 0,
        "Ready messages in memory.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_unacked_ram",
        "totals.unacked",
        "Unacknowledged messages in memory.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_persistent",
        lambda row: row.totals.messages if is_stored(row.one) else 0,
        "Messages on disk.",
        summed=False,
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_messages_persistent_bytes",
        lambda row: row.totals.bytes if is_stored(row.one) else 0,
        "Bytes of the bodies of messages on disk.",
        summed=False,
    ),
    _both(GAUGE, FINE, "queue_messages_bytes", "totals.bytes", "Bytes of the bodies of messages."),
    _both(
        GAUGE,
        FINE,
        "queue_messages_ready_bytes",
        "totals.ready_bytes",
        "Bytes of the bodies of ready messages.",
    ),
    _both(
        GAUGE,
        FINE,
        "queue_messages_unacked_bytes",
        "totals.unacked_bytes",
        "Bytes of the bodies of unacknowledged messages.",
    ),
    _theirs(
        GAUGE,
        FINE,
        "queue_head_message_timestamp",
        lambda row: head_timestamp(row.one, row.store),
        "Property timestamp of the first message, in seconds since 1970.",
        summed=False,
    ),
    _ours(
        COUNTER,
        FINE,
        "queue_messages_lost_at_restart",
        lambda row: None if row.one.volatile is None else int(row.one.volatile.lost),
        "Messages that a volatile queue lost at restarts.",
        summed=False,
    ),
    _ours(
        COUNTER,
        FINE,
        "queue_messages_duplicate",
        lambda row: _duplicates(row.one),
        "Messages that the queue dropped as duplicates.",
        summed=False,
    ),
    _ours(
        COUNTER,
        DELIVERIES,
        "queue_messages_enqueued_total",
        "totals.published",
        "Messages that came into the queue.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_messages_delivered_ack_total",
        "totals.delivered_by_hand",
        "Messages sent to consumers that acknowledge.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_messages_delivered_total",
        "totals.delivered_no_ack",
        "Messages sent to consumers that acknowledge nothing.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_get_ack_total",
        "totals.got",
        "Messages sent to basic.get that need an acknowledgement.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_get_total",
        "totals.got_no_ack",
        "Messages sent to basic.get that need no acknowledgement.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_get_empty_total",
        "totals.got_empty",
        "Answers to basic.get that the queue has no message.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_messages_redelivered_total",
        "totals.redelivered",
        "Deliveries of messages that had been delivered before.",
    ),
    _both(
        COUNTER,
        DELIVERIES,
        "queue_messages_acked_total",
        "totals.acked",
        "Deliveries that consumers acknowledged.",
    ),
)
"""The metrics of a QueueRow."""


def _duplicates(queue: Queue) -> int | None:
    memory = memory_of(queue)
    return None if memory is None else int(memory.duplicates)


EXCHANGE_FLOWS: Final = "exchange_metrics"

OF_EXCHANGES: Final = (
    _both(
        COUNTER,
        EXCHANGE_FLOWS,
        "exchange_messages_published_total",
        "published_in",
        "Messages published to the exchange.",
    ),
    _ours(
        COUNTER,
        EXCHANGE_FLOWS,
        "exchange_messages_routed_total",
        "published_out",
        "Messages that the exchange has put into queues, counted for each queue.",
    ),
)
"""The metrics of an Exchange."""

BYTES: Final = "connection_coarse_metrics"
PACKETS: Final = "connection_metrics"

OF_CONNECTIONS: Final = (
    _both(COUNTER, BYTES, "connection_incoming_bytes_total", "octets.received", "Bytes received."),
    _both(COUNTER, BYTES, "connection_outgoing_bytes_total", "octets.sent", "Bytes sent."),
    _both(COUNTER, PACKETS, "connection_incoming_packets_total", "octets.reads", "Reads of the socket."),
    _both(COUNTER, PACKETS, "connection_outgoing_packets_total", "octets.writes", "Writes to the socket."),
    _both(
        GAUGE,
        PACKETS,
        "connection_channels",
        lambda connection: connection.channels_open(),
        "Open channels or sessions.",
    ),
)
"""The metrics of a Connection091 or Connection10."""

CHANNELS: Final = "channel_metrics"
CHANNEL_PUBLISHES: Final = "channel_exchange_metrics"
CHANNEL_DELIVERIES: Final = "channel_queue_metrics"


OF_CHANNELS: Final = (
    _both(GAUGE, CHANNELS, "channel_consumers", lambda channel: len(channel.targets), "Consumers."),
    _both(
        GAUGE,
        CHANNELS,
        "channel_messages_unacked",
        lambda channel: int(channel.unacked.count()),
        "Deliveries that are not acknowledged yet.",
    ),
    _both(
        GAUGE,
        CHANNELS,
        "channel_messages_unconfirmed",
        "unconfirmed",
        "Publishes that are not confirmed yet.",
    ),
    _both(
        GAUGE,
        CHANNELS,
        "channel_messages_uncommitted",
        lambda channel: 0 if channel.transaction is None else len(channel.transaction.publishes),
        "Publishes of the open transaction.",
    ),
    _both(
        GAUGE,
        CHANNELS,
        "channel_acks_uncommitted",
        lambda channel: 0 if channel.transaction is None else len(channel.transaction.tags()),
        "Acknowledgements of the open transaction.",
    ),
    _theirs(
        GAUGE,
        CHANNELS,
        "consumer_prefetch",
        "prefetch_count",
        "Prefetch count of each new consumer; 0: no limit.",
    ),
    _theirs(
        GAUGE,
        CHANNELS,
        "channel_prefetch",
        lambda channel: 0 if channel.window is None else int(channel.window.count_max),
        "Prefetch count of the whole channel; 0: no limit.",
    ),
    _both(
        COUNTER,
        CHANNEL_PUBLISHES,
        "channel_messages_published_total",
        "traffic.published",
        "Messages published.",
    ),
    _both(
        COUNTER,
        CHANNEL_PUBLISHES,
        "channel_messages_confirmed_total",
        "traffic.confirmed",
        "Publishes confirmed.",
    ),
    _both(
        COUNTER,
        CHANNEL_PUBLISHES,
        "channel_messages_unroutable_returned_total",
        "traffic.returned",
        "Publishes returned.",
    ),
    _both(
        COUNTER,
        CHANNEL_PUBLISHES,
        "channel_messages_unroutable_dropped_total",
        "traffic.dropped",
        "Publishes dropped because no queue took them and they were not mandatory.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_get_ack_total",
        "traffic.got",
        "Messages sent to basic.get that need an acknowledgement.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_get_total",
        "traffic.got_no_ack",
        "Messages sent to basic.get that need no acknowledgement.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_messages_delivered_ack_total",
        "traffic.delivered_by_hand",
        "Messages sent to consumers that acknowledge.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_messages_delivered_total",
        "traffic.delivered_no_ack",
        "Messages sent to consumers that acknowledge nothing.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_messages_redelivered_total",
        "traffic.redelivered",
        "Deliveries of messages that had been delivered before.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_messages_acked_total",
        "traffic.acked",
        "Deliveries acknowledged.",
    ),
    _both(
        COUNTER,
        CHANNEL_DELIVERIES,
        "channel_get_empty_total",
        "traffic.got_empty",
        "Answers to basic.get that the queue has no message.",
    ),
)
"""The metrics of a Channel of AMQP 0-9-1."""


class Kind(NamedTuple):
    """A kind of object: its metrics, their labels, and the objects that are read in one turn."""

    metrics: tuple[ObjectMetric, ...]
    labels: tuple[str, ...]
    at_once: int


QUEUE_KIND: Final = Kind(OF_QUEUES, ("queue", "vhost"), QUEUES_AT_ONCE)
EXCHANGE_KIND: Final = Kind(OF_EXCHANGES, ("exchange", "vhost"), OTHERS_AT_ONCE)
CONNECTION_KIND: Final = Kind(OF_CONNECTIONS, ("connection", "user", "vhost", "protocol"), OTHERS_AT_ONCE)
CHANNEL_KIND: Final = Kind(OF_CHANNELS, ("channel", "user", "vhost"), OTHERS_AT_ONCE)
KINDS: Final = (QUEUE_KIND, EXCHANGE_KIND, CONNECTION_KIND, CHANNEL_KIND)


class Table(NamedTuple):
    """The values of metrics for all objects of a kind: a column for each metric, a label for each row."""

    metrics: Sequence[ObjectMetric]
    labels: list[str]
    columns: list[list[Value]]


class QueueSums(NamedTuple):
    """The sums over all queues.

    `row` has the totals. `states` are the consumers by their states. `head_age` is the age of the first
    message of the queue whose first message is the oldest, in seconds.
    """

    row: QueueRow
    states: ConsumerStates
    head_age: float


async def sum_queues(broker: Broker, now: float) -> QueueSums:
    """Return the sums over the queues of all virtual hosts; `now` is the time of readings, in seconds."""
    totals, states = Totals(), ConsumerStates()
    consumers, oldest = 0, 0.0
    for vhost in list(broker.vhosts.values()):
        reader = QueueReader(vhost, now=now, is_thorough=True)
        await read_all(reader)
        totals.add_totals(reader.totals)
        totals.add_past(vhost.topology.past)
        states.add(reader.states)
        consumers += int(reader.consumers)
        oldest = max(oldest, reader.head_age)
    return QueueSums(QueueRow(totals, consumers, None, broker.store, now), states, oldest)


async def in_slices(objects: Iterable[Item], at_once: int) -> AsyncIterator[tuple[Item, ...]]:
    """Yield the objects in parts, between which the event loop does other work."""
    source = iter(objects)
    while part := tuple(islice(source, at_once)):
        yield part
        await asyncio.sleep(0)


Labelled = tuple[tuple[str, ...], Any]
"""The values of an object's labels, and the object."""


async def read_each(kind: Kind, objects: Iterable[Labelled], families: Sequence[str] | None = None) -> Table:
    """Return the metrics of each object; without `families` all of them."""
    metrics = [each for each in kind.metrics if families is None or each.family in families]
    table = Table(metrics, [], [[] for _ in metrics])
    if not metrics:
        return table
    async for part in in_slices(objects, kind.at_once):
        for values, each in part:
            table.labels.append(label_text(dict(zip(kind.labels, values, strict=True))))
            for metric, column in zip(metrics, table.columns, strict=True):
                column.append(metric.read(each))
    return table


async def add_up(kind: Kind, objects: Iterable[Labelled]) -> Table:
    """Return a table with one row, which has no label: the sums over the objects."""
    metrics = [metric for metric in kind.metrics if metric.summed]
    sums: list[float] = [0] * len(metrics)
    async for part in in_slices(objects, kind.at_once):
        for _, each in part:
            for index, metric in enumerate(metrics):
                sums[index] += metric.read(each) or 0
    return Table(metrics, [""], [[value] for value in sums])


def queues(vhosts: Sequence[VirtualHost], store: MessageStore, now: float) -> Iterator[Labelled]:
    """Return all queues, for QUEUE_KIND."""
    for vhost in vhosts:
        for queue in list(vhost.topology.queues.values()):
            row = QueueRow(totals_of(queue), queue.consumer_count, queue, store, now)
            yield (queue.name, vhost.name), row


def exchanges(vhosts: Sequence[VirtualHost]) -> Iterator[Labelled]:
    """Return the exchanges that have done anything, for EXCHANGE_KIND."""
    for vhost in vhosts:
        for exchange in list(vhost.topology.exchanges.values()):
            if exchange.published_in:
                yield (exchange.name, vhost.name), exchange


def connections(peers: Connections) -> Iterator[Labelled]:
    """Return the open connections, for CONNECTION_KIND."""
    for connection in open_connections(peers):
        vhost = connection.virtual_host
        protocol = AMQP091 if isinstance(connection, Connection091) else AMQP10
        name = "" if vhost is None else vhost.name
        yield (connection.origin.name, connection.user, name, protocol), connection


def channels(peers: Connections) -> Iterator[Labelled]:
    """Return the channels of AMQP 0-9-1, for CHANNEL_KIND."""
    for connection in open_connections(peers):
        if isinstance(connection, Connection091):
            for channel in channels_of(connection):
                yield (channel_name(channel), connection.user, channel.virtual_host.name), channel


def queue_info(vhosts: Sequence[VirtualHost]) -> Iterator[str]:
    """Return the labels of RabbitMQ's `queue_info` for each queue. The only node is the leader of each."""
    for vhost in vhosts:
        for queue in list(vhost.topology.queues.values()):
            kind = f"rabbit_{queue_type_of(queue.arguments)}_queue"
            yield label_text(
                {"vhost": vhost.name, "queue": queue.name, "queue_type": kind, "membership": "leader"}
            )


def exchange_labels(vhosts: Sequence[VirtualHost]) -> Iterator[tuple[str, Exchange]]:
    """Return each exchange that clients may publish to, without the default exchange, with its labels.

    [RabbitMQ exchange_bindings]
    """
    for vhost in vhosts:
        for exchange in list(vhost.topology.exchanges.values()):
            if exchange.name and not exchange.internal:
                labels = {"vhost": vhost.name, "exchange": exchange.name, "type": exchange.kind}
                yield label_text(labels), exchange


def count_bindings(exchange: Exchange) -> int:
    """Return the number of bindings of an exchange."""
    return sum(len(each) for each in exchange.outgoing.values())
