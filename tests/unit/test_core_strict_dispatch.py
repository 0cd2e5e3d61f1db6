"""Consumers that do not take turns. [ActiveMQ strictOrderDispatch]"""

import pytest

from broker.core.queues.immediate import enqueue_immediate
from tests.dispatch import Bench, Client
from tests.policies import put
from tests.topology import RecordingStore, new_broker, rebuilt
from tests.yard import Yard


@pytest.fixture
def bench() -> Bench:
    """A queue with strict dispatch."""
    bench = Bench()
    bench.queue.manager.strict = True
    return bench


def received(*clients: Client) -> list[list[int]]:
    return [client.numbers for client in clients]


def test_the_first_one_gets_all_as_long_as_it_has_credit(bench: Bench) -> None:
    first, second, third = bench.client(2), bench.client(1), bench.client()
    for _ in range(6):
        bench.publish()
        bench.run()
    assert received(first, second, third) == [[1, 2], [3], [4, 5, 6]]
    second.ack()
    first.ack(1)
    bench.publish(3)
    bench.run()
    assert received(first, second, third) == [[1, 2, 7], [3, 8], [4, 5, 6, 9]]


def test_a_backlog_goes_to_the_first_one_first(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    first.session.set_flow(False)
    bench.publish(50)
    bench.run(1)
    first.session.set_flow(True)
    bench.publish(1)
    bench.run(1)
    assert received(first, second) == [[51], list(range(1, 51))]


def test_one_that_is_back_is_served_before_those_behind_it(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    bench.publish(4)
    first.session.set_flow(False)
    bench.scheduler.step(1)  # an empty turn of the first one
    bench.scheduler.step(2)
    first.session.set_flow(True)
    bench.run(1)
    assert received(first, second) == [[3, 4], [1, 2]]


def test_priority_comes_before_the_order_of_attaching(bench: Bench) -> None:
    first, lower, higher = bench.client(1), bench.client(1, priority=-1), bench.client(1, priority=1)
    bench.publish(3)
    bench.run()
    assert received(higher, first, lower) == [[1], [2], [3]]


def test_a_newcomer_is_last_of_its_priority(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    first.cancel()
    third = bench.client()
    bench.publish(2)
    bench.run()
    assert received(second, third) == [[1, 2], []]


def test_an_arrival_wakes_one(bench: Bench) -> None:
    for _ in range(20):
        bench.client()
    for _ in range(10):
        bench.publish()
        bench.run()
    assert (bench.notifications, bench.scheduler.turns) == (10, 10)


def test_an_immediate_message_is_the_first_one_s(bench: Bench) -> None:
    first, second = bench.client(1), bench.client(1)
    assert [enqueue_immediate(bench.queue, entry) for entry in bench.messages(3)] == [True, True, False]
    assert received(first, second) == [[1], [2]]


@pytest.mark.parametrize(("value", "strict"), [("strict", True), ("round-robin", False)])
def test_the_queue_s_argument_decides_also_after_a_restart(value: str, strict: bool) -> None:
    store = RecordingStore()
    queue = (
        new_broker(store)
        .declare_vhost("/")
        .declarations.declare_queue("q", True, None, False, {"x-dispatch": value})
    )
    restarted = rebuilt(store.changes)
    assert queue.manager.strict == restarted.vhost("/").topology.queues["q"].manager.strict == strict


def test_a_policy_counts_from_when_there_is_no_consumer() -> None:
    yard = Yard()
    queue = yard.queue()
    clients = [yard.client(queue) for _ in range(2)]
    put(yard.vhost, "p", "", dispatch="strict")
    yard.publish(count=2)
    yard.run()
    assert received(*clients) == [[1], [2]]
    for client in clients:
        client.cancel()
    clients = [yard.client(queue) for _ in range(2)]
    put(yard.vhost, "p", "", dispatch="round-robin")
    for _ in range(3):
        yard.publish()
        yard.run()
    assert received(*clients) == [[3, 4, 5], []]
