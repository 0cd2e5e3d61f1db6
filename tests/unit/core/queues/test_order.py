"""x-strict-order and x-strict-dispatch. [ActiveMQ strictOrderDispatch]"""

import pytest

from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import get_one
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.order import StrictOrder
from tests.property.queue_model import Multiples
from tests.support.core.policies import set_policy
from tests.support.core.purge import purge
from tests.support.core.queue_bench import Client, QueueBench, number_of
from tests.support.core.timed_vhost import VhostBench
from tests.support.core.topology import RecordingStore, new_broker, rebuilt


@pytest.fixture
def bench() -> QueueBench:
    """A queue with strict dispatch."""
    bench = QueueBench()
    bench.queue.manager.strict = True
    return bench


def received(*clients: Client) -> list[list[int]]:
    return [client.numbers for client in clients]


def test_the_first_consumer_gets_all_messages_while_it_has_credit(bench: QueueBench) -> None:
    first, second, third = bench.client(2), bench.client(1), bench.client()
    for _ in range(6):
        bench.publish()
        bench.run()
    assert received(first, second, third) == [[1, 2], [3], [4, 5, 6]]
    second.ack()
    first.ack(1)
    bench.publish(3)
    bench.run()
    assert received(first, second, third) == [[1, 2, 7], [3, 8], [4, 5, 6, 9]]


def test_a_backlog_goes_to_the_first_consumer_with_credit(bench: QueueBench) -> None:
    first, second = bench.client(), bench.client()
    first.session.set_flow(False)
    bench.publish(50)
    bench.run(1)
    first.session.set_flow(True)
    bench.publish(1)
    bench.run(1)
    assert received(first, second) == [[51], list(range(1, 51))]


def test_a_consumer_that_resumes_is_served_before_the_consumers_behind_it(bench: QueueBench) -> None:
    first, second = bench.client(), bench.client()
    bench.publish(4)
    first.session.set_flow(False)
    bench.scheduler.step(1)  # an empty turn of the first one
    bench.scheduler.step(2)
    first.session.set_flow(True)
    bench.run(1)
    assert received(first, second) == [[3, 4], [1, 2]]


def test_priority_comes_before_the_order_of_attaching(bench: QueueBench) -> None:
    first, lower, higher = bench.client(1), bench.client(1, priority=-1), bench.client(1, priority=1)
    bench.publish(3)
    bench.run()
    assert received(higher, first, lower) == [[1], [2], [3]]


def test_a_newcomer_is_last_of_its_priority(bench: QueueBench) -> None:
    first, second = bench.client(), bench.client()
    first.cancel()
    third = bench.client()
    bench.publish(2)
    bench.run()
    assert received(second, third) == [[1, 2], []]


def test_an_arrival_wakes_a_single_consumer(bench: QueueBench) -> None:
    for _ in range(20):
        bench.client()
    for _ in range(10):
        bench.publish()
        bench.run()
    assert (bench.notifications, bench.scheduler.turns) == (10, 10)


def test_an_immediate_message_goes_to_the_first_consumer_with_credit(bench: QueueBench) -> None:
    first, second = bench.client(1), bench.client(1)
    assert [enqueue_immediate(bench.queue, entry) for entry in bench.messages(3)] == [True, True, False]
    assert received(first, second) == [[1], [2]]


@pytest.mark.parametrize(("value", "strict"), [("strict", True), ("round-robin", False)])
def test_the_queue_s_argument_decides_also_after_a_restart(value: str, strict: bool) -> None:
    store = RecordingStore()
    queue = (
        new_broker(store)
        .declare_vhost("/")
        .declarations.declare_queue("q", True, None, False, {"x-dispatch": value})
    )
    restarted = rebuilt(store.changes)
    assert queue.manager.strict == restarted.vhost("/").topology.queues["q"].manager.strict == strict


def test_a_policy_counts_from_when_there_is_no_consumer() -> None:
    bench = VhostBench()
    queue = bench.queue()
    clients = [bench.client(queue) for _ in range(2)]
    set_policy(bench.vhost, "p", "", dispatch="strict")
    bench.publish(count=2)
    bench.run()
    assert received(*clients) == [[1], [2]]
    for client in clients:
        client.cancel()
    clients = [bench.client(queue) for _ in range(2)]
    set_policy(bench.vhost, "p", "", dispatch="round-robin")
    for _ in range(3):
        bench.publish()
        bench.run()
    assert received(*clients) == [[3, 4, 5], []]


