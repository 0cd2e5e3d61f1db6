"""The outstanding deliveries of a channel, compared with a dictionary, and their costs."""

import random
import tracemalloc
from collections.abc import Callable

import pytest

from broker.adapters.peers.unsettled import SPARSE, TRIM, Unacked
from broker.core.counters import Counters
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget, Session
from broker.core.durations import Latency, Stopwatch
from broker.core.entries.entry import QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.message import Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from tests.support.adapters.connection_without_socket import BrokerBench


@pytest.fixture
def consumer() -> QueueConsumer:
    session = Session(BrokerBench().connect().connection)
    queue = Queue("q", MessageStore(), FifoEntryList(), Counters())
    return QueueConsumer(PullingTarget(session, Credit()), queue)


def entry(number: int) -> QueueEntry:
    return QueueEntry(Message(Address("", "q"), b"", 0, False, 0), number)


def outstanding(unacked: Unacked, *tags: int) -> list[int]:
    return [tag for tag in tags if unacked.find(tag) is not None]


def bytes_kept(work: Callable[[], None]) -> int:
    """Bytes allocated by `work` and still in use after it."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept


def test_tags_count_from_one_whether_outstanding_or_not(consumer: QueueConsumer) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    assert unacked.next_tag() == 1
    assert [unacked.skip(), unacked.skip(), unacked.add(entry(3), consumer), unacked.skip()] == [1, 2, 3, 4]
    assert unacked.next_tag() == 5
    assert outstanding(unacked, *range(6)) == [3]
    assert unacked.count() == 1


@pytest.mark.parametrize("tag", [0, -1, -(2**63), 2, 2**63 - 1])
def test_tags_that_are_not_outstanding(consumer: QueueConsumer, tag: int) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    unacked.add(entry(1), consumer)
    assert unacked.find(tag) is None
    assert unacked.take(tag) is None


def test_tag_zero_means_all_outstanding_tags(consumer: QueueConsumer) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    assert unacked.tags_up_to(0) == []
    unacked.skip()
    assert unacked.tags_up_to(0) == []
    for number in range(4):
        unacked.add(entry(number), consumer)
    assert unacked.tags_up_to(0) == [2, 3, 4, 5]
    assert unacked.tags_up_to(3) == [2, 3]
    assert unacked.tags_up_to(1) == []
    assert unacked.tags_up_to(2**62) == [2, 3, 4, 5]
    unacked.take(2)
    assert unacked.tags_up_to(2) == []
    assert unacked.tags_up_to(0) == [3, 4, 5]


@pytest.mark.parametrize("unsettled", [0, 1, 10])
def test_memory_is_bounded_by_outstanding_deliveries(consumer: QueueConsumer, unsettled: int) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    first = [unacked.add(entry(number), consumer) for number in range(unsettled)]

    def deliver_and_settle() -> None:
        for number in range(40 * TRIM):
            assert unacked.take(unacked.add(entry(number), consumer)) is not None

    assert bytes_kept(deliver_and_settle) < 3 * TRIM * 16
    assert unacked.tags_up_to(0) == first == outstanding(unacked, *first)


def test_a_returned_settled_delivery_keeps_its_tag_without_memory(consumer: QueueConsumer) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    first = entry(0)
    tag = unacked.add(first, consumer)
    assert unacked.take(tag) is first
    for number in range(40 * TRIM):
        unacked.take(unacked.add(entry(number), consumer))
    assert bytes_kept(lambda: unacked.put_back([int(tag)], [first], consumer)) < 4096
    assert unacked.tags_up_to(0) == [tag]
    assert unacked.take(tag) is first
    assert unacked.holder is consumer
    assert unacked.tags_up_to(0) == []


def test_a_window_that_is_settled_in_order_stays_in_the_ring(consumer: QueueConsumer) -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    window = [unacked.add(entry(number), consumer) for number in range(2 * TRIM // SPARSE)]
    for number in range(20 * TRIM):
        assert unacked.take(window.pop(0)) is not None
        window.append(unacked.add(entry(number), consumer))
    assert unacked._old is None
    assert unacked.tags_up_to(0) == window


def check_against(model: dict[int, QueueEntry], unacked: Unacked, tag: int) -> list[int]:
    """Tags up to `tag` by the model, which have been compared."""
    wanted = [known for known in model if tag == 0 or known <= tag]
    assert unacked.tags_up_to(tag) == wanted
    for known in wanted[:3] + wanted[-3:]:
        assert unacked.find(known) is model[known]
    assert unacked.count() == len(model)
    for first, last in ((1, tag), (tag - SPARSE, tag), (tag, tag + TRIM), (tag, tag - 1), (-tag, 0)):
        assert unacked.tags_between(first, last) == [known for known in model if first <= known <= last]
    return wanted


@pytest.mark.parametrize("chosen", [50, 500, 10**6])
@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_that_of_a_dictionary(consumer: QueueConsumer, seed: int, chosen: int) -> None:
    """Settle any of the `chosen` latest deliveries next: with few of them, most are old deliveries."""
    chance = random.Random(seed)
    unacked = Unacked(Stopwatch(Latency(), int))
    model: dict[int, QueueEntry] = {}
    settled: dict[int, tuple[QueueEntry, QueueConsumer]] = {}
    last = 0
    for step in range(12 * TRIM):
        what = chance.random()
        if what < 0.5:
            made = entry(step)
            last = unacked.add(made, consumer)
            model[last] = made
        elif what < 0.55:
            last = unacked.skip()
        elif what < 0.95 and model:
            tag = chance.choice(list(model)[-chosen:])
            assert unacked.take(tag) is model[tag]
            assert unacked.find(tag) is None
            settled[tag] = (model.pop(tag), consumer)
        elif what < 0.96:
            for tag in check_against(model, unacked, chance.choice([0, chance.randint(1, last + 1)])):
                if chance.random() < 0.9:
                    assert unacked.take(tag) is model[tag]
                    settled[tag] = (model.pop(tag), consumer)
        elif what < 0.965:
            upto = chance.choice([0, chance.randint(1, last + 1)])
            wanted = check_against(model, unacked, upto)
            assert [held for _, run in unacked.take_up_to(upto) for held in run] == list(
                map(model.get, wanted)
            )
            for tag in wanted:
                settled[tag] = (model.pop(tag), consumer)
        elif what < 0.97 and settled:
            again = dict(chance.sample(sorted(settled.items()), min(len(settled), chance.choice([1, 300]))))
            unacked.put_back(list(again), [held[0] for held in again.values()], consumer)
            model = dict(sorted((model | {tag: held[0] for tag, held in again.items()}).items()))
            settled = {tag: held for tag, held in settled.items() if tag not in again}
        elif chance.random() < 0.2:
            unacked.trim()
        assert unacked.next_tag() == last + 1
    check_against(model, unacked, 0)


def test_runs_of_one_consumer_are_taken_in_their_order(consumer: QueueConsumer) -> None:
    other = QueueConsumer(consumer.target, consumer.queue)
    unacked = Unacked(Stopwatch(Latency(), int))
    made = [entry(n) for n in range(8)]
    for n, one in enumerate(made):
        unacked.add(one, other if n in (2, 3, 6) else consumer)
    unacked.take(2)
    assert unacked.take_up_to(5) == [(consumer, [made[0]]), (other, made[2:4]), (consumer, [made[4]])]
    assert unacked.tags_up_to(0) == [6, 7, 8]
    assert unacked.take_up_to(2) == []
    assert unacked.take_up_to(2**62) == [(consumer, [made[5]]), (other, [made[6]]), (consumer, [made[7]])]
    assert (unacked.next_tag(), unacked.count()) == (9, 0)


def test_all_are_taken_at_once_by_consumer(consumer: QueueConsumer) -> None:
    other = QueueConsumer(consumer.target, consumer.queue)
    unacked = Unacked(Stopwatch(Latency(), int))
    made = [entry(n) for n in range(SPARSE * TRIM)]
    for n, one in enumerate(made):
        unacked.add(one, other if n % 5 == 0 else consumer)
    left = [n for n in range(len(made)) if n % 100 == 0 or n > len(made) - 8]
    for n in set(range(len(made))) - set(left):
        unacked.take(n + 1)
    unacked.trim()  # the oldest are out of the ring
    assert unacked.find(1) is made[0]
    following = unacked.next_tag()
    assert unacked.take_all() == {
        other: [made[n] for n in left if n % 5 == 0],
        consumer: [made[n] for n in left if n % 5],
    }
    assert (unacked.count(), unacked.tags_up_to(0), unacked.take_all()) == (0, [], {})
    assert unacked.next_tag() == following
    assert unacked.add(made[1], consumer) == following
    assert unacked.find(following) is made[1]
