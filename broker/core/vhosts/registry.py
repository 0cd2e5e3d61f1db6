"""The virtual hosts of one log, and their queues by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mypy_extensions import i64

from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.core.routing.topology import QueueNumbers
from broker.core.schedule import Schedule
from broker.core.vhosts.changes import Change
from broker.core.vhosts.vhost import VirtualHost

INCARNATION: Final = "incarnation"
EPOCHS: Final[i64] = 1_000_000  # numbers between two incarnations: epochs that begin at the first one


class Registry:
    """The virtual hosts of one log by name, its queues by number, and the owners of other definitions.

    `appliers` maps the first word of a change's kind to the function that applies the change, and each of
    `definers` describes the definitions of its part; see `Broker.describe`.
    """

    def __init__(self, store: MessageStore, schedule: Schedule) -> None:
        self.store = store
        self.schedule = schedule
        self.vhosts: dict[str, VirtualHost] = {}
        self.numbers = QueueNumbers()
        self.appliers: dict[str, Callable[[Change], None]] = {}
        self.definers: list[Callable[[], Iterable[list[Change]]]] = []
        self._incarnation: i64 = 0  # the last one

    def new_incarnation(self) -> i64:
        """Return a number that this broker has never returned before, also if the calendar was set back.

        The number is appended to the log, and may leave the broker when the batch of the log is on disk. It
        is the time in microseconds since 1970 or later, so a restored copy of the log does not repeat it
        either. Raises StoreFailed.
        """
        self.store.require()
        number = max(self.schedule.date() * 1000, self._incarnation + EPOCHS)
        self._incarnation = number
        self.store.append_definition(self.describe_incarnation())
        return number

    def describe_incarnation(self) -> Change:
        """Describe the last incarnation, for the log."""
        return {"kind": INCARNATION, "number": int(self._incarnation)}

    def note_incarnation(self, number: i64) -> None:
        """Note an incarnation from the log."""
        self._incarnation = max(self._incarnation, number)

    def queue_numbered(self, number: i64) -> Queue | None:
        """Return the logged queue with a number; None: the queue was deleted."""
        return self.numbers.queues.get(number)
