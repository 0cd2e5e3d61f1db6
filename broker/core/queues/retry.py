"""What becomes of entries that come back: which returns count, and how long they wait.

amqpd's own arguments `x-retry-*`, and those of RabbitMQ's quorum queues, `x-delayed-retry-*`.

An entry that waits is HELD. It keeps its place, and others pass it; when its time has come it is AVAILABLE
there. Nothing of that is written down: after a restart it is AVAILABLE at once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    ALL,
    CRASH,
    DELAYED_RETRY_MAX,
    DELAYED_RETRY_MIN,
    DELAYED_RETRY_TYPE,
    DELIVERY_COUNT_ON,
    DISABLED,
    NACK,
    RECOVER,
    REJECT,
    RELEASED,
    RETRY_JITTER,
    RETRY_MAX,
    RETRY_MIN,
    RETRY_MULTIPLIER,
    TIMEOUT,
    number_argument,
    outcomes_of,
    text_argument,
)
from broker.core.arguments.rule import MILLISECONDS_MAX, Arguments
from broker.core.chance import Chance
from broker.core.entries.entry import AVAILABLE, HELD, QueueEntry, Timer
from broker.core.entries.timers import Timers
from broker.core.queues.hooks import QueueRetry
from broker.core.queues.host import QueueHost
from broker.core.queues.queue import Queue, append_count, offer_again
from broker.core.queues.state import note_change

_JITTER_STEPS: Final = 1 << 30
_TYPES: Final[dict[str, int]] = {
    "all": ALL,
    "failed": REJECT | CRASH,
    "returned": NACK | RECOVER | TIMEOUT | RELEASED,
}
"""Which outcomes RabbitMQ's types of delayed retry mean: those that count there, and those that do not."""


@final
class Backoff:
    """`least` ms after the first return; each further one waits `multiplier` times as long, up to `most`.

    `jitter`: up to this share of the wait is added by chance. `linear`: the wait is the number of returns
    times `least` instead. `outcomes`: after which ways of coming back an entry waits at all.
    """

    def __init__(
        self,
        least: i64,
        most: i64,
        multiplier: float = 1.0,
        jitter: float = 0.0,
        linear: bool = False,
        outcomes: i64 = ALL,
    ) -> None:
        self.least = least
        self.most = most
        self.multiplier = multiplier
        self.jitter = jitter
        self.linear = linear
        self.outcomes = outcomes

    def wait(self, returns: i64, chance: Chance) -> i64:
        """How many milliseconds an entry waits that has come back for the `returns`th time, at least 1."""
        wait = self._without_chance(returns)
        if self.jitter > 0.0:
            share = chance.below(_JITTER_STEPS) / _JITTER_STEPS
            wait += int(float(wait) * self.jitter * share)
        return wait

    def _without_chance(self, returns: i64) -> i64:
        if self.linear:
            return self.most if returns > self.most // self.least else self.least * returns
        wait = float(self.least)
        most = float(self.most)
        if self.multiplier > 1.0:
            while returns > 1 and wait < most:
                wait *= self.multiplier
                returns -= 1
        return int(min(wait, most))


def backoff_of(held: Arguments) -> Backoff | None:
    """What the arguments of a queue ask for, which have been checked; None if nothing waits."""
    least = number_argument(held, RETRY_MIN, 0)
    if least > 0:
        return Backoff(
            least,
            number_argument(held, RETRY_MAX, MILLISECONDS_MAX),
            _fraction(held, RETRY_MULTIPLIER, 2.0),
            _fraction(held, RETRY_JITTER, 0.0),
            False,
            ALL & ~RELEASED,
        )
    kind = text_argument(held, DELAYED_RETRY_TYPE) or DISABLED
    least = number_argument(held, DELAYED_RETRY_MIN, 0)
    if kind == DISABLED or least == 0:
        return None
    most = number_argument(held, DELAYED_RETRY_MAX, MILLISECONDS_MAX)
    return Backoff(least, max(most, 1), 1.0, 0.0, True, _TYPES[kind])


def _fraction(held: Arguments, name: str, default: float) -> float:
    value = held.get(name, default)
    assert isinstance(value, int | float | Decimal), "arguments are checked before a queue is made"
    return float(value)


