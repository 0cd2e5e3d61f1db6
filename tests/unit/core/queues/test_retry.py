"""Entries that come back: delays before the next delivery, counts, and the delivery limit."""

from typing import Any

import pytest

from broker.core.arguments.queue import CRASH, NACK, RECOVER, REJECT, RELEASED, TIMEOUT
from broker.core.entries.entry import AVAILABLE, DEQUEUED, HELD
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.policies.policy import Policy
from broker.core.queues.consumer import SINGLE_ACTIVE, WAITING
from broker.core.queues.election import activity_of
from broker.core.queues.queue import Queue, dead_letter_exhausted
from broker.core.queues.retry import QUORUM_LIMIT
from broker.core.queues.returns import annotate, deliver_again
from broker.core.vhosts.definitions import restore_message
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.purge import purge
from tests.support.core.queue_bench import MemoryStore, QueueBench, message
from tests.support.core.retry import retry_delay
from tests.support.core.timed_vhost import VhostBench, delivered_bench, entry_of, numbers
from tests.support.core.topology import new_vhost


def state(queue: Queue) -> tuple[int, int, int]:
    return queue.ready, queue.unacked, queue.held


def test_a_returned_entry_keeps_its_position_and_waits_for_its_retry() -> None:
    bench, queue, client = delivered_bench(count=3, prefetch=1, retry_min=100)
    client.nack(1)
    assert (numbers(queue), state(queue), queue.held_bytes) == ([1, 2, 3], (2, 0, 1), 1)
    assert entry_of(queue, 1).state == HELD
    bench.run()
    assert client.numbers == [1, 2]
    bench.clock.advance(99)
    assert state(queue) == (1, 1, 1)
    bench.clock.advance(1)
    assert (state(queue), queue.held_bytes) == ((2, 1, 0), 0)
    client.ack(2)
    bench.run()
    assert client.numbers == [1, 2, 1], "it is before what came later"
    assert client.flags[-1]


def test_a_waiting_consumer_gets_the_entry_when_the_delay_ends() -> None:
    bench, _, client = delivered_bench(retry_min=100)
    client.nack(outcome=CRASH)
    bench.run()
    assert client.numbers == [1]
    bench.clock.advance(100)
    bench.run()
    assert client.numbers == [1, 1]


def test_waits_grow_with_every_return_up_to_the_longest() -> None:
    bench, queue, client = delivered_bench(retry_min=10, retry_max=60)
    assert [retry_delay(bench, queue, client) for _ in range(5)] == [10, 20, 40, 60, 60]


def test_the_multiplier_increases_retry_delays() -> None:
    bench, queue, client = delivered_bench(retry_min=10, retry_multiplier=1.5)
    assert [retry_delay(bench, queue, client) for _ in range(4)] == [10, 15, 22, 33]


def test_chance_adds_up_to_its_share() -> None:
    bench, queue, client = delivered_bench(retry_min=100, retry_multiplier=1, retry_jitter=0.5)
    found = [retry_delay(bench, queue, client) for _ in range(200)]
    assert min(found) >= 100
    assert max(found) <= 150
    assert len(set(found)) > 20
    assert 115 < sum(found) / 200 < 135


@pytest.mark.parametrize("outcome", [NACK, REJECT, RECOVER, TIMEOUT, CRASH])
def test_each_counted_outcome_delays_the_retry(outcome: int) -> None:
    bench, queue, client = delivered_bench(retry_min=10)
    assert retry_delay(bench, queue, client, outcome) == 10


def test_a_released_entry_does_not_wait() -> None:
    bench, queue, client = delivered_bench(retry_min=10)
    assert retry_delay(bench, queue, client, RELEASED) == 0


def test_deliveries_that_do_not_count_lengthen_no_wait() -> None:
    bench, queue, client = delivered_bench(retry_min=10)
    assert [retry_delay(bench, queue, client, RELEASED) for _ in range(3)] == [0, 0, 0]
    assert [retry_delay(bench, queue, client) for _ in range(2)] == [10, 20]
    assert retry_delay(bench, queue, client, RELEASED) == 0
    assert retry_delay(bench, queue, client) == 40


