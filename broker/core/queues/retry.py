"""Retries: the rules for returned entries.

The delivery limit says how often an entry may be returned. Other rules say which returns count, and how long
a returned entry waits: amqpd's own arguments `x-retry-*`, and `x-delayed-retry-*` of RabbitMQ's quorum
queues.

An entry that waits is HELD. The entry keeps its place, and other entries pass it. When the wait is over, the
entry is AVAILABLE at this place. The log does not record the wait: after a restart the entry is AVAILABLE at
once.
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
    DELIVERY_LIMIT,
    DISABLED,
    FAILURES,
    NACK,
    RECOVER,
    REJECT,
    RELEASED,
    RETRY_JITTER,
    RETRY_MAX,
    RETRY_MIN,
    RETRY_MULTIPLIER,
    TIMEOUT,
    is_quorum,
    number_argument,
    outcomes_of,
    text_argument,
)
from broker.core.arguments.rule import MILLISECONDS_MAX, Arguments
from broker.core.entries.entry import QueueEntry, Timer
from broker.core.entries.timers import Timers
from broker.core.hashing import Chance
from broker.core.queues.hooks import QueueRetry
from broker.core.queues.queue import Queue, append_count, offer_again
from broker.core.queues.state import make_available, make_held
from broker.core.queues.virtual_host import QueueHost

_JITTER_STEPS: Final = 1 << 30
_TYPES: Final[dict[str, int]] = {
    "all": ALL,
    "failed": REJECT | CRASH,
    "returned": NACK | RECOVER | TIMEOUT | RELEASED,
}
"""The outcomes of RabbitMQ's types of delayed retry: "failed" ones count there, "returned" ones do not."""


