"""The orders of entries: first in first out, and by priority. Cases of Broker-J's queue entry list tests."""

import random
from bisect import insort

import pytest

from broker.core.entries.entry import ACQUIRED, AVAILABLE, RANK_SHIFT, QueueEntry
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList, mapped_level
from tests.support.core.queue_bench import message, number_of


def numbers(entries: QueueEntryList) -> list[int]:
    return [number_of(entry) for entry in entries]


def test_fifo_keeps_arrival_order_and_numbers_it() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(5)]
    assert numbers(entries) == [0, 1, 2, 3, 4]
    assert [entry.order for entry in made] == [1, 2, 3, 4, 5]
    assert all(entry.state == AVAILABLE and entry.owner is None for entry in made)
    assert entries.in_order


def test_the_place_before_the_first_entry_can_never_be_taken() -> None:
    assert FifoEntryList().head.state == ACQUIRED
    assert PriorityEntryList(3).head.state == ACQUIRED


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_unlinking_anywhere_leaves_the_rest_in_order_both_ways(gone: int) -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(5)]
    entries.unlink(made[gone])
    entries.append(message(5))
    left = [n for n in range(6) if n != gone]
    assert numbers(entries) == left
    backwards = []
    entry = entries.tail
    while entry is not entries.head:
        backwards.append(number_of(entry))
        assert entry.prev is not None
        entry = entry.prev
    assert backwards == left[::-1]


def test_an_unlinked_entry_has_no_neighbours() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(3)]
    entries.unlink(made[1])
    assert made[1].prev is None
    assert made[1].next is None
    assert entries.next(made[1]) is None


def test_emptied_list_takes_new_entries() -> None:
    entries = FifoEntryList()
    for n in range(3):
        entries.unlink(entries.append(message(n)))
    assert numbers(entries) == []
    assert entries.tail is entries.head
    assert entries.append(message(7)).order == 4, "a place is never given twice"
    assert numbers(entries) == [7]


def test_an_entry_cannot_be_unlinked_twice() -> None:
    entries = FifoEntryList()
    entry = entries.append(message(1))
    entries.unlink(entry)
    with pytest.raises(AssertionError):
        entries.unlink(entry)


def test_odd_ordering() -> None:
    """[Broker-J PriorityQueueTest.testOddOrdering] with three levels."""
    entries = PriorityEntryList(3)
    for number, priority in enumerate([2, 1, 0, 1, 2, 0, 1, 0, 2, 0, 1, 2], start=1):
        entries.append(message(number, priority=priority))
    assert numbers(entries) == [1, 5, 9, 12, 2, 4, 7, 11, 3, 6, 8, 10]
    assert not entries.in_order


def test_priority_above_the_highest_level_counts_as_the_highest() -> None:
    entries = PriorityEntryList(3)
    for number, priority in enumerate([1, 2, 9, 255, 2], start=1):
        entries.append(message(number, priority=priority))
    assert numbers(entries) == [2, 3, 4, 5, 1]


@pytest.mark.parametrize(
    ("levels", "mapped"),
    [
        (1, [0] * 12),
        (2, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]),
        (3, [0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2]),
        (4, [0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3, 3]),
        (5, [0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 4]),
        (9, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]),
        (10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]),
        (11, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]),
    ],
)
@pytest.mark.spec("amqp-1.0", "3.2.1")
def test_ten_priorities_are_mapped_onto_fewer_levels(levels: int, mapped: list[int]) -> None:
    assert [mapped_level(priority, levels) for priority in range(12)] == mapped
    assert mapped_level(255, levels) == levels - 1


def test_next_crosses_empty_levels_and_ends() -> None:
    entries = PriorityEntryList(256)
    low = entries.append(message(1, priority=0))
    high = entries.append(message(2, priority=255))
    assert entries.next(entries.head) is high
    assert entries.next(high) is low
    assert entries.next(low) is None
    entries.unlink(high)
    assert entries.next(entries.head) is low


def test_unlinking_in_one_level_leaves_the_others_alone() -> None:
    entries = PriorityEntryList(2)
    made = [entries.append(message(n, priority=n % 2)) for n in range(6)]
    entries.unlink(made[5])
    entries.unlink(made[0])
    entries.append(message(6, priority=0))
    entries.append(message(7, priority=1))
    assert numbers(entries) == [1, 3, 7, 2, 4, 6]


def test_no_number_of_arrivals_changes_the_level() -> None:
    """[OpenMQ 136: the arrival counter overflowed into the priority]"""
    entries = PriorityEntryList(256)
    entries.sequence = (1 << RANK_SHIFT) - 3
    low = entries.append(message(1, priority=0))
    high = entries.append(message(2, priority=255))
    assert low.order > high.order > 0
    assert low.order < 1 << 63


def test_levels_without_entries_cost_nothing() -> None:
    """Empty levels cost neither memory nor time."""
    entries = PriorityEntryList(256)
    first, last = (entries.append(message(n, priority=p)) for n, p in ((1, 255), (2, 0)))
    assert first.next is last
    assert entries.tail is last
    assert entries.rank_before(entries.ranks) == 255
    assert entries.first_of(255) is last
    assert entries.rank_before(255) == 0
    assert entries.rank_before(0) == -1
    entries.unlink(first)
    entries.unlink(last)
    assert entries.rank_before(entries.ranks) == -1


def test_many_levels_in_any_order_against_a_sorted_list() -> None:
    choice = random.Random("levels")
    entries = PriorityEntryList(256)
    linked: list[QueueEntry] = []
    for n in range(3000):
        if linked and choice.random() < 0.45:
            entries.unlink(linked.pop(choice.randrange(len(linked))))
        else:
            insort(linked, entries.append(message(n, priority=choice.randrange(256))))
        if n % 50 == 0:
            assert list(entries) == linked
    ranks = sorted({entry.order >> RANK_SHIFT for entry in linked})
    rank = entries.ranks
    found: list[int] = []
    while (rank := entries.rank_before(rank)) >= 0:
        found.insert(0, rank)
        assert entries.first_of(rank) is next(e for e in linked if e.order >> RANK_SHIFT == rank)
    assert found == ranks


@pytest.mark.parametrize("levels", [0, 257])
def test_levels_are_bounded(levels: int) -> None:
    with pytest.raises(ValueError, match="1 to 256"):
        PriorityEntryList(levels)


def test_iteration_includes_entries_appended_during_it() -> None:
    entries = FifoEntryList()
    entries.append(message(1))
    seen = []
    for entry in entries:
        seen.append(number_of(entry))
        if len(seen) < 3:
            entries.append(message(len(seen) + 1))
    assert seen == [1, 2, 3]
