"""amqpd's own metrics of the broker as a whole, read from plain integers at scrape time."""

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.admin.metrics.objects import QUEUE_KIND, QueueSums
from broker.admin.metrics.text import COUNTER, GAUGE, HISTOGRAM, INFO, Described, histogram
from broker.admin.readers import Readers
from broker.admin.shapes import BROWSER, STATES
from broker.admin.state import AdminState, Measured, MeasuredDispatchers, MeasuredLink
from broker.core.counters import Counters
from broker.core.delivery.journal import Journal
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED, NOTIFIED
from broker.core.queues.death import CAUSES
from broker.core.queues.hooks import REASONS

TOTALS: Final = {
    "messages_published": "Messages that publishers sent.",
    "messages_confirmed": "Messages confirmed to their publishers.",
    "messages_delivered": "Messages sent to consumers and to basic.get, redeliveries included.",
    "messages_delivered_no_ack": "Messages sent to consumers that acknowledge nothing.",
    "messages_got": "Messages sent to basic.get that need an acknowledgement.",
    "messages_got_no_ack": "Messages sent to basic.get that need no acknowledgement.",
    "messages_got_empty": "Answers to basic.get that the queue has no message.",
    "messages_acked": "Deliveries that consumers acknowledged.",
    "messages_redelivered": "Deliveries of messages that had been delivered before.",
    "messages_timed_out": "Deliveries requeued because their consumers did not settle them in time.",
    "messages_returned": "Messages returned to their publishers.",
    "messages_unroutable": "Messages dropped because no queue took them and they were not mandatory.",
    "messages_replies_dropped": "Direct replies dropped because the requester had left or did not read.",
    "messages_refused": "Messages refused because the log had failed.",
    "messages_replaced": "Messages replaced by later ones with the same value in last-value queues.",
    "messages_overflowed": "Messages refused because a queue was full.",
    "messages_duplicate": "Messages that a queue dropped as duplicates.",
    "receipts_sent": "Receipts sent to publishers' queues.",
    "receipts_dropped": "Receipts dropped because their queue did not exist or refused them.",
    "dead_letters_failed": "Messages that the broker failed to dead-letter; the log keeps logged ones.",
    "messages_made_ready": "Messages that became ready in a queue: enqueued or requeued.",
    "messages_requeued": "Messages that became ready again because they were requeued.",
    "disk_writes": "Persistent messages appended to the log.",
    "queues_declared": "Declarations of queues, new or present.",
    "queues_created": "Queues created.",
    "queues_deleted": "Queues deleted.",
    "consumer_wakeups": "Notifications of consumers about new work.",
    "consumer_empty_wakeups": "Notifications after which the consumer got no message.",
    "logins_accepted": "Log-ins that were accepted.",
    "logins_refused": "Log-ins that were refused, for example for a wrong password, over HTTP too.",
    "connections_opened": "Connections opened.",
    "connections_closed": "Connections closed.",
    "channels_opened": "Channels and sessions opened.",
    "channels_closed": "Channels and sessions closed.",
}
"""Totals since the start, and their help texts. `Counters` has these names without `messages_`."""

GAUGES: Final = {
    "connections": "Open connections.",
    "channels": "Open channels and sessions.",
    "virtual_hosts": "Virtual hosts.",
    "queues": "Queues.",
    "log_bytes": "Bytes of the log on disk.",
    "log_segments": "Files of the log.",
    "log_damaged_segments": "Damaged files of the log.",
    "low_on_memory": "1 while publishers wait for memory, else 0.",
    "low_on_disk": "1 while publishers wait for disk space, else 0.",
    "publishers_held": "Connections that wait to publish.",
    "memory_max_bytes": "Resident memory above which publishers wait; 0 means no limit.",
    "disk_free_bytes": "Free disk space for the data; -1 means unknown.",
    "disk_free_min_bytes": "Free disk space below which publishers wait.",
    "log_failed": "1 if the log has failed and refuses appends, else 0.",
}
"""Gauges of the broker as a whole."""

