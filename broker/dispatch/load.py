"""Load control: the number of calls at once, their rate, the circuit breaker, and waits that targets ask for.

The concurrency may adapt to the latency of the calls: additive increase, multiplicative decrease.
[Bernstein & Newcomer 4.5, Dispatcher: load control; Jacobson, Congestion Avoidance and Control]

All times are in milliseconds of the schedule's clock, which the caller reads.
"""

from __future__ import annotations

from typing import Final

from broker.dispatch.definition import BreakerRule, Definition
from broker.dispatch.triggers import NO_TIME

BURST_MS: Final = 100  # the calls that the rate allows in this time may come together
TOKEN: Final = 1_000_000  # a call, in the unit in which the rate is counted
DECREASE: Final = 0.7  # the share of the concurrency that remains after a slow or failed call
WAIT_MIN_MS: Final = 100  # the shortest wait that a target asks for: a Retry-After may be 0
WAIT_MAX_MS: Final = 3_600_000  # the longest wait that a target may ask for: an hour

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"


class Concurrency:
    """The limit of calls at once, between 1 and `most`.

    `latency`: the latency that the limit adapts to, in ms; 0: the limit is `most`. An adaptive limit begins
    with 1. Each fast call adds 1/limit, so a limit of fast calls adds 1. A slow or failed call decreases the
    limit at once. Calls that began before the last decrease do not decrease the limit again: they ran under
    the higher limit. `earlier`: the calls in progress by earlier definitions, which count until they end.
    """

    def __init__(self, most: int, latency: int) -> None:
        self.most = most
        self.latency = latency
        self.running = 0
        self.earlier = 0
        self._limit = float(most if latency == 0 else 1)
        self._decreased = -1  # when the limit was decreased last

    @property
    def limit(self) -> int:
        """The most calls at once now."""
        return int(self._limit)

    def has_room(self) -> bool:
        """Whether another call may begin."""
        return self.running + self.earlier < self.limit

    def note_end(self, began: int, now: int, failed: bool) -> None:
        """Note the end of a call, and adapt the limit."""
        self.running -= 1
        if self.latency == 0:
            return
        if failed or now - began > self.latency:
            if began > self._decreased:
                self._decreased = now
                self._limit = max(1.0, self._limit * DECREASE)
        elif self.running + 1 >= self.limit:  # an unused limit proves nothing
            self._limit = min(float(self.most), self._limit + 1.0 / self._limit)


class Rate:
    """The limit of calls a second; 0: none. Calls of BURST_MS may come together."""

    def __init__(self, rate: float, now: int) -> None:
        self._per_ms = round(rate * TOKEN / 1000)
        self._most = max(TOKEN, self._per_ms * BURST_MS)
        self._tokens = self._most
        self._filled = now

    def wait(self, now: int) -> int:
        """Return the time when the next call may begin; NO_TIME: now."""
        if self._per_ms == 0:
            return NO_TIME
        self._fill(now)
        missing = TOKEN - self._tokens
        return NO_TIME if missing <= 0 else now + -(-missing // self._per_ms)

    def note_call(self, now: int) -> None:
        """Note the beginning of a call."""
        if self._per_ms:
            self._fill(now)
            self._tokens -= TOKEN

    def note_unused(self) -> None:
        """Note that the last call was not made after all."""
        if self._per_ms:
            self._tokens += TOKEN

    def _fill(self, now: int) -> None:
        self._tokens = min(self._most, self._tokens + (now - self._filled) * self._per_ms)
        self._filled = now


class Breaker:
    """The circuit breaker: no calls for a while after too many failures in a row. [Nygard, Release It!]

    After the wait a single call probes the target: half-open. Its success closes the breaker, and its failure
    opens the breaker for twice the wait.
    """

    def __init__(self, rule: BreakerRule) -> None:
        self._rule = rule
        self.failures = 0
        self.opened = 0  # the number of times that the breaker was opened
        self.until = NO_TIME  # when the wait ends; NO_TIME: closed
        self._wait = rule.wait_ms
        self._probing = False

    def state(self, now: int) -> str:
        """Return CLOSED, OPEN or HALF_OPEN."""
        if self.until == NO_TIME:
            return CLOSED
        return OPEN if now < self.until else HALF_OPEN

    def may_call(self, now: int) -> bool:
        """Whether a call may begin: closed, or half-open without a probe."""
        return self.until == NO_TIME or (now >= self.until and not self._probing)

    def note_call(self) -> bool:
        """Note the beginning of a call; whether the call is a probe."""
        if self.until != NO_TIME:
            self._probing = True
        return self._probing

    def note_success(self) -> None:
        """Note that the target has answered: the breaker is closed."""
        self.failures = 0
        self.until = NO_TIME
        self._probing = False
        self._wait = self._rule.wait_ms

    def note_failure(self, now: int, probe: bool) -> None:
        """Note a failed call. Calls that began before the breaker opened do not prolong the wait."""
        if self._rule.failures == 0:
            return
        if self.until != NO_TIME:
            if not probe:
                return
            self._wait = min(self._wait * 2, self._rule.wait_max_ms)
        else:
            self.failures += 1
            if self.failures < self._rule.failures:
                return
        self._probing = False
        self.opened += 1
        self.until = now + self._wait

    def note_no_result(self, probe: bool) -> None:
        """Note that a call has ended and says nothing about the target; a probe is repeated."""
        if probe:
            self._probing = False


class Load:
    """The load control of one dispatcher."""

    def __init__(self, definition: Definition, now: int) -> None:
        self.concurrency = Concurrency(definition.calls_max, definition.latency_ms)
        self.rate = Rate(definition.rate, now)
        self.breaker = Breaker(definition.breaker)
        self.held_until = NO_TIME  # the target wants no calls until then

    def may_begin(self, now: int) -> bool:
        """Whether a call may begin now."""
        return (
            self.concurrency.has_room()
            and now >= self.held_until
            and self.breaker.may_call(now)
            and self.rate.wait(now) == NO_TIME
        )

    def next_time(self, now: int) -> int:
        """Return when a call may begin as far as time decides; NO_TIME: time does not prevent a call."""
        times = [self.held_until, self.breaker.until, self.rate.wait(now)]
        return max([time for time in times if time > now], default=NO_TIME)

    def note_call(self, now: int) -> bool:
        """Note the beginning of a call; whether the call probes whether the target works again."""
        self.concurrency.running += 1
        self.rate.note_call(now)
        return self.breaker.note_call()

    def note_success(self, began: int, now: int) -> None:
        """Note the end of a call whose messages the target has acknowledged or refused."""
        self.concurrency.note_end(began, now, failed=False)
        self.breaker.note_success()

    def note_failure(self, began: int, now: int, probe: bool) -> None:
        """Note the end of a call whose messages are tried again."""
        self.concurrency.note_end(began, now, failed=True)
        self.breaker.note_failure(now, probe)

    def note_busy(self, began: int, now: int, probe: bool, wait_ms: int) -> None:
        """Note the end of a call whose target asks to wait, within WAIT_MIN_MS and WAIT_MAX_MS."""
        self.concurrency.note_end(began, now, failed=True)
        self.breaker.note_no_result(probe)
        self.held_until = max(self.held_until, now + min(max(wait_ms, WAIT_MIN_MS), WAIT_MAX_MS))

    def note_unused(self, probe: bool) -> None:
        """Note that a call was not made after all."""
        self.concurrency.running -= 1
        self.rate.note_unused()
        self.breaker.note_no_result(probe)
