"""The schedule: timed tasks in order of time, work in slices, and the cost that one peer may cause in a turn.

A piece of a client's input may contain thousands of requests. Publishing and settling ordinary messages is
cheap, and is bounded by the size of the piece. Every costlier operation reports its cost here. When the costs
exceed the allowance of a turn, the peer's worker continues with the next request in another turn.

The core has no clock. Two functions return the time. `clock` counts nanoseconds and never goes back; waits
are measured by it. `calendar` returns nanoseconds since 1970, for dates that clients see or that survive a
restart. The core itself counts whole milliseconds, rounded down. A wait that must not be too short begins
with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import BY_CLOCK, Message

# all in microseconds, as compiled modules on an ordinary machine take them
TURN: Final[i64] = 2000
METHOD: Final[i64] = 10  # a small method, mostly for decoding
PAYLOAD: Final[i64] = 16  # bytes of a method's payload that cost one microsecond more
PROPERTIES: Final[i64] = 10  # a message's properties, to decode them and to route by them
REQUEST: Final[i64] = 50  # over AMQP 1.0, to the node of management: to decode and to answer it
DELIVERY: Final[i64] = 5  # a message to a consumer, before the request that waits for it
RECEIPT: Final[i64] = 10
LETTER: Final[i64] = 20
MODIFICATION: Final[i64] = 5  # a message that gets annotations
BINDING: Final[i64] = 1  # to unlink one
ENTRIES: Final[i64] = 4  # entries removed in a microsecond
QUEUES: Final[i64] = 4  # queues that get a message in a microsecond
FAN_OUT: Final[i64] = 16  # queues of one message that are not worth counting


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker:
    """A worker does the requests of a peer, in turns."""

    def stop_turn(self) -> None:
        """Begin nothing more in this turn."""
        raise NotImplementedError


@final
class Allowance:
    """The allowance of the current turn. Costs count only while a worker's turn has begun."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._left: i64 = 0

    def begin(self, worker: Worker) -> Worker | None:
        """Begin a turn of `worker`. Return the worker of the enclosing turn, for `end`."""
        before = self._worker
        self._worker = worker
        self._left = TURN
        return before

    def end(self, before: Worker | None) -> None:
        """End the turn."""
        self._worker = before

    def use(self, cost: i64) -> None:
        """Count the cost of an operation, before or after it, in microseconds."""
        self._left -= cost
        worker = self._worker
        if self._left < 0 and worker is not None:
            self._worker = None
            worker.stop_turn()


RUN_MS: Final = 5  # how long one call of `run` does due work before other work continues
STALE_MIN: Final = 64  # fewer dead marks are not worth a sweep
JITTER_MS: Final[i64] = 1  # the apparent drift of two clocks that are read one after the other
NS_PER_MS: Final[i64] = 1_000_000  # nanoseconds in a millisecond


@mypyc_attr(allow_interpreted_subclasses=True)
class TimedTask:
    """A task that the schedule does at a time. `due`: the time on the schedule's clock; 0: none is set."""

    def __init__(self) -> None:
        self.due: i64 = 0

    def do_due_work(self) -> None:
        """Do the due work; it may set the task again. A `Chore` divides work that takes long."""
        raise NotImplementedError