JOURNAL_TOTALS: Final = {
    "journal_events": "Events that the journal has, up to a second ago.",
    "journal_events_lost": "Events that the journal failed to write.",
}
"""Totals of the journal since start."""

SHOVELS: Final = {
    "is_running": ("shovel_running", "gauge", "1 while the shovel takes messages, else 0."),
    "source_ready": (
        "shovel_source_ready",
        "gauge",
        "Messages that wait in the source queue; -1: the source is no queue of this broker.",
    ),
    "in_flight": ("shovel_unconfirmed", "gauge", "Messages sent to the destination and not confirmed."),
    "forwarded": ("shovel_forwarded", "counter", "Messages sent to the destination, repetitions included."),
    "confirmed": ("shovel_confirmed", "counter", "Messages that the destination has taken."),
    "refused": ("shovel_refused", "counter", "Messages that the destination has refused."),
    "attempts": ("shovel_attempts", "counter", "Attempts of the shovel to connect."),
}
"""Metrics of each shovel: the attribute, the metric, its type and what it means."""

FEDERATION: Final = {
    "is_running": ("federation_link_running", "gauge", "1 while the link is connected, else 0."),
    "in_flight": (
        "federation_link_unconfirmed",
        "gauge",
        "Messages of the upstream that this broker has not stored yet.",
    ),
    "forwarded": (
        "federation_link_forwarded",
        "counter",
        "Messages of the upstream, repetitions included.",
    ),
    "confirmed": (
        "federation_link_confirmed",
        "counter",
        "Messages of the upstream that this broker has stored.",
    ),
    "refused": (
        "federation_link_refused",
        "counter",
        "Messages of the upstream that this broker has refused.",
    ),
    "attempts": ("federation_link_attempts", "counter", "Attempts of the link to connect."),
}
"""Metrics of each federation link."""

REMOTE_QUEUES: Final = {
    "is_running": ("remote_queue_running", "gauge", "1 while the other broker is connected, else 0."),
    "source_ready": ("remote_queue_waiting", "gauge", "Messages that wait here for the other broker."),
    "in_flight": (
        "remote_queue_unconfirmed",
        "gauge",
        "Messages sent to the other broker and not confirmed.",
    ),
    "forwarded": (
        "remote_queue_forwarded",
        "counter",
        "Messages sent to the other broker, repetitions included.",
    ),
    "confirmed": ("remote_queue_confirmed", "counter", "Messages that the other broker has taken."),
    "refused": ("remote_queue_refused", "counter", "Messages that the other broker has refused."),
    "attempts": ("remote_queue_attempts", "counter", "Attempts to connect to the other broker."),
}
"""Metrics of each remote queue."""

BUILD: Final = ("amqpd_build", "Version, flavour and Python of the broker.")
LOG_SYNC: Final = ("amqpd_log_sync_seconds", "Duration of the log's syncs.")
LOOP_LAG: Final = ("amqpd_event_loop_lag_seconds", "Delay of the event loop.")
READER_LAG: Final = (
    "amqpd_reader_lag",
    "Messages that a reader, which reports its progress, has still to read.",
)
CONSUMERS: Final = ("amqpd_consumers", "Consumers of all queues.")
BY_STATE: Final = (
    "amqpd_consumers_by_state",
    "Consumers of all queues by their state: interested ones wait for a message, notified ones take one, "
    "others have no credit or may not take one, browsers take none away.",
)
HEAD_AGE: Final = (
    "amqpd_queue_head_age_max_seconds",
    "Age of the oldest first message of a queue, seen since the start of the broker.",
)
SAMPLED: Final = (
    ("amqpd_message_time_in_queue_seconds", "Time from the enqueue to the first delivery, of a sample."),
    ("amqpd_message_confirm_seconds", "Time from the publish to the confirm, of a sample."),
    ("amqpd_message_acknowledge_seconds", "Time from a delivery to its acknowledgement, of a sample."),
)
SIZES: Final = ("amqpd_message_size_bytes", "Sizes of the bodies of published messages.")
DEAD_LETTERED: Final = "rabbitmq_global_messages_dead_lettered_"
DROPPED: Final = ("amqpd_dead_letters_dropped", "Dead letters dropped because no queue took them.")
DEAD_LETTERED_LABELS: Final = ("queue_type", "dead_letter_strategy")
DROPPED_LABELS: Final = ("reason", "cause")
READER_LABELS: Final = ("reader", "vhost")
FEDERATION_LINKS: Final = ("amqpd_federation_links", "Links of federated exchanges and queues, by status.")
STATUS_LABELS: Final = ("status",)
STATE_LABELS: Final = ("state",)
SHOVEL_LABELS: Final = ("shovel", "vhost")
LINK_LABELS: Final = ("object", "kind", "upstream", "vhost")
FORWARDING: Final = (
    (SHOVELS, SHOVEL_LABELS),
    (FEDERATION, LINK_LABELS),
    (REMOTE_QUEUES, QUEUE_KIND.labels),
)
"""The metrics of all that forwards messages, with their labels."""

