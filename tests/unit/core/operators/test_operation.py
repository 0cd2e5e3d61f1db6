"""Operations on messages, also on dead letters that wait: all at once or not at all."""

import pytest

from broker.core.entries.entry import AVAILABLE, DEQUEUED, QueueEntry
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.message import Message, copy_of
from broker.core.publishing.dead_letters import cause_of_wait
from broker.core.publishing.publisher import REFUSED
from broker.core.queues.dead_letter_backlog import STALE_MIN, DeadLetterBacklog, existing_backlog
from broker.core.queues.queue import Queue
from broker.core.queues.stops import ENQUEUE
from broker.core.vhosts.alteration import stop_queue
from tests.support.core.hand_clock import HandClock
from tests.support.core.operations import RecordedOperation, SlowStore
from tests.support.core.purge import purge
from tests.support.core.timed_vhost import VhostBench, numbers
from tests.support.core.topology import add_queue, consume, content_of, new_vhost, publish, pull


def entries_of(queue: Queue) -> list[QueueEntry]:
    """Return the queue's entries, in order."""
    return list(queue.entries)


def move(operation: RecordedOperation, entry: QueueEntry, to: str) -> None:
    """Have an operation move an entry."""
    operation.publish(operation.publisher.route("", to), copy_of(entry.message, entry.message.content or b""))
    operation.remove(entry)


def test_marked_entries_are_skipped_and_aborted_ones_return_to_their_places() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    for _ in range(4):
        publish(vhost, "", "q")
    before = entries_of(queue)
    operation = RecordedOperation(vhost, queue)
    for entry in (before[0], before[2]):
        operation.remove(entry)
    assert (queue.ready, queue.unacked) == (2, 2)
    taker, consumer = consume(queue)
    assert pull(consumer) == 2
    assert taker.taken == [before[1], before[3]]
    operation.abort()
    assert (queue.ready, queue.unacked, queue.delivered) == (2, 2, 2)
    assert pull(consumer) == 2  # the consumer was notified of both
    assert taker.taken[2:] == [before[0], before[2]]
    assert [(entry.redelivered, entry.delivery_count) for entry in taker.taken] == [(False, 1)] * 4


def test_a_marked_entry_that_is_replaced_does_not_return() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-last-value-key": "k"})
    for key in ("a", "b", "c"):
        publish(vhost, "", "q", headers={"k": key})
    first, second, third = entries_of(queue)
    operation = RecordedOperation(vhost, queue)
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


def test_an_operation_takes_effect_when_it_is_durable() -> None:
    store = SlowStore()
    vhost = new_vhost(store)
    queue, other = add_queue(vhost, "q", durable=True), add_queue(vhost, "other", durable=True)
    for _ in range(2):
        publish(vhost, "", "q", persistent=True)
    first, second = entries_of(queue)
    operation = RecordedOperation(vhost, queue)
    move(operation, first, "other")
    operation.remove(second)
    operation.commit()
    assert store.last_words == [first.message, second.message]
    assert [names for _, names in store.enqueued] == [["q"], ["q"], ["other"]]
    assert (queue.ready, queue.unacked, other.ready, operation.end) == (0, 2, 0, "")
    store.waiting.pop().on_durable(1)
    assert (queue.ready, queue.unacked, other.ready, operation.end) == (0, 0, 1, "committed")
    assert (queue.acked, queue.counters.acked, sum(queue.counters.discarded)) == (0, 0, 0)


