"""Many deliveries settle, return or are refused, in slices.

What chooses by message, such as selectors, groups, keys and routes, sees messages as they were published. The
annotations are encoded by their protocol; the core only keeps them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.queue import NACK, RECOVER, RELEASED
from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, QueueEntry
from broker.core.message import TELLS_CONSUMED
from broker.core.queues.consumer import BLOCKED_BY_RETURNS, QueueConsumer, TargetSession
from broker.core.queues.consumers import clear_blocker, suspend
from broker.core.queues.hooks import DROP_HEAD, EXHAUSTED, REJECTED, DiscardsHook, Settlement
from broker.core.queues.host import QueueHost
from broker.core.queues.queue import (
    Queue,
    append_count,
    concerns_cursors,
    dead_letter,
    give_up,
    is_exhausted,
    note_delivery,
    offer_again,
    queue_of,
    replace_outdated,
)
from broker.core.queues.state import QueueState, note_change, owns
from broker.core.schedule import Schedule

SLICE: Final[i64] = 5000  # deliveries that end in one turn: one or two milliseconds
DEAR: Final[i64] = 50  # as many as one that goes on its way to another queue, or has a receipt
FEW: Final[i64] = SLICE // DEAR  # of which nobody has to think twice

Run = tuple[QueueConsumer, list[QueueEntry]]
"""Deliveries of one consumer."""


def are_few(runs: list[Run]) -> bool:
    """Whether all of `runs` end at once, whatever they are."""
    count: i64 = 0
    for run in runs:
        count += len(run[1])
    return count <= FEW


class Later(Settlement):
    """Deliveries that have ended in one way. A subclass has them leave in `take`, a slice in one turn.

    What has its turn to come stays with its consumer, and nobody else can settle it or give it back. What has
    had it is let go of at once: to free it all is as much work as the rest. `runs` is taken over.
    `session`: the one whose credit they use up until they have left; None: that is up to somebody else.
    """

    def __init__(self, runs: list[Run], session: TargetSession | None, host: QueueHost) -> None:
        super().__init__()
        self.session = session
        self._host = host
        self._left = runs  # the last one first, and so each of them
        runs.reverse()
        for _, entries in runs:
            entries.reverse()

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Have these leave, now."""
        raise NotImplementedError

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """How much work it is to have `entry` leave, as if it were so many."""
        return 1

    def taken_all(self, consumer: QueueConsumer) -> None:
        """That was the end of a run of `consumer`."""

    def begin(self) -> None:
        """Have a first slice leave, unless there was one in this turn."""
        host = self._host
        host.settlements.append(self)
        if len(host.settlements) == 1:
            self.ring()
        else:
            host.schedule.set(self, host.schedule.now())

    def rest(self) -> list[Run]:
        """Those that have not left yet, in no order."""
        return self._left

    def ring(self) -> None:
        """Have a slice of them leave (Alarm)."""
        schedule = self._host.schedule
        schedule.set(self, schedule.now())  # first: should one slice fail, the others follow
        self._take_some(SLICE)
        self._end()

    def finish(self, queue: QueueState | None) -> None:
        """Have those leave that `queue` has; None: all."""
        mine: list[Run] = []
        others: list[Run] = []
        for run in self._left:
            (mine if queue is None or run[0].queue is queue else others).append(run)
        self._left = others
        for consumer, entries in reversed(mine):
            entries.reverse()
            self.take(entries, consumer)
            self.taken_all(consumer)
        self._end()

    def deleting(self, queue: QueueState) -> None:
        """`queue` is about to be deleted."""
        self.finish(queue)

    def vacating(self) -> None:
        """All queues are about to be deleted, with their virtual host: what they have goes with them."""

    def _end(self) -> None:
        host = self._host
        if not self._left and self in host.settlements:
            host.settlements.remove(self)
            host.schedule.cancel(self)

    def _take_some(self, room: i64) -> None:
        while self._left and room > 0:
            consumer, left = self._left[-1]
            entries: list[QueueEntry] = []
            room -= 1  # so that many short runs are no long turn either
            while left and room >= 0:
                entry = left.pop()
                entries.append(entry)
                room -= self.cost(entry, consumer)
            over = not left
            if over:
                self._left.pop()
            try:
                self.take(entries, consumer)
            finally:
                if over:
                    self.taken_all(consumer)


