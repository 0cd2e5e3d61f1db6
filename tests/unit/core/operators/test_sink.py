"""Staged sinks: decided batches, missing destinations, and records in the log."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.broker import Broker
from broker.core.errors import LimitReached, NotFound, PreconditionFailed
from broker.core.message import NOWHERE, Address, Message
from broker.core.operators import sink as sinks_module
from broker.core.operators.sink import Attempt, BatchRow, Known, Sink, objection
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    definitions_of,
    new_broker,
    rebuilt,
)

Sent = list[tuple[str, str]]
"""Exchanges and routing keys."""


def open_rows(content: bytes, virtual_host: VirtualHost, known: Known | None) -> list[BatchRow]:
    """Chunks of these tests are JSON: exchanges and routing keys."""
    return [
        BatchRow(Message(NOWHERE, b"", 0, True, 0), exchange, key, [])
        for exchange, key in json.loads(content)
    ]


class Bench:
    """A broker with a durable queue, and a sink."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.broker = new_broker(self.store, self.clock)
        self.broker.sinks.open_rows = open_rows
        self.vhost = self.broker.declare_vhost("/")
        self.queue = add_queue(self.vhost, "q", durable=True)
        self.sink = self.broker.sinks.attach(self.vhost, "query", "guest")
        self.answers: list[str] = []

    def write(self, batch: int, *chunks: Sent) -> Attempt:
        """An attempt with these chunks."""
        attempt = self.sink.begin(batch, 0)
        for chunk in chunks:
            attempt.add([chunk_of(chunk)], self.answers.append)
            assert self.answers.pop() == ""
        return attempt

    def commit(self, batch: int, *attempts: Attempt, mandatory: bool = True, checkpoint: str = "") -> None:
        """Commit, and let some time pass."""
        self.sink.commit(batch, list(attempts), mandatory, checkpoint, self.answers.append)
        self.clock.advance(1)


def chunk_of(rows: Sent) -> Message:
    return Message(Address("", str(len(rows))), json.dumps(rows).encode(), 0, True, 0)


TO_Q = [("", "q")]


def test_rows_are_published_chunk_by_chunk() -> None:
    bench = Bench()
    first, second = bench.write(0, TO_Q * 3, TO_Q * 2), bench.write(0, TO_Q * 4)
    assert (first.rows, bench.queue.ready) == (5, 0)
    done: list[int] = []
    bench.sink.commit(0, [first, second], True, "", bench.answers.append)
    assert bench.sink.moving_rows == 9
    bench.sink.idle(lambda: done.append(int(bench.queue.ready)))
    bench.clock.advance(1)
    assert (bench.answers, done, bench.queue.ready) == ([""], [9], 9)
    assert (bench.sink.moving, bench.sink.moving_rows) == ([], 0)
    assert not {int(first.number), int(second.number)} & set(bench.vhost.topology.numbers.queues)


def test_a_commit_waits_for_missing_exchanges_and_bindings() -> None:
    bench = Bench()
    add_exchange(bench.vhost, "x", "fanout", durable=True)
    bench.vhost.declarations.bind_queue("q", "x", "", {})
    attempt = bench.write(0, TO_Q, [("", "q"), ("x", "")], TO_Q)
    bench.vhost.declarations.delete_exchange("x", False)
    bench.commit(0, attempt)
    assert bench.answers == [""]
    assert (bench.queue.ready, bench.sink.moving_rows) == (1, 3)
    assert bench.sink.blocked == "no exchange 'x' in vhost '/'"
    add_exchange(bench.vhost, "x", "fanout", durable=True)
    bench.clock.advance(1000)
    assert bench.sink.blocked == "exchange 'x' leads nowhere with routing key ''"
    assert (bench.queue.ready, attempt.queue.ready) == (1, 2)
    bench.vhost.declarations.bind_queue("q", "x", "", {})
    bench.clock.advance(1000)
    assert (bench.queue.ready, bench.sink.moving, bench.sink.blocked) == (4, [], "")


def test_rows_that_are_not_mandatory_may_be_unroutable() -> None:
    bench = Bench()
    bench.commit(0, bench.write(0, [("", "q"), ("", "absent")]), mandatory=False)
    assert (bench.queue.ready, bench.sink.moving) == (1, [])
    assert bench.vhost.counters.unroutable == 1


def test_an_objection_is_no_queue_that_is_full() -> None:
    bench = Bench()
    arguments: dict[str, object] = {"x-max-length": 0, "x-overflow": "reject-publish"}
    bench.vhost.declarations.declare_queue("full", True, None, False, arguments)
    vhost = bench.vhost
    assert objection(chunk_of([("", "q"), ("", "full")]), vhost, open_rows, True, set()) == ""
    refusal = "exchange '' leads nowhere with routing key 'absent'"
    assert objection(chunk_of([("", "absent")]), vhost, open_rows, True, set()) == refusal
    assert objection(chunk_of([("", "absent")]), vhost, open_rows, False, set()) == ""
    with pytest.raises(NotFound, match="no exchange 'absent'"):
        objection(chunk_of([("absent", "")]), vhost, open_rows, False, set())
    assert bench.queue.ready == 0


