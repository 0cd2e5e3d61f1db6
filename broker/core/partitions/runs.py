"""The order of the messages of a partitioned queue within each slot, while the slot moves between members.

The messages of a slot arrive in runs: one after the other in the same member. Only the first run of a slot is
delivered. The messages of a later run wait in their member, HELD, until all messages of the earlier runs have
left. So a change of the mapping needs no work, and reorders nothing: the new member gets the new messages of
a moved slot at once, and delivers them when the old member has none of the slot any more.

A run is known by the arrival of its messages alone. After a restart recovery restores messages in the order
of the log, and so the same runs.

Each message in a member comes here twice, so the paths of its arrival and departure use no hash table. A
place knows the last run of its slot. A member finds the run of an entry by the number of the entry's arrival.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import HELD, QueueEntry, Timer
from broker.core.queues.queue import Queue, announce, offer_to_browsers
from broker.core.queues.state import make_available, make_held
from broker.core.remotes.consumption import Consumption, ConsumptionWatcher
from broker.core.schedule import Chore, Schedule

SLICE: Final[i64] = 500  # entries made AVAILABLE in one turn: about a millisecond
TAKING_MS: Final[i64] = 1000  # the time in which consumers may take a released entry that has no time to live
PAGE_SHIFT: Final[i64] = 6  # 64 arrivals share a page: its last entry keeps 600 bytes
PAGE_MASK: Final[i64] = (1 << PAGE_SHIFT) - 1

BEFORE: Final[i64] = 1
"""The number of the first message that a member sends to another broker since the broker has started."""

ALL: Final[i64] = 2**62

Slot = int | str
"""A set of messages whose order is kept: a slot of keys, a pinned value, or a member's selector."""


@final
class Place:
    """The place of a key: its `slot`, and the index of its `member`, NO_MEMBER: no member takes the message.

    `run`: the last run of the slot when the place was used; None: the place has not been used.
    """

    def __init__(self, slot: Slot, member: i64) -> None:
        self.slot = slot
        self.member = member
        self.run: Run | None = None


