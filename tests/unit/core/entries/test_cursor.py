"""Cursors and browsers: where they begin and end, and entries behind them. [Broker-J BrowserTest]"""

from datetime import UTC, datetime

import pytest

from broker.core.arguments.consumer import LAST, NEXT, BrowseRange
from broker.core.entries.cursor import LEAST, SHARE, Browsers, Cursor
from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, EntryFilter, QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import attach, detach, get_one
from broker.core.queues.consumer import NON_ACQUIRING, QueueConsumer
from broker.core.queues.queue import Queue
from tests.property.queue_model import Multiples
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, QueueBench, message
from tests.support.core.topology import content_of, new_vhost


def take(context: Cursor) -> QueueEntry | None:
    """Take the next entry, as an acquiring consumer does."""
    entry = context.get_next_available_entry()
    if entry is not None:
        context.move_past(entry)
        entry.state = ACQUIRED
    return entry


def give_back(context: Cursor, *entries: QueueEntry) -> None:
    for entry in entries:
        entry.state = AVAILABLE
        context.offer(entry, 100)


def arrive(context: Cursor, entries: PriorityEntryList, priority: int) -> QueueEntry:
    """Append and offer an entry, as a publisher does."""
    entry = entries.append(message(0, priority=priority))
    context.offer(entry, 100)
    return entry


def leave(context: Cursor, entries: PriorityEntryList, entry: QueueEntry) -> None:
    """Unlink an entry, as expiry does."""
    entry.state = DEQUEUED
    context.forget(entry, 100)
    entries.unlink(entry)


def test_finding_the_next_entry_does_not_move_the_cursor() -> None:
    entries = FifoEntryList()
    first = entries.append(message(1))
    context = Cursor(entries)
    assert context.get_next_available_entry() is first
    assert context.get_next_available_entry() is first
    assert context.last is entries.head


def test_returned_entries_come_in_their_order_before_anything_later() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(6)]
    context = Cursor(entries)
    for entry in made[:4]:
        assert take(context) is entry
    give_back(context, made[2], made[0])
    assert [take(context) for _ in range(5)] == [made[0], made[2], made[4], made[5], None]


def test_an_entry_returned_before_the_cursor_reaches_it_is_not_offered_twice() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(3)]
    context = Cursor(entries)
    made[1].state = ACQUIRED
    give_back(context, made[1])
    assert context.behind == []
    assert [take(context) for _ in range(4)] == [*made, None]


def test_a_late_arrival_of_higher_priority_is_next() -> None:
    entries = PriorityEntryList(2)
    low = [entries.append(message(n, priority=0)) for n in range(3)]
    context = Cursor(entries)
    assert take(context) is low[0]
    high = entries.append(message(9, priority=1))
    context.offer(high, 4)
    assert [take(context) for _ in range(4)] == [high, low[1], low[2], None]


def test_late_arrivals_come_by_priority_and_within_one_in_their_order() -> None:
    entries = PriorityEntryList(256)
    context = Cursor(entries)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    assert take(context) is low[0]
    late = [arrive(context, entries, priority) for priority in (9, 70, 9, 255, 70, 9, 1)]
    assert context.behind == [], "late arrivals need no heap"
    wanted = [late[3], late[1], late[4], late[0], late[2], late[5], late[6], low[1], None]
    assert [take(context) for _ in wanted] == wanted


def test_a_returned_entry_is_delivered_before_later_arrivals_of_its_priority() -> None:
    entries = PriorityEntryList(3)
    context = Cursor(entries)
    entries.append(message(0, priority=0))
    take(context)
    late = [arrive(context, entries, 1) for _ in range(3)]
    assert [take(context), take(context)] == late[:2]
    give_back(context, late[1], late[0])
    assert [take(context) for _ in range(4)] == [*late, None]


def test_late_arrivals_that_leave_are_not_delivered() -> None:
    entries = PriorityEntryList(3)
    context = Cursor(entries)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    take(context)
    late = [arrive(context, entries, priority) for priority in (2, 1, 1, 2, 1)]
    for entry in (late[0], late[1], late[3]):
        leave(context, entries, entry)
    assert [take(context) for _ in range(4)] == [late[2], late[4], low[1], None]


