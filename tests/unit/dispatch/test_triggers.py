"""Triggers and load control of dispatchers, with time that is moved by hand."""

import pytest

from broker.core.queues.attach import get_one
from broker.core.queues.consumer import make_holder
from broker.core.queues.purge import purge
from broker.dispatch.answers import answer_of_http
from broker.dispatch.dispatcher import RUNNING, WAITING
from tests.support.core.queue_bench import Client
from tests.support.dispatch.dispatch_bench import DispatchBench

HOUR = 3_600_000


@pytest.fixture
def bench() -> DispatchBench:
    bench = DispatchBench()
    bench.queue()
    return bench


# ---- every-message and when-idle


def test_when_idle_starts_a_run_only_after_the_run_before(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "when-idle"}, batch=10)
    bench.publish("a")
    bench.publish("b")
    bench.publish("c")
    assert len(bench.caller.calls) == 1
    bench.ack()
    (call,) = bench.caller.calls
    assert len(call.entries) == 2
    bench.ack()

    assert bench.caller.calls == []


# ---- length


def test_a_length_starts_calls_when_the_queue_reaches_it(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "length", "length": 3}, batch=10)
    bench.publish("a", "b")
    bench.wait(HOUR)
    assert bench.caller.calls == []
    bench.publish("c")
    bench.wait(0)
    (call,) = bench.caller.calls

    assert len(call.entries) == 3
    bench.publish("d", "e")
    bench.ack()
    assert bench.caller.calls == [], "two messages are too few"
    bench.publish("f")
    bench.wait(0)
    assert len(bench.caller.calls[0].entries) == 3


def test_a_length_that_is_reached_before_the_dispatcher_comes_counts(bench: DispatchBench) -> None:
    bench.publish(*"abc")
    bench.set(trigger={"kind": "length", "length": 3}, batch=10)

    assert len(bench.caller.calls[0].entries) == 3


