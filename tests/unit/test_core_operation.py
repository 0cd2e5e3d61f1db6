"""Operations on messages of a queue: held without being delivered, then done all at once or not at all."""

import pytest

from broker.core.entries.entry import AVAILABLE, DEQUEUED, QueueEntry
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.message import Message, copy_of
from broker.core.queues.election import ENQUEUE
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import stop_queue
from tests.clock import HandClock
from tests.operating import SlowStore, Told
from tests.topology import add_queue, consume, content_of, new_vhost, publish, pull


def entries_of(queue: Queue) -> list[QueueEntry]:
    """What the queue holds, in order."""
    return list(queue.entries)


def move(operation: Told, entry: QueueEntry, to: str) -> None:
    """Have an operation move an entry."""
    operation.publish(
        operation.virtual_host.route("", to), copy_of(entry.message, entry.message.content or b"")
    )
    operation.remove(entry)


def test_what_is_marked_is_passed_by_and_what_is_aborted_is_back_in_place() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    for _ in range(4):
        publish(vhost, "", "q")
    before = entries_of(queue)
    operation = Told(vhost, queue)
    for entry in (before[0], before[2]):
        operation.remove(entry)
    assert (queue.ready, queue.unacked) == (2, 2)
    taker, consumer = consume(queue)
    assert pull(consumer) == 2
    assert taker.taken == [before[1], before[3]]
    operation.abort()
    assert (queue.ready, queue.unacked, queue.delivered) == (2, 2, 2)
    assert pull(consumer) == 2  # it was told of them
    assert taker.taken[2:] == [before[0], before[2]]
    assert [(entry.redelivered, entry.delivery_count) for entry in taker.taken] == [(False, 1)] * 4


def test_what_is_replaced_while_it_is_marked_is_not_back_in_place() -> None:
    vhost = new_vhost()
    queue = vhost.declare_queue("q", False, None, False, {"x-last-value-key": "k"})
    for key in ("a", "b", "c"):
        publish(vhost, "", "q", headers={"k": key})
    first, second, third = entries_of(queue)
    operation = Told(vhost, queue)
    operation.remove(first)
    operation.remove(second)
    publish(vhost, "", "q", headers={"k": "b"})
    operation.abort()
    assert (queue.ready, queue.unacked) == (3, 0)
    assert entries_of(queue)[:2] == [first, third]
    assert second.state == DEQUEUED
    assert queue.entries.latest is not None
    assert queue.entries.latest.replaced == 1
    assert operation.holder.inflight == 0


def test_nothing_is_seen_before_it_is_durable() -> None:
    store = SlowStore()
    vhost = new_vhost(store)
    queue, other = add_queue(vhost, "q", durable=True), add_queue(vhost, "other", durable=True)
    for _ in range(2):
        publish(vhost, "", "q", persistent=True)
    first, second = entries_of(queue)
    operation = Told(vhost, queue)
    move(operation, first, "other")
    operation.remove(second)
    operation.commit()
    assert store.last_words == [first.message, second.message]
    assert [names for _, names in store.enqueued] == [["q"], ["q"], ["other"]]
    assert (queue.ready, queue.unacked, other.ready, operation.end) == (0, 2, 0, "")
    store.waiting.pop().on_durable(1)
    assert (queue.ready, queue.unacked, other.ready, operation.end) == (0, 0, 1, "committed")
    assert (queue.acked, queue.counters.acked, sum(queue.counters.discarded)) == (0, 0, 0)


def test_when_the_log_fails_all_is_as_it_was() -> None:
    store = SlowStore()
    vhost = new_vhost(store)
    queue = add_queue(vhost, "q", durable=True)
    limited = vhost.declare_queue("r", True, None, False, {"x-max-length": 1, "x-overflow": "reject-publish"})
    publish(vhost, "", "q", persistent=True)
    (entry,) = entries_of(queue)
    operation = Told(vhost, queue)
    move(operation, entry, "r")
    operation.commit()
    store.waiting.pop().on_store_failed("test")
    assert operation.end == "test"
    assert entries_of(queue) == [entry]
    assert (entry.state, entry.redelivered) == (AVAILABLE, False)
    assert limited.rules is not None
    assert limited.rules.reserved == 0


def test_one_refusal_refuses_all_and_counts_what_the_others_take() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    full = vhost.declare_queue("r", False, None, False, {"x-max-length": 2, "x-overflow": "reject-publish"})
    for _ in range(3):
        publish(vhost, "", "q")
    operation = Told(vhost, queue)
    for entry in entries_of(queue):
        move(operation, entry, "r")
    with pytest.raises(PreconditionFailed, match="message 3 of 3: queue 'r' in vhost '/' is full"):
        operation.commit()
    operation.abort()
    assert (queue.ready, queue.unacked, full.ready) == (3, 0, 0)


def test_a_stopped_queue_takes_what_an_operator_moves() -> None:
    vhost = new_vhost()
    queue, stopped = add_queue(vhost, "q"), add_queue(vhost, "stopped")
    publish(vhost, "", "q")
    stop_queue(vhost, stopped, [ENQUEUE])
    operation = Told(vhost, queue)
    move(operation, entries_of(queue)[0], "stopped")
    operation.commit()
    assert (operation.end, stopped.ready) == ("committed", 1)


def test_time_stands_still_for_what_is_held_and_is_looked_at_when_it_returns() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    queue = vhost.declare_queue("q", False, None, False, {"x-message-ttl": 100})
    publish(vhost, "", "q")
    operation = Told(vhost, queue)
    operation.remove(entries_of(queue)[0])
    clock.advance(200)
    assert (queue.ready, queue.unacked) == (0, 1)
    operation.abort()
    clock.advance(1)
    assert (queue.ready, queue.unacked) == (0, 0)


def test_a_queue_that_is_deleted_meanwhile_ends_it() -> None:
    vhost = new_vhost()
    queue, other = add_queue(vhost, "q"), add_queue(vhost, "other")
    publish(vhost, "", "q")
    operation = Told(vhost, queue)
    move(operation, entries_of(queue)[0], "other")
    vhost.delete_queue("q", False, False)
    with pytest.raises(NotFound):
        operation.commit()
    operation.abort()
    assert (other.ready, queue.ready, queue.unacked) == (0, 0, 0)


def test_what_nobody_would_get_is_refused() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    publish(vhost, "", "q")
    operation = Told(vhost, queue)
    (entry,) = entries_of(queue)
    message = Message(entry.message.address, content_of(), 0, False, 0)
    operation.publish(vhost.route("amq.direct", "nowhere"), message)
    with pytest.raises(PreconditionFailed, match=r"'amq.direct' leads nowhere with routing key 'nowhere'"):
        operation.commit()
