"""Single active consumers, as of RabbitMQ, and exclusive consumers, as of ActiveMQ."""

import pytest

from broker.core.delivery.session import Connection, Session
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
from broker.core.queues.election import STALE_MIN, Election, activity_of, declared_election, is_served
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.purge import dispose
from broker.core.queues.returns import release_entries
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, QueueBench
from tests.support.core.topology import RecordingStore, new_broker, new_vhost, rebuilt

ARGUMENT = "x-single-active-consumer"


@pytest.fixture
def bench() -> QueueBench:
    """A queue with a single active consumer."""
    bench = QueueBench()
    bench.queue.election = Election(bench.queue)
    return bench


def activities(*clients: Client) -> list[str]:
    return [activity_of(client.consumer) for client in clients]


def test_only_the_first_consumer_is_active_and_woken(bench: QueueBench) -> None:
    first, second, third = (bench.client() for _ in range(3))
    for _ in range(5):
        bench.publish()
        bench.run()
    assert first.numbers == [1, 2, 3, 4, 5]
    assert (second.numbers, third.numbers) == ([], [])
    assert second.consumer.state == NOT_INTERESTED
    assert (bench.notifications, bench.scheduler.turns) == (5, 5), "standing by costs nothing"
    assert activities(first, second, third) == [SINGLE_ACTIVE, WAITING, WAITING]
    assert [is_served(client.consumer) for client in (first, second)] == [True, False]


def test_the_next_attached_consumer_becomes_active(bench: QueueBench) -> None:
    first, second, third = (bench.client() for _ in range(3))
    bench.publish(2)
    bench.run()
    first.ack()
    first.cancel()
    bench.publish(2)
    bench.run()
    assert (second.numbers, third.numbers) == ([3, 4], [])
    second.vanish()
    bench.run()
    assert third.numbers == [3, 4]
    assert third.flags == [True, True]
    assert activities(third) == [SINGLE_ACTIVE]


def test_deliveries_of_a_lost_consumer_are_requeued_before_the_next_is_active(bench: QueueBench) -> None:
    first, second = bench.client(), bench.client()
    bench.publish(3)
    bench.run()
    first.ack(2)
    bench.publish(2)
    first.vanish()
    bench.run(1)
    assert second.numbers == [1, 3, 4, 5]
    assert second.flags == [True, True, False, False]


def test_no_consumer_is_served_while_the_active_consumer_has_no_credit(bench: QueueBench) -> None:
    first, second = bench.client(1), bench.client()
    bench.publish(3)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [])
    first.session.set_flow(False)
    first.ack()
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [])
    first.session.set_flow(True)
    bench.run()
    assert first.numbers == [1, 2]


def test_consumers_of_one_lost_connection_do_not_become_active_in_turn(bench: QueueBench) -> None:
    session = Session(Connection(bench.scheduler))
    first, second = bench.client(session=session), bench.client(session=session)
    other = bench.client()
    bench.publish(3)
    bench.run()
    session.connection.close_targets()
    for client in (first, second):
        detach(bench.queue, client.consumer, client.held)
    bench.run()
    assert second.numbers == []
    assert other.numbers == [1, 2, 3]


def test_browsers_look_on(bench: QueueBench) -> None:
    browser = bench.client(acquires=False, priority=9)
    first, second = bench.client(), bench.client()
    bench.publish(2)
    bench.run()
    assert (browser.numbers, first.numbers, second.numbers) == ([1, 2], [1, 2], [])
    assert activities(browser) == [UP]
    assert is_served(browser.consumer)
    browser.cancel()
    assert activities(first) == [SINGLE_ACTIVE]


def test_an_immediate_message_goes_to_the_active_consumer(bench: QueueBench) -> None:
    first = bench.client(1)
    second = bench.client()
    assert [enqueue_immediate(bench.queue, entry) for entry in bench.messages(2)] == [True, False]
    first.cancel()
    assert not enqueue_immediate(bench.queue, bench.messages(1)[0])
    first.ack()
    assert enqueue_immediate(bench.queue, bench.messages(1)[0])
    assert (first.numbers, second.numbers) == ([1], [4])


def test_basic_get_is_refused(bench: QueueBench) -> None:
    bench.publish()
    with pytest.raises(ResourceLocked) as refusal:
        get_one(bench.queue, bench.getter())
    assert refusal.value.text == (
        "cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are not supported by "
        "classic queues with single active consumer"
    )


