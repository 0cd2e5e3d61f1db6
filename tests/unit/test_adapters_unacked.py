"""The ring of outstanding deliveries, against a dictionary."""

import random

import pytest

from broker.adapters.unacked import TRIM, Unacked
from broker.core.consumer import QueueConsumer
from broker.core.consumer_target import ConsumerTarget
from broker.core.counters import Counters
from broker.core.credit import Credit
from broker.core.entry import QueueEntry
from broker.core.entry_list import FifoEntryList
from broker.core.message import Address, Message
from broker.core.ports import MessageStore
from broker.core.queue import Queue
from broker.core.session import Session
from tests.wired import House


@pytest.fixture
def consumer() -> QueueConsumer:
    session = Session(House().connect().connection)
    queue = Queue("q", MessageStore(), FifoEntryList(), Counters())
    return QueueConsumer(ConsumerTarget(session, Credit()), queue)


def entry(number: int) -> QueueEntry:
    return QueueEntry(Message(Address("", "q"), b"", 0, False, 0), number)


def test_tags_count_from_one_whether_outstanding_or_not(consumer: QueueConsumer) -> None:
    unacked = Unacked()
    assert unacked.next_tag() == 1
    assert [unacked.skip(), unacked.skip(), unacked.add(entry(3), consumer), unacked.skip()] == [1, 2, 3, 4]
    assert unacked.next_tag() == 5
    assert [unacked.find(tag) >= 0 for tag in range(6)] == [False, False, False, True, False, False]


@pytest.mark.parametrize("tag", [0, -1, -(2**63), 2, 2**63 - 1])
def test_tags_that_are_not_outstanding(consumer: QueueConsumer, tag: int) -> None:
    unacked = Unacked()
    unacked.add(entry(1), consumer)
    assert unacked.find(tag) == -1


def test_all_means_all_and_nothing_is_nothing(consumer: QueueConsumer) -> None:
    unacked = Unacked()
    assert unacked.up_to(0) == []
    unacked.skip()
    assert unacked.up_to(0) == []
    for number in range(4):
        unacked.add(entry(number), consumer)
    assert unacked.up_to(0) == [0, 1, 2, 3]
    assert unacked.up_to(3) == [0, 1]
    assert unacked.up_to(1) == []
    assert unacked.up_to(2**62) == [0, 1, 2, 3]
    unacked.remove(0)
    assert unacked.up_to(2) == []
    assert unacked.up_to(0) == [1, 2, 3]


def test_what_is_settled_is_let_go_of(consumer: QueueConsumer) -> None:
    unacked = Unacked()
    for number in range(20 * TRIM):
        tag = unacked.add(entry(number), consumer)
        assert tag == number + 1
        unacked.remove(unacked.find(tag))
        assert len(unacked.entries) <= 2 * TRIM


def test_an_old_delivery_does_not_make_later_ones_cost_more(consumer: QueueConsumer) -> None:
    unacked = Unacked()
    first = unacked.add(entry(0), consumer)
    trims = 0
    length = 0
    for number in range(10 * TRIM):
        tag = unacked.add(entry(number), consumer)
        unacked.remove(unacked.find(tag))
        if len(unacked.entries) < length:
            trims += 1
        length = len(unacked.entries)
    assert unacked.find(first) == 0
    assert trims <= 10


@pytest.mark.parametrize("seed", range(8))
def test_any_history_is_that_of_a_dictionary(consumer: QueueConsumer, seed: int) -> None:
    chance = random.Random(seed)
    unacked = Unacked()
    model: dict[int, QueueEntry] = {}
    last = 0
    for step in range(6 * TRIM):
        what = chance.random()
        if what < 0.5:
            made = entry(step)
            last = unacked.add(made, consumer)
            model[last] = made
        elif what < 0.65:
            last = unacked.skip()
        elif what < 0.95 and model:
            tag = chance.choice(list(model)[:50])
            assert unacked.entries[unacked.find(tag)] is model.pop(tag)
            unacked.remove(unacked.find(tag))
        elif chance.random() < 0.1:
            tag = chance.choice([0, chance.randint(1, last + 1)])
            wanted = [known for known in model if tag in (0, known) or known < tag]
            assert [unacked.base + index for index in unacked.up_to(tag)] == wanted
            for known in wanted:
                unacked.remove(unacked.find(known))
                del model[known]
        elif chance.random() < 0.2:
            unacked.trim()
        assert unacked.next_tag() == last + 1
    assert [unacked.base + index for index in unacked.up_to(0)] == list(model)
