"""Message groups in a dispatcher: never two messages of a group at once, and never out of order."""

import random

import pytest

from broker.core.queues.purge import purge
from broker.dispatch.answers import ACKNOWLEDGED, FAILED, Answer
from broker.dispatch.dispatcher import PARKED_MAX, Call
from protocol.amqp091.content import body
from tests.support.dispatch.dispatch_bench import DispatchBench
from tests.support.effort import lines_executed


def grouped(**arguments: object) -> DispatchBench:
    bench = DispatchBench()
    bench.queue("q", group_key="g", **arguments)
    return bench


def publish(bench: DispatchBench, *names: str) -> None:
    """Publish messages; the group of `a1` is `a`, and a name in capital letters has no group."""
    for name in names:
        bench.publish(name, headers={"g": name[0]} if name[0].islower() else None)


def test_messages_of_a_group_are_called_one_after_the_other() -> None:
    bench = grouped()
    bench.set(concurrency=4)
    publish(bench, "a1", "a2", "b1", "a3", "X1", "b2")
    assert bench.bodies == ["a1", "b1", "X1"]
    bench.ack("a1")
    assert bench.bodies == ["b1", "X1", "a2"]
    bench.ack("b1", "X1", "a2")

    assert bench.bodies == ["b2", "a3"]


@pytest.mark.parametrize("kind", ["sticky", "shared"])
def test_the_later_messages_of_a_group_wait_for_a_retry(kind: str) -> None:
    bench = grouped(group_kind=kind, retry_min=1000)
    bench.set(concurrency=4)
    publish(bench, "a1", "a2", "b1", "a3")
    bench.fail("a1")
    bench.ack("b1")
    publish(bench, "b2", "a4")
    assert bench.bodies == ["b2"]
    bench.wait(999)
    assert bench.bodies == ["b2"]
    bench.wait(2)
    assert bench.bodies == ["b2", "a1"]
    bench.ack("a1", "a2", "a3", "a4", "b2")

    assert bench.vhost.topology.queues["q"].messages == 0
    assert bench.begun == ["a1", "b1", "b2", "a1", "a2", "a3", "a4"]


def test_a_group_goes_on_when_its_message_is_dead_lettered() -> None:
    bench = grouped(delivery_limit=0)
    bench.set(concurrency=2)
    publish(bench, "a1", "a2")
    bench.fail("a1")

    assert bench.bodies == ["a2"]


def test_a_group_goes_on_when_its_message_is_purged_or_expires() -> None:
    bench = grouped(retry_min=100_000)
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=2)
    publish(bench, "a1", "a2")
    bench.fail("a1")
    assert bench.bodies == []
    assert bench.dispatcher().parked == 1
    purge(queue, bench.clock.schedule)
    bench.wait(1000)

    assert bench.bodies == ["a2"]


def test_a_batch_may_have_several_messages_of_a_group_in_order() -> None:
    bench = grouped()
    publish(bench, "a1", "a2", "b1", "a3", "a4")
    bench.set(concurrency=2, batch=3)
    names = [_names(call) for call in bench.caller.calls]
    assert names == [["a1", "a2", "b1"]], "the other messages of the group wait"
    bench.ack()

    assert [_names(call) for call in bench.caller.calls] == [["a3", "a4"]]


def test_a_batch_of_parked_messages_has_no_more_bytes_than_a_call_may_have() -> None:
    bench = grouped()
    bench.set(concurrency=2, batch=10, size_max=5)
    publish(bench, "a1", "a2", "a3", "a4")
    bench.ack()

    assert [_names(call) for call in bench.caller.calls] == [["a2", "a3"]]


def test_a_failed_batch_comes_again_before_later_messages_of_its_groups() -> None:
    bench = grouped()
    publish(bench, "a1", "b1", "a2", "b2")
    bench.set(concurrency=2, batch=2)
    assert [_names(call) for call in bench.caller.calls] == [["a1", "b1"]]
    bench.fail()

    assert [_names(call) for call in bench.caller.calls] == [["a1", "a2"], ["b1", "b2"]]


