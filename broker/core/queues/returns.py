"""The end of deliveries: they are settled, requeued or rejected, large numbers of them in slices.

A consumer may add annotations to messages that it returns. Selectors, groups, keys and routes see messages as
they were published, without annotations. The protocol encodes the annotations; the core only stores them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import NACK, RECOVER, RELEASED
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.message import TELLS_CONSUMED
from broker.core.queues.consumer import BLOCKED_BY_RETURNS, QueueConsumer, TargetSession
from broker.core.queues.consumers import clear_blocker, suspend
from broker.core.queues.hooks import DROP_HEAD, EXHAUSTED, REJECTED, DiscardsHook, RemoteHook, Settlement
from broker.core.queues.queue import (
    Queue,
    append_count,
    concerns_cursors,
    dead_letter,
    dead_letter_returned,
    is_exhausted,
    note_delivery,
    offer_again,
    queue_of,
    replace_outdated,
    take_out,
)
from broker.core.queues.state import QueueState, make_available, make_dequeued, owns
from broker.core.queues.virtual_host import QueueHost
from broker.core.schedule import Schedule

SLICE: Final[i64] = 5000  # deliveries processed in one turn: one or two milliseconds
DEAR: Final[i64] = 50  # the cost of a delivery that is dead-lettered or has a receipt, in plain deliveries
FEW: Final[i64] = SLICE // DEAR  # so few deliveries are always processed at once

Run = tuple[QueueConsumer, list[QueueEntry]]
"""Deliveries of one consumer."""


def are_few(runs: list[Run]) -> bool:
    """Whether `runs` are few enough to be processed at once, even if each delivery is costly."""
    count: i64 = 0
    for run in runs:
        count += len(run[1])
    return count <= FEW


class EndedDeliveries(Settlement):
    """Deliveries that have ended in the same way. A subclass implements `process`, for a slice in each turn.

    A delivery that waits for its slice stays with its consumer, and no one can settle or return it again. A
    processed delivery is dropped from the list at once, because freeing all deliveries together takes long.
    The caller must not use `runs` any more. `session`: the session whose credit the deliveries use until they
    are processed; None: other code restores the credit.
    """

    def __init__(self, runs: list[Run], session: TargetSession | None, host: QueueHost) -> None:
        super().__init__(host.schedule, SLICE)
        self.session = session
        self._host = host
        self._left = runs  # the last one first, and so each of them
        runs.reverse()
        for _, entries in runs:
            entries.reverse()

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Process `entries`, deliveries of `consumer`, now."""
        raise NotImplementedError

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of `entry`, in plain entries."""
        return 1

    def end_run(self, consumer: QueueConsumer) -> None:
        """Note the end of a run of `consumer`."""

    def begin(self) -> None:
        """Process a first slice, unless another settlement is running."""
        host = self._host
        host.settlements.append(self)
        if len(host.settlements) == 1:
            self.do_due_work()
        else:
            self.continue_soon()

    def remaining_runs(self) -> list[Run]:
        """Return the runs that have not been processed yet, in no order."""
        return self._left

    def step(self, budget: i64) -> bool:
        """Process deliveries up to the cost `budget`, in plain ones."""
        self._take_some(budget)
        self._end()
        return bool(self._left)

    def finish(self) -> None:
        """Process all deliveries now."""
        self._finish(None)

    def finish_queue(self, queue: QueueState) -> None:
        """Process all deliveries of `queue` now."""
        self._finish(queue)

    def _finish(self, queue: QueueState | None) -> None:
        mine: list[Run] = []
        others: list[Run] = []
        for run in self._left:
            (mine if queue is None or run[0].queue is queue else others).append(run)
        self._left = others
        for consumer, entries in reversed(mine):
            entries.reverse()
            self.process(entries, consumer)
            self.end_run(consumer)
        self._end()

    def finish_before_deletion(self, queue: QueueState) -> None:
        """Process the deliveries of `queue`, which is about to be deleted."""
        self.finish_queue(queue)

    def drop_all(self) -> None:
        """Drop deliveries: all queues are about to be deleted, with their virtual host and their entries."""

    def _end(self) -> None:
        host = self._host
        if not self._left and self in host.settlements:
            host.settlements.remove(self)
            self.schedule.cancel(self)

    def _take_some(self, room: i64) -> None:
        while self._left and room > 0:
            consumer, left = self._left[-1]
            entries: list[QueueEntry] = []
            room -= 1  # so that many short runs do not make a long turn either
            while left and room >= 0:
                entry = left.pop()
                entries.append(entry)
                room -= self.cost(entry, consumer)
            over = not left
            if over:
                self._left.pop()
            try:
                self.process(entries, consumer)
            finally:
                if over:
                    self.end_run(consumer)


def settle_one(entry: QueueEntry, consumer: QueueConsumer) -> None:
    """Settle `entry` for `consumer`: ACQUIRED → DEQUEUED. For a browser only its progress is noted."""
    if consumer.acquires:
        queue_of(consumer).settle(entry)
    elif consumer.context.progress is not None:
        consumer.context.progress.note_settled([entry])


def note_settled(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Note `entries` as settled, if the consumer's stream remembers its progress."""
    if consumer.context.progress is not None:
        consumer.context.progress.note_settled(entries)


