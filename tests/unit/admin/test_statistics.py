"""Statistics: rates from the first look on, histories of some resolutions, sums of virtual hosts."""

from collections.abc import Callable

from broker.adapters.peers.connections import Connections, Octets
from broker.admin.node import NODE
from broker.admin.state import Measured
from broker.admin.statistics import (
    BASIC,
    COUNTERS,
    GLOBAL,
    INTERVAL_SECONDS,
    LENGTHS,
    NO_SPANS,
    OF_BROKER,
    OF_QUEUE,
    WATCHED_MAX,
    WATCHED_SECONDS,
    History,
    Measurement,
    Span,
    Spans,
    Statistics,
    details,
)
from broker.core.broker import Broker
from broker.core.counters import Reading, next_reading
from broker.core.partitions.partitioned import totals_of
from broker.core.queues.queue import Queue
from broker.core.statistics import QueueReader
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import RecordingStore, new_broker
from tests.unit.admin.test_metrics import FakeDispatchers, FakeLog, FakeMeasures, new_resources


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A broker with one virtual host, whose statistics a test reads."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.broker: Broker = new_broker(RecordingStore())
        self.broker.declare_vhost("/")
        self.vhost: VirtualHost = self.broker.vhosts["/"]
        self.connections = Connections(self.broker.schedule)
        measured = Measured(
            self.broker, self.connections, FakeLog(), FakeMeasures(), new_resources(), FakeDispatchers()
        )
        self.statistics = Statistics(self.broker, self.connections, measured, self.clock, self.clock)

    def queue(self, name: str = "q") -> Queue:
        return self.vhost.declarations.declare_queue(name, False, None, False, {})

    def seen(self, queue: Queue, spans: Spans = NO_SPANS) -> Measurement:
        return self.statistics.of_queue(queue, totals_of(queue), spans)

    async def turn(self, count: int = 1) -> None:
        """Let the time of an interval pass, and read, so often."""
        for _ in range(count):
            self.clock.now += INTERVAL_SECONDS
            await self.statistics.read()


async def test_a_first_look_at_a_queue_has_its_rates() -> None:
    bench = Bench()
    queue = bench.queue()
    await bench.turn()
    queue.published += 50
    queue.ready += 50
    await bench.turn()
    seen = bench.seen(queue)
    assert (seen.number("publish"), seen.rate("publish")) == (50, 10.0)
    assert (seen.number("messages_ready"), seen.rate("messages_ready"), seen.rate("ack")) == (50, 10.0, 0.0)
    await bench.turn()
    assert bench.seen(queue).rate("publish") == 0.0, "nothing has happened since"
    queue.ready -= 20
    await bench.turn()
    assert bench.seen(queue).rate("messages") == -4.0, "a depth may shrink"


async def test_messages_from_before_a_restart_are_no_growth() -> None:
    bench = Bench()
    queue = bench.queue()
    queue.ready += 1_000_000
    await bench.turn()
    assert bench.seen(queue).rate("messages") == 0.0
    assert (await bench.statistics.of_broker()).rate("messages") == 0.0
    assert (await bench.statistics.of_vhosts([bench.vhost])).rate("messages") == 0.0
    queue.ready -= 50
    await bench.turn()
    assert bench.seen(queue).rate("messages") == -10.0
    assert (await bench.statistics.of_broker()).rate("messages") == -10.0


def test_a_reading_knows_when_it_has_changed() -> None:
    reading = next_reading(None, 100.0, 5.0, [10, 0])
    assert (reading.rates, reading.changed) == ([2.0, 0.0], 100.0)
    assert next_reading(reading, 105.0, 5.0, [10, 0]) is reading
    assert (reading.rates, reading.changed) == ([0.0, 0.0], 100.0)
    reading.advance(110.0, [10, 1])
    assert (reading.rates, reading.changed) == ([0.0, 0.2], 110.0)
    assert Reading(1.0, [3]).rates == [0.0]


async def test_a_queue_that_has_done_nothing_keeps_no_reading() -> None:
    bench = Bench()
    queue = bench.queue()
    await bench.turn(3)
    assert queue.reading is None
    shown = bench.seen(queue).show(OF_QUEUE, None)
    assert shown == dict.fromkeys(OF_QUEUE, 0) | {f"{name}_details": {"rate": 0.0} for name in OF_QUEUE}


async def test_the_kinds_of_deliveries_sum_up() -> None:
    bench = Bench()
    queue = bench.queue()
    queue.delivered, queue.delivered_no_ack, queue.got, queue.got_no_ack, queue.got_empty = 10, 1, 2, 3, 7
    seen = bench.seen(queue)
    kinds = [seen.number(name) for name in ("deliver", "deliver_no_ack", "get", "get_no_ack")]
    assert kinds == [4, 1, 2, 3]
    assert (seen.number("deliver_get"), seen.number("get_empty")) == (sum(kinds), 7)


