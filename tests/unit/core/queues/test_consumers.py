"""Consumers: wake-ups and priority. Cases of Broker-J's ConsumerPriorityTest and PriorityQueueTest."""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Session
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import INTERESTED, NOTIFIED
from tests.support.core.group_bench import NumberFilter
from tests.support.core.queue_bench import Client, QueueBench


def test_a_single_message_costs_a_notification_and_an_empty_pull() -> None:
    """Idle consumers have no spurious wake-ups."""
    bench = QueueBench()
    clients = [bench.client() for _ in range(10)]
    for _ in range(1000):
        bench.publish()
        bench.run()
    assert (bench.notifications, bench.empty_pulls) == (1000, 1000)
    assert bench.scheduler.turns == 1000
    for client, numbers in [(client, client.numbers) for client in clients]:
        for number in numbers:
            client.nack(number)
            bench.run()
    assert (bench.notifications, bench.empty_pulls) == (2000, 2000)


def test_wakeups_are_counted_by_queue_and_by_broker() -> None:
    """A wake-up is empty if the consumer has had no message when it is idle or suspended again."""
    bench = QueueBench()
    clients = [bench.client() for _ in range(10)]
    for _ in range(20):
        bench.publish()
        bench.run()
    clients[0].nack()
    bench.run()
    counters, manager = bench.counters, bench.queue.manager
    assert counters.made_ready == 22
    assert (manager.wakeups, manager.empty_wakeups) == (22, 0)
    assert (counters.consumer_wakeups, counters.consumer_empty_wakeups) == (22, 0)
    bench.publish()
    assert get_one(bench.queue, bench.getter()) is not None
    bench.run()
    assert (manager.wakeups, manager.empty_wakeups) == (23, 1), "the message had been taken"
    bench.publish()
    [relied] = [client for client in clients if client.consumer.state == NOTIFIED]
    relied.session.set_flow(False)
    assert (manager.wakeups, manager.empty_wakeups) == (25, 2), "the one relied upon was suspended"
    bench.run()
    assert (counters.consumer_wakeups, counters.consumer_empty_wakeups) == (25, 2)


@pytest.mark.parametrize("entry_filter", [None, NumberFilter(lambda _: True)], ids=["alike", "selector"])
def test_restored_credit_wakes_no_more_consumers_than_ready_messages(
    entry_filter: NumberFilter | None,
) -> None:
    bench = QueueBench()
    clients = [bench.client(1, entry_filter=entry_filter) for _ in range(4)]
    bench.publish(5)
    bench.run()
    assert bench.queue.ready == 1
    before = bench.notifications
    for client in clients:
        client.ack()
    assert bench.notifications == before + 1
    bench.run()
    assert (bench.queue.ready, bench.queue.manager.empty_wakeups) == (0, 0)
    bench.publish(3)
    bench.run()
    assert bench.queue.ready == 0, "the others are still there"


def test_consumers_with_the_same_selector_share_waiting_messages() -> None:
    """A consumer that has had a message wakes the next consumer: none is left out or woken in vain."""
    bench = QueueBench()
    all_of_them = NumberFilter(lambda _: True)
    clients = [bench.client(entry_filter=all_of_them) for _ in range(4)]
    for client in clients:
        client.session.set_flow(False)
    bench.publish(40)
    for client in clients:
        client.session.set_flow(True)
    assert [client.consumer.state == NOTIFIED for client in clients] == [True, False, False, False]
    bench.run()
    counts = [len(client.deliveries) for client in clients]
    assert max(counts) - min(counts) <= 2, counts
    assert bench.queue.manager.empty_wakeups == 0


def test_suspended_consumers_are_not_woken() -> None:
    bench = QueueBench()
    full, idle = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    before = full.notified
    bench.publish(50)
    bench.run()
    assert (full.notified, idle.numbers[-1]) == (before, 52)


def test_consumers_of_a_connection_that_fills_up_do_not_wake_each_other() -> None:
    bench = QueueBench()
    first = bench.client()
    siblings = [bench.client(session=first.session) for _ in range(5)]
    siblings += [bench.client(session=Session(first.session.connection)) for _ in range(5)]
    other = bench.client()
    bench.publish(1)
    before = [client.notified for client in siblings]
    first.session.connection.set_blocked(True)
    assert [client.notified for client in siblings] == before
    assert other.notified == 1
    bench.run()
    assert other.numbers == [1]


def test_consumers_that_share_a_full_window_are_not_woken() -> None:
    bench = QueueBench()
    window = Credit(1)
    first = bench.client(session_credit=window)
    siblings = [bench.client(session=first.session, session_credit=window) for _ in range(5)]
    bench.publish(2)
    before = [client.notified for client in siblings[1:]]
    bench.run()
    assert first.numbers == [1]
    assert [client.notified for client in siblings[1:]] == before


def test_a_burst_ends_with_one_empty_pull() -> None:
    bench = QueueBench()
    bench.client()
    bench.publish(100)
    bench.run(16)
    assert (bench.notifications, bench.empty_pulls) == (1, 1)
    assert bench.scheduler.turns == 7


def test_the_end_of_the_messages_is_told_once() -> None:
    """[Broker-J FlowTest.drain]"""
    bench = QueueBench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    assert client.drained == 1
    limited = bench.client(1)
    bench.publish(2)
    client.close()
    bench.run()
    assert limited.numbers == [4]
    assert limited.drained == 0, "it is out of credit, which is not the end of the messages"


def test_lower_priority_gets_nothing_while_a_higher_one_is_available() -> None:
    bench = QueueBench()
    low = bench.client(priority=5)
    high = bench.client(priority=10)
    bench.publish(10)
    bench.run(1)
    assert high.numbers == list(range(1, 11))
    assert low.numbers == []