def test_late_arrivals_end_where_the_cursor_stands() -> None:
    entries = PriorityEntryList(3)
    context = Cursor(entries)
    low = entries.append(message(0, priority=0))
    take(context)
    high = arrive(context, entries, 1)
    leave(context, entries, low)
    assert context.last is high, "the cursor has stepped back to an entry that nobody has had"
    following = [arrive(context, entries, 1) for _ in range(3)]
    assert [take(context) for _ in range(3)] == [high, *following[:2]]
    give_back(context, following[0])
    assert [take(context) for _ in range(3)] == [following[0], following[2], None]


def test_the_cursor_of_a_browser_keeps_late_arrivals_in_its_heap() -> None:
    entries = PriorityEntryList(2)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    context = Cursor(entries)
    take(context)
    context.browsers = Browsers()
    high = [arrive(context, entries, 1) for _ in range(2)]
    assert context.behind == high
    context.browsers = None
    assert [take(context) for _ in range(4)] == [*high, low[1], None]


def test_many_returned_at_once_are_sorted() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(40)]
    context = Cursor(entries)
    for _ in range(30):
        take(context)
    back = made[29::-3]
    for entry in back:
        entry.state = AVAILABLE
    context.offer_many([*back, made[35]], 40)
    assert len(context.behind) == len(back), "what is ahead of the cursor is found by walking"
    assert [take(context) for _ in range(len(back) + 1)] == [*reversed(back), made[30]]


def test_many_returned_in_order_come_before_what_is_behind_already() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(30)]
    context = Cursor(entries)
    for _ in range(30):
        take(context)
    for entry in made:
        entry.state = AVAILABLE
    context.offer_many(made[20:], 30)
    context.offer_many(made[:20], 30)
    assert [take(context) for _ in range(31)] == [*made, None]


def test_a_scan_stops_at_its_budget_and_resumes_at_its_position() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(25)]
    for entry in made[:24]:
        entry.state = ACQUIRED
    context = Cursor(entries)
    context.scan_budget = 10
    assert context.get_next_available_entry() is None
    assert context.more
    assert context.last is made[9]
    assert context.get_next_available_entry() is None
    assert context.more
    assert context.get_next_available_entry() is made[24]
    assert not context.more


def test_a_scan_that_ends_with_its_budget_has_no_more() -> None:
    entries = FifoEntryList()
    for n in range(10):
        entries.append(message(n)).state = ACQUIRED
    context = Cursor(entries)
    context.scan_budget = 10
    assert context.get_next_available_entry() is None
    assert not context.more


def test_the_cursor_steps_back_from_an_entry_that_leaves() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(4)]
    context = Cursor(entries)
    for _ in range(3):
        take(context)
    for entry, left, stands_on in ((made[1], 3, made[2]), (made[2], 2, made[0]), (made[0], 1, entries.head)):
        entry.state = DEQUEUED
        context.forget(entry, left)
        entries.unlink(entry)
        assert context.last is stands_on
    assert take(context) is made[3]


def test_the_cursor_of_an_emptied_queue_starts_anew() -> None:
    entries = PriorityEntryList(3)
    low = entries.append(message(1, priority=0))
    context = Cursor(entries)
    take(context)
    give_back(context, low)
    low.state = DEQUEUED
    context.forget(low, 0)
    entries.unlink(low)
    assert context.last is entries.head
    assert context.behind == [], "nothing keeps what has left"


def test_entries_that_have_left_are_eventually_forgotten() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(1000)]
    context = Cursor(entries)
    for _ in made:
        take(context)
    for entry in made:
        entry.state = AVAILABLE
    context.offer_many(made, 1000)
    for left, entry in enumerate(made[:0:-1]):
        entry.state = DEQUEUED
        context.forget(entry, 999 - left)
        entries.unlink(entry)
        assert len(context.behind) <= max(64, 2 * (999 - left))
    assert take(context) is made[0]


