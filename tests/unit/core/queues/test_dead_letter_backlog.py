"""Messages that wait in their queue until they can be dead-lettered, at least once."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.publishing.dead_letters import WARNING_MS
from broker.core.publishing.delay import count_delayed
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues.dead_letter_backlog import (
    PAUSE_MS,
    RETRY_MS,
    SOON_MS,
    TRIES,
    UNREADABLE_MS,
    existing_backlog,
)
from broker.core.queues.hooks import REASONS, REJECTED
from broker.core.queues.queue import Queue
from tests.support.core.purge import purge
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench, numbers
from tests.support.core.topology import RecordingStore

SURE = {
    "dead_letter_exchange": "",
    "dead_letter_routing_key": "dead",
    "dead_letter_strategy": "at-least-once",
    "overflow": "reject-publish",
}


def source(bench: VhostBench, name: str = "q", durable: bool = False, **arguments: Any) -> Queue:
    """A queue that dead-letters to the queue `dead`, at least once."""
    return bench.queue(name, durable, **SURE | arguments)


def arguments_of(**arguments: Any) -> dict[str, object]:
    """The arguments of such a queue."""
    return {f"x-{key.replace('_', '-')}": value for key, value in (SURE | arguments).items()}


def full(bench: VhostBench, name: str = "dead", durable: bool = False) -> Queue:
    """Return a queue with room for a single message, which has message 1 of the bench."""
    queue = bench.queue(name, durable, max_length=1, overflow="reject-publish")
    bench.publish(name)
    return queue


def take_one(bench: VhostBench, queue: Queue) -> None:
    """Consume the first message of a queue."""
    client = bench.client(queue, 1)
    bench.run()
    client.ack(*client.numbers[-1:])
    client.cancel()


def emptied(bench: VhostBench, queue: Queue) -> list[int]:
    """Consume the messages of a queue, in order, and return their numbers."""
    found: list[int] = []
    while queue.ready:
        found += numbers(queue)[:1]
        take_one(bench, queue)
        bench.clock.advance(1)
    return found


def reject_all(bench: VhostBench, queue: Queue, count: int) -> Client:
    """A client that has got and rejected so many."""
    client = bench.client(queue)
    bench.run()
    client.reject(*client.numbers[-count:])
    client.cancel()
    return client


# ---- ways of dying


def reject(bench: VhostBench, queue: Queue) -> None:
    reject_all(bench, queue, 2)


def expire(bench: VhostBench, queue: Queue) -> None:
    bench.clock.advance(10)


def expire_in_turn(bench: VhostBench, queue: Queue) -> None:
    """A consumer comes upon messages whose time is over before the alarm has rung."""
    bench.clock.now += 10
    client = bench.client(queue)
    bench.run()
    assert client.numbers == []
    client.cancel()


def return_too_often(bench: VhostBench, queue: Queue) -> None:
    client = bench.client(queue)
    bench.run()
    client.vanish()


WAYS: dict[str, tuple[Callable[[VhostBench, Queue], None], str]] = {
    "reject": (reject, "rejected"),
    "expire": (expire, "expired"),
    "expire in turn": (expire_in_turn, "expired"),
    "return too often": (return_too_often, "delivery_limit"),
}


@pytest.mark.parametrize("way", WAYS)
def test_dead_letters_wait_for_room_and_arrive_in_order(way: str) -> None:
    bench = VhostBench()
    die, reason = WAYS[way]
    dead = full(bench)
    queue = source(bench, message_ttl=10, delivery_limit=0)
    bench.publish(count=2)
    die(bench, queue)
    assert (numbers(queue), queue.depth) == ([], 0)
    assert (queue.dead, queue.dead_bytes, queue.messages) == (2, 2, 2)
    assert numbers(dead) == [1]
    assert bench.counters.dead_lettered == [0, 0, 0, 0, 0, 0]
    assert emptied(bench, dead) == [1, 2, 3]
    assert (queue.dead, queue.dead_bytes, queue.messages) == (0, 0, 0)
    assert bench.died() == {reason: 2}
    assert bench.counters.dead_lettered_surely == bench.counters.dead_lettered
    assert bench.dropped() == {}
    assert bench.troubles == [
        f"queue 'q' in vhost '/': messages that wait to be dead-lettered: 1; the last was "
        f"{dict(zip(REASONS, ('rejected', 'expired', '', 'returned too often'), strict=False))[reason]}, "
        "and queue 'dead' is full"
    ]


@pytest.mark.parametrize("way", WAYS)
def test_dead_letters_wait_for_their_exchange(way: str) -> None:
    bench = VhostBench()
    queue = source(bench, dead_letter_exchange="later", message_ttl=10, delivery_limit=0)
    bench.publish(count=2)
    WAYS[way][0](bench, queue)
    assert queue.dead == 2
    bench.clock.advance(10 * RETRY_MS)
    assert queue.dead == 2
    bench.vhost.declarations.declare_exchange("later", "fanout", False, False, True, {})
    bench.clock.advance(RETRY_MS)
    assert queue.dead == 2, "there is no route yet"
    dead = bench.queue("dead")
    bench.vhost.declarations.bind_queue("dead", "later", "", {})
    bench.clock.advance(SOON_MS)
    assert (queue.dead, numbers(dead)) == (0, [1, 2])
    assert "exchange 'later' does not exist" in bench.troubles[0]


@pytest.mark.parametrize("way", WAYS)
def test_dead_letters_wait_for_their_queue(way: str) -> None:
    bench = VhostBench()
    queue = source(bench, message_ttl=10, delivery_limit=0)
    bench.publish(count=2)
    WAYS[way][0](bench, queue)
    assert queue.dead == 2
    dead = bench.queue("dead")
    bench.clock.advance(SOON_MS)
    assert (queue.dead, numbers(dead)) == (0, [1, 2])
    assert "exchange '' routes 'dead' to no queue" in bench.troubles[0]


def test_room_that_nobody_tells_of_is_found_within_a_second() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert dead.limits is not None
    dead.limits.max_length = 2
    bench.clock.advance(RETRY_MS - 11)
    assert queue.dead == 1
    bench.clock.advance(11)
    assert (queue.dead, numbers(dead)) == (0, [1, 2])


def test_room_is_used_at_once_by_policies_too() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, message_ttl=10)
    bench.publish(count=3)
    bench.clock.advance(10)
    assert dead.limits is not None
    dead.limits.apply({"x-max-length": 3, "x-overflow": "reject-publish"})
    bench.clock.advance(0)
    assert (queue.dead, numbers(dead)) == (1, [1, 2, 3])


def test_waiting_dead_letters_count_towards_the_limit_and_publishers_are_refused() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, max_length=3, message_ttl=10)
    bench.publish(count=2)
    bench.clock.advance(10)
    assert [bench.publish() for _ in range(2)] == [ROUTED, REFUSED]
    assert (queue.ready, queue.dead) == (1, 2)
    assert queue.limits is not None
    queue.limits.apply({"x-max-length-bytes": 3, "x-overflow": "reject-publish"})
    assert bench.publish() == REFUSED
    take_one(bench, dead)
    bench.clock.advance(0)
    assert (queue.ready, queue.dead) == (1, 2), "its limits have no exchange any more"
    queue.limits.apply(arguments_of(max_length=3))
    bench.clock.advance(SOON_MS)
    assert (queue.ready, queue.dead) == (0, 2), "one has gone, and one more has expired"
    assert [bench.publish() for _ in range(2)] == [ROUTED, REFUSED]


def test_publishers_do_not_take_the_room_that_dead_letters_wait_for() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, message_ttl=10)
    bench.publish(count=2)
    bench.clock.advance(10)
    taken = []
    for _ in range(3):
        take_one(bench, dead)
        taken.append(bench.publish("dead"))
        bench.clock.advance(0)
    assert taken == [REFUSED, REFUSED, ROUTED]
    assert queue.dead == 0


def test_a_letter_that_can_never_fit_keeps_no_publisher_out() -> None:
    bench = VhostBench()
    dead = bench.queue("dead", max_length_bytes=10, overflow="reject-publish")
    queue = source(bench, message_ttl=10)
    bench.publish(size=11)
    bench.clock.advance(10)
    assert queue.dead == 1
    assert bench.publish("dead", size=10) is ROUTED
    assert dead.ready == 1


def test_dead_letters_of_several_queues_alternate() -> None:
    bench = VhostBench()
    dead = full(bench)
    queues = [source(bench, name, message_ttl=10) for name in ("a", "b", "c")]
    for name in "aabbcc":
        bench.publish(name)
    bench.clock.advance(10)
    found = emptied(bench, dead)
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(found[1:4]) == [2, 4, 6], "the first of each before the second of any"
    assert [queue.dead for queue in queues] == [0, 0, 0]


def test_a_deleted_queue_waits_for_no_room_any_more() -> None:
    bench = VhostBench()
    dead = full(bench)
    source(bench, "a", message_ttl=10)
    other = source(bench, "b", message_ttl=10)
    bench.publish("a")
    bench.publish("b")
    bench.clock.advance(10)
    bench.vhost.declarations.delete_queue("a", False, False)
    take_one(bench, dead)
    bench.clock.advance(0)
    assert (numbers(dead), other.dead) == ([3], 0)
    take_one(bench, dead)
    assert bench.publish("dead") is ROUTED, "nobody waits for room"
    assert dead.waiters == {}


def test_a_deleted_queue_with_several_routes_is_tried_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.queues.purge.CLEARING_SLICE", 3)  # in several turns
    bench = VhostBench()
    dead = full(bench)
    routes: dict[str, Any] = {
        name: value for name, value in SURE.items() if name != "dead_letter_routing_key"
    }
    queue = bench.queue(message_ttl=10, **routes | {"dead_letter_exchange": "amq.direct"})
    bench.vhost.declarations.bind_queue("q", "amq.fanout", "", {})
    for key in "ab":
        bench.vhost.declarations.bind_queue("dead", "amq.direct", key, {})
        bench.publish(key, 10, exchange="amq.fanout")
    bench.clock.advance(10)
    backlog = existing_backlog(queue)
    assert (queue.dead, backlog is not None) == (20, True)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert backlog is not None
    assert backlog.due == 0, "a lane of the deleted queue was woken by the room that another one left"
    take_one(bench, dead)
    bench.clock.advance(10 * RETRY_MS)
    assert (numbers(dead), queue.dead, backlog.is_empty()) == ([], 0, True)


def test_dead_letters_of_one_route_do_not_wait_for_another_route() -> None:
    bench = VhostBench()
    queue = bench.queue(
        dead_letter_exchange="amq.direct",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        message_ttl=10,
    )
    for key in "ab":
        bench.vhost.declarations.bind_queue("q", "amq.fanout", key, {})
    bench.publish("a", exchange="amq.fanout")
    bench.publish("b", exchange="amq.fanout")
    bench.publish("a", exchange="amq.fanout")
    dead = bench.queue("dead")
    bench.vhost.declarations.bind_queue("dead", "amq.direct", "b", {})
    bench.clock.advance(10)
    assert (queue.dead, numbers(dead)) == (2, [2])
    bench.vhost.declarations.bind_queue("dead", "amq.direct", "a", {})
    bench.clock.advance(SOON_MS)
    assert (queue.dead, numbers(dead)) == (0, [2, 1, 3])


def test_a_dead_letter_goes_to_all_queues_of_its_route_or_none() -> None:
    bench = VhostBench()
    narrow = full(bench, "narrow")
    wide = bench.queue("wide", max_length=9, overflow="reject-publish")
    for name in ("narrow", "wide"):
        bench.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    queue = source(bench, dead_letter_exchange="amq.fanout", message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert (queue.dead, numbers(wide)) == (1, [])
    assert wide.limits is not None
    assert (wide.limits.reserved, wide.limits.reserved_bytes) == (0, 0)
    take_one(bench, narrow)
    bench.clock.advance(0)
    assert (queue.dead, numbers(wide), numbers(narrow)) == (0, [2], [2])


def test_a_dead_letter_refused_by_reject_publish_dlx_is_passed_on_or_waits() -> None:
    bench = VhostBench()
    last = full(bench, "last")
    between = bench.queue(
        "dead",
        max_length=0,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="last",
    )
    queue = source(bench, message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert (queue.dead, between.messages, numbers(last)) == (1, 0, [1])
    take_one(bench, last)
    bench.clock.advance(0)
    assert (queue.dead, between.messages, numbers(last)) == (0, 0, [2])
    assert last.limits is not None
    assert (last.limits.reserved, last.limits.reserved_bytes) == (0, 0)


def test_a_dead_letter_to_its_own_full_queue_takes_its_own_room() -> None:
    bench = VhostBench()
    queue = source(bench, dead_letter_routing_key="q", max_length=1)
    bench.publish()
    client = reject_all(bench, queue, 1)
    assert (numbers(queue), queue.dead) == ([1], 0)
    assert client.numbers == [1]


def test_a_cycle_without_a_client_waits_until_the_route_is_another_one() -> None:
    bench = VhostBench()
    queue = source(bench, dead_letter_routing_key="q", message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert queue.dead == 1
    assert "leads back to a queue where it died before" in bench.troubles[0]
    dead = bench.queue("dead")
    assert queue.limits is not None
    queue.limits.apply(arguments_of())
    bench.clock.advance(SOON_MS)
    assert (queue.dead, numbers(dead)) == (0, [1])


# ---- costs


def test_dying_behind_others_writes_no_letter_and_a_round_looks_at_the_first_of_each_lane() -> None:
    bench = VhostBench()
    full(bench)
    queue = source(bench, message_ttl=10)
    bench.publish(count=500)
    written = []
    write = bench.vhost.write_letter

    def counted(*arguments: Any) -> Any:
        written.append(1)
        return write(*arguments)

    bench.vhost.write_letter = counted
    bench.clock.advance(10)
    assert (queue.dead, len(written)) == (500, 1)
    bench.clock.advance(100 * RETRY_MS)
    assert (queue.dead, len(written)) == (500, 1), "that the queue is full is known without the letter"


def test_no_alarm_is_set_while_nothing_waits() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert queue.backlog is not None
    assert queue.backlog.due > 0
    take_one(bench, dead)
    bench.clock.advance(0)
    assert queue.dead == 0
    assert queue.backlog.due == 0
    assert not bench.vhost.dead_letters.backlogs


def test_very_many_lanes_are_tried_in_slices_with_pauses() -> None:
    bench = VhostBench()
    count = 5 * TRIES // 2
    queue = source(bench, dead_letter_exchange="amq.direct", message_ttl=10)
    assert queue.limits is not None
    queue.limits.dead_letter_key = None
    for number in range(count):
        bench.vhost.declarations.bind_queue("q", "amq.topic", f"k{number}", {})
        bench.publish(f"k{number}", exchange="amq.topic")
    bench.clock.advance(10)
    assert queue.dead == count
    dead = bench.queue("dead")
    for number in range(count):
        bench.vhost.declarations.bind_queue("dead", "amq.direct", f"k{number}", {})
    bench.clock.advance(RETRY_MS + 3 * PAUSE_MS)
    assert (queue.dead, sorted(numbers(dead))) == (0, list(range(1, count + 1)))


# ---- other ends of waiting dead letters


def test_a_purge_drops_waiting_dead_letters() -> None:
    bench = VhostBench(RecordingStore())
    dead = full(bench)
    queue = source(bench, durable=True, message_ttl=10)
    bench.publish(count=2500, persistent=True)
    bench.clock.advance(20_000)
    assert queue.dead == 2500
    bench.publish(persistent=True)
    purged = bench.vhost.declarations.purge_queue("q")
    bench.clock.advance(9)
    assert purged.over
    assert (int(purged.dropped), queue.messages) == (2501, 0)
    assert isinstance(bench.store, RecordingStore)
    assert len(bench.store.settled) == 2501
    take_one(bench, dead)
    bench.clock.advance(RETRY_MS)
    assert (numbers(dead), dead.waiters) == ([], {})
    assert purge(queue) == 0


def test_a_queue_with_messages_that_wait_is_not_empty_and_goes_with_them() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    full(bench)
    queue = source(bench, durable=True, message_ttl=10)
    bench.publish(count=2, persistent=True)
    bench.clock.advance(10)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.vhost.declarations.delete_queue("q", False, True)
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(10 * RETRY_MS)
    assert (queue.messages, len(store.forgotten)) == (0, 2)


def test_a_queue_does_not_expire_while_messages_wait() -> None:
    bench = VhostBench()
    dead = full(bench)
    queue = source(bench, message_ttl=10, expires=100)
    bench.publish()
    bench.clock.advance(10_000)
    assert (queue.deleted, queue.dead) == (False, 1)
    take_one(bench, dead)
    bench.clock.advance(99)
    assert (queue.deleted, queue.dead) == (False, 0)
    bench.clock.advance(100)
    assert queue.deleted


def test_an_unreadable_dead_letter_keeps_no_others_waiting() -> None:
    bench = VhostBench()
    dead = bench.queue("dead")
    queue = source(bench, message_ttl=10)
    bench.publish(count=3)
    write = bench.vhost.write_letter
    damaged = [b"2"]

    def fails(message: Any, *rest: Any) -> Any:
        if message.content in damaged:
            raise OSError("unreadable")
        return write(message, *rest)

    bench.vhost.write_letter = fails
    bench.clock.advance(10)
    assert (numbers(dead), queue.dead) == ([1, 3], 1)
    assert bench.counters.dead_letters_failed == 1
    bench.clock.advance(3 * UNREADABLE_MS)
    assert (queue.dead, bench.counters.dead_letters_failed) == (1, 1)
    damaged.clear()
    bench.clock.advance(UNREADABLE_MS + RETRY_MS)
    assert (numbers(dead), queue.dead) == ([1, 3, 2], 0)


def test_dropped_dead_letters_are_reported_once_per_queue_and_minute() -> None:
    bench = VhostBench()
    full(bench)
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=10)
    for _ in range(3):
        bench.publish()
        bench.clock.advance(10)
    start = "queue 'q' in vhost '/': dead letters dropped: "
    assert bench.troubles == [f"{start}1; the last was expired, and queue 'dead' is full"]
    bench.clock.advance(WARNING_MS)
    bench.publish()
    bench.clock.advance(10)
    assert bench.troubles[1:] == [f"{start}3; the last was expired, and queue 'dead' is full"]
    assert bench.dropped() == {"expired, full": 4}
    assert bench.died() == {}


@pytest.mark.parametrize(
    ("arguments", "sure"),
    [
        ({}, False),
        ({"x-overflow": "reject-publish"}, False),
        ({"x-queue-type": "quorum"}, False),
        ({"x-queue-type": "quorum", "x-overflow": "reject-publish"}, True),
        ({"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx"}, True),
        (
            {
                "x-queue-type": "quorum",
                "x-overflow": "reject-publish",
                "x-dead-letter-strategy": "at-most-once",
            },
            False,
        ),
        ({"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}, True),
        ({"x-dead-letter-strategy": "at-least-once"}, False),
        ({"x-dead-letter-strategy": "at-least-once", "x-overflow": "drop-head"}, False),
    ],
)
def test_queues_with_dead_letters_at_least_once(arguments: dict[str, object], sure: bool) -> None:
    bench = VhostBench()
    queue = bench.vhost.declarations.declare_queue(
        "q", True, None, False, {"x-dead-letter-exchange": "none", **arguments}
    )
    assert queue.limits is not None
    assert queue.limits.sure is sure
    bench.publish()
    reject_all(bench, queue, 1)
    assert queue.dead == int(sure)
    assert (bench.dropped() == {"rejected, no_exchange": 1}) is not sure
    warned = [text for text in bench.troubles if "x-dead-letter-strategy" in text]
    asked = arguments.get("x-dead-letter-strategy") == "at-least-once"
    assert bool(warned) is (asked and not sure)
    assert bench.counters.discarded[REJECTED] == 0
    assert count_delayed(queue) == 0
