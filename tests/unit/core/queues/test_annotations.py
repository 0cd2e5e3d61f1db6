"""Annotations that consumers add to messages: an entry has them until it leaves the queue."""

from collections.abc import Callable

import pytest

from broker.core.arguments.queue import NACK, RELEASED
from broker.core.entries.entry import QueueEntry
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import drop, queue_of
from broker.core.queues.returns import Addition, annotate, requeue_runs
from broker.core.queues.state import owns
from broker.core.vhosts.definitions import restore_message
from tests.support.core.mass_returns import run_schedule
from tests.support.core.queue_bench import Client, QueueBench
from tests.support.core.timed_vhost import delivered_bench


class Words(Addition):
    """These bytes, and the consumers that got them."""

    def __init__(self, words: bytes, cost: int = 1) -> None:
        super().__init__(cost)
        self.words = words
        self.slices: list[int] = []

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Add them (Addition)."""
        queue = queue_of(consumer)
        assert all(owns(consumer, entry, queue) for entry in entries)
        self.slices.append(len(entries))
        for entry in entries:
            annotate(queue, entry, self.words)


def annotated(bench: QueueBench) -> list[bytes]:
    """Return the annotations of the queue's entries, in order."""
    return [bench.queue.entries.annotations_of(entry) for entry in bench.queue.entries]


def drop_all(client: Client) -> None:
    """An operator purges, or a limit is reached."""
    for entry in list(client.queue.entries):
        drop(client.queue, entry)


@pytest.mark.parametrize("leave", [Client.ack, Client.reject, drop_all])
@pytest.mark.parametrize("priorities", [False, True])
def test_annotations_leave_with_the_entry(leave: Callable[[Client], None], priorities: bool) -> None:
    bench = QueueBench(PriorityEntryList(3) if priorities else None)
    client = bench.client()
    bench.publish(3)
    bench.run()
    for entry in bench.queue.entries:
        annotate(bench.queue, entry, b"x")
    leave(client)
    assert bench.queue.entries.annotations == {}


@pytest.mark.parametrize("counts", [False, True])
def test_added_annotations_are_logged_with_each_later_count(counts: bool) -> None:
    bench = QueueBench(logged=True)
    bench.queue.counts = counts
    client = bench.client()
    bench.publish()
    [entry] = bench.queue.entries
    entry.message.sequence = 1
    bench.run()
    annotate(bench.queue, entry, b"one")
    annotate(bench.queue, entry, b"two")
    client.nack(outcome=RELEASED)
    bench.run()
    noted = list(zip([count for _, _, count in bench.store.counted], bench.store.added, strict=True))
    if counts:
        assert noted == [(1, b""), (1, b"one"), (1, b"two"), (0, b"two"), (1, b"two")]
    else:
        assert noted == [(0, b"one"), (0, b"two")]


def test_annotations_are_added_before_the_next_delivery() -> None:
    bench = QueueBench()
    first, second = bench.client(prefetch=1), bench.client(prefetch=1)
    bench.publish(2)
    bench.run()
    held = first.held
    first.held = []
    requeue_runs([(first.consumer, held)], NACK, None, None, Words(b"why"))
    bench.run()
    assert annotated(bench) == [b"why", b""]
    assert second.numbers == [2]


@pytest.mark.parametrize(("cost", "known", "most"), [(0, b"", 5000), (49, b"", 100), (0, b"k" * 800, 100)])
def test_very_many_are_annotated_in_slices(cost: int, known: bytes, most: int) -> None:
    """Earlier annotations of each entry must be read first."""
    bench, queue, client = delivered_bench(12_000)
    for entry in client.held if known else ():
        annotate(queue, entry, known)
    words = Words(b"why", cost)
    entries, client.held = client.held, []
    requeue_runs([(client.consumer, entries)], NACK, client.session, queue.host, words)
    while queue.unacked > 0:
        run_schedule(bench)
    assert max(words.slices) <= most
    assert sum(words.slices) == 12_000
    assert {queue.entries.annotations_of(entry) for entry in queue.entries} == {b"why"}


def test_annotations_are_recovered_after_a_restart() -> None:
    bench = QueueBench(logged=True)
    [new] = bench.messages(1)
    restore_message(bench.queue, new, True, 2, b"why")
    assert annotated(bench) == [b"why"]