def test_the_refusal_names_the_type_of_the_queue(bench: QueueBench) -> None:
    bench.queue.arguments = {"x-queue-type": "quorum"}
    with pytest.raises(ResourceLocked, match="not supported by quorum queues with single active consumer"):
        get_one(bench.queue, bench.getter())


def test_an_exclusive_consumer_is_refused(bench: QueueBench) -> None:
    with pytest.raises(AccessRefused) as refusal:
        bench.client(exclusive=True)
    assert refusal.value.text == "queue 'q' in vhost '/' in exclusive use"
    assert bench.queue.consumer_count == 0


def test_deleting_the_queue_cancels_all_consumers(bench: QueueBench) -> None:
    first, second = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    dispose(bench.queue, HandClock().schedule)
    assert [client.cancelled for client in (first, second)] == [[first.consumer], [second.consumer]]
    first.ack()
    bench.run()
    assert second.numbers == []


def test_any_number_of_consumers_are_up_elsewhere() -> None:
    bench = QueueBench()
    clients = [bench.client(), bench.client(), bench.client(acquires=False)]
    assert activities(*clients) == [UP, UP, UP]
    assert all(is_served(client.consumer) for client in clients)


@pytest.mark.parametrize(
    ("arguments", "single"), [({}, False), ({ARGUMENT: False}, False), ({ARGUMENT: True}, True)]
)
def test_the_queue_s_argument_decides_also_after_a_restart(
    arguments: dict[str, object], single: bool
) -> None:
    store = RecordingStore()
    queue = new_broker(store).declare_vhost("/").declarations.declare_queue("q", True, None, False, arguments)
    assert (queue.election is not None) == single
    restarted = rebuilt(store.changes)
    assert (restarted.vhost("/").topology.queues["q"].election is not None) == single


def test_no_more_consumers_are_kept_than_are_attached(bench: QueueBench) -> None:
    active = bench.client(priority=1)
    for _ in range(1000):
        bench.client().cancel()
    assert isinstance(bench.queue.election, Election)
    assert len(bench.queue.election._candidates) <= 2 * STALE_MIN
    last = bench.client()
    active.cancel()
    assert activities(last) == [SINGLE_ACTIVE]


def test_many_active_consumers_may_be_cancelled_in_turn(bench: QueueBench) -> None:
    clients = [bench.client(priority=number % 7) for number in range(500)]
    order = sorted(range(500), key=lambda number: (-(number % 7), number))
    for number in order:
        assert is_served(clients[number].consumer)
        clients[number].cancel()
    assert isinstance(bench.queue.election, Election)
    assert bench.queue.election.active is None


@pytest.fixture
def plain_bench() -> QueueBench:
    """A queue like any other."""
    return QueueBench()


@pytest.fixture
def draining() -> QueueBench:
    """A queue on which taking over drains."""
    bench = QueueBench()
    bench.queue.arguments["x-exclusive-takeover"] = "drain"
    return bench


def test_the_first_exclusive_consumer_is_served_instead_of_ordinary_consumers(
    plain_bench: QueueBench,
) -> None:
    ordinary = plain_bench.client(2)
    plain_bench.publish(4)
    plain_bench.run()
    exclusive, second = plain_bench.client(candidate=True), plain_bench.client(candidate=True)
    ordinary.ack(1)
    plain_bench.publish()
    plain_bench.run()
    assert (ordinary.numbers, exclusive.numbers, second.numbers) == ([1, 2], [3, 4, 5], [])
    assert activities(ordinary, exclusive, second) == [WAITING, SINGLE_ACTIVE, WAITING]
    assert ordinary.consumer.state == NOT_INTERESTED
    ordinary.nack()
    plain_bench.run()
    assert exclusive.numbers == [3, 4, 5, 2], "what the old one gives back is the new one's"


def test_newcomers_wait(plain_bench: QueueBench) -> None:
    exclusive, late = plain_bench.client(1, candidate=True), plain_bench.client()
    browser = plain_bench.client(acquires=False)
    plain_bench.publish(2)
    plain_bench.run()
    assert (exclusive.numbers, late.numbers, browser.numbers) == ([1], [], [1, 2])


def test_deliveries_of_a_lost_exclusive_consumer_go_first_to_the_next(plain_bench: QueueBench) -> None:
    first, second, third = (plain_bench.client(2, candidate=True) for _ in range(3))
    plain_bench.publish(3)
    plain_bench.run()
    first.vanish()
    plain_bench.run()
    assert (second.numbers, second.flags) == ([1, 2], [True, True])
    second.vanish()
    plain_bench.run()
    assert (third.numbers, third.flags) == ([1, 2], [True, True])