@final
class Backoff:
    """The wait after a return: `least` ms after the first one, then `multiplier` times as long, up to `most`.

    `jitter`: up to this share of the wait is added at random. `linear`: the wait is the number of returns
    times `least` instead. `outcomes`: the outcomes after which an entry waits at all.
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
        """Return how many milliseconds an entry waits after its return number `returns`, at least 1."""
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


def backoff_of(effective: Arguments) -> Backoff | None:
    """Return the backoff that the checked arguments of a queue ask for; None: no entry waits."""
    least = number_argument(effective, RETRY_MIN, 0)
    if least > 0:
        return Backoff(
            least,
            number_argument(effective, RETRY_MAX, MILLISECONDS_MAX),
            _fraction(effective, RETRY_MULTIPLIER, 2.0),
            _fraction(effective, RETRY_JITTER, 0.0),
            False,
            FAILURES,
        )
    kind = text_argument(effective, DELAYED_RETRY_TYPE) or DISABLED
    least = number_argument(effective, DELAYED_RETRY_MIN, 0)
    if kind == DISABLED or least == 0:
        return None
    most = number_argument(effective, DELAYED_RETRY_MAX, MILLISECONDS_MAX)
    return Backoff(least, max(most, 1), 1.0, 0.0, True, _TYPES[kind])


def _fraction(effective: Arguments, name: str, default: float) -> float:
    value = effective.get(name, default)
    assert isinstance(value, int | float | Decimal), "arguments are checked before a queue is made"
    return float(value)


SLICE: Final[i64] = 500  # entries made AVAILABLE in one turn: about a millisecond


@final
class Retry(QueueRetry):
    """The rules for entries that are returned to `queue`, and its HELD entries.

    A queue gets them with such an argument; `Queue.retry` is None for all others. `counted`: the outcomes
    that count towards the delivery limit. `backoff`: None if no entry waits.

    The log records the count of an entry when it is delivered, so that a delivery counts if the broker dies.
    If its return does not count, the log records that. Where the loss of the broker itself does not count,
    the log records the count at the return instead.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        super().__init__(host.schedule, SLICE)
        self.queue = queue
        self.chance = host.chance
        self.counted: i64 = FAILURES
        self.backoff: Backoff | None = None
        self._timers = Timers()
        self._waits: dict[QueueEntry, Timer] = {}

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on. HELD entries keep their times."""
        counted = text_argument(effective, DELIVERY_COUNT_ON)
        self.counted = FAILURES if counted is None else outcomes_of(counted)
        self.backoff = backoff_of(effective)

    def count_return(self, entry: QueueEntry, outcome: i64) -> None:
        """Count the return of `entry`, still ACQUIRED, if a return with this outcome counts."""
        if self.counted & outcome == 0:
            entry.uncounted += 1
            if self.counted & CRASH != 0 or self.queue.entries.annotations_of(entry):  # the log has a count
                append_count(self.queue, entry)
        elif self.counted & CRASH == 0:
            append_count(self.queue, entry)

    def has_delay_for(self, outcome: i64) -> bool:
        """Whether an entry that is returned with this outcome waits."""
        backoff = self.backoff
        return backoff is not None and backoff.outcomes & outcome != 0

    def hold_all(self, entries: list[QueueEntry], outcome: i64) -> None:
        """Hold `entries`, which have just been returned with this outcome, for their times: AVAILABLE → HELD.

        The wait grows with the deliveries that count, which are the failed attempts. Where an outcome waits
        but does not count, the wait grows with all deliveries, since nothing else tells the first return
        from the next.
        """
        backoff = self.backoff
        assert backoff is not None, "the caller has called `has_delay_for`"
        queue = self.queue
        for entry in entries:
            returns = max(entry.counted if self.counted & outcome != 0 else entry.delivery_count, 1)
            timer = Timer(self.schedule.after(backoff.wait(returns, self.chance)))
            self._waits[entry] = timer
            self._timers.start(timer, entry, returns == 1)
            make_held(queue, entry)
        self._arm()

    def forget_wait(self, entry: QueueEntry) -> None:
        """Forget the time of `entry`, if it has one, which the caller makes AVAILABLE or DEQUEUED."""
        timer = self._waits.pop(entry, None)
        if timer is not None:  # else the entry waits for other members of a partitioned queue
            self._timers.stop(timer)

    def step(self, budget: i64) -> bool:
        """Make entries AVAILABLE whose time has come."""
        queue = self.queue
        now = self.schedule.now()
        due: list[QueueEntry] = []
        while len(due) < budget:
            timer = self._timers.first()
            if timer is None or timer.due > now:
                break
            entry = timer.entry
            assert entry is not None, "a running timer has an entry"
            self.forget_wait(entry)
            make_available(queue, entry)
            due.append(entry)
        self._arm()
        if due:
            offer_again(queue, due)
        return False

    def stop(self) -> None:
        """Cancel the task: the queue is deleted."""
        self.schedule.cancel(self)

    def _arm(self) -> None:
        timer = self._timers.first()
        if timer is not None and (self.due == 0 or timer.due < self.due):
            self.schedule.set(self, timer.due)


NO_LIMIT: Final = -1
QUORUM_LIMIT: Final = 20  # for a quorum queue without an explicit limit


def apply(queue: Queue, host: QueueHost) -> None:
    """Apply the queue's effective arguments for returned entries, from the next return on."""
    _set_delivery_limit(queue)
    effective = queue.effective
    backoff = backoff_of(effective)
    if backoff is not None or DELIVERY_COUNT_ON in effective:
        queue.counts = True  # the length of a wait depends on the count
    elif queue.retry is None:
        return
    if queue.retry is None:
        queue.retry = Retry(queue, host)
    queue.retry.apply(effective)


def _set_delivery_limit(queue: Queue) -> None:
    quorum = is_quorum(queue.arguments)
    limit = queue.effective.get(DELIVERY_LIMIT, QUORUM_LIMIT if quorum else NO_LIMIT)
    assert isinstance(limit, int), "arguments are checked before a queue is made"
    queue.delivery_limit = max(limit, NO_LIMIT)
    queue.counts = quorum or limit >= 0