def test_a_browser_takes_nothing() -> None:
    bench = QueueBench()
    bench.publish(3)
    browser = bench.client(acquires=False)
    bench.run()
    assert browser.numbers == [1, 2, 3]
    assert browser.flags == [False] * 3
    assert browser.consumer.state == NON_ACQUIRING
    assert [entry.delivery_count for entry in browser.deliveries] == [0, 0, 0]
    assert (bench.queue.ready, bench.queue.delivered) == (3, 0)


def test_a_browser_gets_later_messages() -> None:
    bench = QueueBench()
    browser = bench.client(acquires=False)
    bench.run()
    for _ in range(3):
        bench.publish()
        bench.run()
    assert browser.numbers == [1, 2, 3]


def test_a_browser_does_not_keep_consumers_from_their_messages() -> None:
    bench = QueueBench()
    browser = bench.client(acquires=False, priority=100)
    client = bench.client()
    bench.publish(3)
    bench.run()
    assert client.numbers == [1, 2, 3]
    assert browser.numbers == [1, 2, 3]


def test_two_browsers_go_their_own_ways() -> None:
    bench = QueueBench()
    bench.publish(4)
    slow = bench.client(1, acquires=False)
    bench.run()
    fast = bench.client(acquires=False)
    bench.run()
    assert slow.numbers == [1]
    assert fast.numbers == [1, 2, 3, 4]
    for _ in range(4):
        slow.ack()
        bench.run()
    assert slow.numbers == [1, 2, 3, 4]


def test_a_browser_is_not_shown_what_is_with_a_client_nor_again_what_it_has_seen() -> None:
    bench = QueueBench()
    client = bench.client(1)
    bench.publish(3)
    bench.run()
    browser = bench.client(acquires=False)
    bench.run()
    assert browser.numbers == [2, 3]
    client.cancel()
    client.nack()
    bench.run()
    assert browser.numbers == [2, 3]


def test_a_browser_of_a_priority_queue_sees_nothing_twice() -> None:
    """[Broker-J resets a browser's pointer with every insert before it]"""
    bench = QueueBench(PriorityEntryList(10))
    browser = bench.client(acquires=False)
    bench.publish(3, priority=1)
    bench.run()
    bench.publish(priority=9)
    bench.run()
    assert browser.numbers == [1, 2, 3, 4]
    bench.publish(2, priority=9)
    bench.publish(priority=0)
    bench.run()
    assert browser.numbers == [1, 2, 3, 4, 5, 6, 7]


def test_a_browser_resumes_after_an_entry_that_left_the_queue() -> None:
    bench = QueueBench()
    bench.publish(5)
    browser = bench.client(3, acquires=False)
    bench.run()
    getter = bench.getter()
    taken = [get_one(bench.queue, getter) for _ in range(4)]
    for entry in reversed(taken):
        assert entry is not None
        bench.queue.settle(entry)
    browser.ack()
    bench.run()
    assert browser.numbers == [1, 2, 3, 5]


def test_the_end_of_browsing_is_told() -> None:
    bench = QueueBench()
    bench.publish(2)
    browser = bench.client(acquires=False)
    bench.run()
    assert (browser.numbers, browser.drained) == ([1, 2], 1)


def test_a_browser_gets_no_message_before_its_flow_is_restarted() -> None:
    bench = QueueBench()
    browser = bench.client(acquires=False)
    browser.session.set_flow(False)
    bench.publish(2)
    bench.run()
    assert browser.numbers == []
    browser.session.set_flow(True)
    bench.run()
    assert browser.numbers == [1, 2]


def test_a_browser_passes_many_acquired_entries_in_several_turns() -> None:
    bench = QueueBench()
    bench.publish(30)
    getter = bench.getter()
    for _ in range(29):
        get_one(bench.queue, getter)
    browser = bench.client(acquires=False)
    browser.consumer.context.scan_budget = 10
    bench.run()
    assert browser.numbers == [30]
    assert browser.drained == 1
    assert bench.scheduler.turns == 1, "it kept its turn"


