"""The members of partitioned queues: which queues may be members, and the change of a mapping.

[Bernstein and Newcomer 4.5: "changing the mapping of parameter values to queue names"]
"""

from __future__ import annotations

from broker.core.arguments.partition import PARTITION_MEMBERS, PARTITION_PINS
from broker.core.arguments.queue import (
    STANDARD,
    STRICT_ORDER,
    check_queue_arguments,
    has_single_active_consumer,
    is_non_destructive,
    is_stream,
    kind_of,
)
from broker.core.arguments.rule import Arguments
from broker.core.errors import PreconditionFailed
from broker.core.partitions.mapping import Mapping, read_mapping
from broker.core.partitions.partitioned import Membership, partitions_of
from broker.core.queues.queue import Queue
from broker.core.routing.topology import Topology
from broker.core.vhosts.changes import queue_change


def check_members(
    topology: Topology, arguments: Arguments, where: str, durable: bool, front: Queue | None
) -> Mapping:
    """Return the mapping of a partitioned queue with these arguments, each of which is allowed by itself.

    `where` describes the queue, `queue 'q' in vhost '/'`. `durable`: the queue is durable. `front`: the
    queue, if it exists.

    Raises:
        PreconditionFailed: the mapping is malformed, or a queue does not exist or cannot be a member.
    """
    mapping = read_mapping(arguments, where)
    for member in mapping.members:
        queue = topology.queues.get(member.name)
        why = "does not exist" if queue is None else _objection(queue, durable, front, arguments)
        if why:
            raise PreconditionFailed(f"queue '{member.name}' cannot be a member of {where}: it {why}")
    return mapping


def change_mapping(topology: Topology, queue: Queue, members: object, pins: object) -> None:
    """Change the members and pins of a partitioned queue while it is in use. No message moves.

    Each key that gets another member goes on in its order: the new member delivers later messages of the key
    when the old one has none any more.

    Raises:
        PreconditionFailed: the queue is not partitioned, or what `check_members` raises.
        StoreFailed: the queue is durable and the log has stopped.
    """
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    partitions = partitions_of(queue)
    if partitions is None:
        raise PreconditionFailed(f"{where} is not partitioned")
    arguments = queue.arguments | {PARTITION_MEMBERS: members, PARTITION_PINS: pins}
    if not pins:
        del arguments[PARTITION_PINS]
    check_queue_arguments(arguments, where)
    mapping = check_members(topology, arguments, where, queue.durable, queue)
    if queue.durable:
        topology.host.store.require()
    queue.arguments = arguments
    topology.host.cover_queue(queue)
    partitions.change(mapping, topology.queues)
    if topology.host.journal.on:
        topology.host.journal.changed(queue_change(queue.vhost, queue))
    if queue.durable:
        topology.host.store.append_definition(queue_change(queue.vhost, queue))


def _objection(queue: Queue, durable: bool, front: Queue | None, arguments: Arguments) -> str:
    """Return why a queue cannot be a member of `front`, which has these arguments; "" if it can."""
    if queue.partitions is not None:
        return "is partitioned itself"
    if queue.remote is not None:
        return "is remote"
    member = queue.member
    if member is not None:
        own = isinstance(member, Membership) and member.front.queue is front
        return "" if own else f"is a member of queue '{member.front_name}' already"
    if is_stream(queue.arguments):
        return "is a stream"
    if is_non_destructive(queue.arguments):
        return "keeps its messages (x-non-destructive)"
    if queue.exclusive_owner is not None:
        return "is exclusive"
    if queue.auto_delete:
        return "is deleted with its last consumer (auto-delete)"
    if durable and not queue.durable:
        return "is not durable"
    if queue.arguments.get(STRICT_ORDER) is True and kind_of(queue.arguments) != STANDARD:
        return f"has {STRICT_ORDER} and is of the kind '{kind_of(queue.arguments)}'"
    if has_single_active_consumer(arguments) and queue.consumer_count:
        return "has consumers of its own, and the members' consumers would be single active ones"
    return ""
