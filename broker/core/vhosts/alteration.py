"""The alteration of existing queues: their names, arguments and stopped operations.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: modify a queue's attributes]
"""

from __future__ import annotations

from typing import Final

from broker.core.arguments.queue import check_queue_arguments, kind_of
from broker.core.arguments.rule import Arguments
from broker.core.errors import PreconditionFailed
from broker.core.names import check_name
from broker.core.partitions.partitioned import partitions_of
from broker.core.policies.policy import ARGUMENT_PREFIX, QUEUE_KEYS, WITHOUT_EFFECT
from broker.core.queues.queue import Queue
from broker.core.queues.stops import set_stopped, stopped
from broker.core.remotes.remote import refuse_remote
from broker.core.routing.topology import Topology
from broker.core.vhosts.changes import queue_change

ALTERABLE: Final = frozenset(ARGUMENT_PREFIX + key for key in QUEUE_KEYS - WITHOUT_EFFECT)
"""The alterable arguments: policies can set them too, so every queue supports a change of them."""


def stop_queue(topology: Topology, queue: Queue, names: list[str]) -> None:
    """Switch off exactly these operations, `election.ENQUEUE` and `DEQUEUE`.

    Raises:
        PreconditionFailed: the queue is partitioned or remote.
        StoreFailed: the queue is durable and the log has stopped.
    """
    if stopped(queue) == names:
        return
    if queue.partitions is not None:
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is partitioned: stop or start its members"
        )
    refuse_remote(queue, "stopped or started")
    host = topology.host
    if queue.durable:
        host.store.require()
    set_stopped(queue, names)
    _append(topology, queue)


def merge_arguments(queue: Queue, changes: Arguments) -> Arguments:
    """Return the arguments of `queue` with `changes`. The value None removes an argument.

    Raises:
        PreconditionFailed: an argument cannot be altered, or not to that value.
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
    """Rename `queue` to `name` and set these arguments, which `merge_arguments` has checked.

    Its messages, its consumers and its bindings stay. `shared`: an exclusive queue becomes usable by all
    connections, and is not deleted with its connection.

    Raises:
        AccessRefused: the new name begins with `amq.`.
        PreconditionFailed: there is a queue of that name, or it is too long, or the queue is remote.
        StoreFailed: the queue is durable and the log has stopped.
    """
    host = topology.host
    renamed = name != queue.name
    if renamed:
        refuse_remote(queue, "renamed")
        partitions = partitions_of(queue)
        if partitions is not None and partitions.has_members_elsewhere:
            raise PreconditionFailed(
                f"queue '{queue.name}' in vhost '{queue.vhost}' cannot be renamed: it has members in "
                "other brokers"
            )
        check_name("queue", name)
        if name in topology.queues:
            raise PreconditionFailed(
                f"queue '{queue.name}' cannot be called '{name}': there is such a queue in vhost "
                f"'{host.name}'"
            )
    if queue.durable:
        host.store.require()
    queue.arguments = arguments
    if renamed:
        topology.rename_queue(queue, name)
    host.cover_queue(queue)
    if shared:
        topology.share_queue(queue)
    _append(topology, queue)


def _append(topology: Topology, queue: Queue) -> None:
    host = topology.host
    if host.journal.on:
        host.journal.changed(queue_change(host.name, queue))
    if queue.durable:
        host.store.append_definition(queue_change(host.name, queue))