def test_ordinary_consumers_are_served_again_after_the_last_exclusive_consumer(
    plain_bench: QueueBench,
) -> None:
    one, other = plain_bench.client(1), plain_bench.client(1)
    exclusive = plain_bench.client(1, candidate=True)
    plain_bench.publish(3)
    plain_bench.run()
    exclusive.vanish()
    assert plain_bench.queue.election is None
    plain_bench.run()
    assert sorted(one.numbers + other.numbers) == [1, 2]
    assert activities(one, other) == [UP, UP]


def test_a_higher_priority_takes_over_at_once(plain_bench: QueueBench) -> None:
    low = plain_bench.client(2, candidate=True)
    plain_bench.publish(4)
    plain_bench.run()
    high = plain_bench.client(candidate=True, priority=1)
    plain_bench.run()
    assert (low.numbers, high.numbers) == ([1, 2], [3, 4])
    high.cancel()
    low.ack()
    plain_bench.publish()
    plain_bench.run()
    assert low.numbers == [1, 2]
    high.ack()
    plain_bench.run()
    assert low.numbers == [1, 2, 5]


@pytest.mark.parametrize(("priority", "preempts"), [(126, False), (127, True), (128, False)])
def test_only_priority_127_takes_over_from_its_equal(
    plain_bench: QueueBench, priority: int, preempts: bool
) -> None:
    one, other = (plain_bench.client(candidate=True, priority=priority) for _ in range(2))
    assert is_served(one.consumer) != preempts
    assert is_served(other.consumer) == preempts


def test_the_first_attached_of_equal_consumers_follows(plain_bench: QueueBench) -> None:
    first, second, third = (plain_bench.client(candidate=True, priority=127) for _ in range(3))
    assert activities(first, second, third) == [WAITING, WAITING, SINGLE_ACTIVE]
    third.cancel()
    assert activities(first, second) == [SINGLE_ACTIVE, WAITING]


def test_draining_waits_for_deliveries_of_all_other_consumers(draining: QueueBench) -> None:
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


def test_draining_holds_at_the_end_too(draining: QueueBench) -> None:
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


def test_a_new_exclusive_consumer_waits_for_the_draining_consumer(draining: QueueBench) -> None:
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


def test_an_exclusive_consumer_waits_for_the_last_draining_consumer(draining: QueueBench) -> None:
    """[AMQP 0-9-1 basic.consume.exclusive] Nobody else is there to refuse it for."""
    last = draining.client(candidate=True)
    draining.publish(2)
    draining.run()
    last.cancel()
    alone = draining.client(exclusive=True)
    last.nack()
    draining.run()
    assert alone.numbers == [1, 2]


def test_basic_get_is_refused_while_a_consumer_is_elected(plain_bench: QueueBench) -> None:
    plain_bench.publish(2)
    exclusive = plain_bench.client(1, candidate=True)
    with pytest.raises(ResourceLocked) as refusal:
        get_one(plain_bench.queue, plain_bench.getter())
    assert refusal.value.text == (
        "cannot obtain access to locked queue 'q' in vhost '/'. basic.get is refused while an exclusive "
        "consumer is served"
    )
    exclusive.cancel()
    assert get_one(plain_bench.queue, plain_bench.getter()) is not None


def test_the_first_consumer_is_elected_if_all_consumers_are_exclusive(plain_bench: QueueBench) -> None:
    plain_bench.queue.arguments["x-all-consumers-exclusive"] = True
    plain_bench.queue.election = declared_election(plain_bench.queue)
    plain_bench.publish(2)
    assert get_one(plain_bench.queue, plain_bench.getter()) is not None
    first, second = plain_bench.client(), plain_bench.client()
    plain_bench.run()
    assert (first.numbers, second.numbers) == ([2], [])
    with pytest.raises(AccessRefused):
        plain_bench.client(exclusive=True)
    first.vanish()
    plain_bench.run()
    assert second.numbers == [2]
    second.cancel()
    assert plain_bench.queue.election is not None, "the next one that comes is elected too"


