"""How often a queue gives out a message: what counts, what is remembered, and when it gives up."""

import pytest

from broker.core.entries.entry import DEQUEUED
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.policies.policy import Policy
from broker.core.queues.queue import Queue, dead_letter_exhausted
from broker.core.queues.retry import QUORUM_LIMIT
from broker.core.queues.returns import deliver_again
from broker.core.vhosts.definitions import restore
from broker.core.vhosts.vhost import VirtualHost
from tests.dispatch import Bench, message
from tests.topology import new_vhost


def limited(limit: int, logged: bool = False) -> Bench:
    bench = Bench(logged=logged)
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


def test_without_a_limit_nothing_is_ever_given_up() -> None:
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
    bench = Bench(logged=True)
    bench.queue.enqueue(logged_message(1))
    client = bench.client()
    bench.run()
    client.nack()
    bench.run()
    assert bench.store.counted == []


def test_what_was_out_once_too_often_is_gone_after_recovery() -> None:
    bench = limited(2)
    for number, count in enumerate((0, 2, 3, 9), 1):
        restore(bench.queue, logged_message(number), True, count)
    dead_letter_exhausted(bench.queue)
    assert bench.numbers() == [1, 2]
    assert [settled.sequence for settled, _ in bench.store.settled] == []  # not a logged queue


def test_recovered_messages_go_on_counting() -> None:
    bench = limited(2)
    restore(bench.queue, message(1), True, 2)
    client = bench.client()
    bench.run()
    assert client.deliveries[0].delivery_count == 3
    client.nack()
    assert bench.numbers() == []


# --- declarations


def declare(vhost: VirtualHost, arguments: dict[str, object], **flags: bool) -> Queue:
    owner = object() if flags.get("exclusive") else None
    return vhost.declare_queue(
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
    vhost.policies.apply_now()
    assert queue.delivery_limit == 4
    vhost.policies.delete("p")
    vhost.policies.apply_now()
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
def test_quorum_queues_are_durable_and_for_everybody(flags: dict[str, bool], name: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        declare(new_vhost(), {"x-queue-type": "quorum"}, **flags)
    assert refusal.value.text == f"invalid property '{name}' for queue 'q' in vhost '/'"
