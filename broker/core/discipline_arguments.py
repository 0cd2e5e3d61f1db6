"""The arguments of queues with a discipline: which values are allowed, and which together."""

from __future__ import annotations

from typing import Final

from broker.core.argument_rule import ANY_SIZE, ArgumentRule, Arguments, invalid

STRICT_ORDER: Final = "x-strict-order"
GROUP_KIND: Final = "x-group-kind"
GROUP_KEY: Final = "x-group-key"
GROUP_LIMIT: Final = "x-group-limit"
GROUP_REBALANCE: Final = "x-group-rebalance"
STICKY: Final = "sticky"
SHARED: Final = "shared"


def discipline_rules() -> dict[str, ArgumentRule]:
    """What the arguments may be."""
    return {
        GROUP_KIND: ArgumentRule("str", choices=(STICKY, SHARED)),
        GROUP_KEY: ArgumentRule("header"),
        GROUP_LIMIT: ArgumentRule("int", 0, ANY_SIZE),
        GROUP_REBALANCE: ArgumentRule("bool"),
        STRICT_ORDER: ArgumentRule("bool"),
    }


def check_discipline(arguments: Arguments, queue: str) -> None:
    """Check that arguments, each of which is allowed by itself, go together.

    Raises:
        PreconditionFailed: one is for sticky groups, which there are not.
    """
    for name in (GROUP_LIMIT, GROUP_REBALANCE):
        if name not in arguments:
            continue
        if not has_groups(arguments):
            raise invalid(name, queue, arguments[name], f"needs {GROUP_KIND} or {GROUP_KEY}")
        if arguments.get(GROUP_KIND) == SHARED:
            raise invalid(name, queue, arguments[name], f"does not go with {GROUP_KIND}, {SHARED}")


def has_groups(arguments: Arguments) -> bool:
    """Whether a queue has message groups."""
    return GROUP_KIND in arguments or GROUP_KEY in arguments
