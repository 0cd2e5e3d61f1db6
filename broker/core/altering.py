"""What is changed of a queue that is there: one change of the definitions, in force at once.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: modify a queue's attributes]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.core.argument_rule import Arguments
from broker.core.arguments import check_queue_arguments
from broker.core.definitions import queue_change
from broker.core.errors import PreconditionFailed
from broker.core.names import check_name
from broker.core.policy_keys import ARGUMENT_PREFIX, QUEUE_KEYS, WITHOUT_EFFECT
from broker.core.queue_kinds import kind_of
from broker.core.stopping import set_stopped, stopped

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.topology import Topology

ALTERABLE: Final = frozenset(ARGUMENT_PREFIX + key for key in QUEUE_KEYS - WITHOUT_EFFECT)
"""The arguments that can be altered: what policies can set too, so that a queue bears any change of them."""


def stop_queue(topology: Topology, queue: Queue, names: list[str]) -> None:
    """Have exactly these of `stopping.ENQUEUE` and `DEQUEUE` be switched off.

    Raises:
        StoreFailed: the queue is durable and the log has stopped.
    """
    if stopped(queue) == names:
        return
    if queue.durable:
        topology.store.require()
    set_stopped(queue, names)
    _append(topology, queue)


def altered_arguments(queue: Queue, changes: Arguments) -> Arguments:
    """The arguments of `queue` with these instead of its own; None takes one away.

    Raises:
        PreconditionFailed: one of them cannot be altered, or not to that value.
    """
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    for name in changes:
        if name not in ALTERABLE:
            raise PreconditionFailed(
                f"arg '{name}' of {where} cannot be altered, others can: {', '.join(sorted(ALTERABLE))}"
            )
    altered = {name: value for name, value in (queue.arguments | changes).items() if value is not None}
    check_queue_arguments(altered, where)
    kind, changed = kind_of(queue.arguments), kind_of(altered)
    if changed != kind:
        names = ", ".join(f"'{name}'" for name in sorted(changes))
        raise PreconditionFailed(
            f"arg {names} of {where} cannot be altered so: the queue would be of the kind '{changed}' "
            f"and is of the kind '{kind}'"
        )
    return altered


def alter_queue(topology: Topology, queue: Queue, name: str, arguments: Arguments, shared: bool) -> None:
    """Have `queue` be called `name` and have these arguments, which `altered_arguments` has checked.

    What it holds, its consumers and what leads to it stay. `shared`: an exclusive queue is everybody's from
    now on, and does not go with its connection.

    Raises:
        AccessRefused: the new name begins with `amq.`.
        PreconditionFailed: there is a queue of that name, or it is too long.
        StoreFailed: the queue is durable and the log has stopped.
    """
    renamed = name != queue.name
    if renamed:
        check_name("queue", name)
        if name in topology.queues:
            raise PreconditionFailed(
                f"queue '{queue.name}' cannot be called '{name}': there is such a queue in vhost "
                f"'{topology.name}'"
            )
    if queue.durable:
        topology.store.require()
    queue.arguments = arguments
    if renamed:
        topology.rename_queue(queue, name)
    topology.policies.cover_queue(queue)
    if shared:
        topology.share_queue(queue)
    _append(topology, queue)


def _append(topology: Topology, queue: Queue) -> None:
    if topology.journal.on:
        topology.journal.changed(queue_change(topology.name, queue))
    if queue.durable:
        topology.store.append_definition(queue_change(topology.name, queue))