def test_while_a_length_is_not_reached_another_consumer_gets_the_messages(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(trigger={"kind": "length", "length": 2}, priority=10)
    client = Client(queue, bench.scheduler)
    bench.publish("a", "b", "c")

    assert len(client.deliveries) == 3
    assert bench.caller.calls == []


def test_a_failed_message_below_the_length_is_tried_again() -> None:
    bench = DispatchBench()
    bench.queue(retry_min=100)
    bench.set(trigger={"kind": "length", "length": 2}, concurrency=2)
    bench.publish("a", "b")
    bench.wait(0)
    bench.ack("a")
    bench.fail("b")
    assert bench.bodies == []
    bench.wait(101)
    assert bench.bodies == ["b"]
    bench.ack("b")
    bench.publish("c")
    bench.wait(0)

    assert bench.bodies == [], "the run is over"


def test_a_later_message_does_not_use_the_grant_of_a_returned_one() -> None:
    bench = DispatchBench()
    bench.queue(retry_min=1000)
    bench.set(trigger={"kind": "length", "length": 2}, concurrency=2)
    bench.publish("a", "b")
    bench.wait(0)
    bench.ack("a")
    bench.fail("b")
    bench.publish("c")
    bench.wait(0)
    assert bench.bodies == [], "the grant is for the message that the queue delays"
    bench.wait(1000)
    assert bench.bodies == ["b"]
    bench.ack("b")

    assert bench.bodies == [], "one message is too few"


def test_a_message_that_the_queue_has_moved_away_grants_nothing() -> None:
    bench = DispatchBench()
    bench.queue("dead")
    bench.queue(delivery_limit=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    bench.set(trigger={"kind": "interval", "every_ms": 1000}, concurrency=2)
    bench.publish("a", "b")
    bench.wait(1000)
    bench.fail("a")
    assert bench.vhost.topology.queues["dead"].ready == 1
    bench.publish("c")
    bench.ack("b")

    assert bench.bodies == [], "the message came after the end of the interval"


def test_a_later_message_does_not_use_the_grant_of_one_that_another_consumer_has() -> None:
    bench = DispatchBench()
    queue = bench.queue()
    bench.set(trigger={"kind": "interval", "every_ms": 1000})
    bench.publish("a", "b")
    bench.wait(1000)
    assert bench.bodies == ["a"]
    assert get_one(queue, make_holder(queue)) is not None
    bench.wait(0)
    bench.ack("a")
    bench.publish("c")
    bench.wait(0)

    assert bench.bodies == []


def test_returned_messages_that_are_ready_do_not_enlarge_the_grant_of_an_interval() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.set(trigger={"kind": "interval", "every_ms": 1000}, breaker={"failures": 1, "wait_ms": 1500})
    bench.publish("a")
    bench.wait(1000)
    bench.fail("a")
    bench.wait(1000)
    bench.publish("b")
    bench.wait(500)
    assert bench.bodies == ["a"]
    bench.ack("a")
    assert bench.bodies == [], "the second interval has granted a only, which was granted already"
    bench.wait(500)

    assert bench.bodies == ["b"]


def test_a_purge_withdraws_the_grants_of_returned_messages() -> None:
    bench = DispatchBench()
    queue = bench.queue(retry_min=100_000)
    dispatcher = bench.set(trigger={"kind": "interval", "every_ms": 1000})
    bench.publish("a")
    bench.wait(1000)
    bench.fail("a")
    purge(queue, bench.clock.schedule)
    bench.wait(1000)

    assert not dispatcher._trigger.awaits_some()


def test_messages_that_others_take_end_a_run(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    bench.set(trigger={"kind": "length", "length": 3})
    bench.publish(*"abc")
    bench.wait(0)
    assert bench.bodies == ["a"]
    for _ in range(2):
        taken = get_one(queue, make_holder(queue))
        assert taken is not None
        queue.settle(taken)
    bench.ack("a")
    bench.publish("d")
    bench.wait(0)

    assert bench.bodies == []


def test_a_length_may_have_an_interval_too(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "length", "length": 100, "every_ms": 1000}, batch=100)
    bench.publish("a", "b")
    bench.wait(998)
    assert bench.caller.calls == []
    bench.wait(3)

    assert len(bench.caller.calls[0].entries) == 2


def test_messages_that_come_back_count_for_the_length(bench: DispatchBench) -> None:
    queue = bench.vhost.topology.queues["q"]
    client = Client(queue, bench.scheduler)
    bench.set(trigger={"kind": "length", "length": 2}, batch=2)
    bench.publish("a", "b")
    assert len(client.held) == 2
    client.vanish()
    bench.wait(0)

    assert len(bench.caller.calls[0].entries) == 2


# ---- interval


def test_an_interval_calls_with_what_is_ready_at_its_end(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "interval", "every_ms": 1000}, batch=10)
    bench.publish("a", "b")
    bench.wait(999)
    assert bench.caller.calls == []
    bench.wait(2)
    assert len(bench.caller.calls[0].entries) == 2
    bench.publish("c")
    bench.ack()
    assert bench.caller.calls == [], "the message came after the end of the interval"
    bench.wait(1000)

    assert len(bench.caller.calls[0].entries) == 1


def test_an_interval_with_an_empty_queue_calls_nothing(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "interval", "every_ms": 1000})
    bench.wait(1500)
    bench.publish("a")
    assert bench.caller.calls == []
    bench.wait(501)

    assert bench.bodies == ["a"]


