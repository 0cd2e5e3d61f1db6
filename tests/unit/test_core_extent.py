"""Where browsers begin, and where they end."""

from datetime import UTC, datetime

import pytest

from broker.core.arguments.consumer import LAST, NEXT, Extent
from broker.core.entries.entry import EntryFilter
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import attach, detach, get_one
from broker.core.queues.consumer import QueueConsumer
from tests.clock import HandClock
from tests.dispatch import Bench, Client
from tests.property.queue_model import Multiples
from tests.topology import content_of, new_vhost


class Viewer(Client):
    """A browser with an extent, which leaves when it is told that it has seen all."""

    def __init__(
        self,
        bench: Bench,
        extent: Extent,
        sieve: EntryFilter | None = None,
        prefetch: int = 0,
        prefetch_bytes: int = 0,
    ) -> None:
        super().__init__(bench.queue, bench.scheduler, prefetch, prefetch_bytes, acquires=False)
        detach(bench.queue, self.consumer, [])
        self.ended = 0
        self.consumer = QueueConsumer(self, bench.queue, acquires=False, entry_filter=sieve)
        self.consumer.extent = extent
        attach(bench.queue, self.consumer)

    def shown_all(self, consumer: QueueConsumer) -> None:
        self.ended += 1
        self.cancel()


def test_skipped_messages_may_still_have_to_come() -> None:
    bench = Bench()
    bench.publish(2)
    viewer = Viewer(bench, Extent(skip=3))
    bench.run()
    bench.publish(3)
    bench.run()
    assert viewer.numbers == [4, 5]


def test_what_is_skipped_is_counted_whatever_the_filter() -> None:
    bench = Bench()
    bench.publish(9)
    viewer = Viewer(bench, Extent(skip=3), Multiples(2))
    bench.run()
    assert viewer.numbers == [4, 6, 8]


def test_what_waits_for_room_is_not_skipped() -> None:
    bench = Bench()
    bench.publish(6, size=4)
    viewer = Viewer(bench, Extent(skip=2), prefetch_bytes=5)
    for _ in range(6):
        bench.run()
        viewer.ack()
    assert viewer.numbers == [3, 4, 5, 6]


def test_the_last_one_that_nobody_has() -> None:
    bench = Bench()
    bench.publish(5)
    taker = bench.client(5)
    bench.run()
    taker.nack(2, 3)
    taker.cancel()
    viewer = Viewer(bench, Extent(LAST))
    nothing = Viewer(bench, Extent(LAST), Multiples(2))
    bench.run()
    assert (viewer.numbers, nothing.numbers) == ([3], [])
    bench.publish()
    bench.run()
    assert (viewer.numbers, nothing.numbers) == ([3, 6], [6])


def test_the_last_one_where_everything_is_taken() -> None:
    bench = Bench()
    bench.publish(3)
    bench.client(3)
    bench.run()
    viewer = Viewer(bench, Extent(LAST))
    bench.publish()
    bench.run()
    assert viewer.numbers == [4]


@pytest.mark.parametrize(("beginning", "seen"), [(LAST, [2, 3, 4, 5]), (NEXT, [3, 4, 5])])
def test_the_end_of_a_priority_queue(beginning: str, seen: list[int]) -> None:
    bench = Bench(PriorityEntryList(3))
    bench.publish(priority=2)
    bench.publish(priority=1)
    viewer = Viewer(bench, Extent(beginning))
    bench.run()
    for priority in (2, 1, 0):
        bench.publish(priority=priority)
    bench.run()
    assert viewer.numbers == seen


@pytest.mark.parametrize("levels", [1, 3])
def test_a_snapshot_shows_what_was_there_and_ends_once(levels: int) -> None:
    bench = Bench(PriorityEntryList(levels))
    bench.publish(3)
    viewer = Viewer(bench, Extent(snapshot=True), prefetch=2)
    bench.run()
    assert (viewer.numbers, viewer.ended) == ([1, 2], 0)
    bench.publish(2)
    bench.publish(2, priority=2)
    viewer.ack()
    bench.run()
    assert (viewer.numbers, viewer.ended) == ([1, 2, 3], 1)
    assert (bench.queue.consumer_count, bench.queue.browsers) == (0, None)
    assert bench.queue.ready == 7


def test_the_snapshot_of_an_empty_queue_ends_at_once() -> None:
    bench = Bench()
    viewer = Viewer(bench, Extent(snapshot=True))
    bench.run()
    assert (viewer.numbers, viewer.ended) == ([], 1)


def test_a_snapshot_goes_on_behind_what_others_take() -> None:
    bench = Bench()
    bench.publish(40)
    viewer = Viewer(bench, Extent(snapshot=True), prefetch=1)
    bench.run()
    getter = bench.getter()
    taken = [get_one(bench.queue, getter) for _ in range(39)]
    for entry in taken:
        assert entry is not None
        bench.queue.settle(entry)
    viewer.ack()
    bench.run()
    assert (viewer.numbers, viewer.ended) == ([1, 40], 0)
    viewer.ack()
    bench.run()
    assert viewer.ended == 1


def test_the_time_of_messages() -> None:
    """A date of the broker's comes before a property, and what has neither is not where it begins."""
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    queue = vhost.declarations.declare_queue("q", False, None, False, {})
    bench = Bench()
    bench.queue = queue
    for number, (date, stamp) in enumerate([(0, None), (0, 5), (5000, 99), (0, 7), (0, 1), (0, None)], 1):
        (message,) = bench.messages()
        message.content = (
            content_of(timestamp=datetime.fromtimestamp(stamp, UTC)) if stamp is not None else content_of()
        )
        message.date = date
        message.size = number
        queue.enqueue(message)
    viewers = [Viewer(bench, Extent(since=since)) for since in (0, 5000, 5001, 7001)]
    bench.run()
    (message,) = bench.messages()
    message.size = 7
    queue.enqueue(message)
    bench.run()
    seen = [[int(entry.message.size) for entry in viewer.deliveries] for viewer in viewers]
    assert seen == [[2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7], [7]]


def test_a_time_beyond_all_dates() -> None:
    """Nanoseconds, say, where seconds belong."""
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {})
    bench = Bench()
    bench.queue = queue
    for stamp in (b"\x17" + bytes(7), b"\xff" * 8):
        (message,) = bench.messages()
        content = content_of(timestamp=datetime.fromtimestamp(7, UTC))
        message.content = content.replace((7).to_bytes(8, "big"), stamp)
        assert message.content != content
        queue.enqueue(message)
    viewers = [Viewer(bench, Extent(since=since)) for since in (7001, 2**63 - 1)]
    bench.run()
    assert [len(viewer.deliveries) for viewer in viewers] == [2, 2]
