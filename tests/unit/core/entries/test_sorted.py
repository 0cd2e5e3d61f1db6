"""Queues that are sorted by a header. Cases of Broker-J's SortedQueueEntryListTest and SortedQueueTest."""

import random
from bisect import insort
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.entries.entry import QueueEntry
from broker.core.entries.sorted import SortedEntryList
from broker.core.message import Message
from broker.core.message_view import Headers, MessageView, sort_key
from broker.core.ports import MessageStore
from tests.support.core.key_header import HEADERS, KEY
from tests.support.core.queue_bench import QueueBench, message, number_of


def broken(message: Message, store: MessageStore) -> MessageView:
    raise OSError("the disk does not give it back")


def sorted_list_of(headers: Headers = HEADERS) -> SortedEntryList:
    return SortedEntryList(KEY, headers)


def numbers(entries: SortedEntryList) -> list[int]:
    return [number_of(entry) for entry in entries]


def test_the_order_of_values_of_any_type() -> None:
    """Absent, numbers, strings, booleans, times, anything else: in this order, and none is an error."""
    values: list[object] = [
        None,
        float("-inf"),
        -(2**70),
        -1.5,
        0,
        Decimal("0.1"),
        0.5,
        1,
        Decimal("1.5"),
        2**63,
        float("inf"),
        float("nan"),
        "",
        b"\x00",
        "10",
        "9",
        "Z",
        "a",
        "ab",
        "\u00fc",
        b"\xff",
        False,
        True,
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2030, 1, 1, tzinfo=UTC),
        {"a": 1},
    ]
    shuffled = list(enumerate(values))
    random.Random(5).shuffle(shuffled)
    assert [n for n, _ in sorted(shuffled, key=lambda pair: sort_key(pair[1]))] == list(range(len(values)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, Decimal(1)),
        ("a", b"a"),
        ("a", bytearray(b"a")),
        ({}, [1]),
        ({"a": 1}, {"b": 2}),
        (float("nan"), float("nan")),
    ],
)
def test_the_same_place(one: object, other: object) -> None:
    assert sort_key(one) == sort_key(other)


def test_ties_are_broken_by_arrival_and_absent_comes_first() -> None:
    entries = sorted_list_of()
    for number, key in enumerate([3, 1, 0, 3, 2, 1, 0], start=1):
        entries.append(message(number, priority=key))
    assert numbers(entries) == [3, 7, 2, 6, 5, 1, 4]


def test_unreadable_content_counts_as_an_absent_header() -> None:
    entries = sorted_list_of(Headers(broken, MessageStore()))
    for number in (1, 2):
        entries.append(message(number, priority=3 - number))
    assert numbers(entries) == [1, 2]


@pytest.mark.parametrize("block", [2, 8])
def test_any_number_in_any_order_against_a_sorted_list(block: int) -> None:
    choice = random.Random(f"blocks of {block}")
    entries = sorted_list_of()
    entries.block = block
    linked: list[QueueEntry] = []
    for n in range(4000):
        if linked and choice.random() < (0.3 if n < 2000 else 0.6):
            entries.unlink(linked.pop(choice.randrange(len(linked))))
        else:
            insort(linked, entries.append(message(n, priority=choice.randrange(40))))
        if n % 40 == 0:
            assert list(entries) == linked
            backwards, entry = [], entries.tail
            while entry is not entries.head:
                backwards.append(entry)
                assert entry.prev is not None
                entry = entry.prev
            assert backwards == linked[::-1]
    for one in linked:
        entries.unlink(one)
    assert entries.tail is entries.head
    entries.append(message(1, priority=7))
    assert numbers(entries) == [1]


def test_an_entry_cannot_be_unlinked_twice() -> None:
    entries = sorted_list_of()
    entry = entries.append(message(1))
    entries.unlink(entry)
    with pytest.raises(AssertionError):
        entries.unlink(entry)


def test_delivered_in_order_and_late_arrivals_before_what_is_ready() -> None:
    bench = QueueBench(sorted_list_of())
    client = bench.client(2)
    for key in (5, 3, 9, 4):
        bench.publish(priority=key)
    bench.run()
    assert client.numbers == [2, 4]
    bench.publish(priority=1)
    bench.publish(priority=6)
    client.ack()
    bench.run()
    assert client.numbers[2:] == [5, 1]
    client.ack()
    bench.run()
    assert client.numbers[4:] == [6, 3]


def test_a_returned_entry_has_its_old_place() -> None:
    bench = QueueBench(sorted_list_of())
    client = bench.client(3)
    for key in (5, 3, 9, 3):
        bench.publish(priority=key)
    bench.run()
    assert client.numbers == [2, 4, 1]
    bench.publish(priority=4)
    client.nack(4)
    client.nack(2)
    bench.run()
    assert client.numbers[3:] == [2, 4]
    client.nack()
    client.deliveries.clear()
    bench.run()
    assert client.numbers == [2, 4, 5]


def test_browsers_see_each_entry_once_in_order_and_late_ones_when_they_come() -> None:
    bench = QueueBench(sorted_list_of())
    for key in (5, 3, 9):
        bench.publish(priority=key)
    browser = bench.client(acquires=False)
    bench.run()
    assert browser.numbers == [2, 1, 3]
    bench.publish(priority=4)
    bench.run()
    assert browser.numbers == [2, 1, 3, 4]
    assert bench.numbers() == [2, 4, 1, 3]
