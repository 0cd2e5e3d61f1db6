"""Queues that delay messages until a date: order, limits, moves, cancellation, and a million of them."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.errors import PreconditionFailed, StoreFailed
from broker.core.message import BY_CLOCK, DELAYED, NEVER, Message
from broker.core.policies.policy import Policy
from broker.core.publishing.delay import (
    UNREADABLE_WAIT_MS,
    QueueDelays,
    count_delayed,
    delays_of,
    due_date,
    mark_delay,
)
from broker.core.publishing.publisher import REFUSED, ROUTED, Outcome
from broker.core.queues.queue import Queue
from broker.core.queues.source import BROKER
from broker.core.routing.history import History
from broker.core.schedule import RETRY_MS, SLICE, HeldMessage, soonest_first
from broker.core.transactions.transaction import HeldPublish
from broker.core.vhosts.definitions import restore_message
from protocol.amqp091.properties import Properties
from tests.support.core.hand_clock import HandClock
from tests.support.core.purge import purge
from tests.support.core.timed_vhost import VhostBench
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    content_of,
    new_vhost,
    publish,
    view_of,
)


class Field:
    """A virtual host with a queue `q`."""

    def __init__(self, durable: bool = False, **arguments: Any) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.vhost = new_vhost(self.store, self.clock)
        held = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.queue: Queue = self.vhost.declarations.declare_queue("q", durable, None, False, held)

    def message(self, delay: int, body: int = 0, persistent: bool = False, **headers: object) -> Message:
        """A message that is to be delivered in so many ms."""
        content = content_of(headers={"x-delay": delay, "n": body, **headers})
        new = Message(self.vhost.publisher.route("", "q").address, content, 1, persistent, 0)
        named = "x-delivery-time" if "x-delivery-time" in headers else "x-delay"
        mark_delay(new, view_of(headers={named: headers.get(named, delay)}), self.clock.schedule)
        return new

    def publish(
        self, delay: int, body: int = 0, persistent: bool = False, expiration: int = NEVER
    ) -> Outcome:
        new = self.message(delay, body, persistent)
        new.expiration = expiration
        return self.vhost.publisher.publish_carefully(self.vhost.publisher.route("", "q"), new)

    def bodies(self) -> list[object]:
        return [headers(entry.message)["n"] for entry in self.queue.entries]

    @property
    def delays(self) -> QueueDelays:
        return delays_of(self.queue, self.vhost)

    def places(self) -> list[HeldMessage]:
        return list(soonest_first(self.delays.places()))


def headers(message: Message) -> dict[str, object]:
    return Properties(message.content or b"").headers()


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("headers", "date"),
    [
        ({}, 0),
        ({"x-delay": 5}, NOW + 5),
        ({"x-delay": "5"}, NOW + 5),
        ({"x-delay": -5}, 0),
        ({"x-delay": "soon"}, 0),
        ({"x-delivery-time": NOW + 7}, NOW + 7),
        ({"x-delivery-time": NOW + 7, "x-delay": 99}, NOW + 7),
        ({"x-delivery-time": NOW}, 0),
        ({"x-delivery-time": -1}, 0),
        ({"x-delivery-time": datetime.fromtimestamp(NOW / 1000, UTC) + timedelta(seconds=9)}, NOW + 9000),
        ({"x-delivery-time": datetime.fromtimestamp(NOW / 1000, UTC) - timedelta(seconds=9)}, 0),
    ],
)
def test_when_a_message_is_due(headers: dict[str, object], date: int) -> None:
    assert due_date(view_of(headers=headers), HandClock().schedule) == date


@pytest.mark.parametrize("value", ["tomorrow", True, 1.5, NOW + 315_360_000_001])
def test_an_invalid_date_is_refused(value: object) -> None:
    with pytest.raises(PreconditionFailed, match="x-delivery-time"):
        due_date(view_of(headers={"x-delivery-time": value}), HandClock().schedule)


def test_delayed_messages_are_enqueued_at_their_time_behind_earlier_messages() -> None:
    field = Field()
    assert [field.publish(delay, delay) for delay in (30, 10, 0, 10, 20)] == [ROUTED] * 5
    assert (field.bodies(), count_delayed(field.queue)) == ([0], 4)
    field.clock.advance(9)
    assert field.bodies() == [0]
    field.clock.advance(1)
    assert field.bodies() == [0, 10, 10]
    field.publish(0, 1)
    field.clock.advance(20)
    assert (field.bodies(), count_delayed(field.queue)) == ([0, 10, 10, 1, 20, 30], 0)


def test_a_delay_is_negated_when_it_is_over() -> None:
    field = Field()
    field.publish(10)
    field.clock.advance(10)
    [entry] = field.queue.entries
    assert headers(entry.message)["x-delay"] == -10
    assert (entry.message.marks, entry.message.date) == (0, field.clock.date())


def test_consumers_are_told() -> None:
    field = Field()
    taker, _ = consume(field.queue)
    field.publish(10)
    field.clock.advance(10)
    field.queue.deliver_single_message(taker.consumers[0])
    assert len(taker.taken) == 1


def test_the_time_to_live_begins_at_the_date() -> None:
    field = Field(message_ttl=20)
    field.publish(50)
    field.publish(50, expiration=5)
    field.clock.advance(50)
    assert field.queue.ready == 2
    field.clock.advance(5)
    assert field.queue.ready == 1
    field.clock.advance(15)
    assert field.queue.ready == 0


def test_a_delayed_message_for_a_full_queue_is_retried() -> None:
    field = Field(max_length=1, overflow="reject-publish")
    field.publish(10, 1)
    field.publish(0, 2)
    field.clock.advance(10)
    assert (field.bodies(), count_delayed(field.queue)) == ([2], 1)
    purge(field.queue)
    field.clock.advance(RETRY_MS)
    assert (field.bodies(), count_delayed(field.queue)) == ([1], 0)


@pytest.mark.parametrize("delay", [{"delay": 10}, {"delay": 0, "x-delivery-time": NOW + 10}])
def test_a_full_queue_accepts_delayed_messages(delay: dict[str, int]) -> None:
    field = Field(max_length=1, overflow="reject-publish")
    assert field.publish(0, 1) is ROUTED
    assert field.publish(0, 2) == REFUSED
    route = field.vhost.publisher.route("", "q")
    late = field.message(**delay, body=3)  # type: ignore[arg-type]
    assert field.vhost.publisher.publish_carefully(route, late) is ROUTED
    held = HeldPublish(route, field.message(**delay, body=4), [], False)  # type: ignore[arg-type]
    assert held.resolve(field.vhost.publisher, BROKER) == ""
    held.passage.append(field.vhost)
    assert held.put(field.vhost.publisher) is ROUTED
    purge(field.queue)
    field.clock.advance(10)
    assert (field.bodies(), count_delayed(field.queue)) == ([3], 1)
    purge(field.queue)
    field.clock.advance(RETRY_MS)
    assert (field.bodies(), count_delayed(field.queue)) == ([4], 0)


@pytest.mark.parametrize("moved", [3_600_000, -3_600_000, 1_700_000_000_000])
def test_a_delay_ends_by_the_clock_and_a_time_of_day_by_the_calendar(moved: int) -> None:
    field = Field()
    field.publish(1_000, 1)
    day = field.message(0, 2, False, **{"x-delivery-time": field.clock.date() + 60_000})
    field.vhost.publisher.publish_carefully(field.vhost.publisher.route("", "q"), day)
    field.clock.offset += moved
    field.publish(1_000, 3)
    field.clock.advance(999)
    assert field.bodies() == []
    field.clock.advance(1)
    assert [body for body in field.bodies() if body != 2] == [1, 3]
    field.clock.advance(59_000)
    assert (2 in field.bodies()) == (moved > 0)


def test_a_message_of_a_delayed_exchange_comes_by_the_clock() -> None:
    clock = HandClock()
    vhost = new_vhost(RecordingStore(), clock)
    add_exchange(vhost, "x", "x-delayed-message", **{"x-delayed-type": "fanout"})
    queue = add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "", {})
    publish(vhost, "x", "", headers={"x-delay": 500})
    clock.offset -= 3_600_000
    clock.advance(499)
    assert queue.ready == 0
    clock.advance(1)
    assert queue.ready == 1


def test_a_delayed_message_for_a_full_queue_is_not_read() -> None:
    field = Field(max_length=1, overflow="reject-publish")
    field.publish(10, 1)
    field.publish(0, 2)
    (message,) = field.delays
    content, message.content = message.content, None  # and this store gives nothing back
    field.clock.advance(10)
    message.content = content
    purge(field.queue)
    field.clock.advance(RETRY_MS)
    assert field.bodies() == [1]


def test_a_due_message_drops_the_oldest_of_a_full_queue() -> None:
    field = Field(max_length=1)
    field.publish(10, 1)
    field.publish(0, 2)
    field.clock.advance(10)
    assert field.bodies() == [1]


def test_purging_keeps_and_deleting_drops_delayed_messages() -> None:
    field = Field(durable=True)
    field.publish(10, persistent=True)
    purge(field.queue)
    assert count_delayed(field.queue) == 1
    with pytest.raises(PreconditionFailed, match="not empty"):
        field.vhost.declarations.delete_queue("q", False, True, None)
    field.vhost.declarations.delete_queue("q", False, False, None)
    assert [message.date for message in field.store.forgotten] == [field.clock.date() + 10]
    field.clock.advance(100)
    assert field.queue.ready == 0


def test_policy_changes_keep_delayed_messages() -> None:
    field = Field()
    field.publish(10)
    field.vhost.policies.set(Policy("p", "q", {"max-length": 5}))
    field.vhost.policies.apply_all()
    field.clock.advance(10)
    assert field.queue.ready == 1


# --- in the log


def test_a_delayed_message_is_settled_in_the_log_after_its_copy_is_logged() -> None:
    field = Field(durable=True)
    field.publish(10, persistent=True)
    [(held, _)] = field.store.enqueued
    assert (held.date, held.marks) == (field.clock.date() + 10, DELAYED | BY_CLOCK)
    field.clock.advance(10)
    [_, (copy, queues)] = field.store.enqueued
    assert (copy.date, copy.marks, queues) == (field.clock.date(), 0, ["q"])
    assert field.store.settled == [(held, "q")]


def test_only_delayed_messages_are_held_after_a_restart() -> None:
    field = Field(durable=True)
    overdue = field.message(10, 1)
    overdue.date = field.clock.date() - 1
    for message in (field.message(20, 2), overdue, field.message(0, 3)):
        restore_message(field.queue, message, False)
    assert (field.bodies(), count_delayed(field.queue)) == ([3], 2)
    field.clock.advance(1)
    assert field.bodies() == [3, 1]
    field.clock.advance(20)
    assert field.bodies() == [3, 1, 2]


def test_a_delayed_message_in_an_exchange_history_survives_a_restart() -> None:
    field = Field()
    add_exchange(field.vhost, "h", "x-recent-history", durable=True)
    history = field.vhost.topology.exchanges["h"].kept
    assert history is not None
    restore_message(history, field.message(10), False)
    assert (history.ready, count_delayed(history)) == (1, 0)
    assert isinstance(History(history, 1).messages(0)[0], Message)


def test_a_message_that_cannot_be_logged_or_read_waits() -> None:
    field = Field(durable=True)
    field.publish(10, 1, persistent=True)
    field.publish(10, 2, persistent=True)
    field.store.failure = "the disk is full"
    field.clock.advance(10)
    assert count_delayed(field.queue) == 2
    field.store.failure = ""
    unreadable = field.places()[0].message
    assert unreadable is not None
    content, unreadable.content = unreadable.content, None  # MessageStore.load raises
    field.clock.advance(RETRY_MS)
    assert field.bodies() == [2]
    unreadable.content = content
    field.clock.advance(UNREADABLE_WAIT_MS)
    assert field.bodies() == [2, 1]


# --- by hand


def test_a_single_delayed_message_is_cancelled() -> None:
    field = Field(durable=True)
    for number in (3, 1, 2):
        field.publish(number * 10, number, persistent=True)
    place = field.places()[1]
    message = place.message
    field.delays.drop(place)
    field.delays.drop(place)
    assert field.store.settled == [(message, "q")]
    field.clock.advance(100)
    assert field.bodies() == [1, 3]


def test_a_single_delayed_message_is_moved_with_a_log_record() -> None:
    field = Field(durable=True)
    field.publish(10, 1, persistent=True)
    field.publish(20, 2, persistent=True)
    [place, _] = field.places()
    old = place.message
    moved = field.delays.move(place, field.clock.date() + 30)
    assert moved is not None
    assert moved.message is field.store.enqueued[-1][0]
    assert (moved.date, moved.message.marks) == (field.clock.date() + 30, DELAYED)
    assert field.store.settled == [(old, "q")]
    assert field.delays.move(place, 1) is None, "it is gone from there"
    field.clock.advance(100)
    assert field.bodies() == [2, 1]


def test_a_delayed_message_without_a_log_record_is_moved() -> None:
    field = Field()
    field.publish(10)
    assert field.delays.move(field.places()[0], field.clock.date() + 30) is not None
    for passed, ready in ((29, 0), (1, 1)):
        field.clock.advance(passed)
        assert field.queue.ready == ready


def test_moving_a_delayed_message_fails_after_a_store_failure() -> None:
    field = Field(durable=True)
    field.publish(10, persistent=True)
    field.store.failure = "the disk is full"
    with pytest.raises(StoreFailed):
        field.delays.move(field.places()[0], 1)
    assert field.places()[0].date == field.clock.date() + 10


def test_the_soonest_are_found_without_sorting() -> None:
    field = Field()
    for number in range(1000):
        field.publish(1 + number * 7919 % 1000, number)
    field.delays.drop(field.places()[0])
    dates = [place.date - field.clock.date() for place in field.places()]
    assert dates == list(range(2, 1001))


def test_a_queue_that_expires_only_if_empty_stays_for_what_it_delays() -> None:
    field = Field(expires=100, expires_if_empty=True)
    field.publish(1000)
    field.clock.advance(999)
    assert (field.queue.deleted, count_delayed(field.queue)) == (False, 1)
    field.clock.advance(1)
    assert (field.queue.deleted, field.bodies()) == (False, [0])
    purge(field.queue)
    field.clock.advance(200)
    assert field.queue.deleted


@pytest.mark.parametrize("count", [2, 250])
@pytest.mark.parametrize("durable", [False, True])
def test_delayed_messages_of_an_expiring_queue_are_dead_lettered(count: int, durable: bool) -> None:
    field = Field(
        durable,
        expires=100,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_reasons="queue_expired",
    )
    dead = add_queue(field.vhost, "dead", durable=durable)
    for number in range(count):
        field.publish(100_000, number, durable)
    field.clock.advance(100)
    assert field.queue.deleted
    assert sorted(int(str(headers(entry.message)["n"])) for entry in dead.entries) == list(range(count))
    assert field.store.forgotten == [], "the log has each message once, in the other queue"


MILLION = 1_000_000


@pytest.mark.nightly
def test_a_million_scattered_dates_are_each_kept_to_the_millisecond() -> None:
    bench = VhostBench()
    queue = bench.queue()
    choice = random.Random(1)
    route = bench.vhost.publisher.route("", "q")
    began = bench.clock.date()
    dates: list[int] = []
    for number in range(MILLION):
        message = Message(route.address, b"", 0, False, 0)
        message.date = began + choice.randrange(1, 100_000)
        message.marks = message.marks | DELAYED
        dates.append(message.date)
        if number % 2:
            restore_message(queue, message, False)  # as after a restart
        else:
            bench.vhost.publisher.publish_carefully(route, message)
    assert (queue.ready, count_delayed(queue)) == (0, MILLION)
    dates.sort()
    soonest = soonest_first(delays_of(queue, bench.vhost).places())
    assert [next(soonest).date for _ in range(1000)] == dates[:1000]
    rings = done = 0
    while bench.clock.wakes:
        due = bench.clock.wakes[-1]
        bench.clock.wakes.clear()
        bench.clock.now = max(bench.clock.now, due)
        bench.clock.schedule.run()
        rings += 1
        while done < MILLION and dates[done] <= bench.clock.date():
            done += 1
        assert done - 10 * SLICE <= queue.ready <= done, "each comes in the millisecond in which it is due"
    assert (queue.ready, count_delayed(queue)) == (MILLION, 0)
    assert rings <= 100_000 + MILLION // SLICE, "one ring for each millisecond with something due, or a slice"
    arrived = [entry.message.date for entry in queue.entries]
    assert arrived == sorted(arrived)
    assert all(came >= date for came, date in zip(arrived, dates, strict=True)), "none is early"
    assert sum(came - date for came, date in zip(arrived, dates, strict=True)) == 0, "none is late"