def settle_one(entry: QueueEntry, consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED if `consumer` has acquired it; what a browser was shown it has seen."""
    if consumer.acquires:
        queue_of(consumer).settle(entry)
    elif consumer.context.progress is not None:
        consumer.context.progress.settled([entry])


def seen(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """`consumer`, if its stream keeps how far it is, is done with these."""
    if consumer.context.progress is not None:
        consumer.context.progress.settled(entries)


def settle_all(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; all of them restore its credit.

    As `Queue.settle` of each, in their order, but counted together and for less.
    """
    leave_all(entries, consumer)
    restore(entries, consumer)


def settle_runs(runs: list[Run], session: TargetSession, host: QueueHost) -> None:
    """The same for all of `runs`, which `session` had: a client may acknowledge 100,000 by one frame.

    They go in slices. What is too much for one turn stays with its consumer until turns to come, in which
    nobody else can settle it or give it back.
    """
    if are_few(runs):
        for consumer, entries in runs:
            settle_all(entries, consumer)
    else:
        SettledLater(runs, session, host).begin()


@final
class SettledLater(Later):
    """Deliveries that a client has settled."""

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle these (Later)."""
        settle_all(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """A receipt is a message (Later)."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1


def restore(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Give the credit back that these deliveries, which are settled or were given back, have used."""
    size: i64 = 0
    for entry in entries:
        size += entry.message.size
    consumer.target.restore_all(len(entries), size)


def leave_all(entries: list[QueueEntry], consumer: QueueConsumer, logged: bool = False) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; nothing restores its credit.

    `logged`: the log knows that already.
    """
    queue = queue_of(consumer)
    seen(entries, consumer)
    if not consumer.acquires or queue.deleted:
        return
    settled: list[QueueEntry] = []
    size: i64 = 0
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            entry.state = DEQUEUED
            entry.owner = None
            size += entry.message.size
            settled.append(entry)
    count: i64 = len(settled)
    consumer.inflight -= count
    queue.unacked -= count
    queue.unacked_bytes -= size
    if not consumer.no_ack:
        queue.acked += count
        queue.counters.acked += count
    linked = queue.entries
    told = queue.logged and not logged
    context = queue.context
    discipline = queue.discipline
    plain = discipline is None and not context.has_behind and not queue.filtered
    plain = plain and queue.index is None and queue.browsers is None and queue.places is None
    journal = queue.journal
    for entry in settled:
        message = entry.message
        if journal is not None:
            journal.settled(entry, consumer)
        if told and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if context.last is entry or (not plain and concerns_cursors(queue, entry)):
            queue.unlink(entry)
        else:  # no cursor needs to know
            linked.unlink(entry)
        if discipline is not None:
            discipline.left(entry, consumer)
        if message.marks != 0 and queue.host is not None:
            queue.host.consumed(message, queue)
    if queue.election is not None:
        queue.election.delivery_ended()


@mypyc_attr(allow_interpreted_subclasses=True)
class Addition:
    """What a consumer adds to messages that it gives back. `cost`: as if there were so many more of each."""

    def __init__(self, cost: i64) -> None:
        self.cost = cost

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Annotate those of `entries` that `consumer`, which acquires, has."""
        raise NotImplementedError

    def added_to(self, before: bytes) -> bytes:
        """Return encoded annotations with what is added; `before` if that would be too much."""
        raise NotImplementedError


def annotate(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """Have all who are given `entry` from now on be given these with it; the log is told."""
    restore_annotations(queue, entry, annotations)
    append_count(queue, entry)


def restore_annotations(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """The same of an entry of which the log knows that."""
    entries = queue.entries
    if entries.annotations is None:
        entries.annotations = {}
    entries.annotations[entry] = annotations


DISCARD_SLICE: Final[i64] = 100  # entries that leave in one turn: dead-lettering takes up to 50 us each


def discard_all(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64 = REJECTED
) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has, in their order; they die of `reason`.

    What a browser was shown it has seen, and nothing becomes of it.
    What is too much for one turn stays with `consumer` until turns to come, and what is discarded later
    leaves after it. `entries` is taken over: from the next turn on it is what has not left.
    """
    if not consumer.acquires:
        seen(entries, consumer)
        return
    later = queue.manager.discards
    if later is None and len(entries) > DISCARD_SLICE and queue.host is not None:
        later = queue.manager.discards = DiscardedLater(queue, queue.host.schedule)
    if later is not None:
        later.add(entries, consumer, reason)
        return
    for entry in entries:
        if owns(consumer, entry, queue):  # no dead letter of one before it has pushed it out
            dead_letter(queue, entry, reason)


@final
class DiscardedLater(DiscardsHook):
    """Entries that clients have refused, or given back too often, and that leave in turns to come.

    Nobody can settle them any more, or give them back. If the queue is deleted meanwhile they leave before.
    """

    def __init__(self, queue: Queue, schedule: Schedule) -> None:
        super().__init__()
        self._queue = queue
        self._schedule = schedule
        self._waiting: deque[tuple[QueueConsumer, list[QueueEntry], i64]] = deque()

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer, reason: i64) -> None:
        """Have these, which `consumer` has, leave after the others."""
        entries.reverse()
        self._waiting.append((consumer, entries, reason))
        if self.due == 0:
            self._schedule.set(self, self._schedule.now())

    def ring(self) -> None:
        """Have another slice leave (Alarm)."""
        self._leave(DISCARD_SLICE)

    def finish(self) -> None:
        """Have all of them leave: the queue is about to be deleted."""
        while self._waiting:
            self._leave(DISCARD_SLICE)

    def _leave(self, most: i64) -> None:
        queue = self._queue
        waiting = self._waiting
        if queue.deleted:
            waiting.clear()
        while waiting and most > 0:
            consumer, left, reason = waiting[0]
            if not left:
                waiting.popleft()
                continue
            entry = left.pop()
            most -= 1
            if owns(consumer, entry, queue):
                dead_letter(queue, entry, reason)
        if waiting:
            self._schedule.set(self, self._schedule.now())
        else:
            self._schedule.cancel(self)
            queue.manager.discards = None


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
        back = [entry for entry in entries if owns(consumer, entry, queue)]
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
        if owns(consumer, entry, queue):
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
        if owns(consumer, entry, queue):
            replace_outdated(queue, entry)
    if exhausted:
        discard_all(queue, exhausted, consumer, EXHAUSTED)


def _held(queue: Queue, entries: list[QueueEntry]) -> None:
    """`entries` are HELD: their time goes on, but their deliveries have ended."""
    if queue.rules is not None:
        queue.rules.returned(entries)
    if queue.election is not None:
        queue.election.delivery_ended()


def deliver_again(queue: Queue, entry: QueueEntry, owner: QueueConsumer) -> bool:
    """Count another delivery of `entry` to `owner`, which had it; False if it has it no longer.

    Then it is exhausted and gone, or is to wait for its next delivery like everything that comes back.
    """
    if entry.owner is not owner or queue.deleted:
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


KNOWN_BYTES_OF_ONE: Final = 16  # of annotations that others are added to: as dear as one that only goes back


def give_back(
    runs: list[Run],
    outcome: i64,
    session: TargetSession | None,
    host: QueueHost | None,
    addition: Addition | None = None,
) -> None:
    """Release all of `runs`, the deliveries of one consumer together; `session`, if any, had them.

    `addition`: what is added to their messages before.

    They go back in slices. As long as there is more to come no consumer of their queues is served, so that
    none of them gets a later one before an earlier one is back.
    """
    if host is None or are_few(runs):
        for consumer, entries in runs:
            _return(entries, consumer, outcome, addition)
            if session is not None:
                restore(entries, consumer)
    else:
        ReturnedLater(runs, outcome, session, host, addition).begin()


def release_entries(
    queue: Queue, entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64 = NACK
) -> None:
    """ACQUIRED → AVAILABLE or HELD, in place, for the entries that `consumer` still owns (`give_back`)."""
    give_back([(consumer, entries)], outcome, None, queue.host)


def finish_returns(queue: Queue) -> None:
    """Have all be back now that is on its way, unless that is dear: somebody is about to take what is next.

    What is back is in order as far as it is, so that who takes it before the rest has what comes first.
    """
    if not _is_dear(queue):
        for later in list(queue.manager.returns):
            later.finish(queue)


def _is_dear(queue: Queue) -> bool:
    """Whether what comes back may push something out, which may be dead-lettered."""
    rules = queue.rules
    return rules is not None and rules.limited and rules.overflow == DROP_HEAD


def _return(
    entries: list[QueueEntry], consumer: QueueConsumer, outcome: i64, addition: Addition | None
) -> None:
    if consumer.acquires:
        if addition is not None:
            addition.add(entries, consumer)
        release(queue_of(consumer), entries, consumer, outcome)


@final
class ReturnedLater(Later):
    """Deliveries that go back, in the way that `outcome` says, in turns to come.

    If the queue takes them back meanwhile, as when it is deleted, nothing is left to be done. What waits
    before it is tried again keeps nobody from being served.
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
        self._paused: dict[Queue, i64] = {}  # and how many runs it has
        for consumer, _ in runs:
            queue = queue_of(consumer)
            if consumer.acquires and not (queue.retry is not None and queue.retry.delays(outcome)):
                self._pause(queue)

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Release these (Later)."""
        _return(entries, consumer, self._outcome, self._addition)
        if self.session is not None:
            restore(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """What has a time, or rules for what comes back, is a little more (Later)."""
        queue = queue_of(consumer)
        more: i64 = 0
        if self._addition is not None:
            more = self._addition.cost + len(queue.entries.annotations_of(entry)) // KNOWN_BYTES_OF_ONE
        if _is_dear(queue):
            return DEAR + more
        return more + (2 if entry.timer is not None or queue.retry is not None else 1)

    def taken_all(self, consumer: QueueConsumer) -> None:
        """Have consumers be served again if that was all of a queue (Later)."""
        queue = queue_of(consumer)
        runs = self._paused.get(queue, 0) if consumer.acquires else 0
        if runs > 1:
            self._paused[queue] = runs - 1
        elif runs == 1:
            del self._paused[queue]
            queue.manager.returns.remove(self)
            if not queue.manager.returns:
                clear_blocker(queue, queue.manager.takers(), BLOCKED_BY_RETURNS)
                if queue.manager.purges:
                    self._host.schedule.set(queue.manager.purges[0], self._host.schedule.now())

    def deleting(self, queue: QueueState) -> None:
        """What has come back too often has a way to go; all else goes with the queue (Later)."""
        if queue.delivery_limit >= 0:
            self.finish(queue)

    def _pause(self, queue: Queue) -> None:
        runs = self._paused.get(queue, 0)
        self._paused[queue] = runs + 1
        if runs == 0:
            queue.manager.returns.append(self)
            for consumer in queue.manager.takers():
                suspend(queue, consumer, BLOCKED_BY_RETURNS)  # nobody takes over
