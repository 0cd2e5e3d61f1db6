"""Dispatchers: messages become calls, and the answers settle them."""

import json

import pytest

from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.errors import InUse, NotFound, PreconditionFailed
from broker.core.vhosts.alteration import alter_queue
from broker.dispatch.answers import ACKNOWLEDGED, FAILED, UNREACHED, Answer
from broker.dispatch.definition import Reference, TargetForbidden
from broker.dispatch.dispatcher import FORBIDDEN, NO_QUEUE, PAUSED, RUNNING
from config.targets import AllowList
from tests.support.core.queue_bench import Client
from tests.support.dispatch.dispatch_bench import URL, DispatchBench


@pytest.fixture
def bench() -> DispatchBench:
    bench = DispatchBench()
    bench.queue()
    return bench


def test_each_message_is_a_call_and_its_success_acknowledges(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("one", "two")

    assert bench.bodies == ["one"]
    assert bench.vhost.topology.queues["q"].unacked == 1
    bench.ack()
    assert bench.bodies == ["two"]
    bench.ack()
    assert bench.bodies == []
    assert bench.vhost.topology.queues["q"].messages == 0


def test_waiting_messages_are_called_when_the_dispatcher_comes(bench: DispatchBench) -> None:
    bench.publish("one")
    bench.set()

    assert bench.bodies == ["one"]


def test_no_more_calls_at_once_than_the_concurrency(bench: DispatchBench) -> None:
    bench.set(concurrency=3)
    bench.publish(*"abcde")

    assert bench.bodies == ["a", "b", "c"]
    bench.ack("b")
    assert bench.bodies == ["a", "c", "d"]
    bench.ack("a", "c", "d", "e")
    assert bench.begun == list("abcde")


def test_a_failed_call_is_tried_again_in_place_and_as_redelivered(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("one", "two")
    bench.fail("one")

    assert bench.bodies == ["one"]
    request = bench.caller.calls[0].request
    assert request is not None
    assert dict(request.headers)["Amqp-Redelivered"] == "true"
    assert dict(request.headers)["Amqp-Delivery-Count"] == "2"


def test_the_retry_rule_of_the_queue_decides_when_and_how_often() -> None:
    bench = DispatchBench()
    bench.queue("dead")
    bench.queue(retry_min=100, delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    bench.set()
    bench.publish("one")
    bench.fail()
    assert bench.bodies == []
    bench.wait(99)
    assert bench.bodies == []
    bench.wait(2)
    assert bench.bodies == ["one"]
    bench.fail()

    assert bench.vhost.topology.queues["dead"].ready == 1
    assert bench.vhost.topology.queues["q"].messages == 0


def test_a_call_that_takes_too_long_is_broken_off_and_counts_as_timed_out() -> None:
    bench = DispatchBench()
    queue = bench.queue(delivery_limit=5, delivery_count_on="timeout")
    dispatcher = bench.set(timeout_ms=1000)
    bench.publish("one")
    call = bench.caller.calls[0]
    bench.wait(999)
    assert bench.caller.cancelled == []
    bench.wait(2)

    assert bench.caller.cancelled == [call]
    assert bench.bodies == ["one"]
    assert next(iter(queue.entries)).counted == 2
    assert dispatcher.totals.calls["timed-out"] == 1
    call.end(Answer(ACKNOWLEDGED, "200"))  # the answer comes too late
    assert queue.unacked == 1


@pytest.mark.parametrize("rule", ["reject", "dead-letter"])
def test_a_status_may_dead_letter_a_message(rule: str) -> None:
    bench = DispatchBench()
    bench.queue("dead")
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    dispatcher = bench.set(answers={"4xx": rule})
    bench.publish("one", "two")
    bench.fail("one", "422")

    assert bench.bodies == ["two"]
    assert bench.vhost.topology.queues["dead"].ready == 1
    assert dispatcher.totals.messages["dead-lettered"] == 1


def test_without_a_dead_letter_exchange_reject_drops_and_dead_letter_keeps(bench: DispatchBench) -> None:
    bench.set(answers={"400": "reject", "401": "dead-letter"})
    bench.publish("one", "two")
    bench.fail("one", "400")
    assert bench.bodies == ["two"]
    bench.fail("two", "401")

    assert bench.bodies == ["two"], "the message is tried again and not lost"


def test_the_most_exact_rule_counts(bench: DispatchBench) -> None:
    definition = bench.set(answers={"404": "retry", "4xx": "reject", "other": "dead-letter"}).definition

    assert [definition.rule_for(answer) for answer in ("404", "400", "500", "timeout")] == [
        "retry",
        "reject",
        "dead-letter",
        "dead-letter",
    ]


def test_an_unreached_target_does_not_count_against_the_message() -> None:
    bench = DispatchBench()
    queue = bench.queue(delivery_limit=1)
    bench.set(answers={"other": "reject"})
    bench.publish("one")
    for _ in range(4):
        bench.fail(result=UNREACHED, status="other")

    assert bench.bodies == ["one"]
    assert next(iter(queue.entries)).counted == 1


def test_a_batch_is_one_call_and_its_answer_settles_all(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.publish(*"abcde")
    bench.set(batch=3)
    (call,) = bench.caller.calls
    assert len(call.entries) == 3
    assert queue.unacked == 3
    bench.ack()
    (call,) = bench.caller.calls
    assert len(call.entries) == 2
    bench.fail()
    (call,) = bench.caller.calls
    assert len(call.entries) == 2
    bench.ack()

    assert queue.messages == 0


def test_a_batch_has_no_more_bytes_than_a_call_may_have(bench: DispatchBench) -> None:
    bench.publish("aaaa", "bbbb", "cccc", "dddddddddd", "ee")
    bench.set(batch=10, size_max=10, concurrency=10)

    assert [len(call.entries) for call in bench.caller.calls] == [2, 1, 1, 1]
    assert [call.size for call in bench.caller.calls] == [8, 4, 10, 2]


def test_while_a_message_does_not_fit_into_a_batch_others_may_take_it(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.publish("aaaa", "bbbb", "cccc")
    bench.set(batch=10, size_max=8)
    assert [call.size for call in bench.caller.calls] == [8]
    client = Client(queue, bench.scheduler)
    bench.run()
    assert len(client.deliveries) == 1
    bench.ack()

    assert bench.caller.calls == []


def test_a_selector_leaves_other_messages_to_other_consumers(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(selector="colour = 'red'")
    bench.publish("blue", headers={"colour": "blue"})
    bench.publish("red", headers={"colour": "red"})

    assert bench.bodies == ["red"]
    assert queue.ready == 1


def test_other_consumers_share_the_queue(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=10)
    client = Client(queue, bench.scheduler)
    bench.publish(*"abcd")

    assert len(bench.bodies) == 2
    assert len(client.deliveries) == 2


def test_a_consumer_gets_the_messages_that_a_full_dispatcher_does_not_take(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set()
    client = Client(queue, bench.scheduler, priority=-1)
    bench.publish(*"abc")

    assert bench.bodies == ["a"]
    assert len(client.deliveries) == 2


def test_a_single_active_consumer_may_be_a_dispatcher() -> None:
    bench = DispatchBench()
    queue = bench.queue(single_active_consumer=True)
    client = Client(queue, bench.scheduler)
    bench.set()
    bench.publish("one")
    assert bench.bodies == []
    client.vanish()
    bench.run()

    assert bench.bodies == ["one"]


def test_a_dispatcher_waits_for_the_end_of_an_exclusive_consumer(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    client = Client(queue, bench.scheduler, exclusive=True)
    dispatcher = bench.set()
    assert dispatcher.state == NO_QUEUE
    assert dispatcher.hindrance == "queue 'q' in vhost '/' in exclusive use"
    client.vanish()
    bench.publish("one")
    bench.wait(1000)

    assert bench.bodies == ["one"]
    assert dispatcher.state == RUNNING
    with pytest.raises(InUse):  # the dispatcher is a consumer for others too
        Client(queue, bench.scheduler, exclusive=True)


def test_a_paused_dispatcher_calls_nothing_until_it_is_resumed(bench: DispatchBench) -> None:
    bench.set(concurrency=2)
    bench.publish("one")
    bench.dispatchers.pause("/", "d", True)
    bench.publish("two")
    assert bench.bodies == ["one"]
    assert bench.dispatcher().state == PAUSED
    bench.ack("one")
    assert bench.vhost.topology.queues["q"].ready == 1
    bench.dispatchers.pause("/", "d", False)
    bench.run()

    assert bench.bodies == ["two"]


def test_a_new_definition_leaves_running_calls_to_the_old_one(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(answers={"500": "reject"})
    bench.publish("one", "two")
    bench.set(concurrency=2)
    assert bench.bodies == ["one", "two"]
    bench.fail("one", "500")

    assert queue.messages == 1
    bench.fail("two", "500")
    assert bench.bodies == ["two"]


@pytest.mark.parametrize("paused", [True, False])
def test_running_calls_of_an_earlier_definition_count_for_the_concurrency(
    bench: DispatchBench, paused: bool
) -> None:
    bench.set(concurrency=2)
    bench.publish(*"abcdef")
    if paused:
        bench.dispatchers.pause("/", "d", True)
        assert bench.dispatcher().status()["calls"] == 2
        bench.dispatchers.pause("/", "d", False)
        bench.run()
    else:
        bench.set(concurrency=3)
    assert len(bench.bodies) == (2 if paused else 3)
    assert bench.dispatcher().status()["calls"] == (2 if paused else 3)
    bench.ack("a")
    assert bench.bodies == (["b", "c"] if paused else ["b", "c", "d"])
    bench.ack("b", "c", "d", "e", "f")

    assert bench.vhost.topology.queues["q"].messages == 0
    assert bench.dispatcher().status()["calls"] == 0


def test_a_trigger_for_an_idle_application_waits_for_the_call_of_an_earlier_definition(
    bench: DispatchBench,
) -> None:
    bench.set(trigger={"kind": "when-idle"}, batch=10)
    bench.publish("a")
    bench.set(trigger={"kind": "when-idle"}, batch=20)
    bench.publish("b")
    assert len(bench.caller.calls) == 1
    bench.ack()

    assert len(bench.caller.calls) == 1


def test_a_stop_during_a_pause_requeues_the_messages_of_earlier_calls(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=2)
    bench.publish("one", "two")
    bench.dispatchers.pause("/", "d", True)
    bench.dispatchers.abort_all()

    assert queue.ready == 2


def test_a_deleted_dispatcher_ends_with_its_calls(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("one", "two")
    bench.dispatchers.delete("/", "d")
    bench.ack("one")

    assert bench.bodies == []
    assert bench.vhost.topology.queues["q"].ready == 1
    assert bench.vhost.topology.queues["q"].consumer_count == 0
    with pytest.raises(NotFound, match="no dispatcher 'd' in vhost '/'"):
        bench.dispatchers.delete("/", "d")


def test_an_auto_delete_queue_leaves_with_its_last_dispatcher(bench: DispatchBench) -> None:
    bench.vhost.declarations.declare_queue("brief", False, None, True, {})
    bench.set(queue="brief")
    bench.dispatchers.pause("/", "d", True)
    assert "brief" in bench.vhost.topology.queues
    bench.dispatchers.pause("/", "d", False)
    bench.dispatchers.delete("/", "d")

    assert "brief" not in bench.vhost.topology.queues


def test_a_dispatcher_waits_for_a_queue_of_the_same_name(bench: DispatchBench) -> None:
    dispatcher = bench.set()
    bench.publish("one")
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.wait(0)
    assert dispatcher.state == NO_QUEUE
    bench.ack("one")
    bench.queue()
    bench.publish("two")
    bench.wait(1000)

    assert bench.bodies == ["two"]
    assert dispatcher.state == RUNNING


def test_a_stop_requeues_the_messages_of_running_calls(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(concurrency=2)
    bench.publish("one", "two", "three")
    calls = list(bench.caller.calls)
    bench.dispatchers.retire_all()
    bench.ack("one")
    assert queue.ready == 1
    bench.dispatchers.abort_all()

    assert bench.caller.cancelled == calls[1:]
    assert queue.ready == 2
    assert [entry.redelivered for entry in queue.entries] == [True, False]


def test_a_target_that_is_not_allowed_is_refused(bench: DispatchBench) -> None:
    with pytest.raises(TargetForbidden) as refusal:
        bench.set(url="http://localhost/other")

    assert refusal.value.text == (
        "dispatcher 'd' in vhost '/': 'url' is 'http://localhost/other', which the setting "
        "dispatch_allow does not cover; start the broker with --dispatch-allow"
    )
    with pytest.raises(TargetForbidden, match="'command' is '/bin/false'"):
        bench.set(command=["/bin/false", "/bin/true"])


def test_a_dispatcher_whose_target_is_forbidden_later_does_not_work(bench: DispatchBench) -> None:
    bench.set()
    changes = bench.store.changes  # type: ignore[attr-defined]
    again = DispatchBench(allowed=())
    again.queue()
    again.dispatchers.retire_all()
    for change in changes:
        if str(change["kind"]).startswith("dispatcher"):
            again.broker.apply(change)
    again.dispatchers.start(again.services())
    again.publish("one")

    assert again.bodies == []
    assert again.dispatcher().state == FORBIDDEN
    assert "because the setting is empty" in again.dispatcher().hindrance


def test_the_allow_list_is_checked_before_each_call(bench: DispatchBench) -> None:
    dispatcher = bench.set()
    dispatcher._services.allowed = AllowList([])
    bench.publish("one")
    bench.wait(0)

    assert bench.caller.begun == []
    assert URL in dispatcher.last_failure


def test_queues_that_keep_their_messages_are_refused(bench: DispatchBench) -> None:
    bench.queue("keeps", non_destructive=True)
    with pytest.raises(PreconditionFailed, match="queue 'keeps' in vhost '/' keeps its messages"):
        bench.set(queue="keeps")
    with pytest.raises(NotFound, match="dispatcher 'd' in vhost '/': no queue 'nowhere' in vhost '/'"):
        bench.set(queue="nowhere")
    bench.vhost.declarations.declare_queue("mine", False, object(), False, {})
    with pytest.raises(PreconditionFailed, match="queue 'mine' in vhost '/' belongs to a single connection"):
        bench.set(queue="mine")


def test_a_partitioned_queue_is_refused_and_its_members_are_not(bench: DispatchBench) -> None:
    bench.queue("m1")
    bench.queue("m2")
    partitioned = {"queue_kind": "partitioned", "partition_by": "k", "partition_members": ["m1", "m2"]}
    bench.queue("front", **partitioned)
    with pytest.raises(PreconditionFailed) as refusal:
        bench.set(queue="front")
    assert refusal.value.text == (
        "dispatcher 'd' in vhost '/': queue 'front' in vhost '/' is partitioned: "
        "set a dispatcher for each of its members, m1, m2"
    )
    bench.set(queue="m1")
    bench.publish("one", key="m1")
    bench.ack("one")

    assert bench.vhost.topology.queues["m1"].messages == 0


def test_a_queue_that_is_declared_again_as_partitioned_is_not_served(bench: DispatchBench) -> None:
    dispatcher = bench.set()
    bench.queue("m1")
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.queue("q", queue_kind="partitioned", partition_by="k", partition_members=["m1"])
    bench.publish("one", headers={"k": "x"})
    bench.wait(1000)

    assert bench.bodies == []
    assert dispatcher.state == NO_QUEUE
    assert dispatcher.hindrance.startswith("queue 'q' in vhost '/' is partitioned")


def test_definitions_outlive_a_restart(bench: DispatchBench) -> None:
    bench.set("first", concurrency=4, answers={"500": "reject"}, trigger={"kind": "length", "length": 5})
    bench.set("second", command=["/bin/true", "x"], paused=True)
    bench.set("third")
    bench.dispatchers.delete("/", "third")
    described = [change for changes in bench.dispatchers.describe() for change in changes]
    for history in (bench.store.changes, described):  # type: ignore[attr-defined]
        again = DispatchBench()
        for change in history:
            if str(change["kind"]).startswith("dispatcher"):
                again.broker.apply(change)
        assert again.dispatchers.all() == bench.dispatchers.all()


def test_the_same_definition_again_changes_nothing(bench: DispatchBench) -> None:
    bench.set()
    before = len(bench.store.changes)  # type: ignore[attr-defined]
    dispatcher = bench.dispatcher()
    bench.set()

    assert len(bench.store.changes) == before  # type: ignore[attr-defined]
    assert bench.dispatcher() is dispatcher


def test_dispatchers_leave_with_their_virtual_host(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("one")
    bench.broker.delete_vhost("/")

    assert bench.dispatchers.all() == []
    bench.ack("one")


def test_a_renamed_queue_keeps_its_dispatcher(bench: DispatchBench) -> None:
    bench.set()
    queue = bench.vhost.topology.queues["q"]
    alter_queue(bench.vhost.topology, queue, "new", queue.arguments, False)
    bench.dispatchers.rename_queue("/", "q", "new")
    bench.publish("one", key="new")

    assert bench.bodies == ["one"]
    assert bench.definition().queue == "new"
    assert bench.store.changes[-1]["queue"] == "new"  # type: ignore[attr-defined]


def test_a_message_that_is_too_large_is_dead_lettered() -> None:
    bench = DispatchBench()
    bench.queue("dead")
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    bench.set(size_max=3)
    bench.publish("four", "six")
    bench.wait(0)

    assert bench.bodies == ["six"]
    assert bench.vhost.topology.queues["dead"].ready == 1


def test_a_failure_is_logged_with_the_answer(bench: DispatchBench) -> None:
    dispatcher = bench.set()
    bench.publish("one")
    bench.fail("one", "502")

    (event, values), *_ = bench.logged
    assert event == "call of a dispatcher failed"
    assert values["target"] == URL
    assert values["reason"] == "502: no"
    status = dispatcher.status()
    assert status["last_failure"] == "502: no"
    assert status["total_calls"]["failed"] == 1
    assert status["total_messages"]["retried"] == 1


def test_a_failure_is_shown_without_the_secrets_of_the_call() -> None:
    bench = DispatchBench(allowed=("http://localhost/hooks",))
    bench.queue()
    token, key = Reference("env", "TOKEN"), Reference("env", "KEY")
    bench.secrets = {token: b"Bearer t0k3n-of-ours", key: b"k3y-of-ours"}
    dispatcher = bench.set(
        url="http://localhost/hooks?pass=p4ss-of-ours",
        headers={"X-Token": token.shown()},
        secret=key.shown(),
        breaker={"failures": 1},
    )
    bench.publish("one")
    echo = "t0k3n-of-ours k3y-of-ours http://localhost/hooks?pass=p4ss-of-ours Authorization: x9y8z7"
    bench.end(Answer(FAILED, "400", echo))

    assert dispatcher.last_failure == "400: *** *** http://localhost/hooks?*** Authorization: ***"
    shown = json.dumps([bench.logged, dispatcher.status()])
    assert [event for event, _ in bench.logged][1] == "dispatcher waits: too many calls have failed"
    for secret in ("t0k3n", "k3y-", "p4ss", "x9y8z7"):
        assert secret not in shown
    bench.dispatchers.retire_all()
    with pytest.raises(TargetForbidden) as refusal:
        bench.set("e", url="http://localhost/other?pass=p4ss-of-ours")
    assert "p4ss" not in refusal.value.text


def test_a_consumer_of_higher_priority_with_a_selector_is_waited_for(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    client = Client(queue, bench.scheduler, prefetch=1, priority=10, entry_filter=Everything("all"))
    bench.set()
    bench.publish("a", "b", "c")
    assert len(client.held) == 1
    assert bench.bodies == ["b"]
    client.ack()
    bench.run()
    assert len(client.deliveries) == 2
    bench.ack("b")

    assert queue.messages == 1


class Everything(EntryFilter):
    """A filter of its own that every entry passes."""

    def passes(self, entry: QueueEntry) -> bool:
        return True
