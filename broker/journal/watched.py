"""The journal's records of any queue: its declaration, its count of messages, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.core.arguments.queue import LEVELS
from broker.core.queues.hooks import QueueJournal
from broker.core.queues.queue import Queue
from protocol.journal import records as r
from protocol.journal.names import Name

if TYPE_CHECKING:
    from broker.journal.recording import Recorder

FULL_LEVEL: Final[i64] = 2
NO_PLACE: Final[i64] = -1

LEVEL_REASONS: Final = [r.reason_number(name) for name in LEVELS]
SHUTDOWN: Final = r.reason_number("shutdown")
_LEVEL: Final = r.reason_number("level")


class WatchedQueue(QueueJournal):
    """Made for one queue that is journaled, which it calls `name`; `level`: how much, its place in LEVELS."""

    def __init__(self, recorder: Recorder, queue: Queue, level: i64) -> None:
        self.recorder = recorder
        self.level = level
        self.queue = queue
        self.name = recorder.queue(queue)

    def begin(self) -> None:
        """The queue is journaled from here on: it is new, or there already."""
        queue = self.queue
        if queue.published == 0 and self.count() == 0:
            who = self.recorder.actor_name(self.recorder.who())
            self.tell(r.DECLARE, 0, 0, NO_PLACE, LEVEL_REASONS[self.level], who)
            return
        self._checkpoint(_LEVEL)
        if self.level != FULL_LEVEL:
            self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[self.level])

    def set_level(self, level: i64) -> None:
        """Record more or less of it from here on."""
        if level != self.level:
            self.level = level
            self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[level])

    def stop(self) -> None:
        """The queue is journaled no longer."""
        self._checkpoint(_LEVEL)
        self.tell(r.LEVEL, 0, 0, NO_PLACE, LEVEL_REASONS[0])

    def stopped(self) -> None:
        """The broker stops, and the log is closed: say what goes with it, and what will be there again."""
        queue = self.queue
        if queue.number == 0:
            self.tell(r.QUEUE_DELETE, self.count(), 0, NO_PLACE, SHUTDOWN)
            return
        lost = self.lost()
        if lost > 0:
            self.tell(r.LOST, lost, 0, NO_PLACE, SHUTDOWN)
        self.tell(r.CHECKPOINT, self.count() - lost, 0, self.last_place(), SHUTDOWN)

    def checkpoint(self) -> None:
        """Say how much is in the queue now, and how much is recorded of it, as who reads a part may ask."""
        self._checkpoint(LEVEL_REASONS[self.level])

    def _checkpoint(self, reason: i64) -> None:
        self.tell(r.CHECKPOINT, self.count(), self.queue.unacked, self.last_place(), reason)

    def recovered(self) -> None:
        """Say what is in the queue after a restart."""
        raise NotImplementedError

    def count(self) -> i64:
        """Return how many messages are in the queue."""
        raise NotImplementedError

    def lost(self) -> i64:
        """Return how many messages of the queue a restart does not bring back."""
        raise NotImplementedError

    def last_place(self) -> i64:
        """Return the place of the last message; NO_PLACE if there is none."""
        raise NotImplementedError

    def renamed(self) -> None:
        """The queue is called otherwise from here on (QueueJournal)."""
        self.name = self.recorder.renamed(self.name, self.queue)

    def deleted(self) -> None:
        """The queue is deleted, with all that is in it now (QueueJournal)."""
        who = self.recorder.actor_name(self.recorder.who())
        self.tell(r.QUEUE_DELETE, self.count(), 0, NO_PLACE, 0, who)

    def purged(self, first: i64, last: i64, count: i64, by: object | None) -> None:
        """All entries from one place to another leave (QueueJournal)."""
        self.tell(r.PURGE, count, first, last, 0, self.recorder.actor_name(by))

    def who(self) -> object | None:
        """The actor of what happens now (QueueJournal)."""
        return self.recorder.who()

    def tell(
        self, op: i64, count: i64, other: i64, place: i64, reason: i64, actor: Name | None = None
    ) -> None:
        """Record a fact that is of no message."""
        recorder = self.recorder
        if recorder.limit > 0 and recorder.started:
            recorder.write(op, 0, place, other, self.name, None, actor, count, 0, reason, 0, b"")
