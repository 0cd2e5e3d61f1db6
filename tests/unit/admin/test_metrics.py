"""Metrics: every number under its name, valid exposition text, and no stall with very many queues."""

import asyncio
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.shortage import Shortage
from broker.admin.metrics.exposition import (
    AGGREGATED,
    CHOSEN,
    FAMILIES,
    PER_OBJECT,
    SLICE,
    Exposition,
    View,
    describe_metrics,
)
from broker.admin.metrics.objects import QUEUES_AT_ONCE
from broker.admin.metrics.own import TOTALS
from broker.admin.state import AdminState, Measured
from broker.core.counters import Counters
from broker.core.message import Address, Message
from broker.core.queues.death import CAUSES, FULL
from broker.core.queues.hooks import EXHAUSTED, EXPIRED
from broker.core.queues.queue import Queue, drop
from broker.core.statistics import QueueReader
from broker.dispatch.definition import definition_of
from broker.dispatch.dispatcher import Totals
from broker.net.resources import Resources
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import RecordingStore, new_broker


@dataclass
class FakeMeasures:
    bounds: Sequence[float] = (0.001, 0.01)
    counts: Sequence[int] = (3, 2, 1)
    sum: float = 0.5


class FakeDispatcher:
    def __init__(self) -> None:
        self.definition = definition_of("/", "d", {"queue": "q", "command": "/bin/true"})
        self.totals = Totals(milliseconds=1500, breaker_opened=4)
        self.totals.calls["failed"] = 3
        self.totals.messages["retried"] = 6
        self.calls_in_progress = 2
        self.is_waiting = True


class FakeDispatchers:
    """A single dispatcher, which waits with two calls in progress."""

    def working(self) -> list[FakeDispatcher]:
        return [FakeDispatcher()]


@dataclass
class FakeLog:
    bytes_on_disk: int = 4096
    segment_count: int = 2
    message_reads: int = 0
    damaged_segments: int = 1
    failure: str = ""
    sync_latency: FakeMeasures = field(default_factory=FakeMeasures)


def new_resources() -> Resources:
    shortage = Shortage(Connections(HandClock().schedule))
    shortage.set_shortages(memory=False, disk=True)
    return Resources(shortage, "", 1000, 2000)


class Bench:
    """A broker whose metrics a test scrapes."""

    def __init__(
        self,
        log: FakeLog | None = None,
        shovels: Callable[[], Sequence["FakeLink"]] = lambda: (),
        links: Callable[[], Mapping[str, int]] = dict,
        federation_links: Callable[[], Sequence["FakeLink"]] = lambda: (),
        remote_links: Callable[[], Sequence["FakeLink"]] = lambda: (),
    ) -> None:
        self.broker = new_broker(RecordingStore())
        self.counters = self.broker.counters
        self.connections = Connections(self.broker.schedule)
        self.now = 1000.0
        lag = FakeMeasures(counts=(0, 4, 0), sum=0.02)
        parts = log or FakeLog(), lag, new_resources(), FakeDispatchers()
        measured = Measured(self.broker, self.connections, *parts)
        state = AdminState(
            "1.2.3",
            "pure Python",
            measured,
            lambda: "",
            shovels=shovels,
            links=links,
            federation_links=federation_links,
            remote_links=remote_links,
        )
        self.exposition = Exposition(state, lambda: self.now)

    def queue(self, name: str = "q", vhost: str = "/", **arguments: object) -> Queue:
        """Declare a queue, and its virtual host if there is none."""
        if vhost not in self.broker.vhosts:
            self.broker.declare_vhost(vhost)
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.broker.vhosts[vhost].declarations.declare_queue(
            name, "x-queue-type" in named, None, False, named
        )


SUMS = View()
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def text_of(bench: Bench, view: View = SUMS) -> str:
    return b"".join([piece async for piece in bench.exposition.write(view)]).decode()


async def scraped(bench: Bench, view: View = SUMS) -> Samples:
    """Return all samples by Prometheus's own parser; no sample and no family occurs twice."""
    text = await text_of(bench, view)
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


