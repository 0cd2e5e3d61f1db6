"""The cursor and what lies behind it."""

from broker.core.context import QueueContext
from broker.core.entry import ACQUIRED, AVAILABLE, DEQUEUED, QueueEntry
from broker.core.fifo_list import FifoEntryList
from broker.core.priority_list import PriorityEntryList
from tests.dispatch import message


def take(context: QueueContext) -> QueueEntry | None:
    """What an acquiring consumer does."""
    entry = context.get_next_available_entry()
    if entry is not None:
        context.passed(entry)
        entry.state = ACQUIRED
    return entry


def give_back(context: QueueContext, *entries: QueueEntry) -> None:
    for entry in entries:
        entry.state = AVAILABLE
        context.offer(entry, 100)


def test_looking_changes_nothing() -> None:
    entries = FifoEntryList()
    first = entries.append(message(1))
    context = QueueContext(entries)
    assert context.get_next_available_entry() is first
    assert context.get_next_available_entry() is first
    assert context.last is entries.head


def test_returned_entries_come_in_their_order_before_anything_later() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(6)]
    context = QueueContext(entries)
    for entry in made[:4]:
        assert take(context) is entry
    give_back(context, made[2], made[0])
    assert [take(context) for _ in range(5)] == [made[0], made[2], made[4], made[5], None]


def test_an_entry_returned_before_the_cursor_reaches_it_is_not_offered_twice() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(3)]
    context = QueueContext(entries)
    made[1].state = ACQUIRED
    give_back(context, made[1])
    assert context.behind == []
    assert [take(context) for _ in range(4)] == [*made, None]


def test_a_late_arrival_of_higher_priority_is_next() -> None:
    entries = PriorityEntryList(2)
    low = [entries.append(message(n, priority=0)) for n in range(3)]
    context = QueueContext(entries)
    assert take(context) is low[0]
    high = entries.append(message(9, priority=1))
    context.offer(high, 4)
    assert [take(context) for _ in range(4)] == [high, low[1], low[2], None]


def test_many_returned_at_once_are_sorted() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(40)]
    context = QueueContext(entries)
    for _ in range(30):
        take(context)
    back = made[29::-3]
    for entry in back:
        entry.state = AVAILABLE
    context.offer_many([*back, made[35]], 40)
    assert len(context.behind) == len(back), "what is ahead of the cursor is found by walking"
    assert [take(context) for _ in range(len(back) + 1)] == [*reversed(back), made[30]]


def test_many_returned_in_order_come_before_what_is_behind_already() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(30)]
    context = QueueContext(entries)
    for _ in range(30):
        take(context)
    for entry in made:
        entry.state = AVAILABLE
    context.offer_many(made[20:], 30)
    context.offer_many(made[:20], 30)
    assert [take(context) for _ in range(31)] == [*made, None]


def test_a_scan_stops_at_its_budget_and_goes_on_from_there() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(25)]
    for entry in made[:24]:
        entry.state = ACQUIRED
    context = QueueContext(entries)
    context.scan_budget = 10
    assert context.get_next_available_entry() is None
    assert context.more
    assert context.last is made[9]
    assert context.get_next_available_entry() is None
    assert context.more
    assert context.get_next_available_entry() is made[24]
    assert not context.more


def test_a_scan_that_ends_with_its_budget_has_no_more() -> None:
    entries = FifoEntryList()
    for n in range(10):
        entries.append(message(n)).state = ACQUIRED
    context = QueueContext(entries)
    context.scan_budget = 10
    assert context.get_next_available_entry() is None
    assert not context.more


def test_the_cursor_steps_back_from_an_entry_that_leaves() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(4)]
    context = QueueContext(entries)
    for _ in range(3):
        take(context)
    for entry, left, stands_on in ((made[1], 3, made[2]), (made[2], 2, made[0]), (made[0], 1, entries.head)):
        entry.state = DEQUEUED
        context.forget(entry, left)
        entries.unlink(entry)
        assert context.last is stands_on
    assert take(context) is made[3]


def test_the_cursor_of_an_emptied_queue_starts_anew() -> None:
    entries = PriorityEntryList(3)
    low = entries.append(message(1, priority=0))
    context = QueueContext(entries)
    take(context)
    give_back(context, low)
    low.state = DEQUEUED
    context.forget(low, 0)
    entries.unlink(low)
    assert context.last is entries.head
    assert context.behind == [], "nothing keeps what has left"


def test_what_has_left_is_forgotten_in_the_long_run() -> None:
    entries = FifoEntryList()
    made = [entries.append(message(n)) for n in range(1000)]
    context = QueueContext(entries)
    for _ in made:
        take(context)
    for entry in made:
        entry.state = AVAILABLE
    context.offer_many(made, 1000)
    for left, entry in enumerate(made[:0:-1]):
        entry.state = DEQUEUED
        context.forget(entry, 999 - left)
        entries.unlink(entry)
        assert len(context.behind) <= max(64, 2 * (999 - left))
    assert take(context) is made[0]