def strict(entries: QueueEntryList | None = None) -> QueueBench:
    bench = QueueBench(entries or FifoEntryList())
    bench.queue.set_discipline(StrictOrder(bench.queue))
    return bench


def test_a_single_entry_is_acquired_at_a_time_however_large_the_windows() -> None:
    bench = strict()
    first, second = bench.client(10), bench.client(10)
    bench.publish(4)
    bench.run()
    for number in (1, 2, 3, 4):
        holder = first if first.held else second
        assert [entry.message.content for entry in first.held + second.held] == [b"%d" % number]
        holder.ack()
        bench.run()
    assert (bench.queue.ready, bench.queue.unacked) == (0, 0)
    assert len(first.numbers) == len(second.numbers) == 2, "they take turns"


def test_a_returned_entry_is_next() -> None:
    """[Bernstein and Newcomer, figure 4.8: the abort anomaly]"""
    bench = strict()
    first, second = bench.client(5), bench.client(5)
    bench.publish(2)
    bench.run()
    assert (first.numbers, second.numbers) == ([1], [])
    first.vanish()
    bench.run()
    assert second.numbers == [1]
    assert second.flags == [True]
    second.ack()
    bench.run()
    assert second.numbers == [1, 2]


def test_no_ack_consumers_flow() -> None:
    bench = strict()
    clients = [bench.client(no_ack=True) for _ in range(2)]
    bench.publish(100)
    bench.run()
    assert sorted(clients[0].numbers + clients[1].numbers) == list(range(1, 101))
    assert abs(len(clients[0].numbers) - len(clients[1].numbers)) <= 2


def test_a_more_urgent_arrival_waits_for_what_is_out_and_is_next_then() -> None:
    bench = strict(PriorityEntryList(2))
    client = bench.client(5)
    bench.publish(2)
    bench.run()
    bench.publish(priority=1)
    bench.run()
    assert client.numbers == [1]
    client.nack()
    bench.run()
    assert client.numbers == [1, 3]
    client.ack()
    bench.run()
    client.ack()
    bench.run()
    assert client.numbers == [1, 3, 1, 2]


def test_strict_order_waits_for_a_consumer_that_matches_the_first_message() -> None:
    bench = strict()
    even = bench.client(5, entry_filter=Multiples(2))
    bench.publish(2)
    bench.run()
    assert even.numbers == [], "nobody sees the first, so nobody gets anything"
    everything = bench.client(1)
    bench.run()
    assert (even.numbers, everything.numbers) == ([], [1])
    everything.ack()
    bench.run()
    assert sorted(even.numbers + everything.numbers) == [1, 2]


def test_a_first_that_goes_makes_way() -> None:
    bench = strict()
    even = bench.client(5, entry_filter=Multiples(2))
    bench.publish(2)
    bench.run()
    getter = bench.getter()
    entry = get_one(bench.queue, getter)
    assert entry is not None
    assert get_one(bench.queue, bench.getter()) is None
    bench.queue.settle(entry)
    bench.run()
    assert even.numbers == [2]


def test_an_immediate_message_is_delivered_only_if_nothing_is_out() -> None:
    bench = strict()
    client = bench.client(5)
    one, two = bench.messages(2)
    assert enqueue_immediate(bench.queue, one)
    assert not enqueue_immediate(bench.queue, two)
    assert client.numbers == [1]
    assert bench.queue.ready == 0


def test_browsers_are_not_concerned() -> None:
    bench = strict()
    browser, client = bench.client(acquires=False), bench.client()
    bench.publish(3)
    bench.run()
    assert (browser.numbers, client.numbers) == ([1, 2, 3], [1])


@pytest.mark.parametrize("idle", [1, 50])
def test_a_purge_wakes_no_crowd(idle: int) -> None:
    bench = strict()
    evens = [bench.client(5, entry_filter=Multiples(2)) for _ in range(idle)]
    bench.publish(1001)
    bench.run()
    before = bench.notifications
    assert purge(bench.queue) == 1001
    assert bench.notifications - before <= 1
    bench.run()
    assert not any(even.numbers for even in evens)