def test_intervals_do_not_drift(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "interval", "every_ms": 1000})
    start = bench.clock.now
    times = []
    for _ in range(5):
        bench.publish("a")
        while not bench.caller.calls:
            bench.wait(1)
        times.append(bench.clock.now - start)
        bench.ack()
        bench.wait(137)

    assert [time // 1000 for time in times] == [1, 2, 3, 4, 5]
    assert all(time % 1000 <= 1 for time in times)


def test_a_cron_expression_names_dates_in_utc(bench: DispatchBench) -> None:
    # the bench begins on 2023-11-14 at 22:13:20 UTC, a Tuesday
    bench.set(trigger={"kind": "interval", "cron": "30 22 * * tue"})
    bench.publish("a")
    to_half_past = (16 * 60 + 40) * 1000
    bench.wait(to_half_past - 1)
    assert bench.bodies == []
    bench.wait(1)
    assert bench.bodies == ["a"]
    bench.ack()
    bench.publish("b")
    bench.wait(7 * 24 * HOUR - 2)
    assert bench.bodies == []
    bench.wait(2)

    assert bench.bodies == ["b"]


def test_a_cron_expression_follows_a_calendar_that_is_set(bench: DispatchBench) -> None:
    bench.set(trigger={"kind": "interval", "cron": "0 0 * * *"})
    bench.publish("a")
    bench.clock.offset += 2 * HOUR  # the clock of the machine is set past midnight
    bench.wait(60_000)

    assert bench.bodies == ["a"]


# ---- rate


def test_a_rate_limits_the_calls_of_a_second(bench: DispatchBench) -> None:
    bench.set(rate=20, concurrency=1000)
    bench.publish(*[str(number) for number in range(100)])
    assert len(bench.begun) == 2, "the calls of 100 ms may come together"
    bench.wait(1000)
    assert 21 <= len(bench.begun) <= 22
    bench.wait(1000)

    assert 41 <= len(bench.begun) <= 42


def test_a_low_rate(bench: DispatchBench) -> None:
    bench.set(rate=0.1, concurrency=10)
    bench.publish("a", "b")
    bench.wait(9_999)
    assert bench.bodies == ["a"]
    bench.wait(2)

    assert bench.bodies == ["a", "b"]


# ---- circuit breaker


def test_the_breaker_opens_after_failures_in_a_row_and_probes_with_one_call(bench: DispatchBench) -> None:
    dispatcher = bench.set(concurrency=2, breaker={"failures": 3, "wait_ms": 1000, "wait_max_ms": 3000})
    bench.publish(*"abcdef")
    for body in "aba":
        bench.fail(body)
    assert dispatcher.state == WAITING
    assert dispatcher.totals.breaker_opened == 1
    while bench.caller.calls:
        bench.fail()
    bench.wait(999)
    assert bench.caller.calls == []
    bench.wait(2)
    assert len(bench.caller.calls) == 1, "a single call probes the target"
    bench.fail()
    bench.wait(1999)
    assert bench.caller.calls == [], "the second wait is twice as long"
    bench.wait(2)
    bench.fail()
    bench.wait(2999)
    assert bench.caller.calls == [], "the longest wait"
    bench.wait(2)
    bench.ack()

    assert dispatcher.state == RUNNING
    assert len(bench.caller.calls) == 2


def test_a_success_in_between_keeps_the_breaker_closed(bench: DispatchBench) -> None:
    dispatcher = bench.set(breaker={"failures": 2})
    bench.publish("a", "b")
    bench.fail()
    bench.ack()
    bench.fail()

    assert dispatcher.state == RUNNING


def test_refused_messages_do_not_open_the_breaker(bench: DispatchBench) -> None:
    dispatcher = bench.set(breaker={"failures": 1}, answers={"400": "reject"})
    bench.publish("a", "b")
    bench.fail(status="400")

    assert dispatcher.state == RUNNING
    assert bench.bodies == ["b"]


def test_failures_0_means_no_breaker(bench: DispatchBench) -> None:
    bench.set(breaker={"failures": 0})
    bench.publish("a")
    for _ in range(20):
        bench.fail()

    assert bench.bodies == ["a"]


def test_a_target_that_wants_no_calls_gets_none_for_a_while(bench: DispatchBench) -> None:
    queue = bench.queue("limited", delivery_limit=0)
    dispatcher = bench.set(queue="limited")
    bench.publish("a", key="limited")
    bench.busy(5000)
    assert dispatcher.state == WAITING
    assert dispatcher.totals.calls["busy"] == 1
    bench.wait(4999)
    assert bench.bodies == []
    bench.wait(2)

    assert bench.bodies == ["a"]
    assert queue.messages == 1, "the wait does not count towards the delivery limit"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("retry_after", ["7", "Tue, 14 Nov 2023 22:13:27 GMT"])
def test_a_retry_after_in_seconds_or_as_a_date_is_obeyed(
    bench: DispatchBench, status: int, retry_after: str
) -> None:
    # the bench begins on 2023-11-14 at 22:13:20 UTC
    bench.set(concurrency=2)
    bench.publish("a", "b", "c")
    bench.end(answer_of_http(status, retry_after, "", bench.clock.date()), "a")
    bench.ack("b")
    assert bench.bodies == [], "the target wants no calls at all"
    bench.wait(6999)
    assert bench.bodies == []
    bench.wait(2)

    assert bench.bodies == ["a", "c"]


def test_a_half_open_breaker_stays_half_open_while_the_target_asks_to_wait(bench: DispatchBench) -> None:
    dispatcher = bench.set(concurrency=2, breaker={"failures": 1, "wait_ms": 1000})
    bench.publish("a", "b", "c")
    bench.fail("a")
    bench.ack("b")
    assert dispatcher.status()["breaker"] == "closed", "a call that was in progress has succeeded"
    bench.fail("a")
    bench.fail("c")
    bench.wait(1001)
    assert len(bench.caller.calls) == 1
    assert dispatcher.status()["breaker"] == "half-open"
    bench.busy(5000)
    bench.wait(4999)
    assert bench.caller.calls == []
    bench.wait(2)
    assert len(bench.caller.calls) == 1, "the probe is repeated"
    bench.ack()

    assert dispatcher.status()["breaker"] == "closed"


def test_a_target_that_wants_calls_at_once_again_gets_them_after_a_moment(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("a")
    bench.busy(0)
    bench.wait(98)
    assert bench.bodies == []
    bench.wait(2)

    assert bench.bodies == ["a"]


def test_a_target_cannot_stop_calls_for_more_than_an_hour(bench: DispatchBench) -> None:
    bench.set()
    bench.publish("a")
    bench.busy(10**12)
    bench.wait(HOUR)

    assert bench.bodies == ["a"]


# ---- concurrency that adapts


def test_the_concurrency_grows_with_fast_calls_and_shrinks_with_slow_ones(bench: DispatchBench) -> None:
    dispatcher = bench.set(concurrency=8, latency_ms=100)
    bench.publish(*[str(number) for number in range(200)])
    limits = []
    for _ in range(20):
        limits.append(len(bench.caller.calls))
        bench.wait(50)
        for _ in range(limits[-1]):
            bench.ack()
    assert limits[0] == 1
    assert limits == sorted(limits)
    assert limits[-1] == 8
    assert limits.index(3) - limits.index(2) >= 1, "a limit of fast calls adds one"
    bench.wait(101)
    bench.ack()
    assert dispatcher.status()["calls_max"] == 5
    for _ in range(7):
        bench.ack()

    assert dispatcher.status()["calls_max"] == 5, "slow calls of one round decrease the limit once"


def test_a_failure_decreases_the_concurrency_down_to_one(bench: DispatchBench) -> None:
    dispatcher = bench.set(concurrency=10, latency_ms=100, breaker={"failures": 0})
    bench.publish(*[str(number) for number in range(50)])
    for _ in range(40):
        bench.wait(1)
        bench.ack()
    before = dispatcher.status()["calls_max"]
    assert before > 3
    for _ in range(60):
        bench.wait(1)
        bench.fail()
        while len(bench.caller.calls) > dispatcher.status()["calls_max"]:
            bench.fail()

    assert dispatcher.status()["calls_max"] == 1


def test_an_unused_limit_does_not_grow(bench: DispatchBench) -> None:
    dispatcher = bench.set(concurrency=100, latency_ms=100)
    for number in range(30):
        bench.publish(str(number))
        bench.ack()

    assert dispatcher.status()["calls_max"] <= 2