def test_messages_of_a_large_failed_batch_are_awaited_before_they_are_back() -> None:
    bench = grouped(max_length=1000)  # the queue takes a large batch back in several turns
    publish(bench, *[f"a{number}" for number in range(100)], *[f"b{number}" for number in range(60)])
    bench.set(concurrency=2, batch=150)
    bench.fail()
    while bench.caller.calls:
        bench.ack()

    later = [name for call in bench.caller.begun[1:] for name in _names(call)]
    assert [name for name in later if name[0] == "b"] == [f"b{number}" for number in range(60)]


def test_parked_messages_are_bounded_and_a_retry_is_never_locked_out() -> None:
    bench = grouped(retry_min=1000)
    queue = bench.vhost.topology.queues["q"]
    dispatcher = bench.set(concurrency=4)
    publish(bench, *[f"a{number}" for number in range(PARKED_MAX + 100)])
    assert dispatcher.parked == PARKED_MAX
    assert queue.ready == 99
    bench.fail("a0")
    bench.wait(1001)
    assert bench.bodies == ["a0"]
    for number in range(PARKED_MAX + 100):
        bench.ack(f"a{number}")

    assert queue.messages == 0


def test_a_pause_releases_the_parked_messages() -> None:
    bench = grouped()
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=4)
    publish(bench, "a1", "a2", "a3")
    bench.dispatchers.pause("/", "d", True)

    assert queue.unacked == 1
    assert queue.ready == 2
    bench.ack("a1")
    bench.dispatchers.pause("/", "d", False)
    bench.run()
    assert bench.bodies == ["a2"]


def test_a_new_definition_waits_for_the_calls_of_the_old_one_in_each_group() -> None:
    bench = grouped()
    bench.set(concurrency=4)
    publish(bench, "a1", "a2", "b1")
    bench.set(concurrency=5)
    assert bench.bodies == ["a1", "b1"], "the groups belong to the calls of the old definition"
    bench.ack("a1")

    assert bench.bodies == ["b1", "a2"]


def test_running_calls_of_an_earlier_definition_hold_their_groups() -> None:
    bench = grouped(retry_min=1000)
    bench.set(concurrency=4)
    publish(bench, "a1", "a2", "b1")
    bench.dispatchers.pause("/", "d", True)
    bench.dispatchers.pause("/", "d", False)
    bench.run()
    publish(bench, "a3")
    assert bench.bodies == ["a1", "b1"]
    bench.fail("a1")
    bench.wait(999)
    assert bench.bodies == ["b1"], "the later messages wait for the retry, also by the new definition"
    bench.wait(2)
    assert bench.bodies == ["b1", "a1"]
    bench.ack("a1", "a2", "a3", "b1")

    assert bench.vhost.topology.queues["q"].messages == 0


@pytest.mark.parametrize("paused", [True, False])
def test_a_new_definition_waits_for_the_retries_of_the_earlier_one(paused: bool) -> None:
    bench = grouped(retry_min=1000)
    bench.set(concurrency=4)
    publish(bench, "a1", "a2")
    bench.fail("a1")
    if paused:
        bench.dispatchers.pause("/", "d", True)
        bench.wait(500)
        bench.dispatchers.pause("/", "d", False)
        bench.run()
    else:
        bench.set(concurrency=5)
    assert bench.bodies == []
    bench.wait(1001)
    bench.ack("a1", "a2")

    assert bench.begun == ["a1", "a1", "a2"]


def test_a_paused_dispatcher_forgets_messages_that_have_left() -> None:
    bench = grouped(retry_min=100_000)
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=4)
    publish(bench, "a1")
    bench.fail("a1")
    bench.dispatchers.pause("/", "d", True)
    purge(queue, bench.clock.schedule)
    bench.wait(2000)
    order = bench.dispatcher()._progress.order

    assert order is not None
    assert not order.awaits_some()
    assert queue.consumer_count == 0, "the dispatcher is still paused"


def test_parked_messages_that_the_queue_delays_are_awaited_after_a_pause() -> None:
    bench = DispatchBench()
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, "x-group-key": "g"}
    bench.vhost.declarations.declare_queue("q", False, None, False, arguments)
    bench.set(concurrency=4)
    publish(bench, "a1", "a2")
    bench.dispatchers.pause("/", "d", True)
    bench.ack("a1")
    publish(bench, "a3")
    bench.dispatchers.pause("/", "d", False)
    bench.run()
    assert bench.bodies == [], "the queue delays the message that was parked"
    bench.wait(1001)
    bench.ack("a2", "a3")

    assert bench.begun == ["a1", "a2", "a3"]


