"""Exclusive consumers: one gets everything, the others wait. [ActiveMQ exclusive consumer]"""

import pytest

from broker.core.errors import AccessRefused, PreconditionFailed, ResourceLocked
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import (
    ATTACHED,
    DETACHED,
    DRAINING,
    ELECTED,
    ELECTION_OVER,
    NOT_INTERESTED,
    OUTRANKED,
    SINGLE_ACTIVE,
    UP,
    WAITING,
)
from broker.core.queues.election import activity_of, declared_election, is_served
from broker.core.queues.returns import release_entries
from tests.dispatch import Bench, Client
from tests.topology import RecordingStore, new_broker, new_vhost, rebuilt


@pytest.fixture
def bench() -> Bench:
    """A queue like any other."""
    return Bench()


@pytest.fixture
def draining() -> Bench:
    """A queue on which taking over drains."""
    bench = Bench()
    bench.queue.arguments["x-exclusive-takeover"] = "drain"
    return bench


def activities(*clients: Client) -> list[str]:
    return [activity_of(client.consumer) for client in clients]


def test_the_first_that_asks_for_it_gets_everything_whoever_was_there(bench: Bench) -> None:
    ordinary = bench.client(2)
    bench.publish(4)
    bench.run()
    exclusive, second = bench.client(candidate=True), bench.client(candidate=True)
    ordinary.ack(1)
    bench.publish()
    bench.run()
    assert (ordinary.numbers, exclusive.numbers, second.numbers) == ([1, 2], [3, 4, 5], [])
    assert activities(ordinary, exclusive, second) == [WAITING, SINGLE_ACTIVE, WAITING]
    assert ordinary.consumer.state == NOT_INTERESTED
    ordinary.nack()
    bench.run()
    assert exclusive.numbers == [3, 4, 5, 2], "what the old one gives back is the new one's"


def test_newcomers_wait(bench: Bench) -> None:
    exclusive, late = bench.client(1, candidate=True), bench.client()
    browser = bench.client(acquires=False)
    bench.publish(2)
    bench.run()
    assert (exclusive.numbers, late.numbers, browser.numbers) == ([1], [], [1, 2])


def test_when_it_dies_the_next_one_gets_what_it_had_first(bench: Bench) -> None:
    first, second, third = (bench.client(2, candidate=True) for _ in range(3))
    bench.publish(3)
    bench.run()
    first.vanish()
    bench.run()
    assert (second.numbers, second.flags) == ([1, 2], [True, True])
    second.vanish()
    bench.run()
    assert (third.numbers, third.flags) == ([1, 2], [True, True])


def test_when_the_last_one_goes_everybody_is_served_again(bench: Bench) -> None:
    one, other = bench.client(1), bench.client(1)
    exclusive = bench.client(1, candidate=True)
    bench.publish(3)
    bench.run()
    exclusive.vanish()
    assert bench.queue.election is None
    bench.run()
    assert sorted(one.numbers + other.numbers) == [1, 2]
    assert activities(one, other) == [UP, UP]


def test_a_higher_priority_takes_over_at_once(bench: Bench) -> None:
    low = bench.client(2, candidate=True)
    bench.publish(4)
    bench.run()
    high = bench.client(candidate=True, priority=1)
    bench.run()
    assert (low.numbers, high.numbers) == ([1, 2], [3, 4])
    high.cancel()
    low.ack()
    bench.publish()
    bench.run()
    assert low.numbers == [1, 2]
    high.ack()
    bench.run()
    assert low.numbers == [1, 2, 5]


@pytest.mark.parametrize(("priority", "preempts"), [(126, False), (127, True), (128, False)])
def test_only_priority_127_takes_over_from_its_equal(bench: Bench, priority: int, preempts: bool) -> None:
    one, other = (bench.client(candidate=True, priority=priority) for _ in range(2))
    assert is_served(one.consumer) != preempts
    assert is_served(other.consumer) == preempts