@final
class Schedule:
    """The timed tasks that are set.

    `wake` requests a call of `run` at a time of the clock, and replaces any earlier request. Setting, moving
    and cancelling a task cost O(log n) amortised, however many tasks are set. `allowance`: the remaining
    allowance of the current turn.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        calendar: Callable[[], int],
        wake: Callable[[int], None],
    ) -> None:
        self.allowance = Allowance()
        self._clock = clock
        self._calendar = calendar
        self._wake = wake
        self._woken: i64 = 0  # when `run` will be called; 0: no call was requested
        self._marks: list[tuple[int, int, TimedTask]] = []  # due, number of the mark, task; some are dead
        self._numbers: i64 = 0
        self._set: i64 = 0  # tasks that are set
        self._offset: i64 = calendar() // NS_PER_MS - clock() // NS_PER_MS  # from the clock to the calendar

    @property
    def clock(self) -> Callable[[], int]:
        """The clock, which returns nanoseconds."""
        return self._clock

    def now(self) -> i64:
        """The time on the clock, in milliseconds."""
        return self._clock() // NS_PER_MS

    def after(self, wait: i64) -> i64:
        """Return the first time on the clock when at least `wait` ms have passed."""
        return (self._clock() + NS_PER_MS - 1) // NS_PER_MS + wait

    def date(self) -> i64:
        """The time of day, in milliseconds since 1970."""
        return self._calendar() // NS_PER_MS

    def date_after(self, wait: i64) -> i64:
        """Return the date when at least `wait` ms have passed, unless the calendar is set meanwhile.

        `due_at` returns this time on the clock, which does not change then.
        """
        now = self._clock()
        offset = self._calendar() // NS_PER_MS - now // NS_PER_MS
        if not -JITTER_MS <= offset - self._offset <= JITTER_MS:
            self._offset = offset
        return (now + NS_PER_MS - 1) // NS_PER_MS + wait + self._offset

    def due_at(self, date: i64) -> i64:
        """Return the time on the clock of a date of `date_after`, or of a date from the log at the start."""
        return date - self._offset

    def set(self, task: TimedTask, due: i64) -> None:
        """Do `task` at `due`, or at once if `due` is past, instead of at its earlier time."""
        due = max(due, 1)
        if task.due == due:
            return
        if task.due == 0:
            self._set += 1
        task.due = due
        self._numbers += 1
        marks = self._marks
        heappush(marks, (due, self._numbers, task))
        if len(marks) > 2 * self._set + STALE_MIN:
            self._marks = [mark for mark in marks if mark[2].due == mark[0]]
            heapify(self._marks)
        if self._woken == 0 or due < self._woken:
            self._woken = due
            self._wake(due)

    def cancel(self, task: TimedTask) -> None:
        """Cancel `task`."""
        if task.due != 0:
            task.due = 0
            self._set -= 1

    def run(self) -> None:
        """Do due tasks for some milliseconds; the next call, which follows at once, does the other due tasks.

        Tasks that are set meanwhile also wait for the next call, however early they are due.
        """
        self._woken = 0
        now = self.now()
        last = self._numbers
        postponed: list[tuple[int, int, TimedTask]] = []
        try:
            while self._marks and self._marks[0][0] <= now:
                mark = heappop(self._marks)
                task = mark[2]
                if task.due != mark[0]:
                    continue
                if mark[1] > last:
                    postponed.append(mark)
                    continue
                task.due = 0
                self._set -= 1
                task.do_due_work()
                if self.now() - now >= RUN_MS:
                    break
        finally:  # a failing task must not stop the other tasks for good
            for mark in postponed:
                heappush(self._marks, mark)
            if self._marks and (self._woken == 0 or self._marks[0][0] < self._woken):
                self._woken = self._marks[0][0]
                self._wake(self._marks[0][0])


FAILURE_MS: Final[i64] = 1000  # the wait of a chore after a step that failed


@mypyc_attr(allow_interpreted_subclasses=True)
class Chore(TimedTask):
    """Work that may take long, done in slices: one `step` in each turn, with other work in between.

    When a step fails, the next step follows after FAILURE_MS: a single message that cannot be processed must
    not stop all the others for good. `budget`: the size of a slice, in units of the subclass.
    """

    def __init__(self, schedule: Schedule, budget: i64) -> None:
        super().__init__()
        self.schedule = schedule
        self.budget: i64 = budget

    def step(self, budget: i64) -> bool:
        """Do up to `budget` of the work. Return whether the next turn must continue.

        A step that leaves work only for a later date sets the chore to this date, and returns False.
        """
        raise NotImplementedError

    def do_due_work(self) -> None:
        """Do one slice now, and the next slice in a later turn."""
        if self._try_step():
            self.continue_soon()

    def continue_soon(self) -> None:
        """Do the next slice in the next turn."""
        self.schedule.set(self, self.schedule.now())

    def finish(self) -> None:
        """Do all the work that is due now, in this turn."""
        self.schedule.cancel(self)
        while self._try_step():
            pass

    def _try_step(self) -> bool:
        try:
            return self.step(self.budget)
        except BaseException:
            if self.due == 0:
                self.schedule.set(self, self.schedule.now() + FAILURE_MS)
            raise


SLICE: Final[i64] = 64  # messages released in one turn: one or two milliseconds
LOOK_MS: Final = 60_000  # the interval of looks at the calendar, which may be set
RETRY_MS: Final = 1000  # the wait after a release that was not possible
STALE_DATES_MIN: Final = 64  # fewer places of cancelled messages are not worth a sweep


@final
@mypyc_attr(acyclic=True)
class HeldMessage:
    """A message's place in a timetable; `message` is None once it has left.

    `date`: when its message is due by the calendar. `due`: the same by the clock, if setting the calendar
    must not change that.
    """

    def __init__(self, message: Message, date: i64, due: i64, number: i64) -> None:
        self.message: Message | None = message
        self.date = date
        self.due = due
        self.number = number

    def __lt__(self, other: HeldMessage) -> bool:
        return self.due < other.due or (self.due == other.due and self.number < other.number)


@mypyc_attr(allow_interpreted_subclasses=True)
class Timetable(Chore):
    """Releases messages at their `date`, and messages of one date in the order in which they were added.

    A message that waits for the end of a delay is released by the clock, as times to live end. A message that
    waits for a time of day is released by the calendar, which may be set.

    The places are in two heaps: adding and releasing are O(log n), and nothing happens between two dates. Due
    messages are released in slices, so that a million messages of one date do not hold up everything else.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self.count: i64 = 0
        self._by_clock: list[HeldMessage] = []
        self._by_calendar: list[HeldMessage] = []
        self._numbers: i64 = 0

    def waits_by_clock(self, message: Message) -> bool:
        """Whether `message` waits for the end of a delay, and not for a time of day."""
        return message.marks & BY_CLOCK != 0

    def release(self, message: Message) -> i64:
        """Send `message`, which is due, to its destination.

        Returns in how many ms to try again; 0: the message has left. Only then the next message is released.
        """
        raise NotImplementedError

    def __len__(self) -> int:
        return self.count

    def places(self) -> list[list[HeldMessage]]:
        """Return every present place, also of messages that have left; see `soonest_first`."""
        return [list(self._by_clock), list(self._by_calendar)]

    def __iter__(self) -> Iterator[Message]:
        """The messages, soonest first; too slow for the hot path."""
        for held in merge(sorted(self._by_clock), sorted(self._by_calendar), key=_order):
            if held.message is not None:
                yield held.message

    def add(self, message: Message) -> HeldMessage:
        """Hold `message` until its date."""
        return self.hold(message, message.date, self.waits_by_clock(message))

    def hold(self, message: Message, date: i64, by_clock: bool) -> HeldMessage:
        """Hold `message` until this date. The message, which others may share, keeps its own date."""
        self._numbers += 1
        heap = self._by_clock if by_clock else self._by_calendar
        held = HeldMessage(message, date, self.schedule.due_at(date) if by_clock else date, self._numbers)
        heappush(heap, held)
        self.count += 1
        if heap[0] is held:
            self._set_due(0)
        return held

    def cancel(self, held: HeldMessage) -> None:
        """Stop holding a message, without a release."""
        if held.message is None:
            return
        held.message = None
        self.count -= 1
        if len(self._by_clock) + len(self._by_calendar) > 2 * self.count + STALE_DATES_MIN:
            self._by_clock = [place for place in self._by_clock if place.message is not None]
            heapify(self._by_clock)
            self._by_calendar = [place for place in self._by_calendar if place.message is not None]
            heapify(self._by_calendar)

    def take(self, most: i64) -> list[Message]:
        """Stop holding up to `most` messages, in any order, without a release. Return them."""
        taken: list[Message] = []
        for heap in (self._by_clock, self._by_calendar):
            while heap and len(taken) < most:
                held = heap.pop()
                message = held.message
                if message is not None:
                    held.message = None
                    self.count -= 1
                    taken.append(message)
        return taken

    def step(self, budget: i64) -> bool:
        """Release up to `budget` of the due messages."""
        wait: i64 = 0
        try:
            now = self.schedule.now()
            date = self.schedule.date()
            for _ in range(budget):
                heap = self._first_due(now, date)
                if wait > 0 or heap is None:
                    break
                wait = self._release_first(heap)
        finally:  # the message whose release failed has left: the next one need not wait
            self._set_due(wait)
        return False

    def _first_due(self, now: i64, date: i64) -> list[HeldMessage] | None:
        """Return the heap with the message to release next; None if none is due."""
        clock, calendar = self._by_clock, self._by_calendar
        if not clock or clock[0].due > now:
            return calendar if calendar and calendar[0].due <= date else None
        if not calendar or calendar[0].due > date:
            return clock
        return calendar if _order(calendar[0]) < _order(clock[0]) else clock

    def _release_first(self, heap: list[HeldMessage]) -> i64:
        held = heappop(heap)
        message = held.message
        if message is None:
            return 0
        held.message = None
        self.count -= 1
        wait = self.release(message)
        if wait > 0:
            held.message = message
            self.count += 1
            heappush(heap, held)
        return wait

    def _set_due(self, wait: i64) -> None:
        """Set the task for the first message, but not before `wait` ms have passed."""
        clock, calendar = self._by_clock, self._by_calendar
        now = self.schedule.now()
        left: i64 = 0
        if clock:
            left = clock[0].due - now
        if calendar:
            until = min(calendar[0].due - self.schedule.date(), LOOK_MS)
            left = min(left, until) if clock else until
        if clock or calendar:
            self.schedule.set(self, now + max(wait, left))


def _order(held: HeldMessage) -> tuple[int, int]:
    """Return the place of a message among all, whichever heap it is in."""
    return held.date, held.number


def soonest_first(heaps: list[list[HeldMessage]]) -> Iterator[HeldMessage]:
    """Yield the places of a timetable in order; the first ones cost little however many follow."""
    waiting = [(heap[0].date, heap[0].number, which, 0) for which, heap in enumerate(heaps) if heap]
    heapify(waiting)
    while waiting:
        _, _, which, at = heappop(waiting)
        heap = heaps[which]
        for below in (2 * at + 1, 2 * at + 2):
            if below < len(heap):
                place = heap[below]
                heappush(waiting, (place.date, place.number, which, below))
        if heap[at].message is not None:
            yield heap[at]