def test_lower_priority_gets_what_comes_while_the_higher_one_has_no_credit() -> None:
    bench = QueueBench()
    low = bench.client(priority=-1)
    high = bench.client(1)
    bench.publish(3)
    bench.run()
    assert high.numbers == [1]
    assert low.numbers == [2, 3]
    high.ack()
    bench.publish()
    bench.run()
    assert high.numbers == [1, 4]
    assert low.numbers == [2, 3]


def test_a_higher_priority_that_comes_later_takes_over_a_backlog() -> None:
    bench = QueueBench()
    low = bench.client(1)
    bench.publish(6)
    bench.run()
    low.ack()
    high = bench.client(2, priority=1)
    bench.run()
    assert low.numbers == [1, 4]
    assert high.numbers == [2, 3]


def test_a_notified_consumer_that_is_outranked_meanwhile_goes_back() -> None:
    bench = QueueBench()
    low = bench.client()
    bench.publish(3)
    assert low.consumer.state == NOTIFIED
    high = bench.client(priority=1)
    bench.run(1)
    assert low.numbers == []
    assert low.consumer.state == INTERESTED
    assert high.numbers == [1, 2, 3]


def test_an_outranked_consumer_is_not_even_notified() -> None:
    bench = QueueBench()
    bench.publish(3)
    high = bench.client(1, priority=1)
    low = bench.client()
    assert (high.consumer.state, low.consumer.state) == (NOTIFIED, INTERESTED)
    low.session.set_flow(False)
    low.session.set_flow(True)
    assert low.consumer.state == INTERESTED
    bench.run()
    assert (high.numbers, low.numbers) == ([1], [2, 3])


def test_the_baton_goes_down_one_level_at_a_time() -> None:
    bench = QueueBench()
    clients = {priority: bench.client(1, priority=priority) for priority in (2, 0, 1)}
    bench.publish(3)
    bench.run()
    assert [clients[priority].numbers for priority in (2, 1, 0)] == [[1], [2], [3]]


def test_a_notified_lower_consumer_does_not_stop_the_wakeup_of_a_higher_consumer() -> None:
    """A NOTIFIED consumer of a lower level finds an idle consumer of a higher level before it, and stops."""
    bench = QueueBench()
    first = bench.client(priority=9)
    second = bench.client(priority=9, session=first.session)
    low = bench.client()
    bench.publish()
    first.session.set_flow(False)
    first.session.set_flow(True)
    while first.session.connection.scheduled:
        bench.scheduler.prefer(first.session.connection)
        bench.scheduler.step()
    bench.publish()
    assert first.numbers + second.numbers == [1]
    assert low.consumer.state == NOTIFIED
    relied, idle = (first, second) if first.consumer.state == NOTIFIED else (second, first)
    assert idle.consumer.state == INTERESTED
    relied.close()
    bench.run()
    assert (idle.numbers[-1], low.numbers) == (2, [])


def test_the_baton_is_passed_by_a_consumer_that_is_removed_without_further_ado() -> None:
    bench = QueueBench()
    first = bench.client()
    second = bench.client()
    bench.publish()
    assert (first.consumer.state, second.consumer.state) == (NOTIFIED, INTERESTED)
    detach(bench.queue, first.consumer, [])
    bench.run()
    assert second.numbers == [1]


def test_the_flag_comes_before_the_notifications() -> None:
    """[Broker-J sets it last: priority 10 with credit 1 and priority 0 unlimited left two of three stuck]"""
    bench = QueueBench()
    low = bench.client()
    high = bench.client(1, priority=10)
    bench.publish(3)
    bench.run(1)
    assert (high.numbers, low.numbers) == ([1], [2, 3])


def test_a_level_goes_with_its_last_consumer() -> None:
    bench = QueueBench()
    for _ in range(3):
        bench.client(priority=7).cancel()
    bench.client(priority=3)
    bench.client(priority=5)
    assert [level.rank for level in bench.queue.manager.levels] == [5, 3]


def test_higher_message_priority_is_next_also_when_the_cursor_has_passed_its_place() -> None:
    bench = QueueBench(PriorityEntryList(10))
    client = bench.client(1)
    bench.publish(3, priority=4)
    bench.run()
    bench.publish(priority=5)
    bench.publish(priority=9)
    bench.publish(priority=4)
    for _ in range(6):
        client.ack()
        bench.run()
    assert client.numbers == [1, 5, 4, 2, 3, 6]


def test_message_reflection_with_priority_increase_and_prefetch_one() -> None:
    """A message of higher priority sent from the listener, prefetch 1, hung once. [QPID-3927]"""
    bench = QueueBench(PriorityEntryList(3))

    class Reflector(Client):
        def deliver(self, consumer: object, entry: object) -> None:
            super().deliver(consumer, entry)  # type: ignore[arg-type]
            if len(self.deliveries) < 3:
                bench.publish(priority=len(self.deliveries))

    client = Reflector(bench.queue, bench.scheduler, 1)
    bench.publish(2)
    for _ in range(6):
        bench.run()
        client.ack()
    assert client.numbers == [1, 3, 4, 2]


def test_released_high_priority_entry_returns_to_its_level() -> None:
    bench = QueueBench(PriorityEntryList(3))
    bench.publish(priority=0)
    bench.publish(2, priority=2)
    first = bench.client(1)
    bench.run()
    first.nack()
    bench.run()
    for _ in range(3):
        first.ack()
        bench.run()
    assert first.numbers == [2, 2, 3, 1]


def test_consumers_of_one_session_with_different_priorities() -> None:
    bench = QueueBench()
    high = bench.client(1, priority=1)
    low = bench.client(1, session=high.session)
    assert isinstance(high.session, Session)
    bench.publish(2)
    bench.run()
    assert (high.numbers, low.numbers) == ([1], [2])