DISPATCHER_CALLS: Final = ("amqpd_dispatcher_calls", "Calls of the dispatcher that have ended, by result.")
DISPATCHER_SECONDS: Final = (
    "amqpd_dispatcher_call_seconds",
    "Sum of the durations of the dispatcher's calls.",
)
DISPATCHER_MESSAGES: Final = (
    "amqpd_dispatcher_messages",
    "Messages of the calls of the dispatcher, by outcome.",
)
DISPATCHER_RUNNING: Final = ("amqpd_dispatcher_calls_in_progress", "Calls of the dispatcher in progress.")
DISPATCHER_WAITING: Final = (
    "amqpd_dispatcher_waiting",
    "1 while the circuit breaker or the target stops all calls of the dispatcher, else 0.",
)
DISPATCHER_OPENED: Final = (
    "amqpd_dispatcher_breaker_opened",
    "Times that the circuit breaker of the dispatcher has opened.",
)
DISPATCHER_LABELS: Final = ("dispatcher", "vhost")


def describe_whole() -> list[Described]:
    """Return the metrics of the broker as a whole, in the order of a scrape."""
    build = ("version", "flavour", "python")
    return [
        Described(f"{BUILD[0]}_info", INFO, build, BUILD[1]),
        *(Described(f"amqpd_{name}", GAUGE, (), text) for name, text in GAUGES.items()),
        *(Described(f"amqpd_{name}_total", COUNTER, (), text) for name, text in TOTALS.items()),
        *(
            Described(
                f"{DEAD_LETTERED}{reason}_total", COUNTER, DEAD_LETTERED_LABELS, _dead_lettered_help(reason)
            )
            for reason in REASONS
        ),
        Described(f"{DROPPED[0]}_total", COUNTER, DROPPED_LABELS, DROPPED[1]),
        *(Described(f"amqpd_{name}_total", COUNTER, (), text) for name, text in JOURNAL_TOTALS.items()),
        Described(READER_LAG[0], GAUGE, READER_LABELS, READER_LAG[1]),
        *(
            Described(f"amqpd_{name}{'_total' if kind == COUNTER else ''}", kind, labels, text)
            for family, labels in FORWARDING
            for name, kind, text in family.values()
        ),
        Described(FEDERATION_LINKS[0], GAUGE, STATUS_LABELS, FEDERATION_LINKS[1]),
        *_describe_dispatchers(),
        Described(LOG_SYNC[0], HISTOGRAM, (), LOG_SYNC[1]),
        Described(LOOP_LAG[0], HISTOGRAM, (), LOOP_LAG[1]),
        *(Described(name, HISTOGRAM, (), text) for name, text in (*SAMPLED, SIZES)),
        Described(CONSUMERS[0], GAUGE, (), CONSUMERS[1]),
        Described(BY_STATE[0], GAUGE, STATE_LABELS, BY_STATE[1]),
        Described(HEAD_AGE[0], GAUGE, (), HEAD_AGE[1]),
    ]


