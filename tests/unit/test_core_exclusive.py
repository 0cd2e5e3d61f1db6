"""One consumer is served at a time: who, and when the next one starts. [RabbitMQ single active consumer]"""

import pytest

from broker.core.delivery.session import Connection, Session
from broker.core.errors import AccessRefused, ResourceLocked
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import NOT_INTERESTED, SINGLE_ACTIVE, UP, WAITING
from broker.core.queues.election import STALE_MIN, Election, activity_of, is_served
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.purge import dispose
from tests.clock import HandClock
from tests.dispatch import Bench, Client
from tests.topology import RecordingStore, new_broker, rebuilt

ARGUMENT = "x-single-active-consumer"


@pytest.fixture
def bench() -> Bench:
    """A queue with a single active consumer."""
    bench = Bench()
    bench.queue.election = Election(bench.queue)
    return bench


def activities(*clients: Client) -> list[str]:
    return [activity_of(client.consumer) for client in clients]


def test_the_first_one_is_served_and_the_others_are_never_asked(bench: Bench) -> None:
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


def test_the_next_one_of_those_that_were_attached_follows(bench: Bench) -> None:
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


def test_a_lost_one_s_messages_are_back_before_the_next_one_starts(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    bench.publish(3)
    bench.run()
    first.ack(2)
    bench.publish(2)
    first.vanish()
    bench.run(1)
    assert second.numbers == [1, 3, 4, 5]
    assert second.flags == [True, True, False, False]


def test_nobody_is_served_while_the_active_one_has_no_credit(bench: Bench) -> None:
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


def test_consumers_of_one_connection_that_is_lost_do_not_start_one_after_the_other(bench: Bench) -> None:
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


def test_browsers_look_on(bench: Bench) -> None:
    browser = bench.client(acquires=False, priority=9)
    first, second = bench.client(), bench.client()
    bench.publish(2)
    bench.run()
    assert (browser.numbers, first.numbers, second.numbers) == ([1, 2], [1, 2], [])
    assert activities(browser) == [UP]
    assert is_served(browser.consumer)
    browser.cancel()
    assert activities(first) == [SINGLE_ACTIVE]


def test_a_message_for_immediate_delivery_goes_to_the_active_one(bench: Bench) -> None:
    first = bench.client(1)
    second = bench.client()
    assert [enqueue_immediate(bench.queue, entry) for entry in bench.messages(2)] == [True, False]
    first.cancel()
    assert not enqueue_immediate(bench.queue, bench.messages(1)[0])
    first.ack()
    assert enqueue_immediate(bench.queue, bench.messages(1)[0])
    assert (first.numbers, second.numbers) == ([1], [4])


def test_basic_get_is_refused(bench: Bench) -> None:
    bench.publish()
    with pytest.raises(ResourceLocked) as refusal:
        get_one(bench.queue, bench.getter())
    assert refusal.value.text == (
        "cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are not supported by "
        "classic queues with single active consumer"
    )


def test_the_refusal_names_the_type_of_the_queue(bench: Bench) -> None:
    bench.queue.arguments = {"x-queue-type": "quorum"}
    with pytest.raises(ResourceLocked, match="not supported by quorum queues with single active consumer"):
        get_one(bench.queue, bench.getter())


def test_an_exclusive_consumer_is_refused(bench: Bench) -> None:
    with pytest.raises(AccessRefused) as refusal:
        bench.client(exclusive=True)
    assert refusal.value.text == "queue 'q' in vhost '/' in exclusive use"
    assert bench.queue.consumer_count == 0


def test_deleting_the_queue_cancels_all_of_them(bench: Bench) -> None:
    first, second = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    dispose(bench.queue, HandClock().schedule)
    assert [client.cancelled for client in (first, second)] == [[first.consumer], [second.consumer]]
    first.ack()
    bench.run()
    assert second.numbers == []


def test_any_number_of_consumers_are_up_elsewhere() -> None:
    bench = Bench()
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


def test_no_more_consumers_are_kept_than_are_attached(bench: Bench) -> None:
    active = bench.client(priority=1)
    for _ in range(1000):
        bench.client().cancel()
    assert isinstance(bench.queue.election, Election)
    assert len(bench.queue.election._candidates) <= 2 * STALE_MIN
    last = bench.client()
    active.cancel()
    assert activities(last) == [SINGLE_ACTIVE]


def test_many_that_go_one_after_the_other(bench: Bench) -> None:
    clients = [bench.client(priority=number % 7) for number in range(500)]
    order = sorted(range(500), key=lambda number: (-(number % 7), number))
    for number in order:
        assert is_served(clients[number].consumer)
        clients[number].cancel()
    assert isinstance(bench.queue.election, Election)
    assert bench.queue.election.active is None