def test_a_store_failure_undoes_the_operation() -> None:
    store = SlowStore()
    vhost = new_vhost(store)
    queue = add_queue(vhost, "q", durable=True)
    limited = vhost.declarations.declare_queue(
        "r", True, None, False, {"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    publish(vhost, "", "q", persistent=True)
    (entry,) = entries_of(queue)
    operation = RecordedOperation(vhost, queue)
    move(operation, entry, "r")
    operation.commit()
    store.waiting.pop().on_store_failed("test")
    assert operation.end == "test"
    assert entries_of(queue) == [entry]
    assert (entry.state, entry.redelivered) == (AVAILABLE, False)
    assert limited.limits is not None
    assert limited.limits.reserved == 0


def test_a_full_target_queue_refuses_the_whole_operation() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    full = vhost.declarations.declare_queue(
        "r", False, None, False, {"x-max-length": 2, "x-overflow": "reject-publish"}
    )
    for _ in range(3):
        publish(vhost, "", "q")
    operation = RecordedOperation(vhost, queue)
    for entry in entries_of(queue):
        move(operation, entry, "r")
    with pytest.raises(PreconditionFailed, match="message 3 of 3: queue 'r' in vhost '/' is full"):
        operation.commit()
    operation.abort()
    assert (queue.ready, queue.unacked, full.ready) == (3, 0, 0)


def test_a_stopped_queue_accepts_moved_messages() -> None:
    vhost = new_vhost()
    queue, stopped = add_queue(vhost, "q"), add_queue(vhost, "stopped")
    publish(vhost, "", "q")
    stop_queue(vhost.topology, stopped, [ENQUEUE])
    operation = RecordedOperation(vhost, queue)
    move(operation, entries_of(queue)[0], "stopped")
    operation.commit()
    assert (operation.end, stopped.ready) == ("committed", 1)


def test_entries_of_an_operation_expire_only_after_their_return() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-message-ttl": 100})
    publish(vhost, "", "q")
    operation = RecordedOperation(vhost, queue)
    operation.remove(entries_of(queue)[0])
    clock.advance(200)
    assert (queue.ready, queue.unacked) == (0, 1)
    operation.abort()
    clock.advance(1)
    assert (queue.ready, queue.unacked) == (0, 0)


def test_deleting_the_queue_ends_the_operation() -> None:
    vhost = new_vhost()
    queue, other = add_queue(vhost, "q"), add_queue(vhost, "other")
    publish(vhost, "", "q")
    operation = RecordedOperation(vhost, queue)
    move(operation, entries_of(queue)[0], "other")
    vhost.declarations.delete_queue("q", False, False)
    with pytest.raises(NotFound):
        operation.commit()
    operation.abort()
    assert (other.ready, queue.ready, queue.unacked) == (0, 0, 0)


def test_messages_without_a_destination_are_refused() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    publish(vhost, "", "q")
    operation = RecordedOperation(vhost, queue)
    (entry,) = entries_of(queue)
    message = Message(entry.message.address, content_of(), 0, False, 0)
    operation.publish(vhost.publisher.route("amq.direct", "nowhere"), message)
    with pytest.raises(PreconditionFailed, match=r"'amq.direct' leads nowhere with routing key 'nowhere'"):
        operation.commit()


def source(
    bench: VhostBench, count: int, durable: bool = False, **arguments: object
) -> tuple[Queue, DeadLetterBacklog]:
    """A queue of which so many messages wait, for room in the queue `dead` which does not exist yet."""
    settings: dict[str, object] = {
        "dead_letter_exchange": "",
        "dead_letter_routing_key": "dead",
        "dead_letter_strategy": "at-least-once",
        "overflow": "reject-publish",
        "message_ttl": 10,
    }
    queue = bench.queue("q", durable, **settings | arguments)
    bench.publish(count=count, persistent=durable)
    bench.clock.advance(10)
    assert queue.dead == count
    backlog = existing_backlog(queue)
    assert backlog is not None
    return queue, backlog


def waiting(backlog: DeadLetterBacklog) -> list[int]:
    """The numbers of the messages that wait."""
    return [int(death.message.content or b"") for death in backlog.deaths()]


def test_waiting_dead_letters_are_found_in_order_from_any_position() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 5)
    deaths = backlog.after(0, 10)
    assert [int(death.message.content or b"") for death in deaths] == [1, 2, 3, 4, 5]
    assert backlog.after(deaths[1].number, 2) == deaths[2:4]
    assert backlog.after(deaths[4].number, 2) == []
    for death in deaths:
        assert backlog.find(death.message.sequence, death.arrival) is death
    assert backlog.find(0, 99) is None
    assert cause_of_wait(deaths[0]) == cause_of_wait(deaths[3]) == "exchange '' routes 'dead' to no queue"
    assert [death.deliveries for death in deaths] == [0] * 5
    purge(queue)
    assert backlog.after(0, 10) == []
    assert backlog.find(0, deaths[0].arrival) is None


def test_numbers_of_removed_dead_letters_are_swept() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 3 * STALE_MIN)
    operation = RecordedOperation(bench.vhost, queue)
    for death in backlog.after(0, 1000)[1:]:
        operation.remove_dead(death)
    operation.commit()
    assert waiting(backlog) == [1]
    assert len(backlog._numbers) <= STALE_MIN + 2


def test_a_seized_dead_letter_is_not_tried_and_returns_after_an_abort() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 4)
    operation = RecordedOperation(bench.vhost, queue)
    for death in backlog.after(0, 2):
        operation.remove_dead(death)
    dead = bench.queue("dead")
    bench.clock.advance(5000)
    assert (queue.dead, queue.messages, numbers(dead)) == (4, 4, []), "others wait behind it"
    operation.abort()
    bench.clock.advance(0)
    assert (queue.dead, numbers(dead), operation.end) == (0, [1, 2, 3, 4], "")