async def test_metrics_have_the_calls_of_dispatchers() -> None:
    samples = await scraped(Bench())
    labels = {"dispatcher": "d", "vhost": "/"}

    assert value(samples, "amqpd_dispatcher_calls_total", result="failed", **labels) == 3
    assert value(samples, "amqpd_dispatcher_calls_total", result="acknowledged", **labels) == 0
    assert value(samples, "amqpd_dispatcher_messages_total", outcome="retried", **labels) == 6
    assert value(samples, "amqpd_dispatcher_call_seconds_total", **labels) == 1.5
    assert value(samples, "amqpd_dispatcher_breaker_opened_total", **labels) == 4
    assert value(samples, "amqpd_dispatcher_calls_in_progress", **labels) == 2
    assert value(samples, "amqpd_dispatcher_waiting", **labels) == 1


async def test_metrics_have_totals_and_open_connections_and_channels() -> None:
    bench = Bench()
    counters = bench.counters
    for number, name in enumerate(TOTALS, start=100):
        setattr(counters, name.removeprefix("messages_"), number)
    counters.connections_opened, counters.connections_closed = 10, 3
    counters.channels_opened, counters.channels_closed = 20, 5
    samples = await scraped(bench)
    for number, name in enumerate(TOTALS, start=100):
        if name.startswith("messages_"):
            assert value(samples, f"amqpd_{name}_total") == number
    assert value(samples, "amqpd_connections_opened_total") == 10
    assert value(samples, "amqpd_connections") == 7
    assert value(samples, "amqpd_channels") == 15
    assert (
        value(
            samples,
            "amqpd_build_info",
            version="1.2.3",
            flavour="pure Python",
            python=platform.python_version(),
        )
        == 1
    )


def test_every_counter_has_its_total() -> None:
    counters = Counters()
    numbers = {name for name in dir(counters) if name[0] != "_" and isinstance(getattr(counters, name), int)}
    sums_of_others = {"delivered_by_hand"}
    assert {name.removeprefix("messages_") for name in TOTALS} == numbers - sums_of_others


def without_own_labels(name: str) -> bool:
    """Whether a metric belongs to the broker rather than to the process or to the library."""
    return not name.startswith(("process_", "python_"))


async def test_each_metric_is_described() -> None:
    bench = Bench()
    bench.queue("q", max_age="1D", queue_type="stream")
    bench.queue("q", "other", deduplication=True)
    families = [View(kind, FAMILIES) for kind in (AGGREGATED, PER_OBJECT, CHOSEN)]
    shown: set[tuple[str, str, str]] = set()
    for view in families:
        text = await text_of(bench, view)
        exported = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
        shown |= {
            (name.replace("_detailed_", "_"), kind, exported[name])
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
            if without_own_labels(name)
        }
    kinds = {"info": "gauge"}  # as the text format has it
    assert shown == {(each.name, kinds.get(each.kind, each.kind), each.text) for each in describe_metrics()}
    labels = {
        name: {label for label, _ in found if label != "le"}
        for name, found in await scraped(bench, View(PER_OBJECT))
    }
    for each in describe_metrics():
        assert labels.get(each.name, set(each.labels)) == set(each.labels), each.name


async def test_dropped_dead_letters_by_reason_and_cause() -> None:
    bench = Bench()
    counters = bench.counters
    counters.letters_dropped[EXPIRED * len(CAUSES) + FULL] = 7
    samples = await scraped(bench)
    name = "amqpd_dead_letters_dropped_total"
    assert value(samples, name, reason="expired", cause="full") == 7
    assert value(samples, name, reason="rejected", cause="no_route") == 0