def test_the_cost_of_a_failed_batch_grows_with_its_messages_and_not_faster() -> None:
    def effort(groups: int) -> int:
        bench = DispatchBench()
        bench.queue("q", group_key="g", retry_min=1000)
        for number in range(groups):
            bench.publish(str(number), headers={"g": str(number)})
        bench.set(concurrency=2, batch=groups)
        (call,) = bench.caller.calls
        bench.caller.calls.clear()
        return lines_executed(lambda: call.end(Answer(FAILED, "500")))

    few, many = effort(100), effort(1000)
    assert many < 15 * few


def test_the_cost_of_a_retry_does_not_grow_with_the_waiting_groups() -> None:
    def effort(groups: int) -> int:
        bench = DispatchBench()
        bench.queue("q", group_key="g", retry_min=1000)
        bench.set(concurrency=groups, breaker={"failures": 0})
        for number in range(groups):
            bench.publish(str(number), headers={"g": str(number)})
        for _ in range(PARKED_MAX):  # the dispatcher takes nothing but returned messages
            bench.publish("parked", headers={"g": "0"})
        for number in range(1, groups):
            bench.fail(str(number))
        assert bench.bodies == ["0"]

        def publish_new() -> None:
            for _ in range(20):
                bench.publish("new", headers={"g": "new"})
                bench.wait(0)

        return lines_executed(publish_new)

    few, many = effort(20), effort(400)
    assert many < 2 * few


def test_strict_order_holds_for_a_dispatcher() -> None:
    bench = DispatchBench()
    bench.queue(strict_order=True, retry_min=100)
    bench.set(concurrency=4)
    bench.publish("a", "b")
    assert bench.bodies == ["a"]
    bench.fail("a")
    assert bench.bodies == []
    bench.wait(101)
    bench.ack("a")

    assert bench.bodies == ["b"]


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_groups_holds_whatever_calls_do(seed: int) -> None:
    chance = random.Random(seed)
    arguments: dict[str, object] = {"group_kind": chance.choice(["sticky", "shared"])}
    if chance.random() < 0.6:
        arguments |= {"retry_min": chance.choice([1, 50, 500]), "retry_max": 1000}
    bench = grouped(**arguments)
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=chance.choice([1, 3, 8]), batch=chance.choice([1, 1, 4]), breaker={"failures": 0})
    published: dict[str, int] = {}
    done: dict[str, int] = {}
    steps = 0
    definitions = 0
    while queue.messages or sum(published.values()) < 150:
        steps += 1
        assert steps < 20_000, "the dispatcher does not come to an end"
        if sum(published.values()) < 150 and chance.random() < 0.5:
            group = chance.choice("abcd")
            published[group] = published.get(group, 0) + 1
            publish(bench, f"{group}{published[group]}")
        elif bench.caller.calls and chance.random() < 0.9:
            call = chance.choice(bench.caller.calls)
            bench.caller.calls.remove(call)
            names = _names(call)
            in_others = {name[0] for each in bench.caller.calls for name in _names(each)}
            assert not in_others & {name[0] for name in names}, "two calls with one group"
            if chance.random() < 0.3:
                call.end(Answer(FAILED, "500"))
            else:
                for name in names:
                    assert int(name[1:]) == done.get(name[0], 0) + 1, "a message has passed another"
                    done[name[0]] = int(name[1:])
                call.end(Answer(ACKNOWLEDGED, "200"))
            bench.wait(0)
        elif chance.random() < 0.1:
            if chance.random() < 0.5:
                bench.dispatchers.pause("/", "d", True)
                bench.dispatchers.pause("/", "d", False)
                bench.run()
            else:
                definitions += 1
                at_once, most = chance.choice([1, 3, 8]), chance.choice([1, 1, 4])
                breaker, limit = {"failures": 0}, 30_000 + definitions
                bench.set(breaker=breaker, timeout_ms=limit, concurrency=at_once, batch=most)
        else:
            bench.wait(chance.choice([0, 1, 10, 100]))

    assert done == published


def _names(call: Call) -> list[str]:
    return [body(entry.message.content or b"").decode() for entry in call.entries]
