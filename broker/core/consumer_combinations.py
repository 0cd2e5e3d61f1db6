"""What of a consumer's arguments goes together, with one another and with the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.argument_rule import Arguments, invalid
from broker.core.arguments import SINGLE_ACTIVE_CONSUMER, has_single_active_consumer
from broker.core.consumer_arguments import BROWSE, EXCLUSIVE_CONSUMER, GETTING, NOTIFY_ACTIVE, browses
from broker.core.errors import PreconditionFailed
from broker.core.queue_kinds import NON_DESTRUCTIVE, is_non_destructive

if TYPE_CHECKING:
    from broker.core.queue import Queue


def check_together(arguments: Arguments, exclusive: bool, queue: Queue) -> None:
    """Check what a consumer of `queue` asks for, each of which is allowed; `exclusive`: it wants to be alone.

    Raises:
        PreconditionFailed: an argument, and what it does not go with.
    """
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    keeps = is_non_destructive(queue.arguments)
    if keeps and exclusive:
        raise PreconditionFailed(f"{where} has {NON_DESTRUCTIVE}: no consumer can be exclusive")
    browse = browses(arguments)
    for name in GETTING if exclusive else ():
        if name in arguments:
            raise invalid(name, where, arguments[name], "does not go with exclusive")
    if browse and exclusive:
        raise invalid(BROWSE, where, arguments[BROWSE], "does not go with exclusive")
    if keeps or browse:
        other = f"the queue's {NON_DESTRUCTIVE}" if keeps else BROWSE
        for name in (EXCLUSIVE_CONSUMER, NOTIFY_ACTIVE):
            if arguments.get(name, False) is not False:
                raise invalid(name, where, arguments[name], f"does not go with {other}")
    if arguments.get(EXCLUSIVE_CONSUMER) is True:
        other = ""
        if exclusive:
            other = "exclusive, which lets nobody else in"
        elif has_single_active_consumer(queue.arguments):
            other = f"the queue's {SINGLE_ACTIVE_CONSUMER}, which elects everybody"
        if other:
            raise invalid(EXCLUSIVE_CONSUMER, where, True, f"does not go with {other}")
