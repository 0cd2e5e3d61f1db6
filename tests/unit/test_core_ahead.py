"""What is touched before it is delivered."""

from broker.core.ahead import AHEAD, fetch_ahead
from broker.core.fifo_list import FifoEntryList
from tests.dispatch import message


def test_as_many_as_are_to_come_next_are_touched_if_they_are_in_memory() -> None:
    entries = FifoEntryList()
    first = entries.append(message(0))
    assert fetch_ahead(first) == 0, "there is nothing behind it"
    for _ in range(AHEAD + 3):
        entries.append(message(7))
    assert fetch_ahead(first) == AHEAD
    assert first.next is not None
    first.next.message.content = None
    assert fetch_ahead(first) == AHEAD - 1
