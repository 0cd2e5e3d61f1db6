"""Giving entries back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.delivery_limit import give_up, is_exhausted, note_delivery
from broker.core.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.offering import offer_again
from broker.core.outcome import RECOVER
from broker.core.replacing import replace_outdated

if TYPE_CHECKING:
    from broker.core.queue import Queue


def release(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64) -> None:
    """Make those of `entries` that `consumer` owns AVAILABLE again where they stand, flagged redelivered.

    `outcome` says how they come back. Those that have come back too often, or have been replaced meanwhile,
    leave the queue instead, and those that are to wait before they are tried again are HELD.

    All of them are back before anybody is notified, or a later one could go out before an earlier one is
    visible. Dead letters come last: they may come back into this very queue.
    """
    retry = queue.retry
    delayed = retry is not None and retry.delays(outcome)
    latest = queue.entries.latest
    back: list[QueueEntry] = []
    exhausted: list[QueueEntry] = []
    outdated: list[QueueEntry] = []
    for entry in entries:
        if entry.state != ACQUIRED or entry.owner is not consumer:
            continue  # the queue has taken it back meanwhile
        if latest is not None and latest.is_outdated(entry):
            outdated.append(entry)
            continue
        if retry is not None:
            retry.came_back(entry, outcome)
        if is_exhausted(queue, entry):
            exhausted.append(entry)
            continue
        size = entry.message.size
        entry.owner = None
        entry.redelivered = True
        consumer.inflight -= 1
        queue.unacked -= 1
        queue.unacked_bytes -= size
        back.append(entry)
        if retry is not None and delayed:
            retry.hold(entry)
            queue.held += 1
            queue.held_bytes += size
            continue
        entry.state = AVAILABLE
        queue.ready += 1
        queue.ready_bytes += size
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


def _let_go(
    queue: Queue, consumer: QueueConsumer, outdated: list[QueueEntry], exhausted: list[QueueEntry]
) -> None:
    """These do not come back, unless the queue has taken them back meanwhile."""
    for entry in outdated:
        if entry.state == ACQUIRED and entry.owner is consumer:
            replace_outdated(queue, entry)
    for entry in exhausted:
        if entry.state == ACQUIRED and entry.owner is consumer:
            give_up(queue, entry)


def _held(queue: Queue, entries: list[QueueEntry]) -> None:
    """`entries` are HELD: their time goes on, but their deliveries have ended."""
    if queue.rules is not None:
        queue.rules.returned(entries)
    if queue.election is not None:
        queue.election.delivery_ended()


def deliver_again(queue: Queue, entry: QueueEntry) -> bool:
    """Count another delivery of `entry` to the consumer that has it; False if it has it no longer.

    Then it is exhausted and gone, or is to wait for its next delivery like everything that comes back.
    """
    owner = entry.owner
    if owner is None:
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
