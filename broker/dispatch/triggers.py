"""Triggers: the events that let a dispatcher take messages from its queue.

A trigger grants a number of messages. The load control decides how fast they are called. All four events of
[Bernstein & Newcomer 4.5, Dispatcher] are here: a message arrives; a message arrives while the application is
not running; the queue reaches a length; an interval ends while the queue is not empty.

A granted message that returns to the queue for a retry stays granted. Otherwise a failed message would wait
until the event happens again. The grant is for this message: a later message does not use it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.core.cron import NO_DATE, Cron
from broker.core.entries.entry import AVAILABLE, DEQUEUED, QueueEntry
from broker.core.schedule import Schedule

EVERY_MESSAGE: Final = "every-message"
WHEN_IDLE: Final = "when-idle"
LENGTH: Final = "length"
INTERVAL: Final = "interval"
KINDS: Final = (EVERY_MESSAGE, WHEN_IDLE, LENGTH, INTERVAL)

NO_TIME: Final = 0
LOOK_MS: Final = 60_000  # the longest wait for a cron date: the calendar may be set meanwhile


@dataclass(frozen=True, slots=True)
class TriggerRule:
    """A trigger as its definition describes it.

    `length`: the number of ready messages that a queue must reach. `every_ms`: the interval. `cron`: a cron
    expression of five fields, in UTC. 0 and "" are absent.
    """

    kind: str = EVERY_MESSAGE
    length: int = 0
    every_ms: int = 0
    cron: str = ""


class Trigger:
    """A trigger at work, for messages that are called as soon as they are ready.

    This base class grants every message: `every-message`, and `when-idle`, which differs only by the number
    of calls at once. `watches`: the trigger must learn of each message that becomes ready, also while it
    grants nothing. `counts`: the trigger grants a number of messages, and must learn of returned ones.
    """

    watches: bool = False
    counts: bool = False

    def start(self) -> None:
        """Start to wait for the event: the dispatcher serves its queue from now on."""

    def may_take(self, ready: int) -> bool:
        """Whether the next message may be taken from the queue, which has `ready` messages."""
        return True

    def note_taken(self, entry: QueueEntry) -> None:
        """Note that a message was taken."""

    def note_returned(self, entries: list[QueueEntry]) -> None:
        """Note that taken messages return to the queue for a retry, at once or in later turns."""

    def note_ready(self, back: list[QueueEntry]) -> None:
        """Note that messages, of the dispatcher or of other consumers, have become ready again."""

    def awaits_some(self) -> bool:
        """Whether returned messages are granted."""
        return False

    def sweep(self) -> None:
        """Forget the returned messages that have left the queue."""

    def note_empty(self) -> None:
        """Note that none of the messages that an event has granted is left in the queue."""

    def next_time(self) -> int:
        """Return the time on the schedule's clock when `ring` is due; NO_TIME: never."""
        return NO_TIME

    def ring(self, ready: int) -> None:
        """Grant the messages that are ready, if the time of `next_time` has come."""


