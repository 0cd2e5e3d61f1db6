"""Messages that volatile queues lose with the broker, and the counts of them."""

from typing import Any

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.queues.queue import Queue
from broker.core.queues.volatile import NOTE_MS
from broker.core.vhosts.changes import queue_change
from tests.support.core.timed_vhost import VhostBench, numbers
from tests.support.core.topology import RecordingStore, definitions_of


def lost(queue: Queue) -> tuple[int, bool]:
    assert queue.volatile is not None
    return queue.volatile.lost, queue.volatile.estimated


def after_restart(changes: list[dict[str, Any]]) -> Queue:
    """The queue as the log brings it back."""
    yard = VhostBench()
    for change in changes:
        yard.broker.apply(change)
    yard.broker.count_lost()
    return yard.vhost.queues["q"]


def volatile_yard() -> tuple[VhostBench, RecordingStore, Queue]:
    store = RecordingStore()
    yard = VhostBench(store)
    return yard, store, yard.queue(durable=True, volatile=True)


def test_the_log_knows_the_queue_and_none_of_its_messages() -> None:
    yard, store, queue = volatile_yard()
    logged = yard.queue("logged", durable=True)
    for name in ("q", "logged"):
        yard.vhost.bind_queue(name, "amq.fanout", "", {})
    yard.publish(persistent=True, count=2)
    yard.publish(persistent=True, exchange="amq.fanout")
    client = yard.client(queue)
    yard.run()
    client.ack()
    assert [names for _, names in store.enqueued] == [["logged"]]
    assert (store.settled, client.numbers, numbers(logged)) == ([], [1, 2, 3], [3])
    yard.vhost.delete_queue("q", False, False)
    assert store.kinds()[-1] == "queue.delete"


def test_a_stop_counts_and_a_crash_estimates() -> None:
    yard, store, queue = volatile_yard()
    yard.publish(count=10)
    yard.client(queue, prefetch=3)
    yard.run()
    assert lost(after_restart(store.changes)) == (0, True)
    yard.clock.advance(NOTE_MS)
    assert lost(after_restart(store.changes)) == (10, True)
    stop = [*store.changes, queue_change("/", queue, True)]
    assert lost(after_restart(stop)) == (10, False), "what clients had is lost too"


def test_earlier_losses_are_counted_on() -> None:
    yard, store, queue = volatile_yard()
    yard.publish(count=10)
    again = after_restart([*store.changes, queue_change("/", queue, True)])
    assert lost(after_restart([queue_change("/", again, True)])) == (10, False)
    assert lost(after_restart([queue_change("/", again)])) == (10, True), "how many there were nobody knows"


def test_the_log_is_told_only_of_much_more_or_much_less() -> None:
    yard, store, _ = volatile_yard()
    yard.publish(count=100)
    yard.clock.advance(NOTE_MS)
    told = len(store.changes)
    yard.publish(count=10)
    yard.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == told
    yard.publish(count=1)
    yard.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == told + 1
    yard.vhost.delete_queue("q", False, False)
    yard.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == told + 2


def test_a_description_repeats_what_the_log_was_told() -> None:
    """The description may be missing in checkpoints for a long time."""
    yard, store, _ = volatile_yard()
    yard.publish(count=10)
    assert lost(after_restart(definitions_of(yard.broker))) == (0, True)
    yard.clock.advance(NOTE_MS)
    assert lost(after_restart(store.changes)) == (10, True)
    yard.publish(count=1)
    assert lost(after_restart(definitions_of(yard.broker))) == (10, True)


def test_a_quorum_queue_is_not_volatile() -> None:
    yard = VhostBench()
    with pytest.raises(PreconditionFailed, match=r"invalid arg 'x-volatile'.*does not go with x-queue-type"):
        yard.queue(durable=True, volatile=True, queue_type="quorum")
