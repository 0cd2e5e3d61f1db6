"""Metrics: every number under its name, valid exposition text, and no stall with very many queues."""

import asyncio
import itertools
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.adapters.peers.connections import Connections, Shortage
from broker.admin.metrics import SLICE, TOTALS, Exposition, describe_metrics
from broker.admin.state import AdminState, Measured
from broker.core.counters import Counters
from broker.core.delivery.journal import Journal
from broker.core.queues.death import CAUSES, FULL
from broker.core.queues.hooks import EXHAUSTED, EXPIRED
from broker.dispatch.definition import definition_of
from broker.dispatch.dispatcher import Totals
from broker.net.resources import Resources
from tests.support.core.hand_clock import HandClock


@dataclass
class FakeMeasures:
    bounds: Sequence[float] = (0.001, 0.01)
    counts: Sequence[int] = (3, 2, 1)
    sum: float = 0.5


@dataclass
class FakeQueue:
    ready: int = 0
    unacked: int = 0
    ready_bytes: int = 0
    unacked_bytes: int = 0
    consumer_count: int = 0
    subscription_count: int = 0
    held: int = 3
    dead: int = 4
    memory: object | None = None
    volatile: object | None = None


@dataclass
class FakeFeature:
    """The counts of a volatile queue, and of a queue with deduplication."""

    lost: int = 1
    duplicates: int = 2


@dataclass
class FakeVirtualHost:
    queues: dict[str, FakeQueue] = field(default_factory=dict)

    @property
    def topology(self) -> "FakeVirtualHost":
        return self


@dataclass
class FakeBroker:
    vhosts: Mapping[str, FakeVirtualHost]
    counters: Counters = field(default_factory=Counters)
    journal: Journal = field(default_factory=Journal)


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


def exposition(
    broker: FakeBroker,
    log: FakeLog | None = None,
    shovels: Callable[[], Sequence["FakeLink"]] = lambda: (),
    links: Callable[[], Mapping[str, int]] = dict,
    federation_links: Callable[[], Sequence["FakeLink"]] = lambda: (),
    remote_links: Callable[[], Sequence["FakeLink"]] = lambda: (),
) -> Exposition:
    resources = new_resources()
    lag = FakeMeasures(counts=(0, 4, 0), sum=0.02)
    measured = Measured(broker, log or FakeLog(), lag, resources, FakeDispatchers())
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
    return Exposition(state)


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scraped(source: Exposition) -> Samples:
    """Return all samples by Prometheus's own parser; no sample and no family occurs twice."""
    text = b"".join([piece async for piece in source.write()]).decode()
    families = [line for line in text.splitlines() if line.startswith("# TYPE")]
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
    samples = await scraped(exposition(FakeBroker({})))
    labels = {"dispatcher": "d", "vhost": "/"}

    assert value(samples, "amqpd_dispatcher_calls_total", result="failed", **labels) == 3
    assert value(samples, "amqpd_dispatcher_calls_total", result="acknowledged", **labels) == 0
    assert value(samples, "amqpd_dispatcher_messages_total", outcome="retried", **labels) == 6
    assert value(samples, "amqpd_dispatcher_call_seconds_total", **labels) == 1.5
    assert value(samples, "amqpd_dispatcher_breaker_opened_total", **labels) == 4
    assert value(samples, "amqpd_dispatcher_calls_in_progress", **labels) == 2
    assert value(samples, "amqpd_dispatcher_waiting", **labels) == 1


async def test_metrics_have_totals_and_open_connections_and_channels() -> None:
    counters = Counters()
    for number, name in enumerate(TOTALS, start=100):
        setattr(counters, name.removeprefix("messages_"), number)
    counters.connections_opened, counters.connections_closed = 10, 3
    counters.channels_opened, counters.channels_closed = 20, 5
    samples = await scraped(exposition(FakeBroker({}, counters)))
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
    assert {name.removeprefix("messages_") for name in TOTALS} == numbers


