"""The arguments that say which returns count and how long what comes back waits; which values are allowed."""

from __future__ import annotations

from typing import Final

from broker.core.argument_rule import MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.outcome import OUTCOMES

DELIVERY_COUNT_ON: Final = "x-delivery-count-on"
RETRY_MIN: Final = "x-retry-min"
RETRY_MAX: Final = "x-retry-max"
RETRY_MULTIPLIER: Final = "x-retry-multiplier"
RETRY_JITTER: Final = "x-retry-jitter"
DELAYED_RETRY_TYPE: Final = "x-delayed-retry-type"
DELAYED_RETRY_MIN: Final = "x-delayed-retry-min"
DELAYED_RETRY_MAX: Final = "x-delayed-retry-max"
DISABLED: Final = "disabled"


def retry_rules() -> dict[str, ArgumentRule]:
    """What each of them may be: amqpd's own, then RabbitMQ's."""
    return {
        DELIVERY_COUNT_ON: ArgumentRule("set", choices=OUTCOMES),
        RETRY_MIN: ArgumentRule("int", 1, MILLISECONDS_MAX),
        RETRY_MAX: ArgumentRule("int", 1, MILLISECONDS_MAX),
        RETRY_MULTIPLIER: ArgumentRule("number", 1, 1000),
        RETRY_JITTER: ArgumentRule("number", 0, 1),
        DELAYED_RETRY_TYPE: ArgumentRule("str", choices=(DISABLED, "all", "failed", "returned")),
        DELAYED_RETRY_MIN: ArgumentRule("int", 0, MILLISECONDS_MAX),
        DELAYED_RETRY_MAX: ArgumentRule("int", 0, MILLISECONDS_MAX),
    }


def check_retry(arguments: Arguments, queue: str) -> None:
    """Refuse arguments that make no sense together; each of them is what it may be.

    Raises:
        PreconditionFailed: both arguments.
    """
    for name in (RETRY_MAX, RETRY_MULTIPLIER, RETRY_JITTER):
        if name in arguments and RETRY_MIN not in arguments:
            raise invalid(name, queue, arguments[name], f"needs {RETRY_MIN}")
    if RETRY_MIN in arguments and arguments.get(DELAYED_RETRY_TYPE, DISABLED) != DISABLED:
        raise invalid(RETRY_MIN, queue, arguments[RETRY_MIN], f"does not go with {DELAYED_RETRY_TYPE}")
    for least, most in ((RETRY_MIN, RETRY_MAX), (DELAYED_RETRY_MIN, DELAYED_RETRY_MAX)):
        shortest, longest = arguments.get(least, 0), arguments.get(most, MILLISECONDS_MAX)
        assert isinstance(shortest, int), "its own rule has been asked"
        assert isinstance(longest, int), "its own rule has been asked"
        if shortest > longest:
            raise invalid(most, queue, longest, f"is less than {least}")
