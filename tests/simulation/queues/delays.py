"""Messages that a queue delays until their date. No code is shared with the broker."""

from dataclasses import dataclass

from tests.simulation.queues.journal import Journal
from tests.simulation.queues.notes import Note

RETRY = 1000  # ms after which a queue that is full is tried again
DELAY, DELIVERY_TIME = "x-delay", "x-delivery-time"


@dataclass(eq=False)
class Wait:
    """A delayed note; `place`: its order at the same time; `key`: its key in the log."""

    note: Note
    until: int
    place: int
    key: tuple[str, int]


class Delays:
    """The delayed messages of a queue."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.waits: list[Wait] = []
        self.places = 0

    def hold(self, note: Note, until: int, key: tuple[str, int]) -> Wait:
        """Delay `note` until a time."""
        self.places += 1
        wait = Wait(note, until, self.places, key)
        self.waits.append(wait)
        self.journal.held[key[0], note.number, until] = key
        return wait

    def in_order(self) -> list[Wait]:
        """Soonest first."""
        return sorted(self.waits, key=lambda wait: (wait.until, wait.place))

    def postpone(self, wait: Wait, now: int) -> None:
        """Try again later, as the last of that time, because the queue is full."""
        self.places += 1
        wait.until, wait.place = now + RETRY, self.places
