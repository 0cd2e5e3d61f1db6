"""The cursor and what lies behind it."""

from broker.core.entries.cursor import Browsers, QueueContext
from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from tests.dispatch import message


def take(context: QueueContext) -> QueueEntry | None:
    """Take the next entry, as an acquiring consumer does."""
    entry = context.get_next_available_entry()
    if entry is not None:
        context.passed(entry)
        entry.state = ACQUIRED
    return entry


def give_back(context: QueueContext, *entries: QueueEntry) -> None:
    for entry in entries:
        entry.state = AVAILABLE
        context.offer(entry, 100)


def arrive(context: QueueContext, entries: PriorityEntryList, priority: int) -> QueueEntry:
    """Append and offer an entry, as a publisher does."""
    entry = entries.append(message(0, priority=priority))
    context.offer(entry, 100)
    return entry


def leave(context: QueueContext, entries: PriorityEntryList, entry: QueueEntry) -> None:
    """Unlink an entry, as expiry does."""
    entry.state = DEQUEUED
    context.forget(entry, 100)
    entries.unlink(entry)


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


def test_late_arrivals_come_by_priority_and_within_one_in_their_order() -> None:
    entries = PriorityEntryList(256)
    context = QueueContext(entries)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    assert take(context) is low[0]
    late = [arrive(context, entries, priority) for priority in (9, 70, 9, 255, 70, 9, 1)]
    assert context.behind == [], "late arrivals need no heap"
    wanted = [late[3], late[1], late[4], late[0], late[2], late[5], late[6], low[1], None]
    assert [take(context) for _ in wanted] == wanted


def test_what_comes_back_is_delivered_before_late_arrivals_of_its_priority() -> None:
    entries = PriorityEntryList(3)
    context = QueueContext(entries)
    entries.append(message(0, priority=0))
    take(context)
    late = [arrive(context, entries, 1) for _ in range(3)]
    assert [take(context), take(context)] == late[:2]
    give_back(context, late[1], late[0])
    assert [take(context) for _ in range(4)] == [*late, None]


def test_late_arrivals_that_leave_are_not_delivered() -> None:
    entries = PriorityEntryList(3)
    context = QueueContext(entries)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    take(context)
    late = [arrive(context, entries, priority) for priority in (2, 1, 1, 2, 1)]
    for entry in (late[0], late[1], late[3]):
        leave(context, entries, entry)
    assert [take(context) for _ in range(4)] == [late[2], late[4], low[1], None]


def test_late_arrivals_end_where_the_cursor_stands() -> None:
    entries = PriorityEntryList(3)
    context = QueueContext(entries)
    low = entries.append(message(0, priority=0))
    take(context)
    high = arrive(context, entries, 1)
    leave(context, entries, low)
    assert context.last is high, "the cursor has stepped back to an entry that nobody has had"
    following = [arrive(context, entries, 1) for _ in range(3)]
    assert [take(context) for _ in range(3)] == [high, *following[:2]]
    give_back(context, following[0])
    assert [take(context) for _ in range(3)] == [following[0], following[2], None]


def test_the_cursor_of_a_browser_keeps_late_arrivals_in_its_heap() -> None:
    entries = PriorityEntryList(2)
    low = [entries.append(message(n, priority=0)) for n in range(2)]
    context = QueueContext(entries)
    take(context)
    context.browsers = Browsers()
    high = [arrive(context, entries, 1) for _ in range(2)]
    assert context.behind == high
    context.browsers = None
    assert [take(context) for _ in range(4)] == [*high, low[1], None]


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
