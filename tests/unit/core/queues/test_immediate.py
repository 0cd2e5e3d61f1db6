"""basic.publish with immediate: deliver at this moment or not at all. [AMQP 0-9-1 1.8.3.7]"""

import pytest

from broker.core.entries.priority import PriorityEntryList
from broker.core.message import NEVER
from broker.core.queues.immediate import enqueue_immediate
from tests.support.core.queue_bench import QueueBench, message
from tests.support.core.timed_vhost import VhostBench


def test_an_immediate_message_without_a_consumer_is_refused() -> None:
    bench = QueueBench()
    assert not enqueue_immediate(bench.queue, message(1))
    assert bench.numbers() == []
    assert (bench.queue.ready, bench.queue.published) == (0, 0)


def test_delivered_at_once() -> None:
    bench = QueueBench()
    client = bench.client()
    assert enqueue_immediate(bench.queue, message(1))
    assert client.numbers == [1]
    assert client.session.connection.scheduled, "somebody has to flush"
    assert (bench.queue.published, bench.queue.unacked) == (1, 1)
    bench.run()
    assert client.numbers == [1]


def test_refused_messages_are_settled_in_the_store() -> None:
    bench = QueueBench(logged=True)
    sent = message(1, persistent=True)
    sent.sequence = 9
    assert not enqueue_immediate(bench.queue, sent)
    assert bench.store.settled == [(sent, "q")]


def test_an_immediate_message_without_consumer_credit_is_refused() -> None:
    bench = QueueBench()
    client = bench.client(1)
    assert enqueue_immediate(bench.queue, message(1))
    assert not enqueue_immediate(bench.queue, message(2))
    client.ack()
    assert enqueue_immediate(bench.queue, message(3))
    assert client.numbers == [1, 3]


def test_an_immediate_message_goes_to_a_consumer_with_room_in_its_byte_window() -> None:
    bench = QueueBench()
    full = bench.client(prefetch_bytes=10)
    assert enqueue_immediate(bench.queue, message(1, size=8))
    assert not enqueue_immediate(bench.queue, message(2, size=8))
    roomy = bench.client()
    assert enqueue_immediate(bench.queue, message(3, size=8))
    assert (full.numbers, roomy.numbers) == ([1], [3])


def test_an_immediate_message_does_not_overtake_a_backlog() -> None:
    bench = QueueBench()
    bench.publish()
    client = bench.client()
    assert not enqueue_immediate(bench.queue, message(7))
    bench.run()
    assert client.numbers == [1]


def test_an_immediate_message_is_next_in_a_priority_queue_by_its_priority() -> None:
    bench = QueueBench(PriorityEntryList(2))
    bench.publish()
    client = bench.client()
    assert enqueue_immediate(bench.queue, message(7, priority=1))
    bench.run()
    assert client.numbers == [7, 1]


def test_only_the_highest_priority_that_wants_work_is_asked() -> None:
    bench = QueueBench()
    low = bench.client()
    high = bench.client(1, priority=1)
    assert enqueue_immediate(bench.queue, message(1))
    assert enqueue_immediate(bench.queue, message(2))
    assert (high.numbers, low.numbers) == ([1], [2])


def test_consumers_take_turns() -> None:
    bench = QueueBench()
    clients = [bench.client() for _ in range(3)]
    for number in range(6):
        assert enqueue_immediate(bench.queue, message(number))
    assert [client.numbers for client in clients] == [[0, 3], [1, 4], [2, 5]]


def test_no_ack_settles() -> None:
    bench = QueueBench()
    client = bench.client(no_ack=True)
    assert enqueue_immediate(bench.queue, message(1))
    assert client.numbers == [1]
    assert bench.numbers() == []


def test_an_immediate_message_for_a_browser_is_refused() -> None:
    bench = QueueBench()
    bench.client(acquires=False)
    assert not enqueue_immediate(bench.queue, message(1))


@pytest.mark.parametrize("expiration", [NEVER, 0])
def test_a_suspended_consumer_gets_an_earlier_message_that_fits(expiration: int) -> None:
    bench = VhostBench()
    queue = bench.queue(max_priority=3)
    low = bench.client(queue, prefetch_bytes=3)
    bench.publish(size=2)
    bench.run()
    high = bench.client(queue, prefetch_bytes=3, priority=1)
    bench.publish(size=2)
    bench.publish(size=3)
    bench.run()
    assert (high.numbers, low.numbers, queue.ready) == ([2], [1], 1), "the third has room nowhere"
    if expiration == 0:
        bench.publish(expiration=0, priority=2)
    else:
        assert enqueue_immediate(queue, message(4, priority=2))
    assert (high.numbers, low.numbers) == ([2, 4], [1])