async def test_a_virtual_host_counts_what_deleted_queues_have_done() -> None:
    bench = Bench()
    queue, other = bench.queue(), bench.queue("other")
    queue.published, other.published, other.ready = 7, 5, 3
    await bench.turn()
    bench.vhost.declarations.force_delete(queue)
    await bench.turn()
    seen = await bench.statistics.of_vhosts([bench.vhost])
    assert (seen.number("publish"), seen.number("messages"), seen.rate("publish")) == (12, 3, 0.0)
    assert (
        seen.number("publish")
        == (await bench.statistics.of_vhosts([bench.vhost, bench.vhost])).number("publish") // 2
    )


async def test_the_broker_counts_objects_that_come_and_leave() -> None:
    bench = Bench()
    bench.queue()
    bench.vhost.declarations.declare_queue("q", False, None, False, {})
    bench.vhost.declarations.force_delete(bench.queue("other"))
    seen = await bench.statistics.of_broker()
    counts = [seen.number(f"queue_{what}") for what in ("declared", "created", "deleted")]
    assert counts == [3, 2, 1]
    assert set(NODE) < set(OF_BROKER)


async def test_a_history_begins_with_the_first_request_for_one() -> None:
    bench = Bench()
    queue, spans = bench.queue(), Spans(lengths=Span(60, 5))
    await bench.turn(3)
    first = bench.seen(queue, spans).details("messages", spans.lengths)
    assert first["samples"] == [{"sample": 0, "timestamp": 1_015_000}]
    queue.ready += 8
    await bench.turn(2)
    shown = bench.seen(queue, spans).details("messages", spans.lengths)
    assert shown["samples"] == [
        {"sample": 8, "timestamp": 1_025_000},
        {"sample": 8, "timestamp": 1_020_000},
        {"sample": 0, "timestamp": 1_015_000},
    ]
    assert (shown["avg"], shown["avg_rate"]) == (16 / 3, 0.8)


async def test_a_history_ends_when_nobody_asks_for_it() -> None:
    bench = Bench()
    queue, spans = bench.queue(), Spans(lengths=Span(60, 5))
    bench.seen(queue, spans)
    await bench.turn(int(WATCHED_SECONDS // INTERVAL_SECONDS) + 1)
    await bench.turn()
    samples = bench.seen(queue, spans).details("messages", spans.lengths)["samples"]
    assert isinstance(samples, list)
    assert len(samples) == 1, "the history begins again"


async def test_the_number_of_histories_is_limited() -> None:
    bench = Bench()
    spans = Spans(data_rates=Span(60, 5))
    octets = [Octets() for _ in range(WATCHED_MAX + 1)]
    for each in octets:
        bench.statistics.of_connection(each, spans)
    await bench.turn(4)
    samples: Callable[[Octets], object] = lambda each: (  # noqa: E731
        bench.statistics.of_connection(each, spans).details("recv_oct", spans.data_rates)["samples"]
    )
    kept, dropped = samples(octets[-1]), samples(octets[0])
    assert isinstance(kept, list)
    assert isinstance(dropped, list)
    assert (len(kept), len(dropped)) == (5, 1)


def test_a_history_has_a_resolution_for_each_age() -> None:
    history = History(("n",), GLOBAL)
    for second in range(0, 86_400 + 1, 5):
        history.add(float(second), [second])
    now = 86_400.0
    assert history.samples("n", Span(60, 5), now) == [
        ((86_400 - 5 * step) * 1000, 86_400 - 5 * step) for step in range(13)
    ]
    for span in (Span(600, 5), Span(3600, 60), Span(28_800, 1800), Span(86_400, 1800)):
        samples = history.samples("n", span, now)
        assert len(samples) == span.age // span.incr + 1
        assert all(0 <= at // 1000 - number < 1800 for at, number in samples), span


def test_a_history_after_the_system_clock_was_set_back() -> None:
    history = History(("n",), BASIC)
    for at in (1000.0, 1005.0, 500.0, 505.0):
        history.add(at, [int(at)])
    assert history.samples("n", Span(10, 5), 505.0) == [(505_000, 505), (500_000, 500)]


def test_details_of_an_empty_history() -> None:
    assert details(1.5, None) == {"rate": 1.5}
    assert details(0.0, []) == {"rate": 0.0, "samples": [], "avg_rate": 0.0, "avg": 0.0}
    assert Measurement(("n",), [1], None, None, 0.0).details("n", Span(5, 5))["samples"] == []


def test_reading_in_parts_finds_every_queue() -> None:
    bench = Bench()
    for number in range(25):
        bench.queue(f"q{number}").published = number
    whole, parts = QueueReader(bench.vhost), QueueReader(bench.vhost)
    assert not whole.read(1000)
    turns = 1
    while parts.read(4):
        turns += 1
    assert turns == 7
    assert whole.finish() == parts.finish()
    assert whole.finish()[0] >= sum(range(25))
    assert len(COUNTERS) + len(LENGTHS) == len(whole.finish())