def settle_all(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Settle the `entries` that `consumer` owns, and restore the credit of all: ACQUIRED → DEQUEUED.

    The effect is that of `Queue.settle` for each entry, in order, but the entries are counted together.
    """
    settle_owned(entries, consumer)
    restore_credit(entries, consumer)


def settle_runs(runs: list[Run], session: TargetSession, host: QueueHost) -> None:
    """Settle all of `runs`, deliveries of `session`: a client may acknowledge 100,000 with one frame.

    Many deliveries are settled in slices. Deliveries beyond the first slice stay with their consumers until
    later turns, and no one can settle or return them again.
    """
    if are_few(runs):
        for consumer, entries in runs:
            settle_all(entries, consumer)
    else:
        SettledDeliveries(runs, session, host).begin()


@final
class SettledDeliveries(EndedDeliveries):
    """Deliveries that a client has settled."""

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle the deliveries."""
        settle_all(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of an entry; one with a receipt costs as much as a message."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1


def restore_credit(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Restore the credit that these deliveries, settled or returned, have used."""
    size: i64 = 0
    for entry in entries:
        size += entry.message.size
    consumer.target.restore_all(len(entries), size)


def settle_owned(entries: list[QueueEntry], consumer: QueueConsumer, logged: bool = False) -> None:
    """Settle the `entries` that `consumer` owns, without restoring credit: ACQUIRED → DEQUEUED.

    `logged`: the log has the settles already.
    """
    queue = queue_of(consumer)
    note_settled(entries, consumer)
    if not consumer.acquires or queue.deleted:
        return
    settled: list[QueueEntry] = []
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            make_dequeued(queue, entry)
            settled.append(entry)
    if not consumer.no_ack:
        count: i64 = len(settled)
        queue.acked += count
        queue.counters.acked += count
    linked = queue.entries
    append_settles = queue.logged and not logged
    context = queue.context
    discipline = queue.discipline
    plain = discipline is None and not context.has_behind and not queue.filtered
    plain = plain and queue.index is None and queue.browsers is None and queue.places is None
    journal = queue.journal
    for entry in settled:
        message = entry.message
        if journal is not None:
            journal.settled(entry, consumer)
        if append_settles and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if context.last is entry or (not plain and concerns_cursors(queue, entry)):
            queue.unlink(entry)
        else:  # no cursor is affected
            linked.unlink(entry)
        if discipline is not None:
            discipline.note_departure(entry, consumer)
        if message.marks != 0 and queue.host is not None:
            queue.host.write_consumption_receipts(message, queue)
        if queue.member is not None:
            queue.member.note_departure(entry)
        if queue.origin is not None:
            queue.origin.settle(entry)
    if queue.election is not None:
        queue.election.note_delivery_end()


@mypyc_attr(allow_interpreted_subclasses=True)
class Addition:
    """Annotations that a consumer adds to messages that it returns.

    `cost`: the cost of each, in plain entries.
    """

    def __init__(self, cost: i64) -> None:
        self.cost = cost

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Annotate the `entries` that `consumer`, which acquires, owns."""
        raise NotImplementedError

    def added_to(self, before: bytes) -> bytes:
        """Return encoded annotations with the addition; `before` if the result would be too large."""
        raise NotImplementedError


def annotate(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """Set the annotations with which `entry` is delivered from now on, also in the log."""
    restore_annotations(queue, entry, annotations)
    append_count(queue, entry)


def restore_annotations(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """Set the annotations of an entry in memory; the log has them already."""
    entries = queue.entries
    if entries.annotations is None:
        entries.annotations = {}
    entries.annotations[entry] = annotations


DISCARD_SLICE: Final[i64] = 100  # entries that leave in one turn: dead-lettering takes up to 50 us each


def discard_all(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64 = REJECTED
) -> None:
    """Dead-letter the `entries` that `consumer` owns, in order, for `reason`: ACQUIRED → DEQUEUED.

    For a browser only its progress is noted.
    Entries beyond one slice stay with `consumer` until later turns, and later discards wait behind them.
    The caller must not change `entries` any more. From the next turn on, the list has the remaining entries.
    """
    if not consumer.acquires:
        note_settled(entries, consumer)
        return
    discards = queue.manager.discards
    if discards is None and len(entries) > DISCARD_SLICE and queue.host is not None:
        discards = queue.manager.discards = RejectedEntries(queue, queue.host.schedule)
    if discards is not None:
        discards.add(entries, consumer, reason)
        return
    for entry in entries:
        if owns(consumer, entry, queue):  # else the dead letter of an earlier entry has pushed it out
            dead_letter(queue, entry, reason)


@final
class RejectedEntries(DiscardsHook):
    """Entries that clients have rejected, or returned too often, and that leave in later turns.

    No client can settle or return these entries. If the queue is deleted, they leave before the deletion.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__(schedule, DISCARD_SLICE)
        self._queue = queue
        self._waiting: deque[tuple[QueueConsumer, list[QueueEntry], i64]] = deque()

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64) -> None:
        """Append `entries`, which `consumer` owns and which leave after all earlier entries."""
        entries.reverse()
        self._waiting.append((consumer, entries, reason))
        if self.due == 0:
            self.continue_soon()

    def step(self, budget: i64) -> bool:
        """Discard up to `budget` entries."""
        queue = self._queue
        waiting = self._waiting
        if queue.deleted:
            waiting.clear()
        while waiting and budget > 0:
            consumer, left, reason = waiting[0]
            if not left:
                waiting.popleft()
                continue
            entry = left.pop()
            budget -= 1
            if owns(consumer, entry, queue):
                dead_letter(queue, entry, reason)
        if waiting:
            return True
        queue.manager.discards = None
        return False


def release(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64) -> None:
    """Requeue the `entries` that `consumer` owns, in place and flagged redelivered.

    `outcome`: how the entries are returned. Entries that were returned too often, or were replaced, leave the
    queue instead. Entries that must wait for a retry are HELD.

    All entries are back before any consumer is notified. Otherwise a later entry could be delivered before an
    earlier entry is visible. Dead letters come last, because they may be routed to this very queue.
    """
    if queue.deleted:
        return
    if queue.origin is not None:
        _return_to_origin(queue, entries, consumer, queue.origin)
        return
    retry = queue.retry
    delayed = retry is not None and retry.has_delay_for(outcome)
    back = entries
    outdated: list[QueueEntry] = []
    exhausted: list[QueueEntry] = []
    if outcome == RELEASED and retry is None:
        _uncount_deliveries(queue, entries, consumer)
    if retry is not None or queue.delivery_limit >= 0 or queue.entries.latest is not None:
        back = [entry for entry in entries if owns(consumer, entry, queue)]
        back = _select_requeued(queue, back, outcome, outdated, exhausted)
    back = _release_owned(queue, back, consumer)
    if queue.journal is not None:
        for entry in back:
            queue.journal.returned(entry, consumer, outcome)
    if retry is not None and delayed:
        retry.hold_all(back, outcome)
    discipline = queue.discipline
    if discipline is not None:
        discipline.note_return(back)
    if back and delayed:
        _note_held(queue, back)
    elif back:
        offer_again(queue, back)
    if discipline is not None:
        discipline.wake()
    if queue.manager.undeliverable is not None:
        queue.manager.undeliverable.check_returns(back)
    if outdated or exhausted:
        _remove_unreturned(queue, consumer, outdated, exhausted)


def _return_to_origin(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, origin: RemoteHook
) -> None:
    """Requeue the `entries` that `consumer` owns in the other broker, from which they came."""
    for entry in entries:
        if owns(consumer, entry, queue):
            take_out(queue, entry)
            origin.requeue(entry)


def _uncount_deliveries(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Uncount the deliveries of `entries`, which were not even tried. [amqp-1.0 3.4.4]"""
    for entry in entries:
        if owns(consumer, entry, queue):
            entry.uncounted += 1
            if queue.counts:
                append_count(queue, entry)


def _select_requeued(
    queue: Queue,
    entries: list[QueueEntry],
    outcome: i64,
    outdated: list[QueueEntry],
    exhausted: list[QueueEntry],
) -> list[QueueEntry]:
    """Return the `entries` to requeue; add the others to `outdated` or `exhausted`."""
    latest = queue.entries.latest
    retry = queue.retry
    back: list[QueueEntry] = []
    for entry in entries:
        if latest is not None and latest.is_outdated(entry):
            outdated.append(entry)
            continue
        if retry is not None:
            retry.count_return(entry, outcome)
        if is_exhausted(queue, entry):
            exhausted.append(entry)
        else:
            back.append(entry)
    return back


def _release_owned(queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer) -> list[QueueEntry]:
    """Make the `entries` that `consumer` owns AVAILABLE, flagged redelivered. Return them."""
    back: list[QueueEntry] = []
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            make_available(queue, entry)
            entry.redelivered = True
            back.append(entry)
    return back


def _remove_unreturned(
    queue: Queue, consumer: QueueConsumer, outdated: list[QueueEntry], exhausted: list[QueueEntry]
) -> None:
    """Remove entries that are not requeued, unless the queue has taken them back meanwhile."""
    for entry in outdated:
        if owns(consumer, entry, queue):
            replace_outdated(queue, entry)
    if exhausted:
        discard_all(queue, exhausted, consumer, EXHAUSTED)


def _note_held(queue: Queue, entries: list[QueueEntry]) -> None:
    """Continue the expiry of HELD `entries`, and note that their deliveries have ended."""
    if queue.limits is not None:
        queue.limits.note_returns(entries)
    if queue.election is not None:
        queue.election.note_delivery_end()


def deliver_again(queue: Queue, entry: QueueEntry, owner: QueueConsumer) -> bool:
    """Count another delivery of `entry` to its `owner`; False if the owner has lost the entry.

    If False, the entry was returned too often and has left, was taken back, or is HELD for a retry.
    """
    if entry.owner is not owner or queue.deleted:
        return False  # the queue has taken the entry back
    retry = queue.retry
    if retry is not None:
        if retry.has_delay_for(RECOVER):
            release(queue, [entry], owner, RECOVER)
            return False
        retry.count_return(entry, RECOVER)
    if is_exhausted(queue, entry):
        dead_letter_returned(queue, entry)
        return False
    entry.redelivered = True
    entry.delivery_count += 1
    if queue.journal is not None:
        queue.journal.delivered(entry, owner)
    if queue.counts:
        note_delivery(queue, entry, owner)
    return True


KNOWN_BYTES_OF_ONE: Final = 16  # bytes of existing annotations that cost as much as one plain entry


def requeue_runs(
    runs: list[Run],
    outcome: i64,
    session: TargetSession | None,
    host: QueueHost | None,
    addition: Addition | None = None,
) -> None:
    """Requeue all of `runs`, each the deliveries of one consumer.

    `session`: the session of the deliveries, if any. `addition`: annotations to add to their messages before.

    Many deliveries are requeued in slices. While slices are left, no consumer of their queues is served, so
    that no consumer gets a later entry before an earlier entry is back.
    """
    if host is None or are_few(runs):
        for consumer, entries in runs:
            _return(entries, consumer, outcome, addition)
            if session is not None:
                restore_credit(entries, consumer)
    else:
        ReturnedDeliveries(runs, outcome, session, host, addition).begin()


def release_entries(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64 = NACK
) -> None:
    """Requeue the entries that `consumer` still owns, in place: ACQUIRED → AVAILABLE or HELD.

    See `requeue_runs`.
    """
    requeue_runs([(consumer, entries)], outcome, None, queue.host)


def finish_returns(queue: Queue) -> None:
    """Finish all requeues of `queue` now, for a request that takes the next message.

    Costly requeues are not finished. They return their entries in order, so the request gets the first
    message of the queue nevertheless.
    """
    if not _is_costly(queue):
        for requeue in list(queue.manager.returns):
            requeue.finish_queue(queue)


def _is_costly(queue: Queue) -> bool:
    """Whether requeued entries may push out other entries, which may be dead-lettered."""
    limits = queue.limits
    return limits is not None and limits.limited and limits.overflow == DROP_HEAD


def _return(
    entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64, addition: Addition | None
) -> None:
    if consumer.acquires:
        if addition is not None:
            addition.add(entries, consumer)
        release(queue_of(consumer), entries, consumer, outcome)


@final
class ReturnedDeliveries(EndedDeliveries):
    """Deliveries that are requeued with `outcome` in later turns.

    If the queue takes the deliveries back, as at its deletion, nothing is left to do. Consumers are served
    while entries wait for a retry.
    """

    def __init__(
        self,
        runs: list[Run],
        outcome: i64,
        session: TargetSession | None,
        host: QueueHost,
        addition: Addition | None,
    ) -> None:
        super().__init__(runs, session, host)
        self._outcome = outcome
        self._addition = addition
        self._paused: dict[Queue, i64] = {}  # paused queues, with the count of their runs
        for consumer, _ in runs:
            queue = queue_of(consumer)
            if consumer.acquires and not (queue.retry is not None and queue.retry.has_delay_for(outcome)):
                self._pause(queue)

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Requeue the deliveries."""
        _return(entries, consumer, self._outcome, self._addition)
        if self.session is not None:
            restore_credit(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of an entry; one with an expiry, or with rules for retries, costs more."""
        queue = queue_of(consumer)
        more: i64 = 0
        if self._addition is not None:
            more = self._addition.cost + len(queue.entries.annotations_of(entry)) // KNOWN_BYTES_OF_ONE
        if _is_costly(queue):
            return DEAR + more
        return more + (2 if entry.timer is not None or queue.retry is not None else 1)

    def end_run(self, consumer: QueueConsumer) -> None:
        """Serve consumers again after the last run of a queue."""
        queue = queue_of(consumer)
        runs = self._paused.get(queue, 0) if consumer.acquires else 0
        if runs > 1:
            self._paused[queue] = runs - 1
        elif runs == 1:
            del self._paused[queue]
            queue.manager.returns.remove(self)
            if not queue.manager.returns:
                clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_RETURNS)
                if queue.manager.purges:
                    queue.manager.purges[0].continue_soon()

    def finish_before_deletion(self, queue: QueueState) -> None:
        """Finish for a queue with a delivery limit, whose exhausted entries may be dead-lettered.

        All other entries are deleted with the queue.
        """
        if queue.delivery_limit >= 0:
            self.finish_queue(queue)

    def _pause(self, queue: Queue) -> None:
        runs = self._paused.get(queue, 0)
        self._paused[queue] = runs + 1
        if runs == 0:
            queue.manager.returns.append(self)
            for consumer in queue.manager.acquiring_consumers():
                suspend(queue, consumer, BLOCKED_BY_RETURNS)  # no consumer takes over