def test_a_browser_with_a_byte_window_goes_on_when_there_is_room() -> None:
    bench = QueueBench()
    browser = bench.client(prefetch_bytes=10, acquires=False)
    bench.publish(2, size=4)
    bench.publish(size=8)
    bench.publish(size=1)
    bench.run()
    assert browser.numbers == [1, 2]
    assert browser.drained == 0, "it lacks room, not messages"
    browser.ack(1)
    bench.run()
    assert browser.numbers == [1, 2]
    browser.ack(2)
    bench.run()
    assert browser.numbers == [1, 2, 3, 4]


def test_a_browser_that_waits_for_room_looks_again_when_the_entry_is_gone() -> None:
    bench = QueueBench()
    browser = bench.client(prefetch_bytes=10, acquires=False)
    bench.publish(size=4)
    bench.publish(size=8)
    bench.publish(size=1)
    bench.run()
    getter = bench.getter()
    for _ in range(2):
        get_one(bench.queue, getter)
    bench.run()
    assert browser.numbers == [1, 3]


def test_cancelling_the_last_browser_removes_it_from_the_queue() -> None:
    bench = QueueBench()
    browser = bench.client(acquires=False)
    bench.publish(2)
    bench.run()
    browser.cancel()
    bench.publish()
    bench.run()
    assert browser.numbers == [1, 2]
    assert bench.queue.browsers is None
    assert bench.queue.consumer_count == 0


def test_browsers_at_one_entry_stay_together_when_the_entry_leaves() -> None:
    bench = QueueBench()
    bench.publish(4)
    viewers = [bench.client(acquires=False) for _ in range(3)]
    slow = bench.client(1, acquires=False)
    bench.run()
    getter = bench.getter()
    taken = [get_one(bench.queue, getter) for _ in range(4)]
    browsers = bench.queue.browsers
    assert browsers is not None
    assert sorted(len(there) for there in browsers.standing.values()) == [1, 3]
    for entry in reversed(taken):
        assert entry is not None
        bench.queue.settle(entry)
    assert {entry: len(there) for entry, there in browsers.standing.items()} == {bench.queue.entries.head: 4}
    slow.ack()
    bench.publish(2)
    bench.run()
    assert [viewer.numbers for viewer in viewers] == [[1, 2, 3, 4, 5, 6]] * 3
    assert slow.numbers == [1, 5]


