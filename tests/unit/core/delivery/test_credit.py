"""Windows of messages and of bytes. [AMQP 0-9-1 basic.qos; Broker-J BasicTest qos*]"""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED
from broker.core.queues.queue import TOLD_MAX
from tests.simulation.queues.costs import Steps
from tests.support.core.purge import purge
from tests.support.core.queue_bench import QueueBench


def test_no_limits_means_unlimited() -> None:
    credit = Credit()
    for _ in range(1000):
        credit.use(1 << 40)
    assert credit.has()
    assert credit.fits(1 << 40)


def test_count() -> None:
    credit = Credit(2)
    credit.use(5)
    assert credit.fits(5)
    credit.use(5)
    assert not credit.fits(0)
    assert not credit.has()
    credit.restore(5)
    assert credit.fits(5)


@pytest.mark.parametrize(
    ("out", "size", "fits"), [(4, 6, True), (4, 7, False), (10, 1, False), (11, 1, False)]
)
def test_bytes(out: int, size: int, fits: bool) -> None:
    credit = Credit(0, 10)
    credit.use(out)
    assert credit.fits(size) is fits


def test_the_first_message_always_fits_an_idle_byte_window() -> None:
    credit = Credit(0, 10)
    assert credit.fits(1000)
    credit.use(1000)
    assert not credit.fits(1)
    credit.restore(1000)
    assert credit.fits(1000)


def test_a_window_shrunk_below_its_use_stays_exhausted_until_enough_acks() -> None:
    bench = QueueBench()
    client = bench.client(5)
    bench.publish(7)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]
    client.credit.resize(2, 0)
    client.ack(1, 2, 3)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]
    client.ack(4)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5, 6]


def test_a_window_limited_while_messages_are_out_counts_them() -> None:
    bench = QueueBench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.credit.resize(3, 0)
    bench.publish(2)
    bench.run()
    assert client.numbers == [1, 2, 3]
    client.credit.resize(0, 0)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]


def test_a_shared_window_suspends_and_resumes_all_its_consumers() -> None:
    """[AMQP 0-9-1 basic.qos global=true, RabbitMQ: per channel]"""
    bench = QueueBench()
    shared = Credit(3)
    first = bench.client(session_credit=shared)
    second = bench.client(session=first.session, session_credit=shared)
    bench.publish(8)
    bench.run()
    assert len(first.held) + len(second.held) == 3
    assert not first.desired
    assert not second.desired
    first.ack()
    second.ack()
    bench.run()
    assert len(first.deliveries) + len(second.deliveries) == 6


def test_the_windows_of_session_and_consumer_limit_together() -> None:
    bench = QueueBench()
    shared = Credit(4)
    first = bench.client(1, session_credit=shared)
    second = bench.client(10, session=first.session, session_credit=shared)
    bench.publish(9)
    bench.run()
    assert (len(first.held), len(second.held)) == (1, 3)


def test_a_closed_target_gives_its_part_of_a_shared_window_back_with_its_messages() -> None:
    bench = QueueBench()
    shared = Credit(2)
    leaving = bench.client(session_credit=shared)
    bench.publish(4)
    bench.run()
    staying = bench.client(session=leaving.session, session_credit=shared)
    leaving.cancel()
    bench.run()
    assert staying.numbers == []
    leaving.ack()
    bench.run()
    assert staying.numbers == [3, 4]


def test_the_first_message_is_delivered_however_large() -> None:
    bench = QueueBench()
    client = bench.client(prefetch_bytes=10)
    bench.publish(2, size=1000)
    bench.run()
    assert client.numbers == [1]
    client.ack()
    bench.run()
    assert client.numbers == [1, 2]


def test_a_small_message_does_not_overtake_a_large_one_that_waits() -> None:
    bench = QueueBench()
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


def test_a_consumer_with_room_takes_a_message_for_which_another_one_has_no_room() -> None:
    bench = QueueBench()
    full = bench.client(prefetch_bytes=10, priority=1)
    bench.publish(size=6)
    bench.run()
    roomy = bench.client()
    bench.publish(size=6)
    bench.run()
    assert (full.numbers, roomy.numbers) == ([1], [2])


def test_a_suspended_consumer_looks_again_when_another_takes_the_large_entry() -> None:
    bench = QueueBench()
    full = bench.client(prefetch_bytes=10, priority=1)
    bench.publish(size=6)
    bench.run()
    bench.publish(size=6)
    bench.run()
    roomy = bench.client(1)
    bench.publish(size=2)
    bench.run()
    assert (full.numbers, roomy.numbers) == ([1, 3], [2])


def test_a_suspended_consumer_looks_again_when_the_large_entry_is_purged() -> None:
    bench = QueueBench()
    full = bench.client(prefetch_bytes=10)
    bench.publish(size=6)
    bench.publish(size=6)
    bench.run()
    purge(bench.queue)
    assert full.consumer.state == INTERESTED
    bench.publish(size=1)
    bench.run()
    assert full.numbers == [1, 3]


def test_a_suspended_consumer_looks_again_when_a_small_entry_returns_before_the_large_one() -> None:
    bench = QueueBench()
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


def test_a_consumer_stays_suspended_when_the_returned_entry_is_too_large_as_well() -> None:
    bench = QueueBench()
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
def test_a_suspended_consumer_looks_again_when_some_of_very_many_returned_entries_fit(
    size: int, found: list[int]
) -> None:
    count = 2 * int(TOLD_MAX)
    bench = QueueBench()
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


def test_a_suspended_consumer_looks_again_when_a_small_entry_of_higher_priority_arrives() -> None:
    bench = QueueBench(PriorityEntryList(2))
    full = bench.client(prefetch_bytes=10)
    bench.publish(2, size=6)
    bench.run()
    bench.publish(size=2, priority=1)
    bench.run()
    assert full.numbers == [1, 3]


def test_two_consumers_without_room_do_not_wake_each_other_for_ever() -> None:
    """[QPID-1187; Broker-J keeps them in Interested]"""
    bench = QueueBench()
    clients = [bench.client(prefetch_bytes=10), bench.client(prefetch_bytes=10)]
    bench.publish(2, size=6)
    bench.run(1)
    before = bench.notifications
    bench.publish(size=6)
    bench.scheduler.run(turns_max=10)
    assert bench.notifications - before <= 2
    assert [len(client.held) for client in clients] == [1, 1]


def test_room_in_a_shared_window_made_by_another_target_counts() -> None:
    bench = QueueBench()
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
    bench = QueueBench()
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


def test_many_returned_entries_are_not_tried_on_all_consumers() -> None:
    many = 2 * int(TOLD_MAX)
    bench = QueueBench()
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
