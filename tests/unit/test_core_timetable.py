"""Messages are released at their date, in order, once; what cannot go yet is tried again."""

import random

from broker.core.message import Address, Message
from broker.core.schedule import LOOK_MS, SLICE, STALE_DATES_MIN, Timetable
from tests.clock import HandClock

ADDRESS = Address("x", "k")


class Notes(Timetable):
    """Notes what it releases, and when."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock.schedule)
        self.clock = clock
        self.released: list[tuple[int, int]] = []  # size, and how late
        self.wait = 0

    def release(self, message: Message) -> int:
        if self.wait == 0:
            self.released.append((message.size, self.clock.date() - message.date))
        return self.wait


def due(clock: HandClock, wait: int, number: int = 0) -> Message:
    message = Message(ADDRESS, b"", number, True, 0)
    message.date = clock.date() + wait
    return message


def test_each_message_is_released_at_its_date_and_those_of_one_date_in_their_order() -> None:
    clock = HandClock()
    table = Notes(clock)
    waits = [random.Random(5).randrange(100) for _ in range(500)]
    for number, wait in enumerate(waits):
        table.add(due(clock, wait, number))
    assert len(table) == 500
    assert [message.size for message in table] == sorted(range(500), key=lambda n: waits[n])
    clock.advance(99)
    assert [number for number, _ in table.released] == sorted(range(500), key=lambda n: waits[n])
    assert all(late == 0 for _, late in table.released)
    assert len(table) == 0


def test_nothing_happens_between_two_dates() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, 30_000))
    table.add(due(clock, 20_000))
    clock.wakes.clear()
    for _ in range(1000):
        table.add(due(clock, 40_000))
    assert clock.wakes == []
    clock.advance(19_999)
    assert table.released == []


def test_a_date_that_is_past_is_now() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, -5))
    assert table.released == [], "not within the add"
    clock.advance(0)
    assert len(table.released) == 1


def test_many_of_one_date_go_in_slices() -> None:
    clock = HandClock()
    table = Notes(clock)
    for number in range(3 * SLICE):
        table.add(due(clock, 10, number))
    clock.now += 10
    for turn in range(1, 4):
        clock.schedule.run()
        assert len(table.released) == turn * SLICE


def test_what_cannot_go_yet_stays_the_first() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.wait = 500
    for number in range(3):
        table.add(due(clock, 10, number))
    clock.advance(400)
    assert (table.released, len(table)) == ([], 3)
    table.wait = 0
    clock.advance(200)
    assert table.released == [(0, 500), (1, 500), (2, 500)]


def test_cancelled_messages_are_not_released() -> None:
    clock = HandClock()
    table = Notes(clock)
    held = [table.add(due(clock, number, number)) for number in range(1000)]
    for place in held[:990]:
        table.cancel(place)
        table.cancel(place)
    assert len(table) == 10
    assert sum(map(len, table.places())) <= 20 + STALE_DATES_MIN + 1
    clock.advance(2_000)
    assert [number for number, _ in table.released] == list(range(990, 1000))
    table.cancel(held[995])
    assert len(table) == 0


def test_what_is_taken_is_not_released() -> None:
    clock = HandClock()
    table = Notes(clock)
    places = [table.add(due(clock, wait, wait)) for wait in (30, 10, 20, 40, 25)]
    table.cancel(places[2])
    taken = [message.size for message in table.take(2)]
    assert (len(taken), len(table)) == (2, 2)
    clock.advance(1_000)
    assert sorted([*taken, *(size for size, _ in table.released)]) == [10, 25, 30, 40]
    assert (table.take(9), len(table)) == ([], 0)


def test_a_calendar_that_is_set_is_noticed() -> None:
    clock = HandClock()
    table = Notes(clock)
    table.add(due(clock, 3_600_000))
    clock.offset += 3_600_000
    clock.advance(LOOK_MS)
    assert len(table.released) == 1
    table.add(due(clock, 1_000))
    clock.offset -= 3_600_000
    clock.advance(1_000)
    assert len(table.released) == 1, "not yet"
