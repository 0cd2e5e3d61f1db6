"""The virtual hosts of one log, and their queues by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mypy_extensions import i64

from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.core.routing.topology import QueueNumbers
from broker.core.schedule import Schedule
from broker.core.vhosts.changes import Change
from broker.core.vhosts.vhost import VirtualHost


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

    def queue_numbered(self, number: i64) -> Queue | None:
        """Return the logged queue with a number; None: the queue was deleted."""
        return self.numbers.queues.get(number)