def test_a_return_that_waits_and_does_not_count_waits_longer_each_time() -> None:
    bench, queue, client = delivered_bench(retry_min=10, delivery_count_on="crash")
    assert [retry_delay(bench, queue, client) for _ in range(3)] == [10, 20, 40]


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [
        ("disabled", set()),
        ("all", {NACK, REJECT, RECOVER, TIMEOUT, CRASH, RELEASED}),
        ("failed", {REJECT, CRASH}),
        ("returned", {NACK, RECOVER, TIMEOUT, RELEASED}),
    ],
)
def test_rabbitmqs_delayed_retries_are_linear_and_for_some(kind: str, waiting: set[int]) -> None:
    for outcome in (NACK, REJECT, RECOVER, TIMEOUT, CRASH, RELEASED):
        bench, queue, client = delivered_bench(
            delayed_retry_type=kind, delayed_retry_min=10, delayed_retry_max=25
        )
        expected = [10, 20, 25, 25] if outcome in waiting else [0, 0, 0, 0]
        assert [retry_delay(bench, queue, client, outcome) for _ in range(4)] == expected


def test_sending_again_to_the_same_consumer_is_a_retry_too() -> None:
    bench, queue, client = delivered_bench(retry_min=10)
    assert not deliver_again(queue, client.held[0], client.consumer)
    assert state(queue) == (0, 0, 1)
    bench.clock.advance(10)
    assert state(queue) == (1, 0, 0)


def test_many_come_back_together_and_are_in_order_again() -> None:
    bench, queue, client = delivered_bench(count=2000, retry_min=10)
    client.vanish()
    assert state(queue) == (0, 0, 2000)
    other = bench.client(queue)
    bench.run()
    assert other.numbers == []
    bench.clock.advance(10)
    bench.run()
    assert sorted(other.numbers) == list(range(1, 2001))
    assert state(queue) == (0, 2000, 0)


def test_browsers_do_not_get_a_retried_message_again() -> None:
    bench = VhostBench()
    queue = bench.queue(retry_min=10)
    browser = bench.client(queue, acquires=False)
    bench.publish()
    bench.run()
    client = bench.client(queue)
    bench.run()
    client.nack()
    client.cancel()
    assert state(queue) == (0, 0, 1), "an empty queue would reset cursors"
    bench.clock.advance(10)
    bench.publish()
    bench.run()
    assert browser.numbers == [1, 2]


def test_the_time_to_live_runs_during_the_delay() -> None:
    bench, queue, client = delivered_bench(retry_min=100, message_ttl=30)
    client.nack()
    bench.clock.advance(29)
    assert state(queue) == (0, 0, 1)
    bench.clock.advance(1)
    assert state(queue) == (0, 0, 0)
    assert bench.died() == {"expired": 1}
    bench.clock.advance(1000)
    assert (numbers(queue), state(queue)) == ([], (0, 0, 0))


def test_an_entry_expires_after_its_retry_delay() -> None:
    bench, queue, client = delivered_bench(retry_min=10, message_ttl=30)
    client.nack()
    client.cancel()
    bench.clock.advance(10)
    assert state(queue) == (1, 0, 0)
    bench.clock.advance(20)
    assert bench.died() == {"expired": 1}


def test_a_delayed_entry_does_not_count_towards_the_length() -> None:
    bench, queue, client = delivered_bench(prefetch=1, retry_min=10, max_length=1)
    client.nack()
    client.cancel()
    bench.publish()
    assert numbers(queue) == [1, 2]
    bench.clock.advance(10)
    assert numbers(queue) == [2], "the oldest goes"
    assert state(queue) == (1, 0, 0)


