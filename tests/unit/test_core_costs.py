"""What an operation may cost, in entries looked at: never in proportion to what is out, behind or waiting."""

import pytest

from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.message import Message
from broker.core.queues.attach import get_one
from tests.dispatch import Bench


class CountingList(QueueEntryList):
    """Counts the steps that are made in another list."""

    def __init__(self, entries: QueueEntryList) -> None:
        super().__init__(entries.in_order)
        self.entries = entries
        self.head = entries.head
        self.steps = 0

    def append(self, message: Message) -> QueueEntry:
        return self.entries.append(message)

    def unlink(self, entry: QueueEntry) -> None:
        self.entries.unlink(entry)

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        self.steps += 1
        return self.entries.next(entry)


def counted(entries: QueueEntryList) -> tuple[Bench, CountingList]:
    counting = CountingList(entries)
    return Bench(counting), counting


def test_returning_one_of_many_that_are_out_and_getting_it_again() -> None:
    bench, counting = counted(FifoEntryList())
    client = bench.client()
    bench.publish(5000)
    bench.run(5000)
    counting.steps = 0
    for number in (1, 2500, 5000):
        client.nack(number)
        bench.run()
    assert client.numbers[5000:] == [1, 2500, 5000]
    assert counting.steps <= 6


def test_get_behind_many_that_are_out() -> None:
    bench, counting = counted(FifoEntryList())
    client = bench.client(5000)
    bench.publish(5001)
    bench.run(5000)
    counting.steps = 0
    assert len(client.held) == 5000
    assert get_one(bench.queue, bench.getter()) is not None
    assert counting.steps == 1


def test_settling_out_of_order_leaves_nothing_to_walk_over() -> None:
    """[RabbitMQ 1511: acknowledging in other than arrival order]"""
    bench, counting = counted(FifoEntryList())
    client = bench.client(2000)
    bench.publish(2001)
    bench.run(4000)
    counting.steps = 0
    for entry in client.held[::-1]:
        bench.queue.settle(entry)
        client.restore_credit(1)
    bench.run()
    assert client.numbers[-1] == 2001
    assert counting.steps <= 3


def test_an_arrival_of_higher_priority_above_many_of_a_lower_one() -> None:
    bench, counting = counted(PriorityEntryList(2))
    client = bench.client(1000)
    bench.publish(3000)
    bench.run(3000)
    counting.steps = 0
    for _ in range(3):
        bench.publish(priority=1)
        client.ack(client.numbers[-1])
        bench.run()
    assert client.numbers[1000:] == [3001, 3002, 3003]
    assert counting.steps <= 6


def test_many_returned_at_once_wake_each_idle_consumer_once() -> None:
    bench, counting = counted(FifoEntryList())
    dying = bench.client()
    bench.publish(2000)
    bench.run(2000)
    others = [bench.client(1) for _ in range(50)]
    bench.run()
    counting.steps = 0
    before = bench.notifications
    dying.vanish()
    assert bench.notifications - before == 50
    assert counting.steps == 0
    bench.run()
    assert sorted(number for other in others for number in other.numbers) == list(range(1, 51))


@pytest.mark.parametrize("idle", [10, 1000])
def test_one_message_for_many_idle_consumers(idle: int) -> None:
    bench, counting = counted(FifoEntryList())
    for _ in range(idle):
        bench.client()
    counting.steps = 0
    for _ in range(100):
        bench.publish()
        bench.run()
    assert counting.steps == 200, "one step finds the message, one finds the end"
    assert bench.notifications == 100


def test_outranked_consumers_cost_nothing_while_others_are_served() -> None:
    bench, counting = counted(FifoEntryList())
    bench.publish(500)
    for _ in range(200):
        bench.client()
    high = bench.client(priority=1)
    bench.run(1)
    assert len(high.deliveries) == 500
    assert bench.notifications <= 202
    assert counting.steps <= 500 + 202