def test_a_browser_is_shown_a_share_of_what_consumers_get() -> None:
    bench = QueueBench()
    bench.publish(1000)
    client = bench.client(320)
    browser = bench.client(acquires=False)
    bench.scheduler.step(1024)
    bench.scheduler.step(1024)
    assert (len(client.deliveries), len(browser.deliveries)) == (320, 320 // SHARE)
    assert browser.session.connection.patient
    bench.scheduler.step(1024)
    assert len(browser.deliveries) == 320 // SHARE + LEAST, "the client waits for nothing but its own window"
    client.cancel()
    bench.scheduler.step(1024)
    assert len(browser.deliveries) == 680, "alone, at full speed, it has seen all that is ready"


def test_a_browser_of_several_queues_lets_consumers_of_one_of_them_have_their_turn() -> None:
    bench = QueueBench()
    bench.publish(100)
    other = Queue("other", bench.store, FifoEntryList(), bench.counters)
    browser = bench.client(acquires=False)
    attach(other, QueueConsumer(browser, other, acquires=False))
    bench.scheduler.step(10)
    assert len(browser.deliveries) == 10, "nobody else is there"
    bench.client(1)
    bench.scheduler.step(1024)
    bench.scheduler.step(1024)
    assert len(browser.deliveries) == 11
    assert browser.session.connection.patient
    bench.run()
    assert len(browser.deliveries) == 100


class Viewer(Client):
    """A browser with an extent, which detaches at its end."""

    def __init__(
        self,
        bench: QueueBench,
        extent: BrowseRange,
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

    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        self.ended += 1
        self.cancel()


def test_skipped_messages_may_still_have_to_come() -> None:
    bench = QueueBench()
    bench.publish(2)
    viewer = Viewer(bench, BrowseRange(skip=3))
    bench.run()
    bench.publish(3)
    bench.run()
    assert viewer.numbers == [4, 5]


def test_skipped_entries_are_counted_whatever_the_filter() -> None:
    bench = QueueBench()
    bench.publish(9)
    viewer = Viewer(bench, BrowseRange(skip=3), Multiples(2))
    bench.run()
    assert viewer.numbers == [4, 6, 8]


def test_entries_that_wait_for_room_are_not_skipped() -> None:
    bench = QueueBench()
    bench.publish(6, size=4)
    viewer = Viewer(bench, BrowseRange(skip=2), prefetch_bytes=5)
    for _ in range(6):
        bench.run()
        viewer.ack()
    assert viewer.numbers == [3, 4, 5, 6]


def test_browsing_from_the_last_message_begins_at_the_last_ready_entry() -> None:
    bench = QueueBench()
    bench.publish(5)
    taker = bench.client(5)
    bench.run()
    taker.nack(2, 3)
    taker.cancel()
    viewer = Viewer(bench, BrowseRange(LAST))
    nothing = Viewer(bench, BrowseRange(LAST), Multiples(2))
    bench.run()
    assert (viewer.numbers, nothing.numbers) == ([3], [])
    bench.publish()
    bench.run()
    assert (viewer.numbers, nothing.numbers) == ([3, 6], [6])


def test_browsing_from_the_last_message_waits_if_all_entries_are_acquired() -> None:
    bench = QueueBench()
    bench.publish(3)
    bench.client(3)
    bench.run()
    viewer = Viewer(bench, BrowseRange(LAST))
    bench.publish()
    bench.run()
    assert viewer.numbers == [4]


@pytest.mark.parametrize(("beginning", "seen"), [(LAST, [2, 3, 4, 5]), (NEXT, [3, 4, 5])])
def test_the_end_of_a_priority_queue(beginning: str, seen: list[int]) -> None:
    bench = QueueBench(PriorityEntryList(3))
    bench.publish(priority=2)
    bench.publish(priority=1)
    viewer = Viewer(bench, BrowseRange(beginning))
    bench.run()
    for priority in (2, 1, 0):
        bench.publish(priority=priority)
    bench.run()
    assert viewer.numbers == seen


@pytest.mark.parametrize("levels", [1, 3])
def test_a_snapshot_gets_the_present_messages_and_ends_once(levels: int) -> None:
    bench = QueueBench(PriorityEntryList(levels))
    bench.publish(3)
    viewer = Viewer(bench, BrowseRange(snapshot=True), prefetch=2)
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
    bench = QueueBench()
    viewer = Viewer(bench, BrowseRange(snapshot=True))
    bench.run()
    assert (viewer.numbers, viewer.ended) == ([], 1)


def test_a_snapshot_resumes_after_entries_that_other_consumers_take() -> None:
    bench = QueueBench()
    bench.publish(40)
    viewer = Viewer(bench, BrowseRange(snapshot=True), prefetch=1)
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
    """A date of the broker precedes a property, and a message without both is no beginning."""
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    queue = vhost.declarations.declare_queue("q", False, None, False, {})
    bench = QueueBench()
    bench.queue = queue
    for number, (date, stamp) in enumerate([(0, None), (0, 5), (5000, 99), (0, 7), (0, 1), (0, None)], 1):
        (message,) = bench.messages()
        message.content = (
            content_of(timestamp=datetime.fromtimestamp(stamp, UTC)) if stamp is not None else content_of()
        )
        message.date = date
        message.size = number
        queue.enqueue(message)
    viewers = [Viewer(bench, BrowseRange(since=since)) for since in (0, 5000, 5001, 7001)]
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
    bench = QueueBench()
    bench.queue = queue
    for stamp in (b"\x17" + bytes(7), b"\xff" * 8):
        (message,) = bench.messages()
        content = content_of(timestamp=datetime.fromtimestamp(7, UTC))
        message.content = content.replace((7).to_bytes(8, "big"), stamp)
        assert message.content != content
        queue.enqueue(message)
    viewers = [Viewer(bench, BrowseRange(since=since)) for since in (7001, 2**63 - 1)]
    bench.run()
    assert [len(viewer.deliveries) for viewer in viewers] == [2, 2]
