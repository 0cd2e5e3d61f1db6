"""Metrics in Prometheus's text format 0.0.4, taken from plain integers at scrape time.

What does not grow comes from a collector in a registry of its own. Samples per queue are written here, in
slices between which the event loop does other work: with 100,000 queues a scrape must not hold up messages.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from broker.admin.readers import Readers
from broker.admin.state import AdminState, Measured, MeasuredQueue, Measures
from broker.core.counters import Counters
from broker.core.delivery.journal import Journal
from broker.core.queues.death import CAUSES
from broker.core.queues.hooks import REASONS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE: Final = 1000
"""Samples written in one turn of the event loop: about a millisecond."""

TOTALS: Final = {
    "messages_published": "Messages that publishers sent.",
    "messages_confirmed": "Messages confirmed to their publishers.",
    "messages_delivered": "Messages sent to consumers and to basic.get, redeliveries included.",
    "messages_acked": "Deliveries that consumers acknowledged.",
    "messages_redelivered": "Deliveries of messages that had been delivered before.",
    "messages_timed_out": "Deliveries taken back because they were not settled in time.",
    "messages_returned": "Messages returned to their publishers.",
    "messages_unroutable": "Messages dropped because no queue took them and they were not mandatory.",
    "messages_replies_dropped": "Direct replies dropped because the requester was gone or did not read.",
    "messages_refused": "Messages refused because the log had failed.",
    "messages_replaced": "Messages replaced by later ones with the same value in last-value queues.",
    "messages_overflowed": "Messages refused because a queue was full.",
    "messages_duplicate": "Messages that a queue did not take as it had had them before.",
    "receipts_sent": "Receipts that publishers had asked for.",
    "receipts_dropped": "Receipts whose queue was not there, or took no more.",
    "dead_letters_failed": "Messages that could not be dead-lettered; the log keeps those that it has.",
    "messages_made_ready": "Messages that became ready in a queue: new there, or given back.",
    "consumer_wakeups": "Consumers that were told of messages.",
    "consumer_empty_wakeups": "Such consumers that got no message at all.",
    "logins_accepted": "Log-ins that were accepted.",
    "logins_refused": "Log-ins that were refused: a wrong password, say.",
    "connections_opened": "Connections opened.",
    "connections_closed": "Connections closed.",
    "channels_opened": "Channels opened.",
    "channels_closed": "Channels closed.",
}
"""Totals since start, and what each counts; `Counters` has them under these names, `messages_` taken off."""

PER_QUEUE: Final = {
    "ready": ("queue_messages_ready", "Messages that consumers may take."),
    "unacked": ("queue_messages_unacked", "Messages that consumers hold."),
    "held": ("queue_messages_held", "Messages that wait for their next delivery."),
    "dead": ("queue_messages_dlx", "Messages that wait to be dead-lettered."),
    "ready_bytes": ("queue_messages_ready_bytes", "Bodies of the messages that consumers may take."),
    "unacked_bytes": ("queue_messages_unacked_bytes", "Bodies of the messages that consumers hold."),
    "consumer_count": ("queue_consumers", "Consumers of the queue."),
}
"""What is told of each queue: the attribute, the metric and what it means."""

OF_SOME_QUEUES: Final = {
    ("volatile", "lost"): (
        "queue_messages_lost_at_restart",
        "Messages gone at restarts.",
    ),
    ("memory", "duplicates"): ("queue_messages_duplicate", "Messages that the queue had had before."),
}
"""What is told of queues that have what others have not: that, and its attribute, which only grows."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class BrokerCollector(Collector):
    """Everything but the queues one by one."""

    def __init__(self, state: AdminState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Take the numbers."""
        measured = self._state.measured
        build = {
            "version": self._state.version,
            "flavour": self._state.flavour,
            "python": platform.python_version(),
        }
        yield InfoMetricFamily("amqpd_build", "What is running.", build)
        yield from _gauges(measured)
        counters = measured.broker.counters
        for name, text in TOTALS.items():
            total = getattr(counters, name.removeprefix("messages_"))
            yield CounterMetricFamily(f"amqpd_{name}", text, total)
        yield from _dead_letters(counters)
        yield from _journal(measured.broker.journal)
        yield _readers(self._state.readers)
        yield _histogram(
            "amqpd_log_sync_seconds", "How long syncs of the log took.", measured.log.sync_latency
        )
        yield _histogram("amqpd_event_loop_lag_seconds", "How late the event loop was.", measured.loop_lag)


class Exposition:
    """Writes the metrics of one daemon."""

    def __init__(self, state: AdminState) -> None:
        self._measured = state.measured
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(state))
        ProcessCollector(registry=self._registry)

    async def write(self) -> AsyncIterator[bytes]:
        """The whole text in pieces; other work runs between them."""
        yield generate_latest(self._registry)
        # lists and text, nothing that the garbage collector follows: 100,000 pairs would keep it busy
        labels, queues = await self._labelled()
        consumers = 0
        for attribute, (metric, text) in PER_QUEUE.items():
            yield f"# HELP amqpd_{metric} {text}\n# TYPE amqpd_{metric} gauge\n".encode()
            for start in range(0, len(queues), SLICE):
                values = [int(getattr(queue, attribute)) for queue in queues[start : start + SLICE]]
                if attribute == "consumer_count":
                    consumers += sum(values)
                samples = zip(labels[start : start + SLICE], values, strict=True)
                yield "".join([f"amqpd_{metric}{label} {value}\n" for label, value in samples]).encode()
                await asyncio.sleep(0)
        for (feature, attribute), (metric, text) in OF_SOME_QUEUES.items():
            yield f"# HELP amqpd_{metric} {text}\n# TYPE amqpd_{metric} counter\n".encode()
            for start in range(0, len(queues), SLICE):
                some = zip(labels[start : start + SLICE], queues[start : start + SLICE], strict=True)
                having = [(label, getattr(queue, feature)) for label, queue in some]
                yield "".join(
                    f"amqpd_{metric}{label} {int(getattr(had, attribute))}\n"
                    for label, had in having
                    if had is not None
                ).encode()
                await asyncio.sleep(0)
        yield (
            "# HELP amqpd_consumers Consumers of all queues.\n"
            f"# TYPE amqpd_consumers gauge\namqpd_consumers {consumers}\n"
        ).encode()

    async def _labelled(self) -> tuple[list[str], list[MeasuredQueue]]:
        """Every queue there is now, and its labels. One deleted during the scrape shows its last numbers."""
        labels: list[str] = []
        queues: list[MeasuredQueue] = []
        for vhost, found in list(self._measured.broker.vhosts.items()):
            names = list(found.queues)
            queues += found.queues.values()
            for start in range(0, len(names), SLICE):
                labels += [_labels(vhost, name) for name in names[start : start + SLICE]]
                await asyncio.sleep(0)
        return labels, queues


def _gauges(measured: Measured) -> Iterable[Metric]:
    broker, log, counters = measured.broker, measured.log, measured.broker.counters
    resources = measured.resources
    shortage = resources.shortage
    queues = sum(len(vhost.queues) for vhost in broker.vhosts.values())
    connections = counters.connections_opened - counters.connections_closed
    channels = counters.channels_opened - counters.channels_closed
    for name, text, value in (
        ("connections", "Connections that are open.", connections),
        ("channels", "Channels that are open.", channels),
        ("virtual_hosts", "Virtual hosts.", len(broker.vhosts)),
        ("queues", "Queues.", queues),
        ("log_bytes", "Size of the log on disk.", log.bytes_on_disk),
        ("log_segments", "Files of the log.", log.segment_count),
        ("log_damaged_segments", "Files of the log that no longer read back.", log.damaged_segments),
        ("low_on_memory", "1 while publishers wait for memory.", int(shortage.memory)),
        ("low_on_disk", "1 while publishers wait for space on the disk.", int(shortage.disk)),
        ("publishers_held", "Connections that wait to publish.", len(shortage.held)),
        ("memory_max_bytes", "Resident memory above which publishers wait; 0: none.", resources.memory_max),
        ("disk_free_bytes", "Free space where the data is; -1: not known.", resources.disk_free),
        ("disk_free_min_bytes", "Free space below which publishers wait.", resources.disk_free_min),
        ("log_failed", "1 if the log accepts nothing any more.", int(bool(log.failure))),
    ):
        yield GaugeMetricFamily(f"amqpd_{name}", text, int(value))


def _journal(journal: Journal) -> Iterable[Metric]:
    for name, text, value in (
        ("journal_events", "Events that were journaled, up to a second ago.", journal.events),
        ("journal_events_lost", "Those of which nothing could be written.", journal.lost),
    ):
        yield CounterMetricFamily(f"amqpd_{name}", text, int(value))


def _readers(readers: Readers) -> Metric:
    family = GaugeMetricFamily(
        "amqpd_reader_lag",
        "Messages that a program which reports it has still to read.",
        labels=("reader", "vhost"),
    )
    for report in readers.all():
        family.add_metric((report.name, report.vhost), report.lag)
    return family


def _dead_letters(counters: Counters) -> Iterable[Metric]:
    """By reason, under RabbitMQ's names: its dashboards ask for them. [RabbitMQ rabbit_global_counters]

    Under a name of ours also those that were dropped on their way, and why.
    """
    for reason, dead_lettered, surely, discarded in zip(
        REASONS, counters.dead_lettered, counters.dead_lettered_surely, counters.discarded, strict=True
    ):
        family = CounterMetricFamily(
            f"rabbitmq_global_messages_dead_lettered_{reason}",
            f"Messages that died as {reason} and arrived elsewhere; 'disabled': had nowhere to go.",
            labels=("queue_type", "dead_letter_strategy"),
        )
        family.add_metric(("rabbit_classic_queue", "at_most_once"), dead_lettered - surely)
        family.add_metric(("rabbit_classic_queue", "at_least_once"), surely)
        family.add_metric(("rabbit_classic_queue", "disabled"), discarded)
        yield family
    dropped = CounterMetricFamily(
        "amqpd_dead_letters_dropped",
        "Dead letters that were dropped because no queue took them.",
        labels=("reason", "cause"),
    )
    for reason_number, reason in enumerate(REASONS):
        for cause_number, cause in enumerate(CAUSES):
            count = counters.letters_dropped[reason_number * len(CAUSES) + cause_number]
            dropped.add_metric((reason, cause), count)
    yield dropped


def _histogram(name: str, text: str, measures: Measures) -> Metric:
    counts = [float(count) for count in accumulate(measures.counts)]
    bounds = [str(float(bound)) for bound in measures.bounds] + ["+Inf"]
    return HistogramMetricFamily(name, text, list(zip(bounds, counts, strict=True)), measures.sum)


def _labels(vhost: str, queue: str) -> str:
    return f'{{queue="{queue.translate(_ESCAPES)}",vhost="{vhost.translate(_ESCAPES)}"}}'