def _describe_dispatchers() -> Iterator[Described]:
    by_result, by_outcome = (*DISPATCHER_LABELS, "result"), (*DISPATCHER_LABELS, "outcome")
    yield Described(f"{DISPATCHER_CALLS[0]}_total", COUNTER, by_result, DISPATCHER_CALLS[1])
    yield Described(f"{DISPATCHER_MESSAGES[0]}_total", COUNTER, by_outcome, DISPATCHER_MESSAGES[1])
    for name, text in (DISPATCHER_SECONDS, DISPATCHER_OPENED):
        yield Described(f"{name}_total", COUNTER, DISPATCHER_LABELS, text)
    for name, text in (DISPATCHER_RUNNING, DISPATCHER_WAITING):
        yield Described(name, GAUGE, DISPATCHER_LABELS, text)


def collect_whole(state: AdminState, sums: QueueSums) -> Iterator[Metric]:
    """Yield the metrics of the broker as a whole with their present values."""
    measured = state.measured
    build = {"version": state.version, "flavour": state.flavour, "python": platform.python_version()}
    yield InfoMetricFamily(*BUILD, build)
    yield from _gauges(measured)
    counters = measured.broker.counters
    for name, text in TOTALS.items():
        total = getattr(counters, name.removeprefix("messages_"))
        yield CounterMetricFamily(f"amqpd_{name}", text, total)
    yield from _dead_letters(counters)
    yield from _journal(measured.broker.journal)
    yield _readers(state.readers)
    links = state.shovels(), state.federation_links(), state.remote_links()
    for (metrics, labels), found in zip(FORWARDING, links, strict=True):
        yield from _forwarding(metrics, labels, list(found))
    yield _links(state.links())
    yield from _dispatchers(measured.dispatchers)
    yield histogram(*LOG_SYNC, measured.log.sync_latency)
    yield histogram(*LOOP_LAG, measured.loop_lag)
    sampled = counters.time_in_queue, counters.time_to_confirm, counters.time_to_acknowledge
    for (name, text), durations in zip(SAMPLED, sampled, strict=True):
        yield histogram(name, text, durations)
    yield histogram(*SIZES, counters.message_sizes)
    yield GaugeMetricFamily(*CONSUMERS, sums.row.consumers)
    by_state = GaugeMetricFamily(*BY_STATE, labels=STATE_LABELS)
    states = sums.states
    by_state.add_metric((STATES[INTERESTED],), int(states.interested))
    by_state.add_metric((STATES[NOTIFIED],), int(states.notified))
    by_state.add_metric((STATES[NOT_INTERESTED],), int(states.not_interested))
    by_state.add_metric((BROWSER,), int(states.browsers))
    yield by_state
    yield GaugeMetricFamily(*HEAD_AGE, sums.head_age)


def _gauges(measured: Measured) -> Iterable[Metric]:
    broker, log, counters = measured.broker, measured.log, measured.broker.counters
    resources = measured.resources
    shortage = resources.shortage
    values = {
        "connections": counters.connections_opened - counters.connections_closed,
        "channels": counters.channels_opened - counters.channels_closed,
        "virtual_hosts": len(broker.vhosts),
        "queues": sum(len(vhost.topology.queues) for vhost in broker.vhosts.values()),
        "log_bytes": log.bytes_on_disk,
        "log_segments": log.segment_count,
        "log_damaged_segments": log.damaged_segments,
        "low_on_memory": shortage.memory,
        "low_on_disk": shortage.disk,
        "publishers_held": len(shortage.held),
        "memory_max_bytes": resources.memory_max,
        "disk_free_bytes": resources.disk_free,
        "disk_free_min_bytes": resources.disk_free_min,
        "log_failed": bool(log.failure),
    }
    for name, text in GAUGES.items():
        yield GaugeMetricFamily(f"amqpd_{name}", text, int(values[name]))