async def test_dead_letters_by_reason() -> None:
    bench = Bench()
    counters = bench.counters
    counters.dead_lettered[EXPIRED] = 7
    counters.dead_lettered_surely[EXPIRED] = 5
    counters.discarded[EXHAUSTED] = 8
    samples = await scraped(bench)
    found = {
        (name, dict(labels)["dead_letter_strategy"]): count
        for (name, labels), count in samples.items()
        if "dead_lettered" in name and count
    }
    assert found == {
        ("rabbitmq_global_messages_dead_lettered_expired_total", "at_least_once"): 5,
        ("rabbitmq_global_messages_dead_lettered_expired_total", "at_most_once"): 2,
        ("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "disabled"): 8,
    }


async def test_metrics_have_counts_of_each_queue_and_sums() -> None:
    bench = Bench()
    for vhost, name, numbers in (
        ("/", "a", (1, 2, 30, 40)),
        ("/", "b", (6, 7, 80, 90)),
        ("other", "a", (11, 12, 130, 140)),
    ):
        queue = bench.queue(name, vhost)
        queue.ready, queue.unacked, queue.ready_bytes, queue.unacked_bytes = numbers
        queue.held, queue.dead, queue.delivered, queue.got, queue.published = 3, 4, 10, 1, 50
    bench.broker.declare_vhost("empty")
    samples = await scraped(bench, View(PER_OBJECT))
    for prefix in ("amqpd_queue_", "rabbitmq_queue_"):
        for metric, number in (
            ("messages_ready", 6),
            ("messages_unacked", 7),
            ("messages", 20),
            ("messages_ready_bytes", 80),
            ("messages_unacked_bytes", 90),
            ("consumers", 0),
            ("messages_delivered_ack_total", 9),
            ("get_ack_total", 1),
        ):
            assert value(samples, f"{prefix}{metric}", vhost="/", queue="b") == number
    assert value(samples, "amqpd_queue_messages_held", vhost="other", queue="a") == 3
    assert value(samples, "amqpd_queue_messages_dlx", vhost="other", queue="a") == 4
    assert value(samples, "amqpd_queues") == value(samples, "rabbitmq_queues") == 3
    assert value(samples, "amqpd_virtual_hosts") == 3
    info = {"queue": "b", "vhost": "/", "queue_type": "rabbit_classic_queue", "membership": "leader"}
    assert value(samples, "rabbitmq_queue_info", **info) == 1
    sums = await scraped(bench)
    assert not [name for name, labels in sums if ("queue", "a") in labels], "sums only"
    for prefix in ("amqpd_queue_", "rabbitmq_queue_"):
        assert value(sums, f"{prefix}messages_ready") == 18
        assert value(sums, f"{prefix}messages") == 1 + 6 + 11 + 2 + 7 + 12 + 3 * 7
        assert value(sums, f"{prefix}messages_delivered_ack_total") == 27
    assert value(sums, "amqpd_queue_messages_enqueued_total") == 150


async def test_the_three_views_name_themselves() -> None:
    bench = Bench()
    bench.broker.node = "amqpd@here"
    for kind in (AGGREGATED, PER_OBJECT, CHOSEN):
        samples = await scraped(bench, View(kind))
        found = [dict(labels) for name, labels in samples if name == "rabbitmq_identity_info"]
        assert found == [
            {
                "rabbitmq_node": "amqpd@here",
                "rabbitmq_cluster": "amqpd@here",
                "rabbitmq_cluster_permanent_id": "amqpd@here",
                "rabbitmq_endpoint": kind,
            }
        ]


async def test_families_and_virtual_hosts_are_chosen() -> None:
    bench = Bench()
    for vhost in ("/", "other"):
        bench.queue("q", vhost).ready = 5
    view = View(CHOSEN, frozenset({"queue_coarse_metrics"}), frozenset({"other", "unknown"}))
    samples = await scraped(bench, view)
    of_queues = {name: dict(labels) for name, labels in samples if "queue" in dict(labels)}
    assert {labels["vhost"] for labels in of_queues.values()} == {"other"}
    assert value(samples, "rabbitmq_detailed_queue_messages_ready", queue="q", vhost="other") == 5
    assert value(samples, "amqpd_detailed_queue_messages_held", queue="q", vhost="other") == 0
    assert not [name for name in of_queues if "consumers" in name]
    none = await scraped(bench, View(CHOSEN))
    assert {name for name, _ in none} == {"rabbitmq_identity_info", "rabbitmq_build_info"}


async def test_exchanges_and_virtual_hosts_in_the_cluster() -> None:
    bench = Bench()
    bench.queue()
    bench.broker.vhosts["/"].declarations.bind_queue("q", "amq.topic", "a.*", {})
    families = {"vhost_status", "exchange_names", "exchange_bindings", "connection_churn_metrics"}
    samples = await scraped(bench, View(CHOSEN, frozenset(families)))
    topic = {"exchange": "amq.topic", "vhost": "/", "type": "topic"}
    assert value(samples, "rabbitmq_cluster_vhost_status", vhost="/") == 1
    assert value(samples, "rabbitmq_cluster_exchange_name", **topic) == 1
    assert value(samples, "rabbitmq_cluster_exchange_bindings", **topic) == 1
    assert value(samples, "rabbitmq_detailed_queues_created_total") == 1
    assert "" not in [dict(labels).get("exchange") for _, labels in samples], "not the default exchange"


async def test_sizes_of_messages_are_in_the_buckets_of_rabbitmq() -> None:
    bench = Bench()
    for size in (0, 100, 101, 1000, 1001, 10**6, 10**8, 10**8 + 1):
        bench.counters.count_publish(size)
    samples = await scraped(bench)
    bounds = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf")
    for name in ("amqpd_message_size_bytes", "rabbitmq_message_size_bytes"):
        buckets = [value(samples, f"{name}_bucket", le=bound) for bound in bounds]
        assert buckets == [2, 4, 5, 5, 6, 6, 6, 7, 8]
        assert value(samples, f"{name}_count") == 8
        assert value(samples, f"{name}_sum") == 2 * 10**8 + 10**6 + 2203
    assert value(samples, "amqpd_messages_published_total") == 8


async def test_the_age_of_the_first_message_grows_from_reading_to_reading() -> None:
    bench = Bench()
    queue, other = bench.queue(), bench.queue("other")

    def read() -> None:
        reader = QueueReader(bench.broker.vhosts["/"], True, bench.now, 5.0)
        assert not reader.read(10)

    first, second = (queue.enqueue(Message(Address("", "q"), None, 0, True, 0)) for _ in range(2))
    read()
    bench.now += 30
    third = queue.enqueue(Message(Address("", "q"), None, 0, True, 0))
    read()
    bench.now += 5
    samples = await scraped(bench, View(PER_OBJECT))
    assert value(samples, "amqpd_queue_head_age_seconds", queue="q", vhost="/") == 35
    assert value(samples, "amqpd_queue_head_age_seconds", queue="other", vhost="/") == 0
    assert value(samples, "amqpd_queue_head_age_max_seconds") == 35
    drop(queue, first)
    drop(queue, second)
    assert value(await scraped(bench), "amqpd_queue_head_age_max_seconds") == 5, "the third message"
    drop(queue, third)
    assert value(await scraped(bench), "amqpd_queue_head_age_max_seconds") == 0
    assert other.arrivals is None


@pytest.mark.parametrize("name", ['q"uote', "back\\slash", "\\n", "ünï", "{}", "a b", "x,y=z"])
async def test_any_name_survives_as_a_label(name: str) -> None:
    bench = Bench()
    bench.queue(name, name).ready = 3
    samples = await scraped(bench, View(PER_OBJECT))
    assert value(samples, "amqpd_queue_messages_ready", vhost=name, queue=name) == 3


async def test_histograms_are_cumulative() -> None:
    samples = await scraped(Bench())
    buckets = [value(samples, "amqpd_log_sync_seconds_bucket", le=le) for le in ("0.001", "0.01", "+Inf")]
    assert buckets == [3, 5, 6]
    assert value(samples, "amqpd_log_sync_seconds_count") == 6
    assert value(samples, "amqpd_log_sync_seconds_sum") == 0.5
    assert value(samples, "amqpd_event_loop_lag_seconds_count") == 4
    assert value(samples, "amqpd_event_loop_lag_seconds_sum") == 0.02


async def test_the_log() -> None:
    samples = await scraped(Bench())
    assert value(samples, "amqpd_log_bytes") == 4096
    assert value(samples, "amqpd_log_segments") == 2
    assert value(samples, "amqpd_log_damaged_segments") == 1
    assert value(samples, "amqpd_log_failed") == 0
    samples = await scraped(Bench(FakeLog(failure="disk full")))
    assert value(samples, "amqpd_log_failed") == 1


async def test_the_process() -> None:
    samples = await scraped(Bench())
    assert value(samples, "process_resident_memory_bytes") > 1_000_000
    assert value(samples, "process_open_fds") > 0
    assert value(samples, "process_cpu_seconds_total") > 0


async def test_every_scrape_reads_the_numbers_again() -> None:
    bench = Bench()
    bench.queue("a")
    await scraped(bench)
    bench.counters.published = 5
    bench.queue("b").ready = 2
    samples = await scraped(bench, View(PER_OBJECT))
    assert value(samples, "amqpd_messages_published_total") == 5
    assert value(samples, "amqpd_queue_messages_ready", vhost="/", queue="b") == 2


async def test_queues_may_come_and_go_during_a_scrape() -> None:
    bench = Bench()
    for number in range(3 * SLICE):
        bench.queue(f"q{number}").ready = 1
    declarations = bench.broker.vhosts["/"].declarations
    queues = bench.broker.vhosts["/"].topology.queues
    lines: list[bytes] = []
    async for piece in bench.exposition.write(View(PER_OBJECT)):
        lines += piece.splitlines()
        if piece.startswith(b"# HELP amqpd_queue"):  # the queues are chosen
            declarations.force_delete(next(iter(queues.values())))
            bench.queue(f"new{len(lines)}")
    for metric in (b"messages_ready{", b"messages_unacked{", b"consumers{"):
        metric_lines = [line for line in lines if line.startswith(b"amqpd_queue_" + metric)]
        assert len(metric_lines) == 3 * SLICE


async def test_many_queues_are_exported_in_slices() -> None:
    """Each turn of the loop reads some queues or writes a slice, a small part of the whole."""
    bench = Bench()
    for number in range(5_000):
        bench.queue(f"queue.{number}").ready = number
    done = asyncio.Event()
    written = turns = 0

    async def other_work() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    pieces = 0
    async for piece in bench.exposition.write(View(PER_OBJECT)):
        written += piece.count(b"amqpd_queue_messages_ready{")
        assert piece.count(b"\n") <= SLICE + 2  # with its heading
        pieces += 1
    done.set()
    await other
    assert written == 5_000
    assert turns >= 5_000 // QUEUES_AT_ONCE + pieces // 2


@dataclass
class FakeLink:
    labels: tuple[str, ...] = ("s", "/")
    is_running: bool = True
    forwarded: int = 5
    confirmed: int = 4
    refused: int = 3
    in_flight: int = 2
    attempts: int = 7
    source_ready: int = 6


async def test_federation_links_are_counted_by_status() -> None:
    counts = {"starting": 0, "running": 2, "error": 1}
    samples = await scraped(Bench(links=lambda: counts))
    for status, count in counts.items():
        assert value(samples, "amqpd_federation_links", status=status) == count


async def test_shovels_have_their_counts() -> None:
    samples = await scraped(Bench(shovels=lambda: [FakeLink()]))
    found = {name: number for (name, _), number in samples.items() if name.startswith("amqpd_shovel_")}
    assert found == {
        "amqpd_shovel_running": 1,
        "amqpd_shovel_forwarded_total": 5,
        "amqpd_shovel_confirmed_total": 4,
        "amqpd_shovel_refused_total": 3,
        "amqpd_shovel_unconfirmed": 2,
        "amqpd_shovel_source_ready": 6,
        "amqpd_shovel_attempts_total": 7,
    }
    assert value(samples, "amqpd_shovel_running", shovel="s", vhost="/") == 1


async def test_each_federation_link_and_remote_queue_has_its_counts() -> None:
    bench = Bench(
        federation_links=lambda: [FakeLink(("news", "exchange", "up", "/"))],
        remote_links=lambda: [FakeLink(("q", "/"), is_running=False)],
    )
    samples = await scraped(bench)
    link = {"object": "news", "kind": "exchange", "upstream": "up", "vhost": "/"}
    assert value(samples, "amqpd_federation_link_running", **link) == 1
    assert value(samples, "amqpd_federation_link_confirmed_total", **link) == 4
    assert value(samples, "amqpd_federation_link_attempts_total", **link) == 7
    found = {name: number for (name, _), number in samples.items() if name.startswith("amqpd_remote_queue")}
    assert found == {
        "amqpd_remote_queue_running": 0,
        "amqpd_remote_queue_waiting": 6,
        "amqpd_remote_queue_unconfirmed": 2,
        "amqpd_remote_queue_forwarded_total": 5,
        "amqpd_remote_queue_confirmed_total": 4,
        "amqpd_remote_queue_refused_total": 3,
        "amqpd_remote_queue_attempts_total": 7,
    }
    assert value(samples, "amqpd_remote_queue_waiting", queue="q", vhost="/") == 6
