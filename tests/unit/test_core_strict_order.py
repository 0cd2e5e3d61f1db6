"""x-strict-order: nothing is given out while something else is neither settled nor returned."""

import pytest

from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import get_one
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.order import StrictOrder
from tests.dispatch import Bench, Client, number_of
from tests.property.queue_model import Multiples
from tests.purging import purge


def strict(entries: QueueEntryList | None = None) -> Bench:
    bench = Bench(entries or FifoEntryList())
    bench.queue.set_discipline(StrictOrder(bench.queue))
    return bench


def test_one_is_out_at_a_time_however_large_the_windows() -> None:
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


def test_what_comes_back_is_next() -> None:
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


def test_the_first_decides_whoever_sees_what() -> None:
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


def test_one_arrival_wakes_at_most_one() -> None:
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


def promise(bench: Bench, client: Client, *numbers: int) -> None:
    """A transaction of the client settles these, which it has."""
    discipline = bench.queue.discipline
    assert discipline is not None
    for entry in client.held:
        if number_of(entry) in numbers:
            discipline.note_promise(entry, client.consumer)


@pytest.mark.parametrize("levels", [1, 2])
def test_one_transaction_takes_several_in_order(levels: int) -> None:
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


def test_what_comes_while_all_is_to_leave_goes_to_the_same_session() -> None:
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
    """Also if its consumers have been notified of something that has gone since."""
    bench = strict()
    holder = bench.client(1, priority=max(ranks))
    bench.publish(1)
    bench.run()
    first, second = (bench.client(10, session=holder.session, priority=rank) for rank in ranks)
    bench.client(10)  # of another session
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