def test_of_equals_the_first_that_was_attached_follows(bench: Bench) -> None:
    first, second, third = (bench.client(candidate=True, priority=127) for _ in range(3))
    assert activities(first, second, third) == [WAITING, WAITING, SINGLE_ACTIVE]
    third.cancel()
    assert activities(first, second) == [SINGLE_ACTIVE, WAITING]


def test_draining_waits_for_all_that_others_have(draining: Bench) -> None:
    one, other, gone = (draining.client(1) for _ in range(3))
    draining.publish(4)
    draining.run()
    gone.cancel()
    exclusive = draining.client(candidate=True)
    draining.run()
    assert activities(one, other, exclusive) == [DRAINING, DRAINING, WAITING]
    one.ack()
    other.nack()
    draining.run()
    assert exclusive.numbers == []
    gone.ack()
    draining.run()
    assert exclusive.numbers == [other.numbers[0], 4]
    assert activities(one, other, exclusive) == [WAITING, WAITING, SINGLE_ACTIVE]


def test_draining_holds_at_the_end_too(draining: Bench) -> None:
    ordinary = draining.client()
    exclusive = draining.client(candidate=True)
    draining.publish(2)
    draining.run()
    exclusive.cancel()
    draining.publish()
    draining.run()
    assert activities(ordinary) == [WAITING]
    with pytest.raises(ResourceLocked):
        get_one(draining.queue, draining.getter())
    exclusive.nack(2)
    exclusive.ack(1)
    assert draining.queue.election is None
    draining.run()
    assert ordinary.numbers == [2, 3]


def test_an_exclusive_one_that_comes_while_the_last_drains_waits_too(draining: Bench) -> None:
    first = draining.client(candidate=True)
    draining.publish()
    draining.run()
    first.cancel()
    second = draining.client(candidate=True)
    draining.publish()
    draining.run()
    assert second.numbers == []
    first.ack()
    draining.run()
    assert second.numbers == [2]


def test_one_that_wants_to_be_alone_waits_for_the_last_as_everybody_does(draining: Bench) -> None:
    """[AMQP 0-9-1 basic.consume.exclusive] Nobody else is there to refuse it for."""
    last = draining.client(candidate=True)
    draining.publish(2)
    draining.run()
    last.cancel()
    alone = draining.client(exclusive=True)
    last.nack()
    draining.run()
    assert alone.numbers == [1, 2]


def test_basic_get_is_refused_while_one_is_elected(bench: Bench) -> None:
    bench.publish(2)
    exclusive = bench.client(1, candidate=True)
    with pytest.raises(ResourceLocked) as refusal:
        get_one(bench.queue, bench.getter())
    assert refusal.value.text == (
        "cannot obtain access to locked queue 'q' in vhost '/'. basic.get is refused while an exclusive "
        "consumer is served"
    )
    exclusive.cancel()
    assert get_one(bench.queue, bench.getter()) is not None


def test_on_a_queue_whose_consumers_are_all_exclusive_the_first_one_is(bench: Bench) -> None:
    bench.queue.arguments["x-all-consumers-exclusive"] = True
    bench.queue.election = declared_election(bench.queue)
    bench.publish(2)
    assert get_one(bench.queue, bench.getter()) is not None
    first, second = bench.client(), bench.client()
    bench.run()
    assert (first.numbers, second.numbers) == ([2], [])
    with pytest.raises(AccessRefused):
        bench.client(exclusive=True)
    first.vanish()
    bench.run()
    assert second.numbers == [2]
    second.cancel()
    assert bench.queue.election is not None, "the next one that comes is elected too"


def test_beginning_wakes_nobody_who_is_to_stand_by(bench: Bench) -> None:
    clients = [bench.client(1) for _ in range(10)]
    bench.publish(10)
    bench.run()
    woken = bench.notifications
    exclusive = bench.client(candidate=True)
    for client in clients:
        client.ack()
    bench.publish()
    bench.run()
    assert exclusive.numbers == [11]
    assert bench.notifications == woken + 1


