"""The order in which targets, sessions and connections deliver: fairness and wake-ups."""

import pytest

from broker.core.counters import Counters
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, Session
from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.queues.attach import attach, get_one
from broker.core.queues.consumer import NOTIFIED, QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from tests.support.core.queue_bench import Client, HandScheduler, MemoryStore, QueueBench, message, number_of


def test_the_chain_of_notification_schedules_a_connection_once() -> None:
    bench = QueueBench()
    client = bench.client()
    other = bench.client(session=client.session)
    third = bench.client(session=Session(client.session.connection))
    bench.publish(3)
    connection = client.session.connection
    assert [target.consumer.state for target in (client, other, third)] == [NOTIFIED] * 3
    assert list(bench.scheduler.ready) == [connection]
    bench.run()
    assert connection.first_pending is None
    assert (client.numbers, other.numbers, third.numbers) == ([1], [2], [3])


def test_equal_consumers_share_equally() -> None:
    bench = QueueBench()
    clients = [bench.client() for _ in range(5)]
    for _ in range(20):
        bench.publish(50)
        bench.run(4)
    counts = [len(client.deliveries) for client in clients]
    assert sum(counts) == 1000
    assert max(counts) - min(counts) <= 4


def test_equal_consumers_of_one_session_share_equally() -> None:
    bench = QueueBench()
    first = bench.client()
    clients = [first, *(bench.client(session=first.session) for _ in range(4))]
    bench.publish(500)
    bench.run()
    assert [len(client.deliveries) for client in clients] == [100] * 5


def test_single_messages_go_round() -> None:
    bench = QueueBench()
    clients = [bench.client() for _ in range(4)]
    for _ in range(12):
        bench.publish()
        bench.run()
    assert [client.numbers for client in clients] == [[1, 5, 9], [2, 6, 10], [3, 7, 11], [4, 8, 12]]


def test_a_consumer_alone_is_given_its_whole_quota_in_a_row() -> None:
    bench = QueueBench()
    client = bench.client()
    bench.publish(10)
    bench.scheduler.step(8)
    assert len(client.deliveries) == 8
    assert bench.scheduler.ready, "and then waits for its next turn"


@pytest.mark.parametrize("where", ["session", "connection"])
def test_a_consumer_not_alone_gives_way_after_each_message(where: str) -> None:
    bench = QueueBench()
    elsewhere = Queue("other", MemoryStore(), FifoEntryList(), Counters())
    client = bench.client()
    session = client.session if where == "session" else Session(client.session.connection)
    other = Client(elsewhere, bench.scheduler, session=session)
    bench.publish(4)
    for number in range(4):
        elsewhere.enqueue(message(number))
    bench.scheduler.step(2)
    assert (len(client.deliveries), len(other.deliveries)) == (1, 1)
    bench.scheduler.step(4)
    assert (len(client.deliveries), len(other.deliveries)) == (3, 3)


def test_a_burst_smaller_than_the_budget_is_shared_by_message() -> None:
    bench = QueueBench()
    clients = [bench.client() for _ in range(3)]
    for _ in range(30):
        bench.publish(4)
        bench.run(256)
    assert [len(client.deliveries) for client in clients] == [40, 40, 40]
    assert clients[0].numbers[:2] == [1, 4]


def test_connections_take_turns_by_message_while_they_want_the_same_queue() -> None:
    bench = QueueBench()
    queues = several_queues(bench, 2)
    collector, other = Collector(queues[0], bench.scheduler), Collector(queues[0], bench.scheduler)
    collector.join(queues[1])
    for number in range(6):
        queues[0].enqueue(message(number))
    bench.run(256)
    assert (collector.numbers, other.numbers) == ([0, 2, 4], [1, 3, 5])


def test_connections_take_turns_by_their_budget_otherwise() -> None:
    bench = QueueBench()
    queues = several_queues(bench, 2)
    clients = [Client(queue, bench.scheduler) for queue in queues]
    for queue in queues:
        for number in range(6):
            queue.enqueue(message(number))
    bench.scheduler.step(4)
    assert [len(client.deliveries) for client in clients] == [4, 0]
    bench.scheduler.step(4)
    bench.scheduler.step(4)
    assert [len(client.deliveries) for client in clients] == [6, 4]


def shared_connection(bench: QueueBench, count: int) -> list[Client]:
    """Return clients on channels of a single connection."""
    connection = Connection(bench.scheduler)
    return [bench.client(session=Session(connection)) for _ in range(count)]


def test_a_turn_that_gives_way_serves_each_target_first() -> None:
    bench = QueueBench()
    together, alone = shared_connection(bench, 3), bench.client()
    bench.publish(12)
    bench.scheduler.step(256)
    assert [len(client.deliveries) for client in together] == [1, 1, 1]
    assert alone.numbers == []
    bench.run(256)
    assert [len(client.deliveries) for client in (*together, alone)] == [3, 3, 3, 3]


def test_a_connection_whose_turn_ended_early_resumes_before_other_connections() -> None:
    """The budget is used up before each target of the connection has had its message."""
    bench = QueueBench()
    together, alone = shared_connection(bench, 5), bench.client()
    bench.publish(12)
    for served in ([1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]):
        bench.scheduler.step(2)
        assert [len(client.deliveries) for client in together] == served
    assert alone.numbers == []
    bench.run(2)
    assert [len(client.deliveries) for client in (*together, alone)] == [2, 2, 2, 2, 2, 2]