async def test_each_metric_is_described() -> None:
    queue = FakeQueue(memory=FakeFeature(), volatile=FakeFeature())
    source = exposition(FakeBroker({"/": FakeVirtualHost({"q": queue})}))
    text = b"".join([piece async for piece in source.write()]).decode()
    exported = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    shown = {
        (name, kind, exported[name])
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
        if not name.startswith(("process_", "python_"))
    }
    kinds = {"info": "gauge"}  # as the text format has it
    assert shown == {(each.name, kinds.get(each.kind, each.kind), each.text) for each in describe_metrics()}
    labels = {
        name: tuple(label for label, _ in found if label != "le")
        for (name, found) in sorted(await scraped(source))
    }
    for each in describe_metrics():
        assert set(labels.get(each.name, each.labels)) == set(each.labels), each.name


async def test_dropped_dead_letters_by_reason_and_cause() -> None:
    counters = Counters()
    counters.letters_dropped[EXPIRED * len(CAUSES) + FULL] = 7
    samples = await scraped(exposition(FakeBroker({}, counters)))
    name = "amqpd_dead_letters_dropped_total"
    assert value(samples, name, reason="expired", cause="full") == 7
    assert value(samples, name, reason="rejected", cause="no_route") == 0


async def test_dead_letters_by_reason() -> None:
    counters = Counters()
    counters.dead_lettered[EXPIRED] = 7
    counters.dead_lettered_surely[EXPIRED] = 5
    counters.discarded[EXHAUSTED] = 8
    samples = await scraped(exposition(FakeBroker({}, counters)))
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
    broker = FakeBroker(
        {
            "/": FakeVirtualHost({"a": FakeQueue(1, 2, 30, 40, 5, 4), "b": FakeQueue(6, 7, 80, 90, 10, 9)}),
            "other": FakeVirtualHost({"a": FakeQueue(11, 12, 130, 140, 15, 14)}),
            "empty": FakeVirtualHost(),
        }
    )
    samples = await scraped(exposition(broker))
    for vhost, name, numbers in (
        ("/", "a", (1, 2, 30, 40, 5)),
        ("/", "b", (6, 7, 80, 90, 10)),
        ("other", "a", (11, 12, 130, 140, 15)),
    ):
        metrics = (
            "messages_ready",
            "messages_unacked",
            "messages_ready_bytes",
            "messages_unacked_bytes",
            "consumers",
        )
        for metric, number in zip(metrics, numbers, strict=True):
            assert value(samples, f"amqpd_queue_{metric}", vhost=vhost, queue=name) == number
        assert value(samples, "amqpd_queue_messages_held", vhost=vhost, queue=name) == 3
        assert value(samples, "amqpd_queue_messages_dlx", vhost=vhost, queue=name) == 4
    assert value(samples, "amqpd_queues") == 3
    assert value(samples, "amqpd_virtual_hosts") == 3
    assert value(samples, "amqpd_consumers") == 27, "without the consumers of partitioned queues in members"


@pytest.mark.parametrize("name", ['q"uote', "back\\slash", "new\nline", "\\n", "ünï", "{}", "a b", "x,y=z"])
async def test_any_name_survives_as_a_label(name: str) -> None:
    samples = await scraped(exposition(FakeBroker({name: FakeVirtualHost({name: FakeQueue(ready=3)})})))
    assert value(samples, "amqpd_queue_messages_ready", vhost=name, queue=name) == 3


async def test_histograms_are_cumulative() -> None:
    samples = await scraped(exposition(FakeBroker({})))
    buckets = [value(samples, "amqpd_log_sync_seconds_bucket", le=le) for le in ("0.001", "0.01", "+Inf")]
    assert buckets == [3, 5, 6]
    assert value(samples, "amqpd_log_sync_seconds_count") == 6
    assert value(samples, "amqpd_log_sync_seconds_sum") == 0.5
    assert value(samples, "amqpd_event_loop_lag_seconds_count") == 4
    assert value(samples, "amqpd_event_loop_lag_seconds_sum") == 0.02