def test_targets_are_told_when_they_are_served_and_why(bench: Bench) -> None:
    ordinary = bench.client()
    low = bench.client(candidate=True)
    waiting = bench.client(candidate=True)
    high = bench.client(candidate=True, priority=1)
    high.cancel()
    low.vanish()
    waiting.cancel()
    assert ordinary.activities == [(True, ATTACHED), (False, OUTRANKED), (True, ELECTION_OVER)]
    assert low.activities == [(True, ELECTED), (False, OUTRANKED), (True, ELECTED), (False, DETACHED)]
    assert waiting.activities == [(True, ELECTED), (False, DETACHED)]
    assert high.activities == [(True, ELECTED), (False, DETACHED)]
    assert bench.client(acquires=False).activities == []


def test_the_argument_of_the_queue_holds_after_a_restart() -> None:
    store = RecordingStore()
    arguments: dict[str, object] = {"x-all-consumers-exclusive": True, "x-exclusive-takeover": "drain"}
    new_broker(store).declare_vhost("/").declarations.declare_queue("q", True, None, False, arguments)
    restarted = rebuilt(store.changes)
    queue = restarted.vhost("/").topology.queues["q"]
    assert queue.election is not None
    assert queue.effective == arguments


@pytest.mark.parametrize("argument", ["x-all-consumers-exclusive", "x-exclusive-takeover"])
def test_a_single_active_consumer_is_another_thing(argument: str) -> None:
    value: object = "drain" if argument == "x-exclusive-takeover" else True
    arguments: dict[str, object] = {"x-single-active-consumer": True, argument: value}
    with pytest.raises(PreconditionFailed) as refusal:
        new_vhost().declarations.declare_queue("q", False, None, False, arguments)
    assert argument in refusal.value.text
    assert "x-single-active-consumer" in refusal.value.text


@pytest.mark.parametrize("end", ["settled", "returned", "halves"])
def test_the_successor_of_a_cancelled_one_waits_for_its_deliveries_alone(bench: Bench, end: str) -> None:
    ordinary = bench.client(2)
    bench.publish(6)
    bench.run()
    first, second = bench.client(2, candidate=True), bench.client(candidate=True)
    bench.run()
    detach(bench.queue, first.consumer, [])
    bench.run()
    assert activities(first, second) == [DRAINING, WAITING]
    if end == "settled":
        first.ack(3)
        first.ack(4)
    elif end == "returned":
        release_entries(bench.queue, first.held, first.consumer)
    else:
        first.ack(3)
        bench.run()
        assert second.numbers == []
        release_entries(bench.queue, first.held[1:] if len(first.held) > 1 else first.held, first.consumer)
    bench.run()
    assert second.numbers == {"settled": [5, 6], "returned": [3, 4, 5, 6], "halves": [4, 5, 6]}[end]
    assert ordinary.numbers == [1, 2], "who was there before is not waited for"


def test_two_that_are_cancelled_are_both_waited_for(bench: Bench) -> None:
    first, second, third = (bench.client(1, candidate=True) for _ in range(3))
    bench.publish(3)
    bench.run()
    detach(bench.queue, first.consumer, [])
    detach(bench.queue, second.consumer, [])
    higher = bench.client(1, candidate=True, priority=1)
    bench.run()
    assert (higher.numbers, third.numbers) == ([], [])
    first.ack(1)
    bench.run()
    assert higher.numbers == [2]


def test_a_value_holds_for_cancelling_too(bench: Bench) -> None:
    bench.queue.arguments["x-exclusive-takeover"] = "immediate"
    first, second = bench.client(1, candidate=True), bench.client(candidate=True)
    bench.publish(2)
    bench.run()
    detach(bench.queue, first.consumer, [])
    bench.run()
    assert second.numbers == [2]


def test_when_the_last_one_is_cancelled_the_others_wait_too(bench: Bench) -> None:
    ordinary, exclusive = bench.client(), bench.client(1, candidate=True)
    bench.publish(2)
    bench.run()
    detach(bench.queue, exclusive.consumer, [])
    bench.run()
    assert ordinary.numbers == []
    exclusive.ack(1)
    bench.run()
    assert ordinary.numbers == [2]
    assert bench.queue.election is None