def test_a_removed_message_is_not_dead_lettered() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 4)
    operation = RecordedOperation(bench.vhost, queue)
    for death in backlog.after(0, 4)[::2]:
        operation.remove_dead(death)
    operation.commit()
    assert operation.end == "committed"
    assert (queue.dead, queue.dead_bytes, waiting(backlog)) == (2, 2, [2, 4])
    dead = bench.queue("dead")
    bench.clock.advance(20)
    assert (queue.dead, numbers(dead), list(bench.vhost.dead_letters.backlogs)) == (0, [2, 4], [])


def test_dead_letters_are_removed_when_the_operation_is_durable() -> None:
    store = SlowStore()
    bench = VhostBench(store)
    queue, backlog = source(bench, 3, durable=True)
    other = bench.queue("other", durable=True)
    operation = RecordedOperation(bench.vhost, queue)
    first = backlog.after(0, 1)[0]
    operation.publish(
        bench.vhost.publisher.route("", "other"), copy_of(first.message, first.message.content or b"")
    )
    operation.remove_dead(first)
    operation.commit()
    assert store.last_words == [first.message]
    assert (queue.dead, other.ready, operation.end) == (3, 0, "")
    store.waiting.pop().on_durable(1)
    assert (queue.dead, numbers(other), operation.end) == (2, [1], "committed")
    assert waiting(backlog) == [2, 3]


def test_when_the_log_fails_all_waits_as_before() -> None:
    store = SlowStore()
    bench = VhostBench(store)
    queue, backlog = source(bench, 3, durable=True)
    operation = RecordedOperation(bench.vhost, queue)
    for death in backlog.after(0, 3):
        operation.remove_dead(death)
    operation.commit()
    store.waiting.pop().on_store_failed("full")
    assert operation.end == "full"
    assert waiting(backlog) == [1, 2, 3]
    assert queue.limits is not None
    assert (queue.limits.reserved, queue.limits.reserved_bytes) == (0, 0)
    dead = bench.queue("dead")
    bench.clock.advance(20)
    assert numbers(dead) == [1, 2, 3]


def test_a_purge_leaves_seized_dead_letters() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 4)
    operation = RecordedOperation(bench.vhost, queue)
    operation.remove_dead(backlog.after(0, 2)[1])
    assert purge(queue) == 3
    assert waiting(backlog) == [2]
    operation.abort()
    assert purge(queue) == 1
    assert (queue.dead, backlog.is_empty()) == (0, True)


def test_deleting_the_queue_drops_seized_dead_letters() -> None:
    bench = VhostBench(store := SlowStore())
    queue, backlog = source(bench, 2, durable=True)
    committed, aborted = RecordedOperation(bench.vhost, queue), RecordedOperation(bench.vhost, queue)
    committed.remove_dead(backlog.after(0, 1)[0])
    aborted.remove_dead(backlog.after(0, 2)[1])
    committed.commit()
    bench.vhost.declarations.delete_queue("q", False, False)
    aborted.abort()
    store.waiting.pop().on_durable(1)
    bench.clock.advance(0)
    assert (committed.end, queue.dead, backlog.deaths()) == ("committed", 0, [])


def test_seized_dead_letters_free_room_like_marked_entries() -> None:
    bench = VhostBench()
    queue, backlog = source(bench, 2, max_length=2)
    assert bench.publish() == REFUSED
    operation = RecordedOperation(bench.vhost, queue)
    first = backlog.after(0, 1)[0]
    operation.publish(bench.vhost.publisher.route("", "q"), copy_of(first.message, b"7"))
    operation.remove_dead(first)
    operation.commit()
    assert (operation.end, numbers(queue), waiting(backlog)) == ("committed", [7], [2])
    assert bench.publish() == REFUSED


def test_removing_the_first_dead_letter_retries_the_next() -> None:
    """A waiting message may be smaller, and have room where the first message had none."""
    bench = VhostBench()
    dead = bench.queue("dead", max_length_bytes=5, overflow="reject-publish")
    bench.publish("dead", size=3)
    queue = bench.queue(
        "q",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        message_ttl=10,
    )
    bench.publish(size=4)
    bench.publish(size=2)
    bench.clock.advance(10)
    assert (queue.dead, dead.ready) == (2, 1)
    backlog = existing_backlog(queue)
    assert backlog is not None
    operation = RecordedOperation(bench.vhost, queue)
    operation.remove_dead(backlog.after(0, 1)[0])
    operation.commit()
    bench.clock.advance(0)
    assert (queue.dead, numbers(dead), dead.waiters) == (0, [1, 3], {})
