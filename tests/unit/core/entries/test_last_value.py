"""Last-value queues. Cases of Broker-J's LastValueQueueListTest and LastValueQueueTest, Artemis' LVQTest."""

import pytest

from broker.core.entries.entry import AVAILABLE, DEQUEUED
from broker.core.entries.last_value import LastValueEntryList, LatestValues
from broker.core.message_view import identity
from broker.core.operators.operation import mark, unmark
from broker.core.queues.consumer import make_holder
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue, drop_outdated
from broker.core.vhosts.definitions import restore_message
from tests.support.core.hand_clock import HandClock
from tests.support.core.key_header import HEADERS, KEY
from tests.support.core.purge import purge
from tests.support.core.queue_bench import QueueBench, message
from tests.support.core.topology import new_vhost


def new_bench(logged: bool = False) -> QueueBench:
    return QueueBench(LastValueEntryList(KEY, HEADERS), logged)


def publish(bench: QueueBench, *keys: int) -> None:
    """Messages 1, 2, 3 ... with these keys."""
    for key in keys:
        bench.publish(priority=key)


def replaced(queue: Queue) -> int:
    assert queue.entries.latest is not None
    assert queue.entries.latest.replaced == queue.counters.replaced
    return int(queue.entries.latest.replaced)


def test_a_later_message_takes_the_place_of_the_earlier_one() -> None:
    bench = new_bench()
    publish(bench, 1, 2, 0, 3, 2, 0, 1, 2)
    assert bench.numbers() == [7, 8, 3, 4, 6]
    assert (bench.queue.ready, bench.queue.ready_bytes) == (5, 5)
    assert replaced(bench.queue) == 3
    client = bench.client()
    bench.run()
    assert client.numbers == [7, 8, 3, 4, 6]


def test_a_replaced_message_is_settled_in_the_log_and_forgotten() -> None:
    bench = new_bench(logged=True)
    queue = bench.queue
    for new in bench.messages(3, priority=1):
        new.sequence = bench.published
        queue.enqueue(new)
    assert [int(old.content or b"") for old, _ in bench.store.settled] == [1, 2]
    latest = queue.entries.latest
    assert isinstance(latest, LatestValues)
    assert len(latest.current) == 1
    client = bench.client()
    bench.run()
    client.ack()
    assert latest.current == {}, "no value is remembered without an entry"


def test_an_acquired_old_value_dies_on_return_and_the_new_one_is_last() -> None:
    """[Broker-J testConflationWithRelease, testSupersededEntryIsDiscardedOnRelease]"""
    bench = new_bench()
    client = bench.client(1)
    publish(bench, 1, 2)
    bench.run()
    publish(bench, 1, 1)
    assert bench.numbers() == [1, 2, 4]
    assert replaced(bench.queue) == 1
    client.nack()
    assert bench.numbers() == [2, 4]
    assert replaced(bench.queue) == 2
    bench.run()
    client.ack()
    bench.run()
    assert client.numbers == [1, 2, 4]
    assert client.flags == [False] * 3


def test_a_replaced_entry_stays_dead_when_its_replacement_has_left() -> None:
    bench = new_bench()
    client, other = bench.client(1), bench.client(1)
    for _ in range(2):
        publish(bench, 1)
        bench.run()
    assert (client.numbers, other.numbers) == ([1], [2])
    other.ack()
    client.nack()
    assert bench.numbers() == []
    assert bench.queue.unacked == 0
    assert client.consumer.inflight == 0


def test_acknowledging_a_replaced_message_keeps_the_new_message() -> None:
    bench = new_bench()
    client = bench.client()
    publish(bench, 1)
    bench.run()
    publish(bench, 1)
    client.ack(1)
    assert bench.queue.acked == 1
    assert replaced(bench.queue) == 0
    bench.run()
    assert client.numbers == [1, 2]


def test_a_returned_latest_entry_is_replaced_in_place() -> None:
    """[Broker-J testConflationWithReleaseAfterNewPublish]"""
    bench = new_bench()
    client = bench.client(1)
    publish(bench, 1, 2)
    bench.run()
    client.cancel()
    client.nack()
    publish(bench, 1)
    assert bench.numbers() == [3, 2]
    following = bench.client()
    bench.run()
    assert following.numbers == [3, 2]
    assert following.flags == [False, False], "it has not been with anybody"


def test_browsers_see_the_new_value_once_wherever_they_are() -> None:
    """[Broker-J testConflationBrowser, testConflation2Browsers]"""
    bench = new_bench()
    publish(bench, 1, 2, 3)
    far, near = bench.client(acquires=False), bench.client(1, acquires=False)
    bench.run()
    assert (far.numbers, near.numbers) == ([1, 2, 3], [1])
    publish(bench, 1)  # behind the one, under the other
    publish(bench, 3)  # under the one, before the other
    bench.run()
    assert far.numbers == [1, 2, 3, 4, 5]
    for _ in range(4):
        near.ack()
        bench.run()
    assert near.numbers == [1, 4, 2, 5]


def test_a_consumer_suspended_for_the_old_value_looks_at_the_new_one() -> None:
    bench = new_bench()
    client = bench.client(prefetch_bytes=10)
    bench.publish(size=6)
    bench.publish(size=6, priority=1)
    bench.run()
    assert client.numbers == [1]
    bench.publish(size=3, priority=1)
    bench.run()
    assert client.numbers == [1, 3]