async def test_the_log() -> None:
    samples = await scraped(exposition(FakeBroker({})))
    assert value(samples, "amqpd_log_bytes") == 4096
    assert value(samples, "amqpd_log_segments") == 2
    assert value(samples, "amqpd_log_damaged_segments") == 1
    assert value(samples, "amqpd_log_failed") == 0
    samples = await scraped(exposition(FakeBroker({}), FakeLog(failure="disk full")))
    assert value(samples, "amqpd_log_failed") == 1


async def test_the_process() -> None:
    samples = await scraped(exposition(FakeBroker({})))
    assert value(samples, "process_resident_memory_bytes") > 1_000_000
    assert value(samples, "process_open_fds") > 0
    assert value(samples, "process_cpu_seconds_total") > 0


async def test_every_scrape_reads_the_numbers_again() -> None:
    broker = FakeBroker({"/": FakeVirtualHost({"a": FakeQueue()})})
    source = exposition(broker)
    await scraped(source)
    broker.counters.published = 5
    broker.vhosts["/"].queues["b"] = FakeQueue(ready=2)
    samples = await scraped(source)
    assert value(samples, "amqpd_messages_published_total") == 5
    assert value(samples, "amqpd_queue_messages_ready", vhost="/", queue="b") == 2


async def test_queues_may_come_and_go_during_a_scrape() -> None:
    queues = {f"q{number}": FakeQueue(ready=1) for number in range(3 * SLICE)}
    source = exposition(FakeBroker({"/": FakeVirtualHost(queues)}))
    lines: list[bytes] = []
    async for piece in source.write():
        lines += piece.splitlines()
        if piece.startswith(b"# HELP amqpd_queue"):  # the queues of this slice are chosen
            queues.popitem()
            queues[f"new{len(lines)}"] = FakeQueue()
            del queues[next(iter(queues))]
    for metric in (b"messages_ready{", b"messages_unacked{", b"consumers{"):
        metric_lines = [line for line in lines if line.startswith(b"amqpd_queue_" + metric)]
        assert len(metric_lines) == 3 * SLICE


class CountedName(str):
    """A queue's name, which counts how often a label is made of it."""

    labelled = 0

    def translate(self, table: Any, /) -> str:
        CountedName.labelled += 1
        return super().translate(table)


class CountedQueue(FakeQueue):
    """A queue that counts the reads of its numbers."""

    asked = 0

    def __getattribute__(self, name: str) -> object:
        CountedQueue.asked += 1
        return super().__getattribute__(name)


async def test_many_queues_are_exported_in_slices() -> None:
    """Each turn of the loop writes a slice, a small part of the whole."""
    queues: dict[str, FakeQueue] = {
        CountedName(f"queue.{number}"): CountedQueue(ready=number) for number in range(100_000)
    }
    source = exposition(FakeBroker({"/": FakeVirtualHost(queues)}))
    CountedName.labelled = CountedQueue.asked = 0
    done = asyncio.Event()
    written = 0
    turns: list[tuple[int, int, int]] = []

    async def other_work() -> None:
        while not done.is_set():
            turns.append((written, CountedName.labelled, CountedQueue.asked))
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    async for piece in source.write():
        written += piece.count(b"\namqpd_queue_") + piece.startswith(b"amqpd_queue_")
        assert piece.count(b"\n") <= max(SLICE, 200)
    done.set()
    await other
    assert written == 700_000
    assert CountedName.labelled == 100_000
    assert CountedQueue.asked >= 800_000
    for metric_lines in zip(*turns, strict=True):
        between = [later - earlier for earlier, later in itertools.pairwise(metric_lines)]
        assert len(between) >= 7 * 100_000 // SLICE
        assert max(between) <= SLICE


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
    samples = await scraped(exposition(FakeBroker({}), links=lambda: counts))
    for status, count in counts.items():
        assert value(samples, "amqpd_federation_links", status=status) == count


async def test_shovels_have_their_counts() -> None:
    source = exposition(FakeBroker({}), shovels=lambda: [FakeLink()])
    samples = await scraped(source)
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
    source = exposition(
        FakeBroker({}),
        federation_links=lambda: [FakeLink(("news", "exchange", "up", "/"))],
        remote_links=lambda: [FakeLink(("q", "/"), is_running=False)],
    )
    samples = await scraped(source)
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