def test_purging_and_deleting_drop_messages_that_wait_for_a_retry() -> None:
    bench, queue, client = delivered_bench(count=3, retry_min=10)
    client.nack(1, 2)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.vhost.declarations.delete_queue("q", False, True, None)
    assert purge(queue) == 2
    assert state(queue) == (0, 1, 0)
    client.nack(3)
    entry = entry_of(queue, 3)
    bench.vhost.declarations.delete_queue("q", False, False, None)
    bench.clock.advance(100)
    assert (entry.state, state(queue)) == (DEQUEUED, (0, 0, 0))


def test_a_message_beyond_its_delivery_limit_does_not_wait_for_a_retry() -> None:
    bench, queue, client = delivered_bench(retry_min=10, delivery_limit=1)
    assert retry_delay(bench, queue, client) == 10
    client.nack()
    assert (numbers(queue), bench.died()) == ([], {"delivery_limit": 1})


def test_the_active_consumer_changes_when_its_deliveries_are_held() -> None:
    bench = VhostBench()
    queue = bench.queue(retry_min=10, single_active_consumer=True)
    first, second = bench.client(queue), bench.client(queue)
    bench.publish()
    bench.run()
    first.cancel()
    assert activity_of(second.consumer) == WAITING
    first.nack()
    assert activity_of(second.consumer) == SINGLE_ACTIVE
    bench.clock.advance(10)
    bench.run()
    assert second.numbers == [1]


def test_policies_come_and_go() -> None:
    bench = VhostBench()
    queue = bench.queue()
    assert queue.retry is None
    bench.vhost.policies.set(Policy("p", "q", {"retry-min": 10, "retry-multiplier": 1, "retry-max": 5}))
    bench.vhost.policies.apply_all()
    client = bench.client(queue)
    bench.publish()
    bench.run()
    assert retry_delay(bench, queue, client) == 5
    client.nack(outcome=NACK)
    bench.vhost.policies.delete("p")
    bench.vhost.policies.apply_all()
    assert state(queue) == (0, 0, 1), "what waits goes on waiting"
    bench.clock.advance(5)
    bench.run()
    assert retry_delay(bench, queue, client) == 0


def lasts(counted: str, outcome: int) -> bool:
    """Whether a message survives any number of returns of this kind."""
    bench = VhostBench()
    queue = bench.queue(delivery_limit=2, delivery_count_on=counted)
    client = bench.client(queue)
    bench.publish()
    for _ in range(10):
        bench.run()
        client.nack(outcome=outcome)
    return bool(numbers(queue))


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("nack", NACK),
        ("reject", REJECT),
        ("recover", RECOVER),
        ("timeout", TIMEOUT),
        ("crash", CRASH),
        ("released", RELEASED),
    ],
)
def test_only_what_was_chosen_counts(name: str, outcome: int) -> None:
    others = {"nack", "reject", "recover", "timeout", "crash", "released"} - {name}
    assert not lasts(name, outcome)
    assert not lasts(f"{name}, {others.copy().pop()}", outcome)
    assert lasts(",".join(sorted(others)), outcome)


def test_sending_again_counts_if_recovering_does() -> None:
    for counted, limit in (("nack", 9), ("recover", 1)):
        _, queue, client = delivered_bench(delivery_limit=1, delivery_count_on=counted)
        again = [deliver_again(queue, client.held[0], client.consumer) for _ in range(9)]
        assert again.count(True) == limit


def logged(number: int) -> Message:
    new = message(number)
    new.sequence = number
    return new


def counted_by_log(counted: str, outcomes: list[int]) -> list[int]:
    """Return the counts that the log records."""
    bench = VhostBench(store := MemoryStore())
    queue = bench.queue(durable=True, delivery_limit=99, delivery_count_on=counted)
    client = bench.client(queue)
    queue.enqueue(logged(1))
    for outcome in outcomes:
        bench.run()
        client.nack(outcome=outcome)
    return [count for _, _, count in store.counted]


