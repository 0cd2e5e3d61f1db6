"""Undeliverable messages: returned by a consumer, and for no other consumer to take. [amqp-1.0 3.4.5]

A consumer may return a message as undeliverable to itself. The message is requeued for other consumers. When
the last consumer that could take it leaves, the message is rejected, so that the dead-letter exchange of the
queue gets it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import ACQUIRED, DEQUEUED, EntryFilter, QueueEntry
from broker.core.queues.consumer import ConsumerTarget
from broker.core.queues.hooks import REJECTED, UndeliverableHook
from broker.core.queues.queue import Queue, dead_letter
from broker.core.schedule import Schedule

SLICE: Final[i64] = 100  # entries that one turn looks at: dead-lettering takes up to 50 us each
_SWEEP_MIN: Final = 64


@final
class OtherConsumers:
    """The entries that consumers of a queue could take, by the filters of all consumers except one target's.

    `has_unfiltered`: a consumer has no filter. `filters`: the filters of the consumers, if all have a filter.
    """

    def __init__(self, queue: Queue, apart_from: ConsumerTarget | None = None) -> None:
        self.has_unfiltered = False
        self.filters: dict[str, EntryFilter] = {}
        for consumer in queue.manager.acquiring_consumers():
            target = consumer.target
            if target is apart_from or target.closed:
                continue
            entry_filter = consumer.filter
            if entry_filter is None:
                self.has_unfiltered = True
                return
            self.filters[entry_filter.key] = entry_filter

    def could_take(self, entry: QueueEntry) -> bool:
        """Whether one of the consumers would get an entry as soon as it has credit."""
        if self.has_unfiltered:
            return True
        return any(entry_filter.passes(entry) for entry_filter in self.filters.values())

    def has_sent_away(self, entry: QueueEntry) -> bool:
        """Whether one of the consumers has returned an entry as undeliverable to itself."""
        return any(entry_filter.excludes(entry) for entry_filter in self.filters.values())


@final
class Undeliverable(UndeliverableHook):
    """The entries of a queue that consumers have returned as undeliverable; they are checked in slices.

    A queue has this object only while it may have such entries. All entries are checked when a consumer
    leaves, and each entry when it is requeued.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self._queue = queue
        self._entries: dict[QueueEntry, None] = {}
        self._sweep_at = _SWEEP_MIN
        self._unseen: deque[QueueEntry] = deque()
        self._all_unseen = False

    def add(self, entries: list[QueueEntry]) -> None:
        """Note entries that a consumer returns as undeliverable to itself; they are about to be requeued."""
        for entry in entries:
            self._entries[entry] = None
        if len(self._entries) >= self._sweep_at:
            self._entries = {entry: None for entry in self._entries if entry.state != DEQUEUED}
            self._sweep_at = 2 * len(self._entries) + _SWEEP_MIN
        self._look(entries)

    def check_returns(self, entries: list[QueueEntry]) -> None:
        """Check the requeued `entries` that were returned as undeliverable before."""
        known = [entry for entry in entries if entry in self._entries]
        if known:
            self._look(known)

    def note_detached(self) -> None:
        """Check all noted entries: a consumer of the queue was detached."""
        self._all_unseen = True
        self._set()

    def step(self, budget: i64) -> bool:
        """Check up to `budget` entries, and reject those that no consumer could take."""
        queue = self._queue
        if queue.deleted:
            return False
        reach = OtherConsumers(queue)
        if reach.has_unfiltered:
            self._unseen.clear()
            self._all_unseen = False
            return False
        if self._all_unseen:
            self._all_unseen = False
            self._unseen = deque(self._entries)
        limits = queue.limits
        may_die = limits is not None and limits.moves(REJECTED)
        while self._unseen and budget > 0:
            budget -= 1
            entry = self._unseen.popleft()
            if entry.state == ACQUIRED:
                continue  # the entry is checked when it is requeued
            if entry.state == DEQUEUED or not reach.has_sent_away(entry):
                self._entries.pop(entry, None)
            elif may_die and not reach.could_take(entry):
                del self._entries[entry]
                dead_letter(queue, entry, REJECTED)
        if not self._unseen and not self._entries:
            queue.manager.undeliverable = None
        return bool(self._unseen)

    def _look(self, entries: list[QueueEntry]) -> None:
        if not self._all_unseen:
            self._unseen.extend(entries)
            self._set()

    def _set(self) -> None:
        if self.due == 0:
            self.continue_soon()
