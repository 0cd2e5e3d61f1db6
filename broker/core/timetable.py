"""Messages that wait for their date, soonest first, with one alarm for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import Message
from broker.core.schedule import Alarm, Schedule

SLICE: Final = 64  # messages released in one turn: one or two milliseconds
LOOK_MS: Final = 60_000  # the calendar is looked at as often, in case somebody sets it
RETRY_MS: Final = 1000  # after a release that was not possible
STALE_MIN: Final = 64  # so many places of cancelled messages are not worth sweeping


@final
@mypyc_attr(acyclic=True)
class Held:
    """A message's place in a timetable; `message` is None once it is gone from there."""

    def __init__(self, message: Message, date: i64, number: i64) -> None:
        self.message: Message | None = message
        self.date = date
        self.number = number

    def __lt__(self, other: Held) -> bool:
        return self.date < other.date or (self.date == other.date and self.number < other.number)


@mypyc_attr(allow_interpreted_subclasses=True)
class Timetable(Alarm):
    """Releases messages at their `date`; those of one date in the order in which they were added.

    A heap of places: adding and releasing are O(log n), and nothing happens between two dates. What is
    already due is released in slices, so that a million messages of one date do not hold up everything else.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.count: i64 = 0
        self._heap: list[Held] = []
        self._numbers: i64 = 0

    def release(self, message: Message) -> i64:
        """It is time for `message`: 0 when it has gone where it belongs, else try again in so many ms.

        Called for the next message only when this one is gone.
        """
        raise NotImplementedError

    def __len__(self) -> int:
        return self.count

    def places(self) -> list[Held]:
        """Every place there is now, also of messages that are gone; see `soonest_first`."""
        return list(self._heap)

    def __iter__(self) -> Iterator[Message]:
        """All messages, soonest first, for cold use."""
        for held in sorted(self._heap):
            if held.message is not None:
                yield held.message

    def add(self, message: Message) -> Held:
        """Hold `message` until its date."""
        self._numbers += 1
        held = Held(message, message.date, self._numbers)
        heappush(self._heap, held)
        self.count += 1
        if self._heap[0] is held:
            self._set_alarm(0)
        return held

    def cancel(self, held: Held) -> None:
        """Hold a message no longer, and do not release it either."""
        if held.message is None:
            return
        held.message = None
        self.count -= 1
        if len(self._heap) > 2 * self.count + STALE_MIN:
            self._heap = [place for place in self._heap if place.message is not None]
            heapify(self._heap)

    def take(self, most: i64) -> list[Message]:
        """Hold up to `most` messages no longer, whichever, and do not release them either."""
        taken: list[Message] = []
        while self._heap and len(taken) < most:
            held = self._heap.pop()
            message = held.message
            if message is not None:
                held.message = None
                self.count -= 1
                taken.append(message)
        return taken

    def ring(self) -> None:
        """Release what is due (Alarm), at most a slice of it."""
        wait: i64 = 0
        try:
            date = self.schedule.date()
            for _ in range(SLICE):
                if wait > 0 or not self._heap or self._heap[0].date > date:
                    break
                wait = self._release_first()
        finally:  # one that fails must not stop the others for good
            self._set_alarm(wait)

    def _release_first(self) -> i64:
        held = heappop(self._heap)
        message = held.message
        if message is None:
            return 0
        held.message = None
        self.count -= 1
        wait = self.release(message)
        if wait > 0:
            held.message = message
            self.count += 1
            heappush(self._heap, held)
        return wait

    def _set_alarm(self, wait: i64) -> None:
        """Ring for the first message, but not before `wait` ms have passed."""
        if self._heap:
            wait = max(wait, min(self._heap[0].date - self.schedule.date(), LOOK_MS))
            self.schedule.set(self, self.schedule.now() + wait)


def soonest_first(places: list[Held]) -> Iterator[Held]:
    """The places of a timetable in order, found one by one: the first cost little however many follow."""
    waiting = [(places[0].date, places[0].number, 0)] if places else []
    while waiting:
        at = heappop(waiting)[2]
        for below in (2 * at + 1, 2 * at + 2):
            if below < len(places):
                place = places[below]
                heappush(waiting, (place.date, place.number, below))
        if places[at].message is not None:
            yield places[at]
