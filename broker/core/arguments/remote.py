"""The arguments of remote queues, whose messages are in a queue of another broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.core.arguments.rule import (
    ADDRESSED,
    REMOTE,
    ArgumentRule,
    Arguments,
    invalid,
    show_address,
    shown_argument,
)

REMOTE_MODE: Final = "x-remote-mode"
DIRECT: Final = "direct"
HYBRID: Final = "hybrid"
REMOTE_ARGUMENTS: Final = {
    REMOTE: ArgumentRule(
        "name",
        description="URI of the queue in another broker that has the messages of this queue: "
        "`amqp://USER:PASSWORD@HOST:PORT/VHOST/QUEUE`. Without `/QUEUE` the name is the same. The queue of "
        "the other broker must exist. A redeclaration need not repeat the argument.",
    ),
    REMOTE_MODE: ArgumentRule(
        "str",
        choices=(DIRECT, HYBRID),
        description="Meaning of a confirm of a remote queue: with `direct` (default) the other broker has "
        "stored the message, with `hybrid` this broker has stored the message and sends it later.",
    ),
}

OPTIONAL: Final = (REMOTE, REMOTE_MODE)
"""Arguments that a redeclaration may leave out, so that clients need not know where the messages are."""


def shown_arguments(arguments: Arguments) -> Arguments:
    """Return the arguments of a queue as users may see them: each URI without its log-in."""
    shown: Arguments = {}
    for name in ADDRESSED:
        if name in arguments:
            shown[name] = shown_argument(name, arguments[name])
    if REMOTE in arguments:
        shown[REMOTE] = show_address(arguments[REMOTE])
    return arguments | shown if shown else arguments


LINK_PATH: Final = "x-link-path"
"""The argument of a link's passive declarations: the remote queues whose messages the link sends."""

LINK_COUNTS: Final = "x-link-counts"
"""The argument with which the answer to a passive declaration counts messages that may come back too."""

LOCAL_ARGUMENTS: Final = (
    *REMOTE_ARGUMENTS,
    "x-queue-type",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-journal",
    "x-consumer-timeout",
    "x-queue-mode",
    "x-queue-version",
    "x-queue-master-locator",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
    "x-member-placement-tag",
    "x-initial-cluster-size",
)
"""The arguments of remote queues: what concerns messages belongs to the queue in the other broker."""


def is_remote(arguments: Arguments) -> bool:
    """Whether the messages of a queue are in a queue of another broker."""
    return REMOTE in arguments


def check_remote(arguments: Arguments, known: Iterable[str], queue: str) -> None:
    """Refuse arguments of a remote queue that concern messages, which are in the other broker.

    `known`: the names of all arguments of queues. `queue`: its description, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument does not go with a remote queue, or with any other one.
    """
    if not is_remote(arguments):
        if REMOTE_MODE in arguments:
            raise invalid(REMOTE_MODE, queue, arguments[REMOTE_MODE], f"needs {REMOTE}")
        return
    for name in known:
        if name in arguments and name not in LOCAL_ARGUMENTS:
            why = f"does not go with {REMOTE}: it belongs to the queue in the other broker"
            raise invalid(name, queue, arguments[name], why)
    for name in ("x-max-length", "x-max-length-bytes"):
        if name in arguments and arguments.get("x-overflow") != "reject-publish":
            why = f"needs x-overflow 'reject-publish' with {REMOTE}: dropped messages would be lost"
            raise invalid(name, queue, arguments[name], why)
