"""Giving entries back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.delivery_limit import give_up, is_exhausted, note_delivery
from broker.core.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.offering import offer_again
from broker.core.outcome import RECOVER
from broker.core.replacing import replace_outdated
from broker.core.schedule import Schedule
from broker.core.slices import Slices

if TYPE_CHECKING:
    from broker.core.queue import Queue

HELD_SLICE: Final[i64] = 2000  # entries that are HELD in one turn: a millisecond or two
GIVEN_UP_SLICE: Final[i64] = 100  # entries that leave in one turn: dead-lettering takes up to 50 us each


def release(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64) -> None:
    """Make those of `entries` that `consumer` owns AVAILABLE again where they stand, flagged redelivered.

    `outcome` says how they come back. Those that have come back too often, or have been replaced meanwhile,
    leave the queue instead, and those that are to wait before they are tried again are HELD.

    All of them are back before anybody is notified, or a later one could go out before an earlier one is
    visible. Dead letters come last: they may come back into this very queue.

    What nobody gets now need not be back all at once: what is too much to be HELD, or to leave, in one turn
    stays with `consumer` until turns to come.
    """
    if queue.deleted:
        return
    retry = queue.retry
    delayed = retry is not None and retry.delays(outcome)
    if retry is not None and delayed and len(entries) > HELD_SLICE:
        HeldInSlices(queue, entries, consumer, outcome, retry.schedule).begin()
        return
    back = entries
    outdated: list[QueueEntry] = []
    exhausted: list[QueueEntry] = []
    if retry is not None or queue.delivery_limit >= 0 or queue.entries.latest is not None:
        back = [entry for entry in entries if entry.is_with(consumer)]
        back = _sort_out(queue, back, outcome, outdated, exhausted)
    back = _make_available(queue, back, consumer)
    if retry is not None and delayed:
        retry.hold_all(back)
    discipline = queue.discipline
    if discipline is not None:
        discipline.returned(back)
    if back and delayed:
        _held(queue, back)
    elif back:
        offer_again(queue, back)
    if discipline is not None:
        discipline.wake()
    if outdated or exhausted:
        _let_go(queue, consumer, outdated, exhausted)


def _sort_out(
    queue: Queue,
    entries: list[QueueEntry],
    outcome: i64,
    outdated: list[QueueEntry],
    exhausted: list[QueueEntry],
) -> list[QueueEntry]:
    """Those of `entries` that come back; the others are added to what has been replaced, or is exhausted."""
    latest = queue.entries.latest
    retry = queue.retry
    back: list[QueueEntry] = []
    for entry in entries:
        if latest is not None and latest.is_outdated(entry):
            outdated.append(entry)
            continue
        if retry is not None:
            retry.came_back(entry, outcome)
        if is_exhausted(queue, entry):
            exhausted.append(entry)
        else:
            back.append(entry)
    return back


def _make_available(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> list[QueueEntry]:
    """ACQUIRED → AVAILABLE of those of `entries` that `consumer` has; returns these, flagged redelivered.

    Nothing but memory takes time here, so there is nothing between one access to it and the next.
    """
    back: list[QueueEntry] = []
    size: i64 = 0
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            entry.state = AVAILABLE
            entry.owner = None
            entry.redelivered = True
            size += entry.message.size
            back.append(entry)
    count: i64 = len(back)
    consumer.inflight -= count
    queue.unacked -= count
    queue.unacked_bytes -= size
    queue.ready += count
    queue.ready_bytes += size
    return back


def _let_go(
    queue: Queue, consumer: QueueConsumer, outdated: list[QueueEntry], exhausted: list[QueueEntry]
) -> None:
    """These do not come back, unless the queue has taken them back meanwhile."""
    for entry in outdated:
        if entry.is_with(consumer):
            replace_outdated(queue, entry)
    if len(exhausted) > GIVEN_UP_SLICE and queue.topology is not None:
        GivenUpInSlices(queue, exhausted, consumer, queue.topology.schedule).begin()
    else:
        _give_up(queue, exhausted, consumer)


def _give_up(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    for entry in entries:
        if entry.is_with(consumer):
            give_up(queue, entry)


def _held(queue: Queue, entries: list[QueueEntry]) -> None:
    """`entries` are HELD: their time goes on, but their deliveries have ended."""
    if queue.rules is not None:
        queue.rules.returned(entries)
    if queue.election is not None:
        queue.election.delivery_ended()


@final
class HeldInSlices(Slices):
    """`entries`, which `consumer` has given back, are HELD.

    If the queue takes them back meanwhile, as when it is deleted, nothing is left to be done.
    """

    def __init__(
        self,
        queue: Queue,
        entries: list[QueueEntry],
        consumer: QueueConsumer,
        outcome: i64,
        schedule: Schedule,
    ) -> None:
        super().__init__(entries, HELD_SLICE, schedule)
        self._queue = queue
        self._consumer = consumer
        self._outcome = outcome

    def take(self, entries: list[QueueEntry]) -> None:
        """Have these be HELD (Slices)."""
        release(self._queue, entries, self._consumer, self._outcome)


@final
class GivenUpInSlices(Slices):
    """`entries`, which have come back from `consumer` too often, leave."""

    def __init__(
        self, queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, schedule: Schedule
    ) -> None:
        super().__init__(entries, GIVEN_UP_SLICE, schedule)
        self._queue = queue
        self._consumer = consumer

    def take(self, entries: list[QueueEntry]) -> None:
        """Give these up (Slices)."""
        _give_up(self._queue, entries, self._consumer)


def deliver_again(queue: Queue, entry: QueueEntry) -> bool:
    """Count another delivery of `entry` to the consumer that has it; False if it has it no longer.

    Then it is exhausted and gone, or is to wait for its next delivery like everything that comes back.
    """
    owner = entry.owner
    if owner is None or queue.deleted:
        return False  # the queue has taken it back meanwhile
    retry = queue.retry
    if retry is not None:
        if retry.delays(RECOVER):
            release(queue, [entry], owner, RECOVER)
            return False
        retry.came_back(entry, RECOVER)
    if is_exhausted(queue, entry):
        give_up(queue, entry)
        return False
    entry.redelivered = True
    entry.delivery_count += 1
    if queue.counts:
        note_delivery(queue, entry, owner)
    return True
