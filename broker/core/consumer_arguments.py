"""The arguments of consumers: which values are allowed."""

from __future__ import annotations

from typing import Final

from broker.core.argument_rule import MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.arguments import CONSUMER_TIMEOUT

PRIORITY: Final = "x-priority"
BROWSE: Final = "x-browse"

_CONSUMER_RULES: Final = {
    PRIORITY: ArgumentRule("int", -(2**31), 2**31 - 1),
    BROWSE: ArgumentRule("bool"),
    CONSUMER_TIMEOUT: ArgumentRule("int", 0, MILLISECONDS_MAX),
}


def check_consumer_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a consumer; `queue` describes what it consumes, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    for name, rule in _CONSUMER_RULES.items():
        if name in arguments:
            allowed = rule.objection(arguments[name])
            if allowed:
                raise invalid(name, queue, arguments[name], f"is not {allowed}")