def test_an_immediate_message_replaces_nothing() -> None:
    """The message may be refused, and then the earlier value must still be in the queue."""
    bench = new_bench(logged=True)
    publish(bench, 1)
    queue = bench.queue
    for key, taken in ((1, False), (2, False)):
        new = message(9, priority=key)
        new.sequence = 9
        assert enqueue_immediate(queue, new) == taken
        assert bench.store.settled[-1] == (new, "q")
    assert bench.numbers() == [1]
    client = bench.client(2)
    bench.run()
    assert not enqueue_immediate(queue, message(9, priority=1)), "1 would die if it came back"
    assert enqueue_immediate(queue, message(10, priority=2))
    client.nack()
    bench.run()
    assert client.numbers == [1, 10, 1, 10]


def test_a_full_queue_accepts_a_message_that_replaces_another() -> None:
    bench = new_bench()
    queue = bench.queue
    queue.limits = Limits(queue, new_vhost())
    queue.limits.apply({"x-max-length": 2, "x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    bench.publish(size=4, priority=1)
    bench.publish(size=4, priority=2)
    refuses = queue.limits.refuses
    assert refuses(message(3, 1, priority=3)), "one more"
    assert not refuses(message(3, 6, priority=2))
    assert refuses(message(3, 7, priority=2)), "too large"
    assert refuses(message(3, 1)), "it replaces nothing"


def test_a_replacing_message_drops_no_other_message() -> None:
    bench = new_bench()
    queue = bench.queue
    queue.limits = Limits(queue, new_vhost())
    queue.limits.apply({"x-max-length": 2})
    publish(bench, 1, 2, 2, 2, 1)
    assert bench.numbers() == [5, 4]
    publish(bench, 3)
    assert bench.numbers() == [4, 6], "but one more does: what stands first"


def test_a_replaced_entry_does_not_expire_and_an_expired_entry_is_forgotten() -> None:
    clock = HandClock()
    bench = new_bench()
    queue = bench.queue
    vhost = new_vhost(clock=clock)
    queue.limits = Limits(queue, vhost)
    queue.limits.apply({"x-message-ttl": 10, "x-dead-letter-exchange": "dead"})
    publish(bench, 1)
    clock.advance(6)
    publish(bench, 1)
    clock.advance(6)
    assert bench.numbers() == [2]
    assert queue.limits.timers.count == 1
    clock.advance(6)
    assert bench.numbers() == []
    assert isinstance(queue.entries.latest, LatestValues)
    assert queue.entries.latest.current == {}
    assert sum(vhost.counters.letters_dropped) == 1, "replaced is not dead"


def test_purge_forgets_the_values() -> None:
    bench = new_bench()
    client = bench.client(1)
    publish(bench, 1, 2, 3)
    bench.run()
    assert purge(bench.queue) == 2
    assert isinstance(bench.queue.entries.latest, LatestValues)
    assert len(bench.queue.entries.latest.current) == 1
    publish(bench, 2)
    client.ack()
    bench.run()
    assert client.numbers == [1, 4]


def test_states() -> None:
    bench = new_bench()
    old = bench.queue.enqueue(message(1, priority=1))
    new = bench.queue.enqueue(message(2, priority=1))
    assert (old.state, new.state) == (DEQUEUED, AVAILABLE)
    assert (old.prev, old.next) == (None, None)
    assert bench.queue.entries.arrival(new) == 2


def test_recovery_keeps_the_newest_in_the_order_of_publication() -> None:
    bench = new_bench(logged=True)
    queue = bench.queue
    for number, key in enumerate((1, 2, 0, 1, 3, 1, 2), start=1):
        old = message(number, priority=key, persistent=True)
        old.sequence = number
        restore_message(queue, old, False)
    assert bench.store.settled == [], "the log takes no appends yet"
    drop_outdated(queue)
    assert bench.numbers() == [3, 5, 6, 7]
    assert [int(old.content or b"") for old, _ in bench.store.settled] == [1, 4, 2]
    assert (queue.ready, queue.ready_bytes) == (4, 4)
    drop_outdated(queue)
    client = bench.client()
    bench.run()
    assert client.numbers == [3, 5, 6, 7]


def test_an_entry_replaced_at_recovery_may_have_left_already() -> None:
    bench = new_bench()
    for number in (1, 2):
        restore_message(bench.queue, message(number, priority=1), False)
    assert purge(bench.queue) == 2
    drop_outdated(bench.queue)
    assert bench.queue.ready == 0
    assert bench.counters.replaced == 0


def test_a_staged_entry_stays_until_it_is_returned() -> None:
    bench = new_bench(logged=True)
    queue = bench.queue
    for number in (1, 2):
        old = message(number, priority=1, persistent=True)
        old.sequence = number
        restore_message(queue, old, False)
    staged, _ = queue.entries
    holder = make_holder(queue, "r")
    mark(queue, staged, holder)
    drop_outdated(queue)
    assert (bench.numbers(), bench.store.settled) == ([1, 2], [])
    unmark(queue, [staged], holder)
    assert bench.numbers() == [2]
    assert [int(old.content or b"") for old, _ in bench.store.settled] == [1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", b"a", True),
        (b"\xff", bytearray(b"\xff"), True),
        (1, 2**40 - 2**40 + 1, True),
        (1, 1.0, False),
        (1, True, False),
        (1, "1", False),
        (1.0, 1.0, True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ([1], ["1"], False),
        ("[1]", [1], False),
    ],
)
def test_the_same_value(one: object, other: object, same: bool) -> None:
    assert (identity(one) == identity(other)) == same
    assert len({identity(one), identity(other)}) == (1 if same else 2)
