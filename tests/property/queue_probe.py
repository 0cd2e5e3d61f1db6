"""The clients of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.core.connection import Connection
from broker.core.consumer import QueueConsumer
from broker.core.consumer_target import ConsumerTarget
from broker.core.credit import Credit
from broker.core.entry import QueueEntry
from broker.core.session import Session
from tests.property import queue_checks as checks

if TYPE_CHECKING:
    from tests.property.queue_world import World


class Probe(ConsumerTarget):
    """A client's end that reports to the world."""

    def __init__(self, world: World, session: Session, credit: Credit, session_credit: Credit | None) -> None:
        super().__init__(session, credit, session_credit)
        self.world = world
        self.held: list[tuple[QueueConsumer, QueueEntry]] = []
        self.seen: set[tuple[QueueConsumer, int]] = set()

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.world.delivered(self, consumer, entry)

    def no_messages_available(self, consumer: QueueConsumer) -> None:
        checks.check_nothing_available(self.world, self, consumer)

    def acquisition_removed(self, entry: QueueEntry) -> None:
        super().acquisition_removed(entry)
        self.held = [(consumer, held) for consumer, held in self.held if held is not entry]

    def consumer_cancelled(self, consumer: QueueConsumer) -> None:
        shown = [
            entry for owner, entry in self.held if owner is consumer
        ]  # to a browser: the rest was taken back
        self.held = [(owner, entry) for owner, entry in self.held if owner is not consumer]
        for entry in shown:
            self.restore_credit(entry.message.size)


@dataclass
class Wire:
    """One connection with its two sessions and their shared windows."""

    connection: Connection
    sessions: list[tuple[Session, Credit]]