@final
class Run:
    """Messages of one slot that arrived one after the other in `queue`.

    `is_last`: the slot has no later run. `count`: the messages of the run that have not left. `waits`: the
    number of earlier runs that have some; 0: the messages may be delivered. `held`: its messages that are
    HELD, None without such messages; True: the message expires unless a consumer takes it within TAKING_MS of
    its release. `followers`: the runs that wait for this one; None: no run waits.

    `elsewhere`: the other broker to which `queue` sends its messages, None without one. `away`: messages of
    the run that have left `queue` have lower numbers there.
    """

    def __init__(self, slot: Slot, queue: Queue | None, elsewhere: Elsewhere | None = None) -> None:
        self.slot = slot
        self.queue = queue
        self.elsewhere = elsewhere
        self.away: i64 = BEFORE
        self.is_last = True
        self.count: i64 = 0
        self.waits: i64 = 0
        self.held: dict[QueueEntry, bool] | None = None
        self.followers: list[Run] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no message of the run, and of the runs before, is left."""
        return self.count == 0 and self.waits == 0 and not self.is_away

    @property
    def is_away(self) -> bool:
        """Whether messages of the run may be in another broker."""
        return self.elsewhere is not None and self.away > self.elsewhere.consumed

    def add_follower(self, run: Run) -> None:
        """Let `run` wait for this one."""
        if self.followers is None:
            self.followers = []
        self.followers.append(run)
        run.waits += 1
        if self.count == 0 and self.waits == 0 and self.elsewhere is not None:
            self.elsewhere.await_consumption(self)


@final
class Elsewhere(ConsumptionWatcher):
    """The messages of a member that are in another broker, and the runs that wait for their consumption.

    Each message that is sent there gets the next number. `consumed`: messages with lower numbers have been
    consumed. Numbers below BEFORE are those of messages that were sent before the broker has started.
    """

    def __init__(self, runs: Runs, consumption: Consumption) -> None:
        self.consumed: i64 = consumption.consumed
        self._runs = runs
        self._consumption = consumption
        self._awaited: list[tuple[int, int, Run]] = []  # by the number after their last message
        self._turns = 0
        consumption.watcher = self

    @property
    def sent(self) -> i64:
        """The number of the next message."""
        return self._consumption.sent

    @property
    def is_empty(self) -> bool:
        """Whether all messages that were sent have been consumed."""
        return self.consumed >= self.sent

    def await_consumption(self, run: Run) -> None:
        """End `run`, which has followers and gets no more messages, when its messages have been consumed."""
        self._turns += 1
        heappush(self._awaited, (int(run.away), self._turns, run))
        self._consumption.note_awaited(True)

    def on_consumed(self, number: i64) -> None:
        """Note that the messages with lower numbers have been consumed."""
        self.consumed = number
        while self._awaited and self._awaited[0][0] <= number:
            self._runs.end_run(heappop(self._awaited)[2])
        if not self._awaited:
            self._consumption.note_awaited(False)

    def abandon(self) -> None:
        """Wait for no message: the queue that has sent them was deleted."""
        self._consumption.watcher = None
        self.on_consumed(ALL)


class FormerPlaces:
    """The members to which former mappings have sent slots, and that may still have messages elsewhere."""

    def find_runs(self, slot: Slot) -> list[Run]:
        """Return new runs of the slot in these members, the earliest one first."""
        return []


@final
class Runs(Chore):
    """The runs of all slots of a partitioned queue.

    The memory is bounded by the number of slots and of messages: a slot keeps its last run, and `MemberRuns`
    keep the run of each message. `waiting`: the number of HELD messages. `former`: the members with messages
    that no run knows, because they were sent to other brokers before the broker has started.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self.waiting: i64 = 0
        self.former = FormerPlaces()
        self._last: dict[Slot, Run] = {}
        self._holding: dict[Run, None] = {}  # the runs with HELD messages
        self._released: deque[Run] = deque()

    @property
    def moving(self) -> i64:
        """The number of runs with HELD messages."""
        return len(self._holding)

    def last_run(self, place: Place, queue: Queue, elsewhere: Elsewhere | None) -> Run:
        """Return the run of a message that arrives in `queue` now, the last run of the place from now on.

        `elsewhere`: the other broker to which `queue` sends its messages.
        """
        run = self._last.get(place.slot)
        if run is None:
            run = self._find_former(place.slot)
        if run is None:
            run = self._last[place.slot] = Run(place.slot, queue, elsewhere)
        elif run.queue is not queue:
            if run.is_over or (run.queue is None and run.count == 0):
                run.queue = queue  # no message of it is left: the run goes on in the other queue
                run.elsewhere = elsewhere
                run.away = BEFORE
            else:
                run = self._follow(run, queue, elsewhere)
        place.run = run
        return run

    def _find_former(self, slot: Slot) -> Run | None:
        """Return the last of the runs of a slot in former members, None without such runs."""
        last: Run | None = None
        for run in self.former.find_runs(slot):
            if last is not None:
                last.add_follower(run)
                last.is_last = False
            last = run
        if last is not None:
            self._last[slot] = last
        return last

    def hold(self, run: Run, entry: QueueEntry, queue: Queue) -> None:
        """Hold an AVAILABLE entry of a run that other runs precede."""
        make_held(queue, entry)
        if run.held is None:
            run.held = {}
            self._holding[run] = None
        run.held[entry] = False
        self.waiting += 1

    def unhold(self, run: Run, entry: QueueEntry) -> None:
        """Forget a HELD entry, which leaves or becomes AVAILABLE."""
        held = run.held
        assert held is not None, "only a run with HELD messages has this entry"
        del held[entry]
        self.waiting -= 1
        if not held:
            run.held = None
            del self._holding[run]

    def forget_queue(self, queue: Queue) -> None:
        """Begin no run in `queue` again as if its last one went on: the queue is no member any more."""
        for slot, run in list(self._last.items()):
            if run.queue is queue:
                if run.is_over:
                    del self._last[slot]
                    run.is_last = False
                    run.queue = None
                else:
                    self._follow(run, None)

    def separate(self, before: list[Slot], after: list[Slot]) -> None:
        """Deliver later messages of the slots `after` when all present messages of `before` have left.

        Messages change their slot when a value is pinned or released, or when selectors change.
        """
        barrier = Run("", None)
        for slot in [*before, *after]:
            if slot not in self._last:
                self._find_former(slot)
        for slot in before:
            run = self._last.get(slot)
            if run is not None and not run.is_over:
                run.add_follower(barrier)
        if barrier.waits == 0:
            return
        for slot in after:
            run = self._last.get(slot)
            following = Run(slot, None)
            barrier.add_follower(following)
            if run is not None:
                run.is_last = False
                if not run.is_over and slot not in before:
                    run.add_follower(following)
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
            held = run.held
            if queue is None or queue.deleted or held is None:
                released.popleft()
                continue
            entries: list[QueueEntry] = []
            for entry in held:
                if budget <= 0:
                    break
                budget -= 1
                entries.append(entry)
            for entry in entries:
                if held[entry]:
                    entry.timer = Timer(self.schedule.now() + TAKING_MS)
                self.unhold(run, entry)
                assert entry.state == HELD, "an entry that leaves is removed from its run"
                make_available(queue, entry)
            offer_to_browsers(queue, entries)
            announce(queue, entries)  # not again: the counters had them at their arrival
        return bool(released)

    def release_all(self) -> None:
        """Release all HELD messages at once and forget all runs: the partitioned queue is deleted."""
        self._released.clear()
        for run in self._holding:
            run.waits = 0
            run.followers = None
            self._released.append(run)
        self._last.clear()
        self.finish()

    def end_run(self, ended: Run) -> None:
        """Let the runs that waited for `ended` begin, and release their messages in later turns."""
        pending = [ended]
        while pending:
            run = pending.pop()
            followers = run.followers
            if followers is None:
                continue
            run.followers = None
            for following in followers:
                following.waits -= 1
                if following.waits != 0:
                    continue
                if following.count == 0:
                    if following.elsewhere is not None and following.is_away:
                        if following.followers is not None:
                            following.elsewhere.await_consumption(following)
                    else:
                        pending.append(following)
                elif following.held is not None:
                    self._released.append(following)
        if self._released and self.due == 0:
            self.continue_soon()

    def _follow(self, run: Run, queue: Queue | None, elsewhere: Elsewhere | None = None) -> Run:
        """Return the run after `run`, the last one of its slot."""
        following = Run(run.slot, queue, elsewhere)
        run.add_follower(following)
        run.is_last = False
        self._last[run.slot] = following
        return following