class GrantingTrigger(Trigger):
    """A trigger that grants a counted number of messages with each event.

    `granted`: the messages of the event that are still to be taken, without the returned ones.
    """

    counts = True

    def __init__(self) -> None:
        self.granted = 0
        self._returned: dict[QueueEntry, None] = {}
        self._ready: OrderedDict[QueueEntry, None] = OrderedDict()  # returned messages that were ready

    def may_take(self, ready: int) -> bool:
        """Whether a granted message is left, or a returned one is ready."""
        return self.granted > 0 or self._has_ready()

    def note_taken(self, entry: QueueEntry) -> None:
        """Use up the grant of a returned message, or one of those that the event has granted."""
        if entry in self._returned:
            del self._returned[entry]
            self._ready.pop(entry, None)
        else:
            self.granted = max(self.granted - 1, 0)

    def note_returned(self, entries: list[QueueEntry]) -> None:
        """Grant again the messages that are in the queue, or about to be: the queue may have moved some."""
        for entry in entries:
            if entry.state != DEQUEUED:
                self._returned[entry] = None
                if entry.state == AVAILABLE:
                    self._ready[entry] = None

    def note_ready(self, back: list[QueueEntry]) -> None:
        """Note that returned messages may be taken now."""
        for entry in back:
            if entry in self._returned:
                self._ready[entry] = None

    def awaits_some(self) -> bool:
        """Whether returned messages are granted."""
        return bool(self._returned)

    def sweep(self) -> None:
        """Forget the returned messages that have left the queue."""
        for entry in [entry for entry in self._returned if entry.state == DEQUEUED]:
            del self._returned[entry]
            self._ready.pop(entry, None)

    def grant(self, ready: int) -> None:
        """Grant the `ready` messages of the queue; the returned ones among them are granted already."""
        returned = sum(entry.state == AVAILABLE for entry in self._ready)
        self.granted = max(self.granted, ready - returned)

    def _has_ready(self) -> bool:
        while self._ready:
            if next(iter(self._ready)).state == AVAILABLE:
                return True
            self._ready.popitem(last=False)
        return False

    def note_empty(self) -> None:
        """Withdraw the rest: other consumers have taken the messages."""
        self.granted = 0


class IntervalTrigger(GrantingTrigger):
    """Grants, at each end of an interval or date of a cron expression, the messages that are ready then.

    Intervals are counted from the start, and dates by the calendar in UTC. A time that passes while the
    broker is stopped or the dispatcher is paused is not made up for.
    """

    def __init__(self, schedule: Schedule, every_ms: int, cron: str = "") -> None:
        super().__init__()
        self._schedule = schedule
        self._every = every_ms
        self._cron = Cron(cron) if cron else None
        self._due = NO_TIME  # on the clock
        self._date = NO_DATE  # the next date of the cron expression, in milliseconds since 1970

    def start(self) -> None:
        """Count the first interval from now on."""
        if self._cron is not None:
            self._set_date(int(self._schedule.date()))
        else:
            self._due = int(self._schedule.after(self._every))

    def next_time(self) -> int:
        """Return the end of the interval, or a time shortly after which the calendar is read again."""
        if self._cron is None or self._date == NO_DATE:
            return self._due
        return int(self._schedule.now()) + min(max(self._date - int(self._schedule.date()), 1), LOOK_MS)

    def ring(self, ready: int) -> None:
        """Grant the ready messages if an interval has ended or a date has come."""
        if self._cron is not None:
            date = int(self._schedule.date())
            if self._date == NO_DATE or date < self._date:
                return
            self._set_date(date)
        else:
            now = int(self._schedule.now())
            if self._due == NO_TIME or now < self._due:
                return
            self._due += (1 + (now - self._due) // self._every) * self._every
        self.grant(ready)

    def _set_date(self, after: int) -> None:
        """Find the next date of the cron expression after a date."""
        self._date = NO_DATE if self._cron is None else self._cron.next_after(after)


class LengthTrigger(IntervalTrigger):
    """Grants all ready messages when the queue has reached a number of them.

    With an interval the trigger also grants what is ready at each end of the interval, however little.
    """

    watches = True

    def __init__(self, schedule: Schedule, length: int, every_ms: int) -> None:
        super().__init__(schedule, every_ms)
        self._length = length

    def start(self) -> None:
        """Count the first interval from now on, if there is one."""
        if self._every:
            super().start()

    def may_take(self, ready: int) -> bool:
        """Whether a granted or returned message is left, or the queue has reached the length."""
        if super().may_take(ready):
            return True
        if ready >= self._length:
            self.grant(ready)
        return self.granted > 0


def trigger_of(rule: TriggerRule, schedule: Schedule) -> Trigger:
    """Return the trigger that a rule describes."""
    if rule.kind == LENGTH:
        return LengthTrigger(schedule, rule.length, rule.every_ms)
    if rule.kind == INTERVAL:
        return IntervalTrigger(schedule, rule.every_ms, rule.cron)
    return Trigger()