def test_the_election_wakes_no_waiting_consumer(plain_bench: QueueBench) -> None:
    clients = [plain_bench.client(1) for _ in range(10)]
    plain_bench.publish(10)
    plain_bench.run()
    woken = plain_bench.notifications
    exclusive = plain_bench.client(candidate=True)
    for client in clients:
        client.ack()
    plain_bench.publish()
    plain_bench.run()
    assert exclusive.numbers == [11]
    assert plain_bench.notifications == woken + 1


def test_targets_are_notified_of_their_activity_and_its_reason(plain_bench: QueueBench) -> None:
    ordinary = plain_bench.client()
    low = plain_bench.client(candidate=True)
    waiting = plain_bench.client(candidate=True)
    high = plain_bench.client(candidate=True, priority=1)
    high.cancel()
    low.vanish()
    waiting.cancel()
    assert ordinary.activities == [(True, ATTACHED), (False, OUTRANKED), (True, ELECTION_OVER)]
    assert low.activities == [(True, ELECTED), (False, OUTRANKED), (True, ELECTED), (False, DETACHED)]
    assert waiting.activities == [(True, ELECTED), (False, DETACHED)]
    assert high.activities == [(True, ELECTED), (False, DETACHED)]
    assert plain_bench.client(acquires=False).activities == []


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
def test_the_successor_waits_only_for_deliveries_of_the_cancelled_consumer(
    plain_bench: QueueBench, end: str
) -> None:
    ordinary = plain_bench.client(2)
    plain_bench.publish(6)
    plain_bench.run()
    first, second = plain_bench.client(2, candidate=True), plain_bench.client(candidate=True)
    plain_bench.run()
    detach(plain_bench.queue, first.consumer, [])
    plain_bench.run()
    assert activities(first, second) == [DRAINING, WAITING]
    if end == "settled":
        first.ack(3)
        first.ack(4)
    elif end == "returned":
        release_entries(plain_bench.queue, first.held, first.consumer)
    else:
        first.ack(3)
        plain_bench.run()
        assert second.numbers == []
        release_entries(
            plain_bench.queue, first.held[1:] if len(first.held) > 1 else first.held, first.consumer
        )
    plain_bench.run()
    assert second.numbers == {"settled": [5, 6], "returned": [3, 4, 5, 6], "halves": [4, 5, 6]}[end]
    assert ordinary.numbers == [1, 2], "who was there before is not waited for"


def test_the_successor_waits_for_deliveries_of_both_cancelled_consumers(plain_bench: QueueBench) -> None:
    first, second, third = (plain_bench.client(1, candidate=True) for _ in range(3))
    plain_bench.publish(3)
    plain_bench.run()
    detach(plain_bench.queue, first.consumer, [])
    detach(plain_bench.queue, second.consumer, [])
    higher = plain_bench.client(1, candidate=True, priority=1)
    plain_bench.run()
    assert (higher.numbers, third.numbers) == ([], [])
    first.ack(1)
    plain_bench.run()
    assert higher.numbers == [2]


def test_a_value_holds_for_cancelling_too(plain_bench: QueueBench) -> None:
    plain_bench.queue.arguments["x-exclusive-takeover"] = "immediate"
    first, second = plain_bench.client(1, candidate=True), plain_bench.client(candidate=True)
    plain_bench.publish(2)
    plain_bench.run()
    detach(plain_bench.queue, first.consumer, [])
    plain_bench.run()
    assert second.numbers == [2]


def test_ordinary_consumers_wait_for_deliveries_of_the_last_exclusive_consumer(
    plain_bench: QueueBench,
) -> None:
    ordinary, exclusive = plain_bench.client(), plain_bench.client(1, candidate=True)
    plain_bench.publish(2)
    plain_bench.run()
    detach(plain_bench.queue, exclusive.consumer, [])
    plain_bench.run()
    assert ordinary.numbers == []
    exclusive.ack(1)
    plain_bench.run()
    assert ordinary.numbers == [2]
    assert plain_bench.queue.election is None


def test_a_cancelled_consumer_settles_its_deliveries_before_the_next_is_active(bench: QueueBench) -> None:
    first, second = bench.client(2), bench.client()
    bench.publish(4)
    bench.run()
    first.cancel()
    bench.run()
    assert activities(second) == [WAITING]
    first.ack(1)
    bench.run()
    assert second.numbers == []
    first.ack(2)
    bench.run()
    assert second.numbers == [3, 4]
    assert activities(second) == [SINGLE_ACTIVE]