SLICE: Final = 500  # entries whose time has come that are offered in one turn: about a millisecond


@final
class Retry(QueueRetry):
    """The rules for what comes back to `queue`, and the entries that are HELD.

    Made for a queue that has such an argument; `Queue.retry` is None for all others. `counted`: the outcomes
    that count towards the delivery limit. `backoff`: None if nothing waits.

    The log learns the count of an entry when it is delivered, so that what is out when the broker dies has
    counted; if it turns out that it does not count, the log is told so. Where the loss of the broker itself
    does not count, the log learns it when the entry comes back instead.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        super().__init__()
        self.queue = queue
        self.schedule = host.schedule
        self.chance = host.chance
        self.counted: i64 = ALL
        self.backoff: Backoff | None = None
        self._timers = Timers()
        self._waits: dict[QueueEntry, Timer] = {}

    def apply(self, held: dict[str, object]) -> None:
        """Have these arguments hold from now on. Entries that wait go on waiting as they do."""
        counted = text_argument(held, DELIVERY_COUNT_ON)
        self.counted = ALL if counted is None else outcomes_of(counted)
        self.backoff = backoff_of(held)

    def came_back(self, entry: QueueEntry, outcome: i64) -> None:
        """`entry`, ACQUIRED still, comes back in this way: find out whether that counts."""
        if self.counted & outcome == 0:
            entry.uncounted += 1
            if self.counted & CRASH != 0 or self.queue.entries.annotations_of(entry):  # it is in the log
                append_count(self.queue, entry)
        elif self.counted & CRASH == 0:
            append_count(self.queue, entry)

    def delays(self, outcome: i64) -> bool:
        """Whether an entry that comes back in this way waits."""
        backoff = self.backoff
        return backoff is not None and backoff.outcomes & outcome != 0

    def hold_all(self, entries: list[QueueEntry]) -> None:
        """AVAILABLE → HELD: have `entries`, which have just come back, be nobody's for their times."""
        backoff = self.backoff
        assert backoff is not None, "asked before"
        queue = self.queue
        for entry in entries:
            returns = max(entry.delivery_count, 1)
            timer = Timer(self.schedule.after(backoff.wait(returns, self.chance)))
            self._waits[entry] = timer
            self._timers.start(timer, entry, returns == 1)
            entry.state = HELD
            size = entry.message.size
            queue.ready -= 1
            queue.ready_bytes -= size
            queue.held += 1
            queue.held_bytes += size
            if queue.places is not None:
                note_change(queue, queue.places, entry, -1)
        self._arm()

    def let_go(self, entry: QueueEntry) -> None:
        """`entry` is not to be HELD any longer. The caller says what it is instead, and counts it."""
        self._timers.stop(self._waits.pop(entry))

    def ring(self) -> None:
        """Offer those whose time has come (Alarm)."""
        queue = self.queue
        now = self.schedule.now()
        due: list[QueueEntry] = []
        while len(due) < SLICE:
            timer = self._timers.first()
            if timer is None or timer.due > now:
                break
            entry = timer.entry
            assert entry is not None, "a running timer has an entry"
            self.let_go(entry)
            size = entry.message.size
            entry.state = AVAILABLE
            queue.held -= 1
            queue.held_bytes -= size
            queue.ready += 1
            queue.ready_bytes += size
            if queue.places is not None:
                note_change(queue, queue.places, entry, 1)
            due.append(entry)
        self._arm()
        if due:
            offer_again(queue, due)

    def stop(self) -> None:
        """The queue is deleted."""
        self.schedule.cancel(self)

    def _arm(self) -> None:
        timer = self._timers.first()
        if timer is not None and (self.due == 0 or timer.due < self.due):
            self.schedule.set(self, timer.due)


def apply_retry(queue: Queue, host: QueueHost) -> None:
    """Have the queue's arguments hold as they are now, `queue.effective`, from now on."""
    held = queue.effective
    backoff = backoff_of(held)
    if backoff is not None or DELIVERY_COUNT_ON in held:
        queue.counts = True  # how long a wait is depends on it
    elif queue.retry is None:
        return
    if queue.retry is None:
        queue.retry = Retry(queue, host)
    queue.retry.apply(held)
