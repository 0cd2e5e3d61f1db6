"""The order of the messages of a partitioned queue within each slot, while the slot moves between members.

The messages of a slot arrive in runs: one after the other in the same member. Only the first run of a slot is
delivered. The messages of a later run wait in their member, HELD, until all messages of the earlier runs have
left. So a change of the mapping needs no work, and reorders nothing: the new member gets the new messages of
a moved slot at once, and delivers them when the old member has none of the slot any more.

A run is known by the arrival of its messages alone. After a restart recovery restores messages in the order
of the log, and so the same runs.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import HELD, QueueEntry, Timer
from broker.core.partitions.mapping import Slot
from broker.core.queues.queue import Queue, announce, offer_to_browsers
from broker.core.queues.state import make_available, make_held
from broker.core.schedule import Chore, Schedule

SLICE: Final[i64] = 500  # entries made AVAILABLE in one turn: about a millisecond
TAKING_MS: Final[i64] = 1000  # the time in which consumers may take a released entry that has no time to live


@final
class Run:
    """Messages of one slot that arrived one after the other in `queue`.

    `count`: the messages of the run that have not left. `waits`: the number of earlier runs that have some;
    0: the messages may be delivered. `held`: its messages that are HELD; True: the message expires unless a
    consumer takes it within TAKING_MS of its release. `followers`: the runs that wait for this one.
    """

    def __init__(self, slot: Slot, queue: Queue | None) -> None:
        self.slot = slot
        self.queue = queue
        self.count: i64 = 0
        self.waits: i64 = 0
        self.held: dict[QueueEntry, bool] = {}
        self.followers: list[Run] = []

    @property
    def is_over(self) -> bool:
        """Whether no message of the run, and of the runs before, is left."""
        return self.count == 0 and self.waits == 0


@final
class Runs(Chore):
    """The runs of all slots of a partitioned queue.

    The memory is bounded by the number of slots and of messages: a slot keeps its last run, and each message
    knows its run. `waiting`: the number of HELD messages. `moving`: the number of runs that have some.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self.waiting: i64 = 0
        self.moving: i64 = 0
        self._last: dict[Slot, Run] = {}
        self._runs: dict[QueueEntry, Run] = {}
        self._released: deque[Run] = deque()

    def add(self, entry: QueueEntry, slot: Slot, queue: Queue) -> None:
        """Add `entry`, new and AVAILABLE in `queue`; hold it if earlier messages of the slot must leave."""
        run = self._last.get(slot)
        if run is None:
            run = self._last[slot] = Run(slot, queue)
        elif run.queue is not queue:
            run = self._begin_run(run, queue)
        run.count += 1
        self._runs[entry] = run
        if run.waits != 0 or run.held:
            make_held(queue, entry)
            if not run.held:
                self.moving += 1
            run.held[entry] = False
            self.waiting += 1

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry that has left its queue, whatever the reason."""
        run = self._runs.get(entry)
        if run is None:
            return
        del self._runs[entry]
        run.count -= 1
        if run.held and entry in run.held:
            self._unhold(run, entry)
        if run.count == 0 and run.waits == 0 and run.followers:
            self._end_run(run)

    def forget_queue(self, queue: Queue) -> None:
        """Begin no run in `queue` again as if its last one went on: the queue is no member any more."""
        for slot, run in list(self._last.items()):
            if run.queue is queue:
                if run.is_over:
                    del self._last[slot]
                else:
                    self._last[slot] = self._following(run, None)

    def separate(self, before: list[Slot], after: list[Slot]) -> None:
        """Deliver later messages of the slots `after` when all present messages of `before` have left.

        Messages change their slot when a value is pinned or released, or when selectors change.
        """
        barrier = Run("", None)
        for slot in before:
            run = self._last.get(slot)
            if run is not None and not run.is_over:
                run.followers.append(barrier)
                barrier.waits += 1
        if barrier.waits == 0:
            return
        for slot in after:
            run = self._last.get(slot)
            following = Run(slot, None)
            following.waits = 1
            barrier.followers.append(following)
            if run is not None and not run.is_over and slot not in before:
                run.followers.append(following)
                following.waits += 1
            self._last[slot] = following

    def slots(self) -> list[Slot]:
        """Return the slots that have messages."""
        return [slot for slot, run in self._last.items() if not run.is_over]

    def step(self, budget: i64) -> bool:
        """Make HELD messages of runs that have become the first AVAILABLE."""
        released = self._released
        while released and budget > 0:
            run = released[0]
            queue = run.queue
            if queue is None or queue.deleted or not run.held:
                released.popleft()
                continue
            entries: list[QueueEntry] = []
            for entry in run.held:
                if budget <= 0:
                    break
                budget -= 1
                entries.append(entry)
            for entry in entries:
                if run.held[entry]:
                    entry.timer = Timer(self.schedule.now() + TAKING_MS)
                self._unhold(run, entry)
                assert entry.state == HELD, "an entry that leaves is removed from its run"
                make_available(queue, entry)
            offer_to_browsers(queue, entries)
            announce(queue, entries)  # not again: the counters had them at their arrival
        return bool(released)

    def postpone_expiry(self, entry: QueueEntry) -> bool:
        """Let `entry` expire unless a consumer takes it after its release; false if it is not HELD."""
        run = self._runs.get(entry)
        if run is None or entry not in run.held:
            return False
        run.held[entry] = True
        return True

    def take_back(self, entry: QueueEntry, queue: Queue) -> None:
        """Make `entry` AVAILABLE if it is HELD, without notifying."""
        run = self._runs.get(entry)
        if run is not None and entry in run.held:
            if run.held[entry]:
                entry.timer = Timer(self.schedule.now())  # for its return
            self._unhold(run, entry)
            make_available(queue, entry)

    def release_all(self) -> None:
        """Release all HELD messages at once and forget all runs: the partitioned queue is deleted."""
        self._released.clear()
        for run in dict.fromkeys(self._runs.values()):
            if run.held:
                run.waits = 0
                run.followers.clear()
                self._released.append(run)
        self._last.clear()
        self.finish()
        self._runs.clear()

    def _unhold(self, run: Run, entry: QueueEntry) -> None:
        del run.held[entry]
        self.waiting -= 1
        if not run.held:
            self.moving -= 1

    def _begin_run(self, run: Run, queue: Queue) -> Run:
        """Return the run after `run`, in another `queue`."""
        if run.is_over or (run.queue is None and run.count == 0):
            run.queue = queue  # no message of it is left: the run goes on in the other queue
            return run
        following = self._last[run.slot] = self._following(run, queue)
        return following

    def _following(self, run: Run, queue: Queue | None) -> Run:
        following = Run(run.slot, queue)
        following.waits = 1
        run.followers.append(following)
        return following

    def _end_run(self, ended: Run) -> None:
        """Let the runs that waited for `ended` begin, and release their messages in later turns."""
        pending = [ended]
        while pending:
            run = pending.pop()
            followers, run.followers = run.followers, []
            for following in followers:
                following.waits -= 1
                if following.waits != 0:
                    continue
                if following.count == 0:
                    pending.append(following)
                elif following.held:
                    self._released.append(following)
        if self._released and self.due == 0:
            self.continue_soon()
