"""What a queue needs of the virtual host that it is in."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from broker.core.chance import Chance
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.hooks import Settlement
from broker.core.queues.state import QueueState
from broker.core.schedule import Schedule
from broker.core.view import Headers, Views


def nobody_told(text: str) -> None:
    """For a broker of which nobody wants to know what goes wrong."""


class QueueHost:
    """The virtual host as its queues know it; `broker.core.vhosts.vhost` implements the methods.

    `warn`: logs a warning. `settlements`: deliveries that clients have ended and that have turns to come.
    `exclusive_drain`: milliseconds for which an exclusive consumer waits for deliveries of the one before it.
    """

    def __init__(
        self,
        store: MessageStore,
        schedule: Schedule,
        chance: Chance,
        views: Views,
        exclusive_drain: i64,
        trouble: Callable[[str], None] = nobody_told,
    ) -> None:
        self.store = store
        self.schedule = schedule
        self.chance = chance
        self.views = views
        self.headers = Headers(views, store)
        self.exclusive_drain = exclusive_drain
        self.trouble = trouble
        self.warn = trouble
        self.settlements: list[Settlement] = []

    def changed(self) -> None:
        """Make resolved routes stale, and try dead letters again that wait for a route."""
        raise NotImplementedError

    def consumed(self, message: Message, queue: QueueState) -> None:
        """A message that has marks has been consumed from `queue`: write the receipts that it asks for."""
        raise NotImplementedError

    def queue_unused(self, queue: QueueState) -> None:
        """Delete a queue that nobody has used for as long as it said. [RabbitMQ x-expires]"""
        raise NotImplementedError

    def note_queue(self, queue: QueueState) -> None:
        """Have the log know what changes of a queue by its being used: see `Volatile` and `StreamOffsets`."""
        raise NotImplementedError
