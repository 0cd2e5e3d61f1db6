"""Random access: find a message of a queue by its id, or by its place among the ready messages.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: "the third message in the queue or a
message with a specific ID"]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, EntryFilter, QueueEntry
from broker.core.entries.places import NO_NUMBER
from broker.core.message import Message
from broker.core.queues.queue import Queue, expire_if_late, open_browser_context
from broker.core.queues.state import begin_browsing, end_browsing, places_of

LOGGED: Final = "log-"
UNLOGGED: Final = "mem-"
NUMBER_MAX: Final = (1 << 62) - 1
LATE_COST: Final[i64] = 50  # the cost of dead-lettering an expired entry, in entries looked at


def message_id(queue: Queue, entry: QueueEntry) -> str:
    """Return the id of a message in a queue, unique while the message is in the queue.

    The id is the message's number in the log, or else the number of its arrival in the queue. A restart
    forgets that number, as it forgets the message.
    """
    return id_of(entry.message, queue.entries.arrival(entry))


def id_of(message: Message, arrival: i64) -> str:
    """Return the id of a message whose arrival in its queue had the number `arrival`."""
    sequence = int(message.sequence)
    return f"{LOGGED}{sequence}" if sequence > 0 else f"{UNLOGGED}{arrival}"


def numbers_of(wanted: str) -> tuple[int, int]:
    """Return the numbers in a `message_id`: the sequence in the log, 0: none, and the arrival, 0: unknown."""
    number = int(wanted[len(LOGGED) :])
    return (number, 0) if wanted.startswith(LOGGED) else (0, number)


def is_message_id(text: str) -> bool:
    """Whether a text has the form of the ids of `message_id`."""
    number = text[len(LOGGED) :]
    known = text.startswith((LOGGED, UNLOGGED)) and number.isascii() and number.isdigit()
    return known and len(number) < 20 and 0 < int(number) <= NUMBER_MAX


@mypyc_attr(allow_interpreted_subclasses=True)
class Search:
    """A search for one entry of a queue, in steps between which other work is done.

    `entry`: the entry, if there is one, when `step` has returned true. The entry is linked until other work
    runs.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.entry: QueueEntry | None = None

    def step(self, most: i64) -> bool:
        """Look at up to `most` entries. Return whether the search is over."""
        raise NotImplementedError

    def end(self) -> None:
        """Release the search's resources: its result is not needed any more."""


@final
class IdSearch(Search):
    """The search for the entry with an id, which `is_message_id` has accepted, whatever its state.

    The queue is no stream.
    """

    def __init__(self, queue: Queue, wanted: str) -> None:
        super().__init__(queue)
        number = int(wanted[len(LOGGED) :])
        logged = wanted.startswith(LOGGED)
        self._sequence: i64 = number if logged else NO_NUMBER
        self._arrival: i64 = NO_NUMBER if logged else number

    def step(self, most: i64) -> bool:
        """Count more entries, until the wanted one is among them."""
        places = places_of(self.queue)
        entry = self._find()
        over = entry is None and not places.extend(most)
        if over:
            entry = self._find()
        self.entry = entry
        return over or entry is not None

    def _find(self) -> QueueEntry | None:
        entry = places_of(self.queue).find(self._sequence, self._arrival)
        if entry is not None and self._arrival != NO_NUMBER and entry.message.sequence > 0:
            return None  # a logged message has another id
        return entry


@final
class PlaceSearch(Search):
    """The search for the ready entry with so many ready ones before it.

    The queue is no stream.
    """

    def __init__(self, queue: Queue, place: i64) -> None:
        super().__init__(queue)
        self._place = place

    def step(self, most: i64) -> bool:
        """Count more entries, until there are enough."""
        queue = self.queue
        while most > 0:
            if self._place >= queue.ready:
                return True
            places = places_of(queue)
            more = True
            entry = places.nth(self._place, True)
            if entry is None:
                more = places.extend(most)
                entry = places.nth(self._place, True)
            if entry is None:
                return not more
            if not expire_if_late(queue, entry):
                self.entry = entry
                return True
            most -= LATE_COST
        return False


@final
class FirstSearch(Search):
    """The search for the first entry that is ready and that a filter lets pass."""

    def __init__(self, queue: Queue, entry_filter: EntryFilter | None) -> None:
        super().__init__(queue)
        self._cursor: Cursor = open_browser_context(queue, entry_filter)
        self._ended = False
        begin_browsing(queue, self._cursor)

    def step(self, most: i64) -> bool:
        """Continue the search from the cursor."""
        cursor = self._cursor
        cursor.scan_budget = most
        while most > 0:
            entry = cursor.get_next_available_entry()
            if entry is None:
                return not cursor.more
            if not expire_if_late(self.queue, entry):
                self.entry = entry
                return True
            most -= LATE_COST
        return False

    def end(self) -> None:
        """Remove the cursor."""
        if not self._ended:
            self._ended = True
            end_browsing(self.queue, self._cursor)


def may_take(queue: Queue, entry: QueueEntry) -> bool:
    """Whether an owner that is no consumer may take `entry` now, although other entries may be before it.

    A queue in strict order delivers only its first message, and a group's messages belong to the group's
    owner.
    """
    if entry.state != AVAILABLE:
        return False
    discipline = queue.discipline
    return discipline is None or (discipline.is_open(entry) and discipline.owner(entry) is None)
