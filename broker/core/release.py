"""Giving entries back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.dead_letter import DELIVERY_LIMIT
from broker.core.delivery_limit import append_count, give_up, is_exhausted, note_delivery
from broker.core.discarding import discard_all
from broker.core.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.offering import offer_again
from broker.core.outcome import RECOVER, RELEASED
from broker.core.places import note_change
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
    if queue.deleted:
        return
    retry = queue.retry
    delayed = retry is not None and retry.delays(outcome)
    back = entries
    outdated: list[QueueEntry] = []
    exhausted: list[QueueEntry] = []
    if outcome == RELEASED and retry is None:
        _do_not_count(queue, entries, consumer)
    if retry is not None or queue.delivery_limit >= 0 or queue.entries.latest is not None:
        back = [entry for entry in entries if entry.is_with(consumer)]
        back = _sort_out(queue, back, outcome, outdated, exhausted)
    back = _make_available(queue, back, consumer)
    if queue.journal is not None:
        for entry in back:
            queue.journal.returned(entry, consumer, outcome)
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
    if queue.manager.undeliverable is not None:
        queue.manager.undeliverable.returned(back)
    if outdated or exhausted:
        _let_go(queue, consumer, outdated, exhausted)


def _do_not_count(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """The deliveries of `entries` were not even tried. [amqp-1.0 3.4.4]"""
    for entry in entries:
        if entry.is_with(consumer):
            entry.uncounted += 1
            if queue.counts:
                append_count(queue, entry)


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
            if queue.places is not None:
                note_change(queue, queue.places, entry, 1)
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
    if exhausted:
        discard_all(queue, exhausted, consumer, DELIVERY_LIMIT)


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
    if queue.journal is not None:
        queue.journal.delivered(entry, owner)
    if queue.counts:
        note_delivery(queue, entry, owner)
    return True