def test_a_single_arrival_wakes_at_most_a_single_consumer() -> None:
    bench = strict()
    clients = [bench.client(1) for _ in range(20)]
    for _ in range(100):
        bench.publish()
        bench.run()
        for client in clients:
            client.ack()
        bench.run()
    assert bench.notifications <= 100
    assert {len(client.numbers) for client in clients} == {5}


def promise(bench: QueueBench, client: Client, *numbers: int) -> None:
    """A transaction of the client settles these, which it has."""
    discipline = bench.queue.discipline
    assert discipline is not None
    for entry in client.held:
        if number_of(entry) in numbers:
            discipline.note_promise(entry, client.consumer)


@pytest.mark.parametrize("levels", [1, 2])
def test_a_single_transaction_takes_several_in_order(levels: int) -> None:
    bench = strict(PriorityEntryList(levels))
    first, second = bench.client(10), bench.client(10)
    bench.publish(2)
    bench.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(bench, holder, 1)
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [])
    bench.publish(2)
    bench.run()
    assert holder.numbers == [1, 2], "the second is out, and stays who knows where"
    promise(bench, holder, 2)
    bench.run()
    assert holder.numbers == [1, 2, 3]
    assert get_one(bench.queue, bench.getter()) is None
    promise(bench, holder, 3)
    bench.run()
    assert holder.numbers == [1, 2, 3, 4]
    holder.ack(1, 2, 3)
    bench.publish(1)
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2, 3, 4], [])
    holder.ack()
    bench.run()
    assert sorted(holder.numbers + other.numbers) == [1, 2, 3, 4, 5]


def test_arrivals_go_to_the_same_session_while_all_entries_are_to_leave() -> None:
    bench = strict()
    first, second = bench.client(10), bench.client(10)
    bench.publish(1)
    bench.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(bench, holder, 1)
    bench.publish(1)
    bench.run()
    assert (holder.numbers, other.numbers) == ([1, 2], [])


def test_a_transaction_that_is_rolled_back_or_lost_loses_no_order() -> None:
    bench = strict()
    first, second = bench.client(10), bench.client(10)
    bench.publish(4)
    bench.run()
    holder, other = (first, second) if first.held else (second, first)
    promise(bench, holder, 1)
    bench.run()
    discipline = bench.queue.discipline
    assert discipline is not None
    discipline.note_withdrawal(holder.held[:1])
    bench.run()
    assert holder.numbers == [1, 2]
    holder.vanish()
    bench.run()
    assert other.numbers == [1]
    for number in (1, 2, 3, 4):
        assert other.numbers[-1] == number
        other.ack()
        bench.run()


def test_more_for_a_transaction_goes_to_a_consumer_of_its_session_that_sees_it() -> None:
    bench = strict()
    holder = bench.client(1)
    blind = bench.client(10, session=holder.session, entry_filter=Multiples(7))
    seeing = bench.client(10, session=holder.session, entry_filter=Multiples(2))
    bench.publish(1)
    bench.run()
    promise(bench, holder, 1)
    bench.publish(1)
    bench.run()
    assert (holder.numbers, blind.numbers, seeing.numbers) == ([1], [], [2])


@pytest.mark.parametrize("ranks", [(0, 0), (1, 0), (0, 1)])
def test_an_immediate_message_goes_to_the_session_of_a_transaction(ranks: tuple[int, int]) -> None:
    """The session's consumers may have been notified of an entry that has left since."""
    bench = strict()
    holder = bench.client(1, priority=max(ranks))
    bench.publish(1)
    bench.run()
    first, second = (bench.client(10, session=holder.session, priority=rank) for rank in ranks)
    bench.client(10)  # the client has another session
    promise(bench, holder, 1)
    bench.publish(1)
    assert bench.queue.manager.notified == 1
    assert purge(bench.queue) == 1
    (number,) = bench.messages()
    assert enqueue_immediate(bench.queue, number)
    assert (first.numbers, second.numbers) == (([], [3]) if ranks[1] > ranks[0] else ([3], []))


def test_more_for_a_transaction_goes_to_another_consumer_if_one_has_no_room() -> None:
    bench = strict()
    holder = bench.client(prefetch_bytes=4, priority=1)
    stranger = bench.client()  # is idle for longest
    other = bench.client(session=holder.session)
    bench.publish(1)
    bench.run()
    promise(bench, holder, 1)
    bench.publish(1, size=7)
    bench.run()
    assert (holder.numbers, stranger.numbers, other.numbers) == ([1], [], [2])
