"""How long an entry that has come back waits for its next delivery. [Bernstein & Newcomer 2009, 4.5]

amqpd's own arguments `x-retry-*`, and those of RabbitMQ's quorum queues, `x-delayed-retry-*`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from mypy_extensions import i64

from broker.core.argument_rule import MILLISECONDS_MAX, Arguments
from broker.core.arguments import number_argument, text_argument
from broker.core.chance import Chance
from broker.core.outcome import ALL, CRASH, NACK, RECOVER, REJECT, RELEASED, TIMEOUT
from broker.core.retry_arguments import (
    DELAYED_RETRY_MAX,
    DELAYED_RETRY_MIN,
    DELAYED_RETRY_TYPE,
    DISABLED,
    RETRY_JITTER,
    RETRY_MAX,
    RETRY_MIN,
    RETRY_MULTIPLIER,
)

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
