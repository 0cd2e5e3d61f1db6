"""Browsers see every entry in order and take none. Cases of Broker-J's BrowserTest."""

from broker.core.entries.cursor import LEAST, SHARE
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import attach, get_one
from broker.core.queues.consumer import NON_ACQUIRING, QueueConsumer
from broker.core.queues.queue import Queue
from tests.dispatch import Bench


def test_a_browser_takes_nothing() -> None:
    bench = Bench()
    bench.publish(3)
    browser = bench.client(acquires=False)
    bench.run()
    assert browser.numbers == [1, 2, 3]
    assert browser.flags == [False] * 3
    assert browser.consumer.state == NON_ACQUIRING
    assert [entry.delivery_count for entry in browser.deliveries] == [0, 0, 0]
    assert (bench.queue.ready, bench.queue.delivered) == (3, 0)


def test_a_browser_sees_what_comes_later() -> None:
    bench = Bench()
    browser = bench.client(acquires=False)
    bench.run()
    for _ in range(3):
        bench.publish()
        bench.run()
    assert browser.numbers == [1, 2, 3]


def test_a_browser_does_not_keep_consumers_from_their_messages() -> None:
    bench = Bench()
    browser = bench.client(acquires=False, priority=100)
    client = bench.client()
    bench.publish(3)
    bench.run()
    assert client.numbers == [1, 2, 3]
    assert browser.numbers == [1, 2, 3]


def test_two_browsers_go_their_own_ways() -> None:
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench(PriorityEntryList(10))
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


def test_a_browser_whose_place_leaves_the_queue_goes_on_from_there() -> None:
    bench = Bench()
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
    bench = Bench()
    bench.publish(2)
    browser = bench.client(acquires=False)
    bench.run()
    assert (browser.numbers, browser.drained) == ([1, 2], 1)


def test_a_browser_on_a_stopped_connection_sees_nothing_until_it_is_started() -> None:
    bench = Bench()
    browser = bench.client(acquires=False)
    browser.session.set_flow(False)
    bench.publish(2)
    bench.run()
    assert browser.numbers == []
    browser.session.set_flow(True)
    bench.run()
    assert browser.numbers == [1, 2]


def test_a_browser_passes_many_acquired_entries_in_several_turns() -> None:
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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


def test_a_removed_browser_leaves_nothing_behind() -> None:
    bench = Bench()
    browser = bench.client(acquires=False)
    bench.publish(2)
    bench.run()
    browser.cancel()
    bench.publish()
    bench.run()
    assert browser.numbers == [1, 2]
    assert bench.queue.browsers is None
    assert bench.queue.consumer_count == 0


def test_browsers_that_stand_on_one_entry_stay_together_when_it_goes() -> None:
    bench = Bench()
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
    bench = Bench()
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
    bench = Bench()
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
