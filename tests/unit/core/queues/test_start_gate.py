"""A queue that serves nobody before there are enough consumers. [Artemis consumers-before-dispatch]"""

import pytest

from broker.core.queues import gate
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import BLOCKED_BY_GATE
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.purge import dispose
from tests.support.core.hand_clock import HandClock
from tests.support.core.policies import set_policy
from tests.support.core.queue_bench import QueueBench
from tests.support.core.timed_vhost import VhostBench
from tests.support.core.topology import RecordingStore, new_broker, new_vhost, rebuilt

COUNT, DELAY = "x-consumers-before-dispatch", "x-delay-before-dispatch"


def gated(**arguments: int) -> tuple[QueueBench, HandClock]:
    """A queue with messages 1 to 4 and these arguments."""
    bench, clock = QueueBench(), HandClock()
    bench.queue.arguments.update(
        {{"count": COUNT, "delay": DELAY}[name]: arguments[name] for name in arguments}
    )
    gate.apply(bench.queue, new_vhost(clock=clock))
    bench.publish(4)
    return bench, clock


def test_the_last_required_consumer_opens_the_gate() -> None:
    bench, _ = gated(count=3)
    first, second = bench.client(), bench.client()
    browser = bench.client(acquires=False)
    bench.run()
    assert (first.numbers, second.numbers, browser.numbers) == ([], [], [1, 2, 3, 4])
    assert not enqueue_immediate(bench.queue, bench.messages(1)[0])
    third = bench.client()
    bench.run()
    assert [len(client.numbers) for client in (first, second, third)] == [2, 1, 1]
    second.cancel()
    third.cancel()
    bench.publish()
    bench.run()
    assert first.numbers[-1] == 6, "it stays open as long as one is left"


def test_the_gate_is_shut_again_without_consumers() -> None:
    bench, _ = gated(count=2)
    first, second = bench.client(1), bench.client(1)
    bench.run()
    first.vanish()
    second.vanish()
    third = bench.client()
    bench.run()
    assert third.numbers == []
    fourth = bench.client()
    bench.run()
    assert sorted(third.numbers + fourth.numbers) == [1, 2, 3, 4]


def test_the_delay_opens_the_gate_for_attached_consumers() -> None:
    bench, clock = gated(count=3, delay=1000)
    first = bench.client()
    clock.advance(600)
    second = bench.client()
    clock.advance(399)
    bench.run()
    assert first.numbers + second.numbers == []
    clock.advance(1)
    bench.run()
    assert sorted(first.numbers + second.numbers) == [1, 2, 3, 4]


def test_the_delay_restarts_after_the_last_consumer_is_cancelled() -> None:
    bench, clock = gated(delay=1000)
    bench.client().cancel()
    clock.advance(900)
    second = bench.client()
    clock.advance(999)
    bench.run()
    assert second.numbers == []
    clock.advance(1)
    bench.run()
    assert second.numbers == [1, 2, 3, 4]


def test_a_delay_of_zero_makes_no_gate_and_basic_get_passes_the_gate() -> None:
    bench, clock = gated(count=2)
    assert get_one(bench.queue, bench.getter()) is not None
    bench, clock = gated(delay=0)
    client = bench.client()
    clock.advance(0)
    bench.run()
    assert client.numbers == [1, 2, 3, 4]


def test_a_consumer_without_credit_counts_and_waits_for_credit() -> None:
    bench, _ = gated(count=2)
    first = bench.client()
    first.session.set_flow(False)
    second = bench.client(1)
    bench.run()
    assert (first.numbers, second.numbers) == ([], [1])
    first.session.set_flow(True)
    bench.run()
    assert first.numbers == [2, 3, 4]


def test_exclusive_consumers_wait_for_company_too() -> None:
    bench, _ = gated(count=2)
    ordinary = bench.client()
    exclusive = bench.client(candidate=True)
    bench.run()
    assert (ordinary.numbers, exclusive.numbers) == ([], [1, 2, 3, 4])


def test_opening_wakes_no_more_than_there_are_messages() -> None:
    bench, _ = gated(count=20)
    clients = [bench.client() for _ in range(20)]
    bench.run()
    assert bench.notifications == 4
    assert all(client.consumer.blockers & BLOCKED_BY_GATE == 0 for client in clients)


def test_a_deleted_queue_has_no_alarm() -> None:
    bench, clock = gated(delay=1000)
    bench.client()
    gate = bench.queue.manager.gate
    assert gate is not None
    assert gate.due != 0
    dispose(bench.queue, clock.schedule)
    assert gate.due == 0


@pytest.mark.parametrize(("arguments", "there"), [({}, False), ({COUNT: 2}, True), ({DELAY: 5}, True)])
def test_the_queue_s_arguments_decide_also_after_a_restart(arguments: dict[str, object], there: bool) -> None:
    store = RecordingStore()
    new_broker(store).declare_vhost("/").declarations.declare_queue("q", True, None, False, arguments)
    restarted = rebuilt(store.changes)
    assert (restarted.vhost("/").topology.queues["q"].manager.gate is not None) == there


def test_a_get_that_waits_does_not_keep_the_gate_s_consumers_asleep() -> None:
    bench, _ = gated(count=1)
    for _ in range(3):
        assert get_one(bench.queue, bench.getter()) is not None
    getter = bench.client(1, getting=True)
    first = bench.client(priority=1)
    bench.run()
    assert (first.numbers, getter.numbers) == ([4], [])


def test_a_policy_shuts_nobody_out_who_is_served() -> None:
    bench = VhostBench()
    queue = bench.queue()
    first = bench.client(queue)
    set_policy(bench.vhost, "p", "", consumers_before_dispatch=3)
    second = bench.client(queue)
    bench.publish(count=2)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    first.cancel()
    second.cancel()
    third = bench.client(queue)
    bench.publish()
    bench.run()
    assert third.numbers == []


def test_changing_or_clearing_the_policy_opens_the_gate() -> None:
    bench = VhostBench()
    queue = bench.queue()
    set_policy(bench.vhost, "p", "", consumers_before_dispatch=3)
    first, second = bench.client(queue), bench.client(queue)
    bench.publish(count=2)
    bench.run()
    assert (first.numbers, second.numbers) == ([], [])
    set_policy(bench.vhost, "p", "", consumers_before_dispatch=2)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [2])
    first.cancel()
    second.cancel()
    third = bench.client(queue)
    bench.publish()
    set_policy(bench.vhost, "p", "", expires=1_000_000)
    bench.run()
    assert third.numbers == [3]
    assert queue.manager.gate is None


def test_the_delay_of_a_policy_begins_when_it_is_set() -> None:
    bench = VhostBench()
    queue = bench.queue(consumers_before_dispatch=3)
    client = bench.client(queue)
    bench.publish()
    bench.clock.advance(500)
    set_policy(bench.vhost, "p", "", delay_before_dispatch=100)
    bench.clock.advance(99)
    bench.run()
    assert client.numbers == []
    set_policy(bench.vhost, "p", "", delay_before_dispatch=200)
    bench.clock.advance(199)
    bench.run()
    assert client.numbers == []
    bench.clock.advance(1)
    bench.run()
    assert client.numbers == [1]


def test_a_policy_without_a_delay_stops_the_delay() -> None:
    bench = VhostBench()
    queue = bench.queue(consumers_before_dispatch=3)
    set_policy(bench.vhost, "p", "", delay_before_dispatch=100)
    client = bench.client(queue)
    bench.publish()
    set_policy(bench.vhost, "p", "", expires=1_000_000)
    bench.clock.advance(1000)
    bench.run()
    assert client.numbers == []
