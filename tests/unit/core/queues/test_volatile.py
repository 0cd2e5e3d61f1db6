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
    bench = VhostBench()
    for change in changes:
        bench.broker.apply(change)
    bench.broker.count_lost()
    return bench.vhost.topology.queues["q"]


def volatile_bench() -> tuple[VhostBench, RecordingStore, Queue]:
    store = RecordingStore()
    bench = VhostBench(store)
    return bench, store, bench.queue(durable=True, volatile=True)


def test_a_volatile_queue_is_logged_and_its_messages_are_not() -> None:
    bench, store, queue = volatile_bench()
    logged = bench.queue("logged", durable=True)
    for name in ("q", "logged"):
        bench.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    bench.publish(persistent=True, count=2)
    bench.publish(persistent=True, exchange="amq.fanout")
    client = bench.client(queue)
    bench.run()
    client.ack()
    assert [names for _, names in store.enqueued] == [["logged"]]
    assert (store.settled, client.numbers, numbers(logged)) == ([], [1, 2, 3], [3])
    bench.vhost.declarations.delete_queue("q", False, False)
    assert store.kinds()[-1] == "queue.delete"


def test_a_stop_counts_and_a_crash_estimates() -> None:
    bench, store, queue = volatile_bench()
    bench.publish(count=10)
    bench.client(queue, prefetch=3)
    bench.run()
    assert lost(after_restart(store.changes)) == (0, True)
    bench.clock.advance(NOTE_MS)
    assert lost(after_restart(store.changes)) == (10, True)
    stop = [*store.changes, queue_change("/", queue, True)]
    assert lost(after_restart(stop)) == (10, False), "what clients had is lost too"


def test_earlier_losses_are_counted_on() -> None:
    bench, store, queue = volatile_bench()
    bench.publish(count=10)
    again = after_restart([*store.changes, queue_change("/", queue, True)])
    assert lost(after_restart([queue_change("/", again, True)])) == (10, False)
    assert lost(after_restart([queue_change("/", again)])) == (10, True), "how many there were nobody knows"


def test_the_log_is_told_only_of_much_more_or_much_less() -> None:
    bench, store, _ = volatile_bench()
    bench.publish(count=100)
    bench.clock.advance(NOTE_MS)
    change_count = len(store.changes)
    bench.publish(count=10)
    bench.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == change_count
    bench.publish(count=1)
    bench.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == change_count + 1
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(10 * NOTE_MS)
    assert len(store.changes) == change_count + 2


def test_a_description_repeats_what_the_log_was_told() -> None:
    """The description may be missing in checkpoints for a long time."""
    bench, store, _ = volatile_bench()
    bench.publish(count=10)
    assert lost(after_restart(definitions_of(bench.broker))) == (0, True)
    bench.clock.advance(NOTE_MS)
    assert lost(after_restart(store.changes)) == (10, True)
    bench.publish(count=1)
    assert lost(after_restart(definitions_of(bench.broker))) == (10, True)


def test_a_quorum_queue_is_not_volatile() -> None:
    bench = VhostBench()
    with pytest.raises(PreconditionFailed, match=r"invalid arg 'x-volatile'.*does not go with x-queue-type"):
        bench.queue(durable=True, volatile=True, queue_type="quorum")