@pytest.mark.parametrize("back", [(1, 3), (3, 1), (2,), (1, 2, 3)])
def test_returned_deliveries_of_a_cancelled_consumer_come_first_and_in_order(
    bench: QueueBench, back: tuple[int, ...]
) -> None:
    first, second = bench.client(3), bench.client()
    bench.publish(5)
    bench.run()
    first.cancel()
    for number in back:
        first.nack(number)
        bench.run()
        assert second.numbers == [] or not first.held
    first.ack()
    bench.run()
    assert second.numbers == [*sorted(back), 4, 5]
    assert second.flags == [True] * len(back) + [False, False]


def test_refusing_for_good_ends_a_delivery_too(bench: QueueBench) -> None:
    first, second = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    first.cancel()
    first.reject(1)
    bench.run()
    assert second.numbers == [2]


def test_a_consumer_without_acknowledgements_never_drains(bench: QueueBench) -> None:
    first, second = bench.client(no_ack=True), bench.client(no_ack=True)
    bench.publish(2)
    bench.run()
    first.cancel()
    bench.publish()
    bench.run()
    assert (first.numbers, second.numbers) == ([1, 2], [3])


def test_a_higher_priority_takes_over_by_draining(bench: QueueBench) -> None:
    low = bench.client(2)
    bench.publish(4)
    bench.run()
    high = bench.client(priority=1)
    bench.run()
    assert high.numbers == []
    assert activities(low, high) == [DRAINING, WAITING]
    low.ack(1)
    low.nack(2)
    bench.run()
    assert high.numbers == [2, 3, 4]
    assert activities(low, high) == [WAITING, SINGLE_ACTIVE]
    assert low.numbers == [1, 2]


def test_a_higher_priority_takes_over_at_once_from_an_idle_consumer(bench: QueueBench) -> None:
    low, high = bench.client(), bench.client(priority=1)
    bench.publish()
    bench.run()
    assert (low.numbers, high.numbers) == ([], [1])


def test_equal_and_lower_priorities_do_not_take_over(bench: QueueBench) -> None:
    first = bench.client(priority=5)
    lower, equal, highest = (bench.client(priority=priority) for priority in (4, 5, 6))
    assert activities(first, lower, equal, highest) == [WAITING, WAITING, WAITING, SINGLE_ACTIVE]
    for gone, active in ((highest, first), (first, equal), (equal, lower)):
        gone.cancel()
        assert activities(active) == [SINGLE_ACTIVE]


def test_a_draining_consumer_continues_when_the_higher_consumer_is_cancelled(bench: QueueBench) -> None:
    low = bench.client(1)
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    high.cancel()
    assert activities(low) == [SINGLE_ACTIVE]
    low.ack()
    bench.run()
    assert low.numbers == [1, 2]


def test_a_draining_consumer_may_lose_its_connection(bench: QueueBench) -> None:
    low, standby = bench.client(), bench.client()
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    low.vanish()
    bench.run()
    assert (high.numbers, standby.numbers) == ([1, 2], [])


def test_a_draining_consumer_that_is_cancelled_is_still_waited_for(bench: QueueBench) -> None:
    low = bench.client()
    bench.publish(2)
    bench.run()
    high = bench.client(priority=1)
    low.cancel()
    bench.run()
    assert high.numbers == []
    low.ack()
    bench.publish()
    bench.run()
    assert high.numbers == [3]


def test_a_successor_may_be_cancelled_before_it_is_active(bench: QueueBench) -> None:
    first, second, third = (bench.client(1) for _ in range(3))
    bench.publish(2)
    bench.run()
    first.cancel()
    second.cancel()
    bench.run()
    assert activities(third) == [WAITING]
    first.nack()
    bench.run()
    assert third.numbers == [1]


def test_a_new_consumer_waits_for_deliveries_of_a_consumer_cancelled_before(bench: QueueBench) -> None:
    first = bench.client()
    bench.publish(2)
    bench.run()
    first.cancel()
    second = bench.client()
    bench.publish()
    bench.run()
    assert second.numbers == []
    first.ack(1)
    first.nack(2)
    bench.run()
    assert second.numbers == [2, 3]


def test_an_active_consumer_suspended_by_its_byte_window_hands_over(bench: QueueBench) -> None:
    first = bench.client(prefetch_bytes=10)
    bench.publish(2, size=8)
    bench.run()
    assert first.consumer.waiting_on is not None
    high = bench.client(priority=1)
    first.ack(1)
    bench.run()
    assert high.numbers == [2]
    high.cancel()
    high.nack()
    bench.run()
    assert first.numbers == [1, 2]
