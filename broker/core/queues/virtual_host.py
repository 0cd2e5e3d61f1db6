"""The virtual host as its queues see it."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from broker.core.hashing import Chance
from broker.core.message import Message
from broker.core.message_view import Headers, Views
from broker.core.ports import MessageStore
from broker.core.queues.hooks import Settlement
from broker.core.queues.state import QueueState
from broker.core.schedule import Schedule


def ignore_report(text: str) -> None:
    """Ignore a report, for brokers without a log of their own."""


class QueueHost:
    """The virtual host as its queues see it; `broker.core.vhosts.vhost` implements the methods.

    `warn`: logs a warning. `settlements`: deliveries that clients have ended and that are processed in later
    turns.
    `exclusive_drain`: milliseconds for which an exclusive consumer waits for its predecessor's deliveries.
    """

    def __init__(
        self,
        store: MessageStore,
        schedule: Schedule,
        chance: Chance,
        views: Views,
        exclusive_drain: i64,
        trouble: Callable[[str], None] = ignore_report,
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

    def on_routes_changed(self) -> None:
        """Make resolved routes stale, and retry dead letters that wait for a route."""
        raise NotImplementedError

    def write_consumption_receipts(self, message: Message, queue: QueueState) -> None:
        """Write the receipts for a message with marks that was consumed from `queue`."""
        raise NotImplementedError

    def delete_unused_queue(self, queue: QueueState) -> None:
        """Delete a queue that was unused for as long as its arguments say. [RabbitMQ x-expires]"""
        raise NotImplementedError

    def note_queue(self, queue: QueueState) -> None:
        """Append to the log what the use of a queue changes in it: see `Volatile` and `StreamOffsets`."""
        raise NotImplementedError
