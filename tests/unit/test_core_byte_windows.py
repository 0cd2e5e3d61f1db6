"""Consumers whose next entry is too large for what is left of their byte window. [AMQP 0-9-1 basic.qos]"""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED
from broker.core.queues.queue import TOLD_MAX
from tests.dispatch import Bench
from tests.purging import purge
from tests.simulation.queues.costs import Steps


def test_the_first_message_is_delivered_however_large() -> None:
    bench = Bench()
    client = bench.client(prefetch_bytes=10)
    bench.publish(2, size=1000)
    bench.run()
    assert client.numbers == [1]
    client.ack()
    bench.run()
    assert client.numbers == [1, 2]


def test_a_small_message_does_not_overtake_a_large_one_that_waits() -> None:
    bench = Bench()
    client = bench.client(prefetch_bytes=10)
    bench.publish(size=6)
    bench.publish(size=6)
    bench.publish(size=1)
    bench.run()
    assert client.numbers == [1]
    assert client.consumer.state == NOT_INTERESTED
    assert client.drained == 0
    client.ack()
    bench.run()
    assert client.numbers == [1, 2, 3]


def test_a_consumer_with_room_takes_what_another_one_has_no_room_for() -> None:
    bench = Bench()
    full = bench.client(prefetch_bytes=10, priority=1)
    bench.publish(size=6)
    bench.run()
    roomy = bench.client()
    bench.publish(size=6)
    bench.run()
    assert (full.numbers, roomy.numbers) == ([1], [2])


def test_it_looks_again_when_somebody_else_takes_the_large_entry() -> None:
    bench = Bench()
    full = bench.client(prefetch_bytes=10, priority=1)
    bench.publish(size=6)
    bench.run()
    bench.publish(size=6)
    bench.run()
    roomy = bench.client(1)
    bench.publish(size=2)
    bench.run()
    assert (full.numbers, roomy.numbers) == ([1, 3], [2])


def test_it_looks_again_when_the_large_entry_is_purged() -> None:
    bench = Bench()
    full = bench.client(prefetch_bytes=10)
    bench.publish(size=6)
    bench.publish(size=6)
    bench.run()
    purge(bench.queue)
    assert full.consumer.state == INTERESTED
    bench.publish(size=1)
    bench.run()
    assert full.numbers == [1, 3]


def test_it_looks_again_when_a_small_entry_comes_back_before_the_large_one() -> None:
    bench = Bench()
    other = bench.client(1)
    bench.publish(size=2)
    bench.run()
    full = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    assert full.numbers == [2]
    other.cancel()
    other.nack()
    bench.run()
    assert full.numbers == [2, 1]


def test_it_stays_away_when_what_comes_back_is_too_large_as_well() -> None:
    bench = Bench()
    other = bench.client(1)
    bench.publish(size=9)
    bench.run()
    full = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    notifications = bench.notifications
    other.cancel()
    other.nack()
    bench.run()
    assert full.numbers == [2]
    assert bench.notifications == notifications
    full.ack()
    bench.run()
    assert full.numbers == [2, 1]


@pytest.mark.parametrize(("size", "found"), [(2, [201, 1, 2]), (9, [201])])
def test_it_looks_again_when_some_of_very_many_fit_that_come_back(size: int, found: list[int]) -> None:
    count = 2 * int(TOLD_MAX)
    bench = Bench()
    other = bench.client()
    bench.publish(2, size=size)
    bench.publish(count - 2, size=9)
    bench.run()
    other.cancel()
    full = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    notifications = bench.notifications
    other.nack()
    bench.run()
    assert full.numbers == found
    assert bench.notifications <= notifications + len(found) - 1


def test_it_looks_again_when_a_small_entry_of_higher_priority_arrives() -> None:
    bench = Bench(PriorityEntryList(2))
    full = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    bench.publish(size=2, priority=1)
    bench.run()
    assert full.numbers == [1, 3]


def test_two_consumers_without_room_do_not_wake_each_other_for_ever() -> None:
    """[QPID-1187; Broker-J keeps them in Interested]"""
    bench = Bench()
    clients = [bench.client(prefetch_bytes=10), bench.client(prefetch_bytes=10)]
    bench.publish(2, size=6)
    bench.run(1)
    before = bench.notifications
    bench.publish(size=6)
    bench.scheduler.run(turns_max=10)
    assert bench.notifications - before <= 2
    assert [len(client.held) for client in clients] == [1, 1]


def test_room_in_a_shared_window_made_by_another_target_counts() -> None:
    bench = Bench()
    shared = Credit(0, 10)
    first = bench.client(1, session_credit=shared)
    bench.publish(size=6)
    bench.run()
    second = bench.client(session=first.session, session_credit=shared)
    bench.publish(size=6)
    bench.run()
    assert second.numbers == []
    first.ack()
    first.close()
    bench.run()
    assert second.numbers == [2]


def test_leaving_while_waiting_leaves_no_trace() -> None:
    bench = Bench()
    client = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    entry = client.consumer.waiting_on
    assert entry is not None
    assert bench.queue.waiters == {entry: [client.consumer]}
    client.vanish()
    assert not bench.queue.waiters
    assert client.consumer.waiting_on is None
    assert bench.queue.waiting == {}


def test_very_many_that_come_back_are_not_tried_on_everybody() -> None:
    many = 2 * int(TOLD_MAX)
    bench = Bench()
    other = bench.client()
    bench.publish(many, size=9)
    bench.run()
    other.cancel()
    waiting = [bench.client(prefetch_bytes=10) for _ in range(many)]
    bench.publish(2 * many, size=6)
    bench.run()
    assert all(client.consumer.state == NOT_INTERESTED for client in waiting)
    with Steps() as steps:
        other.nack()
    assert steps.count < 10 * many * many, "instructions of the interpreter, 40 for each that is tried"
    assert bench.queue.ready == 2 * many