def _journal(journal: Journal) -> Iterable[Metric]:
    values = {"journal_events": journal.events, "journal_events_lost": journal.lost}
    for name, text in JOURNAL_TOTALS.items():
        yield CounterMetricFamily(f"amqpd_{name}", text, int(values[name]))


def _readers(readers: Readers) -> Metric:
    family = GaugeMetricFamily(*READER_LAG, labels=READER_LABELS)
    for report in readers.all():
        family.add_metric((report.name, report.vhost), report.lag)
    return family


def _forwarding(
    metrics: Mapping[str, tuple[str, str, str]], labels: tuple[str, ...], links: list[MeasuredLink]
) -> Iterable[Metric]:
    for attribute, (name, kind, text) in metrics.items():
        make = CounterMetricFamily if kind == COUNTER else GaugeMetricFamily
        family = make(f"amqpd_{name}", text, labels=labels)
        for link in links:
            family.add_metric(link.labels, int(getattr(link, attribute)))
        yield family


def _links(counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(*FEDERATION_LINKS, labels=STATUS_LABELS)
    for status, count in counts.items():
        family.add_metric((status,), count)
    return family


def _dispatchers(dispatchers: MeasuredDispatchers) -> Iterable[Metric]:
    calls = CounterMetricFamily(*DISPATCHER_CALLS, labels=(*DISPATCHER_LABELS, "result"))
    messages = CounterMetricFamily(*DISPATCHER_MESSAGES, labels=(*DISPATCHER_LABELS, "outcome"))
    seconds = CounterMetricFamily(*DISPATCHER_SECONDS, labels=DISPATCHER_LABELS)
    opened = CounterMetricFamily(*DISPATCHER_OPENED, labels=DISPATCHER_LABELS)
    running = GaugeMetricFamily(*DISPATCHER_RUNNING, labels=DISPATCHER_LABELS)
    waiting = GaugeMetricFamily(*DISPATCHER_WAITING, labels=DISPATCHER_LABELS)
    for each in dispatchers.working():
        labels = (each.definition.name, each.definition.vhost)
        totals = each.totals
        for result, count in totals.calls.items():
            calls.add_metric((*labels, result), count)
        for outcome, count in totals.messages.items():
            messages.add_metric((*labels, outcome), count)
        seconds.add_metric(labels, totals.milliseconds / 1000)
        opened.add_metric(labels, totals.breaker_opened)
        running.add_metric(labels, each.calls_in_progress)
        waiting.add_metric(labels, int(each.is_waiting))
    yield from (calls, messages, seconds, opened, running, waiting)


def _dead_letters(counters: Counters) -> Iterable[Metric]:
    """Yield the dead letters by reason under RabbitMQ's names, which its dashboards query.

    Dropped dead letters have a name of amqpd, with the cause. [RabbitMQ rabbit_global_counters]
    """
    for reason, dead_lettered, surely, discarded in zip(
        REASONS, counters.dead_lettered, counters.dead_lettered_surely, counters.discarded, strict=True
    ):
        family = CounterMetricFamily(
            f"{DEAD_LETTERED}{reason}", _dead_lettered_help(reason), labels=DEAD_LETTERED_LABELS
        )
        family.add_metric(("rabbit_classic_queue", "at_most_once"), dead_lettered - surely)
        family.add_metric(("rabbit_classic_queue", "at_least_once"), surely)
        family.add_metric(("rabbit_classic_queue", "disabled"), discarded)
        yield family
    dropped = CounterMetricFamily(*DROPPED, labels=DROPPED_LABELS)
    for reason_number, reason in enumerate(REASONS):
        for cause_number, cause in enumerate(CAUSES):
            count = counters.letters_dropped[reason_number * len(CAUSES) + cause_number]
            dropped.add_metric((reason, cause), count)
    yield dropped


def _dead_lettered_help(reason: str) -> str:
    return (
        f"Messages that died for the reason {reason} and arrived in another queue; "
        "with the strategy disabled: messages that the queue does not dead-letter."
    )
