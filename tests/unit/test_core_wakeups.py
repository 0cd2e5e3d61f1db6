"""Nobody is woken in vain more often than can be helped, and the end of the messages is told."""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Session
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import NOTIFIED
from tests.dispatch import Bench
from tests.grouping import Numbers


def test_one_notification_and_one_empty_pull_for_each_single_message() -> None:
    """Spurious wake-ups: idle consumers are not asked."""
    bench = Bench()
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
    bench = Bench()
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


@pytest.mark.parametrize("entry_filter", [None, Numbers(lambda _: True)], ids=["alike", "selector"])
def test_no_more_are_woken_by_their_credit_than_there_is_work_for(entry_filter: Numbers | None) -> None:
    bench = Bench()
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


def test_those_of_a_selector_share_what_waits_for_them() -> None:
    """A consumer that has had a message has the next one woken: nobody is left out, nor woken in vain."""
    bench = Bench()
    all_of_them = Numbers(lambda _: True)
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
    bench = Bench()
    full, idle = bench.client(1), bench.client()
    bench.publish(2)
    bench.run()
    before = full.notified
    bench.publish(50)
    bench.run()
    assert (full.notified, idle.numbers[-1]) == (before, 52)


def test_those_of_a_connection_that_fills_up_are_not_woken_by_each_other() -> None:
    bench = Bench()
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


def test_those_that_share_a_window_are_not_woken_when_it_is_full() -> None:
    bench = Bench()
    window = Credit(1)
    first = bench.client(session_credit=window)
    siblings = [bench.client(session=first.session, session_credit=window) for _ in range(5)]
    bench.publish(2)
    before = [client.notified for client in siblings[1:]]
    bench.run()
    assert first.numbers == [1]
    assert [client.notified for client in siblings[1:]] == before


def test_a_burst_ends_with_one_empty_pull() -> None:
    bench = Bench()
    bench.client()
    bench.publish(100)
    bench.run(16)
    assert (bench.notifications, bench.empty_pulls) == (1, 1)
    assert bench.scheduler.turns == 7


def test_the_end_of_the_messages_is_told_once() -> None:
    """[Broker-J FlowTest.drain]"""
    bench = Bench()
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