def test_uncounted_deliveries_have_no_log_record_with_annotations_either() -> None:
    bench = VhostBench(store := MemoryStore())
    queue = bench.queue(durable=True, delivery_limit=99, delivery_count_on="nack")
    client = bench.client(queue)
    queue.enqueue(logged(1))
    for outcome, count in ((RELEASED, 0), (NACK, 1), (RELEASED, 1)):
        bench.run()
        annotate(queue, client.held[0], b"why")
        client.nack(outcome=outcome)
        assert store.counted[-1][2] == count
        assert store.added[-1] == b"why"


def test_the_log_takes_back_uncounted_deliveries() -> None:
    assert counted_by_log("reject,crash", [REJECT, NACK, NACK, REJECT]) == [1, 2, 1, 2, 1, 2]
    assert counted_by_log("nack", [NACK, REJECT, CRASH, NACK]) == [1, 2], "a crash leaves no count behind"


def test_counts_from_before_a_restart_determine_the_delay_after_it() -> None:
    bench = VhostBench()
    queue = bench.queue(retry_min=10)
    restore_message(queue, message(1), True, 2)
    assert entry_of(queue, 1).state == AVAILABLE
    client = bench.client(queue)
    bench.run()
    assert retry_delay(bench, queue, client) == 40


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"retry_min": 0}, "x-retry-min.*'0'.*at least 1|x-retry-min.*'0'.*from 1"),
        ({"retry_min": 1, "retry_multiplier": 0.5}, "x-retry-multiplier.*'0.5'.*from 1"),
        ({"retry_min": 1, "retry_multiplier": float("nan")}, "x-retry-multiplier.*'nan'"),
        ({"retry_min": 1, "retry_jitter": 1.1}, "x-retry-jitter.*'1.1'.*from 0 to 1"),
        ({"retry_min": 1, "retry_jitter": "x"}, "x-retry-jitter.*'x'"),
        ({"retry_max": 1}, "x-retry-max.*needs x-retry-min"),
        ({"retry_jitter": 1}, "x-retry-jitter.*needs x-retry-min"),
        ({"retry_min": 5, "retry_max": 4}, "x-retry-max.*'4'.*less than x-retry-min"),
        ({"delayed_retry_min": 5, "delayed_retry_max": 4}, "x-delayed-retry-max.*less than"),
        ({"retry_min": 5, "delayed_retry_type": "all"}, "x-retry-min.*does not go with x-delayed-retry-type"),
        ({"delivery_count_on": "nack,ack"}, "x-delivery-count-on.*'nack,ack'.*some of nack, reject"),
        ({"delivery_count_on": ""}, "x-delivery-count-on"),
        ({"delivery_count_on": 1}, "x-delivery-count-on"),
    ],
)
def test_contradicting_arguments_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        VhostBench().queue(**arguments)


def limited(limit: int, logged: bool = False) -> QueueBench:
    bench = QueueBench(logged=logged)
    bench.queue.delivery_limit = limit
    bench.queue.counts = True
    return bench


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_that_comes_back_more_often_than_the_limit_is_gone(limit: int) -> None:
    bench = limited(limit)
    client = bench.client()
    bench.publish(2)
    bench.run()
    for _ in range(limit):
        client.nack(1)
        bench.run()
        assert bench.numbers() == [1, 2]
    client.nack(1)
    bench.run()
    assert bench.numbers() == [2]
    assert client.numbers == [1, 2, *[1] * limit]
    assert (bench.queue.ready, bench.queue.unacked, client.consumer.inflight) == (0, 1, 1)


def test_losing_a_consumer_counts_and_what_may_stay_keeps_its_place() -> None:
    bench = limited(1)
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.nack(2)
    bench.run()
    client.vanish()
    assert bench.numbers() == [1, 3]
    other = bench.client()
    bench.run()
    assert other.numbers == [1, 3]


def test_a_message_without_a_delivery_limit_is_never_dropped() -> None:
    bench = limited(-1)
    client = bench.client()
    bench.publish()
    for _ in range(100):
        bench.run()
        client.nack()
    assert bench.numbers() == [1]
    assert bench.queue.entries.next(bench.queue.entries.head).delivery_count == 100  # type: ignore[union-attr]