def test_an_objection_gives_room_back() -> None:
    bench = Bench()
    arguments: dict[str, object] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    one = bench.vhost.declarations.declare_queue("one", True, None, False, arguments)
    for _ in range(3):
        assert objection(chunk_of([("", "one")]), bench.vhost, open_rows, True, set()) == ""
    assert one.limits is not None
    assert one.limits.reserved == 0
    bench.commit(0, bench.write(0, [("", "one")], [("", "one")]))
    assert (one.ready, bench.sink.moving_rows) == (1, 1)
    assert "queue 'one' in vhost '/' is full" in bench.sink.blocked


def test_a_sink_serves_the_checkpoint_of_its_batches() -> None:
    bench = Bench()
    bench.write(0, TO_Q)
    assert bench.sink.serves("mine"), "nothing is committed"
    bench.commit(0, *bench.sink.attempts.values(), checkpoint="mine")
    assert [bench.sink.serves(each) for each in ("mine", "other", "")] == [True, False, True]
    bench.commit(1)
    assert not bench.sink.serves("other"), "a commit without a checkpoint leaves it"
    again = rebuilt(bench.store.changes).sinks.find_sink(bench.vhost, "query")
    assert again is not None
    assert again.checkpoint == "mine"


def test_sinks_are_limited() -> None:
    bench = Bench()
    sinks = bench.broker.sinks
    for number in range(sinks_module.SINKS_MAX - 1):
        sinks.attach(bench.vhost, f"query {number}", "guest")
    with pytest.raises(LimitReached, match="has 1000 sinks already"):
        sinks.attach(bench.vhost, "another", "guest")
    assert sinks.attach(bench.vhost, "query", "guest") is bench.sink
    with pytest.raises(PreconditionFailed, match="at most 255"):
        sinks.attach(bench.vhost, "x" * 256, "guest")


def test_a_virtual_host_takes_its_sinks_along() -> None:
    bench = Bench()
    other = bench.broker.declare_vhost("other")
    bench.broker.sinks.attach(other, "query", "guest")
    attempt = bench.write(0, TO_Q)
    done: list[bool] = []
    bench.sink.commit(0, [attempt], True, "", bench.answers.append)
    bench.sink.idle(lambda: done.append(bench.sink.is_deleted))
    bench.broker.delete_vhost("/")
    bench.clock.advance(1000)
    assert done == [True]
    assert bench.broker.sinks.of(bench.vhost) == []
    assert len(bench.broker.sinks.of(other)) == 1
    again = rebuilt(bench.store.changes)
    assert [len(again.sinks.of(vhost)) for vhost in again.vhosts.values()] == [1]
    assert again.queue_numbered(attempt.number) is None


def state_of(sink: Sink) -> tuple[object, ...]:
    return sink.describe(), sorted(map(int, sink.virtual_host.topology.numbers.queues))


STEPS = st.lists(st.sampled_from(["attach", "begin", "drop", "commit", "blocked", "describe", "delete"]))


@given(STEPS)
def test_a_sink_is_restored_unchanged(steps: list[str]) -> None:
    bench = Bench()
    for step in steps:
        sink = bench.sink
        if step == "attach":
            bench.broker.sinks.attach(bench.vhost, "query", "guest")
        elif step == "begin":
            bench.write(int(sink.last) + 1, TO_Q)
        elif step == "drop":
            sink.drop(list(sink.attempts.values())[:1])
        elif step in ("commit", "blocked") and not sink.moving:
            winners = list(sink.attempts.values())[:2]
            if step == "blocked":
                winners = [bench.write(int(sink.last) + 1, [("", "absent")])]
            bench.commit(int(sink.last) + 1, *winners, checkpoint="mine" if len(winners) == 2 else "")
        elif step == "describe":
            bench.store.changes = definitions_of(bench.broker)
        elif step == "delete":
            bench.broker.sinks.delete(sink)
            bench.sink = bench.broker.sinks.attach(bench.vhost, "query", "guest")
    again = rebuilt(bench.store.changes)
    back = again.sinks.existing(again.vhosts["/"], "query")
    assert state_of(back) == state_of(bench.sink)
    assert again.next_number == bench.broker.next_number


SINK = {
    "kind": "sink",
    "vhost": "/",
    "query": "query",
    "user": "guest",
    "epoch": 1,
    "last": 0,
    "mandatory": True,
    "attempts": [[2, 0, 0, 1]],
    "moving": [2],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": "1"},
        {"mandatory": 1},
        {"attempts": None},
        {"attempts": [[2, 0]]},
        {"attempts": [["2", 0, 0, 1]]},
        {"moving": [3]},
        {"moving": "2"},
        {"query": None},
        {"checkpoint": 7},
        {"kind": "sink.other"},
        {"kind": "sink.attempt", "attempt": [1]},
    ],
)
def test_a_log_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    broker: Broker = new_broker()
    broker.declare_vhost("/")
    broker.apply(dict(SINK))
    with pytest.raises(ValueError, match=r"sink|attempt|definition"):
        broker.apply(SINK | wrong)
