"""Entries that leave with their queue, when it is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.attaching import forget
from broker.core.consumer import QueueConsumer
from broker.core.entry import DEQUEUED, HELD, QueueEntry
from broker.core.message import Message
from broker.core.schedule import Alarm, Schedule

if TYPE_CHECKING:
    from broker.core.queue import Queue

SLICE: Final[i64] = 5000  # entries of a deleted queue that go in one turn: one or two milliseconds


def cut_off(queue: Queue, schedule: Schedule) -> None:
    """A queue is deleted, and nothing happens in it any more: neither in time nor by its clients.

    Settling or releasing what they hold changes nothing from now on. What is left of it is for `dispose`.
    """
    queue.deleted = True
    if queue.rules is not None:
        queue.rules.stop()
    if queue.backlog is not None:
        queue.backlog.stop()
    if queue.retry is not None:
        queue.retry.stop()
    if queue.volatile is not None:
        schedule.cancel(queue.volatile)
    if queue.memory is not None:
        schedule.cancel(queue.memory)
    if queue.manager.gate is not None:
        queue.manager.gate.stop()
    if queue.stream is not None:
        queue.stream.drop()
        queue.stream = None


def dispose(queue: Queue, schedule: Schedule) -> None:
    """Let the consumers of a deleted queue go, and what it holds, which nobody can reach any more.

    Targets learn through `consumer_cancelled` that the queue is gone. What clients hold is taken back, which
    they learn through `acquisition_removed`.
    """
    cut_off(queue, schedule)
    if queue.journal is not None:
        queue.journal.deleted()
        queue.journal = None
    remains = Remains(queue, schedule)
    queue.rules = None
    queue.memory = None
    queue.election = None
    queue.discipline = None
    consumers = [*queue.manager.all, *queue.manager.gets]
    for consumer in consumers:
        forget(queue, consumer)
        consumer.holding = None
    queue.browsers = None
    queue.places = None
    queue.filtered.clear()
    queue.context.restart()
    queue.ready = queue.ready_bytes = queue.unacked = queue.unacked_bytes = 0
    queue.held = queue.held_bytes = queue.dead = queue.dead_bytes = 0
    remains.ring()
    for consumer in consumers:
        consumer.target.consumer_cancelled(consumer)


def burden(queue: Queue) -> i64:
    """The number of entries, or of what is as much work, `dispose` lets go of at once."""
    held = queue.messages
    if queue.rules is not None and queue.rules.timetable is not None:
        held += len(queue.rules.timetable)
    if queue.memory is not None:
        held += len(queue.memory)
    return min(held, SLICE)


@final
class Remains(Alarm):
    """The entries of a deleted queue, which lets go of them in slices: there may be a million entries.

    To clients it is gone with the queue, and to recovery too: from then on nothing comes of settling what it
    has not come to yet, or of giving that back. Iterative: entries are not collected in cycles, nor groups.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._rules = queue.rules
        self._memory = queue.memory
        self._schedule = schedule

    def ring(self) -> None:
        """Let go of a slice (Alarm)."""
        entries = self._queue.entries
        room: i64 = SLICE
        taken: list[tuple[QueueConsumer, QueueEntry]] = []
        entry = entries.next(entries.head)
        while entry is not None and room > 0:
            following = entries.next(entry)
            owner = entry.owner
            if owner is not None:
                owner.inflight -= 1
                taken.append((owner, entry))
            self._let_go(entry)
            room -= 1
            entry = following
        timetable = None if self._rules is None else self._rules.timetable
        if timetable is not None:
            for message in timetable.take(room):
                self._forget(message)
        backlog = self._queue.backlog
        if backlog is not None:
            for message in backlog.take(room):
                self._forget(message)
        memory = self._memory
        if memory is not None:
            for mark in memory.take(room):
                self._forget(mark)
        if (
            entry is not None
            or (timetable is not None and len(timetable) > 0)
            or (backlog is not None and not backlog.is_empty())
            or (memory is not None and len(memory) > 0)
        ):
            self._schedule.set(self, self._schedule.now())
        for owner, taken_back in taken:
            owner.target.acquisition_removed(taken_back)

    def _let_go(self, entry: QueueEntry) -> None:
        """AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
        queue = self._queue
        if entry.state == HELD and queue.retry is not None:
            queue.retry.let_go(entry)
        entry.state = DEQUEUED
        entry.owner = None
        group = entry.group
        if group is not None:
            group.owner = None  # who knows its groups
            entry.group = None
        if self._rules is not None and entry.timer is not None:
            self._rules.timers.stop(entry.timer)
        if queue.index is not None:
            queue.index.remove(entry, 0)
        queue.entries.unlink(entry)
        self._forget(entry.message)

    def _forget(self, message: Message) -> None:
        if self._queue.logged and message.sequence != 0:
            self._queue.store.forget(message, self._queue)