def test_delivering_again_to_the_same_consumer_counts() -> None:
    bench = limited(1)
    client = bench.client()
    bench.publish()
    bench.run()
    entry = client.held[0]
    assert deliver_again(bench.queue, entry, client.consumer)
    assert entry.redelivered
    assert entry.delivery_count == 2
    assert not deliver_again(bench.queue, entry, client.consumer)
    assert entry.state == DEQUEUED
    assert not deliver_again(bench.queue, entry, client.consumer)


def logged_message(number: int) -> Message:
    new = message(number)
    new.sequence = number
    return new


def test_the_log_learns_every_delivery_that_may_come_back() -> None:
    bench = limited(5, logged=True)
    bench.queue.enqueue(logged_message(1))
    bench.queue.enqueue(message(2))  # transient
    client = bench.client()
    bench.run()
    client.nack()
    bench.run()
    assert [(n.sequence, count) for n, _, count in bench.store.counted] == [(1, 1), (1, 2)]
    client.vanish()
    bench.client(no_ack=True)
    bench.run()
    assert len(bench.store.counted) == 2


def test_a_queue_without_a_limit_tells_the_log_nothing() -> None:
    bench = QueueBench(logged=True)
    bench.queue.enqueue(logged_message(1))
    client = bench.client()
    bench.run()
    client.nack()
    bench.run()
    assert bench.store.counted == []


def test_an_entry_beyond_the_delivery_limit_is_removed_at_recovery() -> None:
    bench = limited(2)
    for number, count in enumerate((0, 2, 3, 9), 1):
        restore_message(bench.queue, logged_message(number), True, count)
    dead_letter_exhausted(bench.queue)
    assert bench.numbers() == [1, 2]
    assert [settled.sequence for settled, _ in bench.store.settled] == []  # not a logged queue


def test_recovered_messages_go_on_counting() -> None:
    bench = limited(2)
    restore_message(bench.queue, message(1), True, 2)
    client = bench.client()
    bench.run()
    assert client.deliveries[0].delivery_count == 3
    client.nack()
    assert bench.numbers() == []


# --- declarations


def declare(vhost: VirtualHost, arguments: dict[str, object], **flags: bool) -> Queue:
    owner = object() if flags.get("exclusive") else None
    return vhost.declarations.declare_queue(
        "q", flags.get("durable", True), owner, flags.get("auto_delete", False), arguments
    )


@pytest.mark.parametrize(
    ("arguments", "limit", "counts"),
    [
        ({}, -1, False),
        ({"x-delivery-limit": -1}, -1, False),
        ({"x-delivery-limit": 0}, 0, True),
        ({"x-queue-type": "classic", "x-delivery-limit": 7}, 7, True),
        ({"x-queue-type": "quorum"}, QUORUM_LIMIT, True),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1}, -1, True),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3}, 3, True),
    ],
)
def test_the_limit_of_a_queue(arguments: dict[str, object], limit: int, counts: bool) -> None:
    queue = declare(new_vhost(), arguments)
    assert (queue.delivery_limit, queue.counts) == (limit, counts)


def test_policies_change_the_limit_of_what_is_there() -> None:
    vhost = new_vhost()
    queue = declare(vhost, {"x-queue-type": "quorum"})
    vhost.policies.set(Policy("p", "q", {"delivery-limit": 4}))
    vhost.policies.apply_all()
    assert queue.delivery_limit == 4
    vhost.policies.delete("p")
    vhost.policies.apply_all()
    assert queue.delivery_limit == QUORUM_LIMIT


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"durable": False}, "non-durable"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True}, "auto-delete"),
        ({"auto_delete": True, "exclusive": True, "durable": False}, "auto-delete"),
    ],
)
def test_quorum_queues_must_be_durable_and_not_exclusive(flags: dict[str, bool], name: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        declare(new_vhost(), {"x-queue-type": "quorum"}, **flags)
    assert refusal.value.text == f"invalid property '{name}' for queue 'q' in vhost '/'"