def test_a_connection_that_is_blocked_in_its_round_goes_on_later() -> None:
    bench = QueueBench()
    together, alone = shared_connection(bench, 3), bench.client()
    connection = together[0].session.connection
    bench.publish(8)
    bench.scheduler.step(2)
    connection.set_blocked(True)
    bench.run()
    assert [len(client.deliveries) for client in (*together, alone)] == [1, 1, 0, 6]
    connection.set_blocked(False)
    bench.publish(4)
    bench.run()
    assert sum(len(client.deliveries) for client in (*together, alone)) == 12


class Collector(Client):
    """A consumer of several queues at once."""

    def join(self, queue: Queue) -> None:
        attach(queue, QueueConsumer(self, queue))


def several_queues(bench: QueueBench, count: int) -> list[Queue]:
    return [Queue(str(n), bench.store, FifoEntryList(), bench.counters) for n in range(count)]


def test_a_target_takes_its_queues_in_turn_by_message() -> None:
    """[QPID-6204]"""
    bench = QueueBench()
    queues = several_queues(bench, 3)
    collector = Collector(queues[0], bench.scheduler)
    for queue in queues[1:]:
        collector.join(queue)
    for queue, count in zip(queues, (300, 30, 30), strict=True):
        for _ in range(count):
            queue.enqueue(message(int(queue.name)))
    bench.run()
    assert collector.numbers[:90] == [0, 1, 2] * 30
    assert collector.numbers[90:] == [0] * 270


def test_a_target_of_several_queues_has_one_window() -> None:
    bench = QueueBench()
    queues = several_queues(bench, 2)
    collector = Collector(queues[0], bench.scheduler, 3)
    collector.join(queues[1])
    for queue in queues:
        for number in range(4):
            queue.enqueue(message(number))
    bench.run()
    assert collector.numbers == [0, 0, 1]
    for entry in list(collector.held):
        assert isinstance(entry.owner, QueueConsumer)
        queue_of(entry.owner).settle(entry)
        collector.restore_credit(1)
    bench.run()
    assert collector.numbers == [0, 0, 1, 1, 2, 2]


def test_a_blocked_connection_gets_nothing_and_others_get_its_share() -> None:
    bench = QueueBench()
    blocked, other = bench.client(), bench.client()
    bench.publish()
    assert blocked.consumer.state == NOTIFIED
    blocked.session.connection.set_blocked(True)
    bench.run()
    assert (blocked.numbers, other.numbers) == ([], [1])
    other.close()
    bench.publish()
    bench.run()
    assert blocked.numbers == []
    blocked.session.connection.set_blocked(False)
    bench.run()
    assert blocked.numbers == [2]


def test_a_full_output_ends_the_turn_and_not_the_work() -> None:
    bench = QueueBench()

    class Narrow(Client):
        def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
            super().deliver(consumer, entry)
            self.session.connection.full = len(self.deliveries) % 4 == 0

    client = Narrow(bench.queue, bench.scheduler)
    bench.publish(10)
    for delivered in (4, 8, 10):
        bench.scheduler.step(256)
        assert len(client.deliveries) == delivered
        client.session.connection.full = False


def test_blocking_a_connection_ends_its_turn() -> None:
    bench = QueueBench()

    class Filling(Client):
        def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
            super().deliver(consumer, entry)
            if len(self.deliveries) == 3:
                self.session.connection.set_blocked(True)

    client = Filling(bench.queue, bench.scheduler)
    bench.publish(10)
    bench.run()
    assert client.numbers == [1, 2, 3]
    assert not bench.scheduler.ready
    client.session.connection.set_blocked(False)
    bench.run()
    assert len(client.numbers) == 10


def test_flow_stops_and_restarts_one_session() -> None:
    """[AMQP 0-9-1 channel.flow; Broker-J BasicTest.pollingUsingFlow]"""
    bench = QueueBench()
    stopped = bench.client()
    stopped.session.set_flow(False)
    bench.publish(2)
    bench.run()
    assert stopped.numbers == []
    stopped.session.set_flow(True)
    bench.run()
    assert stopped.numbers == [1, 2]


def test_an_exception_does_not_leave_the_connection_scheduled_for_ever() -> None:
    """[QPID-3821]"""
    bench = QueueBench()

    class Broken(Client):
        def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
            if number_of(entry) == 3:
                raise RuntimeError("cannot convert")
            super().deliver(consumer, entry)

    broken = Broken(bench.queue, bench.scheduler)
    neighbour = bench.client(session=broken.session)
    bench.publish(3)
    with pytest.raises(RuntimeError):
        bench.run()
    assert not broken.session.connection.scheduled or bench.scheduler.ready
    bench.publish(4)
    bench.run()
    assert neighbour.numbers


def test_a_budget_of_turns_without_messages_is_finite() -> None:
    """Scanning counts against the budget, so that other connections are not kept waiting."""
    bench = QueueBench()
    bench.publish(50)
    getter = bench.getter()
    for _ in range(50):
        get_one(bench.queue, getter)
    browser = bench.client(acquires=False)
    browser.consumer.context.scan_budget = 2
    bench.scheduler.step(5)
    assert browser.consumer.context.last.order == 10
    assert bench.scheduler.ready


def test_closed_targets_leave_session_and_windows() -> None:
    scheduler = HandScheduler()
    bench = QueueBench()
    shared = Credit(3)
    client = bench.client(session_credit=shared)
    client.close()
    assert client not in client.session.targets
    assert client not in shared.targets
    assert client.credit.targets == {}
    connection = Connection(scheduler)
    sessions = [Session(connection), Session(connection)]
    connection.close_targets()
    assert connection.sessions == {}
    assert all(session.targets == {} for session in sessions)