@final
class RunPage:
    """The runs of entries that arrived one after the other; None for an entry that has left.

    `number`: the number of each arrival without its last PAGE_SHIFT bits. `count`: the entries that have not
    left.
    """

    def __init__(self, number: i64) -> None:
        self.number = number
        self.count: i64 = 0
        self.runs: list[Run | None] = [None] * int(PAGE_MASK + 1)


@final
class MemberRuns:
    """The runs of the entries of one member, `queue`, among the `runs` of its partitioned queue.

    The pages have the runs by the arrivals of their entries. Entries that arrived before the queue became a
    member are in no run.
    """

    def __init__(self, runs: Runs, queue: Queue, elsewhere: Elsewhere | None) -> None:
        self._all = runs
        self._queue = queue
        self._elsewhere = elsewhere
        self._pages: dict[int, RunPage] = {}
        self._newest = RunPage(-1)  # the page of the last arrival
        self._leaving = self._newest  # the page of the last departure

    def add(self, entry: QueueEntry, place: Place) -> None:
        """Add `entry`, new and AVAILABLE; hold it if earlier messages of the slot must leave."""
        queue = self._queue
        run = place.run
        if run is None or not run.is_last or run.queue is not queue:
            run = self._all.last_run(place, queue, self._elsewhere)
        run.count += 1
        arrival = queue.entries.arrival(entry)
        page = self._newest
        if page.number != arrival >> PAGE_SHIFT:
            page = self._begin_page(arrival >> PAGE_SHIFT)
        page.runs[arrival & PAGE_MASK] = run
        page.count += 1
        if run.waits != 0 or run.held is not None:
            self._all.hold(run, entry, queue)

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry that has left the queue, whatever the reason."""
        arrival = self._queue.entries.arrival(entry)
        page = self._leaving
        if page.number != arrival >> PAGE_SHIFT:
            found = self._pages.get(arrival >> PAGE_SHIFT)
            if found is None:
                return
            page = self._leaving = found
        run = page.runs[arrival & PAGE_MASK]
        if run is None:
            return
        page.runs[arrival & PAGE_MASK] = None
        page.count -= 1
        if page.count == 0 and page is not self._newest:
            self._drop_page(page)
        run.count -= 1
        if run.held is not None and entry in run.held:
            self._all.unhold(run, entry)
        if run.count == 0:
            elsewhere = run.elsewhere
            if elsewhere is not None:
                run.away = elsewhere.sent
            if run.waits == 0 and run.followers is not None:
                if elsewhere is not None and run.is_away:
                    elsewhere.await_consumption(run)
                else:
                    self._all.end_run(run)

    def postpone_expiry(self, entry: QueueEntry) -> bool:
        """Let `entry` expire unless a consumer takes it after its release; false if it is not HELD."""
        run = self._find(entry)
        if run is None or run.held is None or entry not in run.held:
            return False
        run.held[entry] = True
        return True

    def take_back(self, entry: QueueEntry) -> None:
        """Make `entry` AVAILABLE if it is HELD, without notifying."""
        run = self._find(entry)
        if run is not None and run.held is not None and entry in run.held:
            if run.held[entry]:
                entry.timer = Timer(self._all.schedule.now())  # for its return
            self._all.unhold(run, entry)
            make_available(self._queue, entry)

    def _find(self, entry: QueueEntry) -> Run | None:
        """Return the run of an entry that has not left."""
        arrival = self._queue.entries.arrival(entry)
        page = self._pages.get(arrival >> PAGE_SHIFT)
        return None if page is None else page.runs[arrival & PAGE_MASK]

    def _begin_page(self, number: i64) -> RunPage:
        """Return the page of the next arrivals."""
        before = self._newest
        page = self._newest = self._pages[number] = RunPage(number)
        if before.count == 0 and before.number >= 0:
            self._drop_page(before)
        return page

    def _drop_page(self, page: RunPage) -> None:
        """Drop a page whose entries have all left."""
        del self._pages[page.number]
        self._leaving = self._newest
