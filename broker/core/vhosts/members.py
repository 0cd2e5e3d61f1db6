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
from broker.core.arguments.rule import REMOTE, Arguments, is_address, show_member
from broker.core.errors import LimitReached, PreconditionFailed
from broker.core.names import check_length
from broker.core.partitions.mapping import SELECTOR, WEIGHT, MappedMember, Mapping, member_name, read_mapping
from broker.core.partitions.partitioned import Membership, partitions_of
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import remote_of
from broker.core.routing.topology import Topology
from broker.core.vhosts.changes import queue_change


def check_members(
    topology: Topology, arguments: Arguments, name: str, durable: bool, front: Queue | None
) -> Mapping:
    """Return the mapping of a partitioned queue with these arguments, each of which is allowed by itself.

    `name` is the name of the queue. `durable`: the queue is durable. `front`: the queue, if it exists.

    Raises:
        PreconditionFailed: the mapping or an address is malformed, or a queue does not exist or cannot be a
            member.
        LimitReached: there are too many queues for the members in other brokers.
    """
    where = f"queue '{name}' in vhost '{topology.host.name}'"
    mapping = read_mapping(arguments, where, name)
    added = 0 if front is not None else 1
    for member in mapping.members:
        queue = topology.queues.get(member.name)
        if member.name == name:
            why = "is the partitioned queue itself"
        elif member.address:
            _check_elsewhere(topology, member, queue, name, durable)
            added += queue is None
            why = ""
        else:
            why = "does not exist" if queue is None else _objection(queue, durable, front, arguments)
        if why:
            raise PreconditionFailed(f"queue '{member.name}' cannot be a member of {where}: it {why}")
    limit = topology.host.queues_max
    if limit is not None and added and len(topology.queues) + added > limit:
        raise LimitReached(
            f"cannot declare the members of {where} in other brokers: queue limit in vhost "
            f"'{topology.host.name}' ({limit}) is reached"
        )
    return mapping


def _check_elsewhere(
    topology: Topology, member: MappedMember, queue: Queue | None, front: str, durable: bool
) -> None:
    """Check a member of `front` in another broker. `queue`: the queue of its name.

    Raises:
        PreconditionFailed: the address is no URI of a queue, the partitioned queue is transient, another
            queue has the name, or the other broker has refused the link.
    """
    host = topology.host
    where = f"queue '{front}' in vhost '{host.name}'"
    try:
        host.remote_links().check(member.address, host.name, front, PARTITION_MEMBERS)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"{where}: {error.text}") from error
    shown = show_member(member.address)
    if not durable:
        raise PreconditionFailed(
            f"'{shown}' cannot be a member of {where}: the partitioned queue is not durable"
        )
    check_length("queue name", member.name)
    if queue is None:
        return
    remote = remote_of(queue)
    if remote is None or remote.front != front:
        raise PreconditionFailed(
            f"'{shown}' cannot be a member of {where}: its messages would be in queue '{member.name}', which "
            "exists already"
        )
    objection = host.remote_links().find_objection(remote)
    if objection and remote.address == member.address:
        raise PreconditionFailed(f"'{shown}' cannot be a member of {where}: {objection}")


def declare_elsewhere(topology: Topology, front: str, mapping: Mapping) -> list[Queue]:
    """Declare the queues here for the members of a checked mapping in other brokers.

    Return the queues whose links the caller opens, after they have become members.
    """
    host = topology.host
    unlinked: list[Queue] = []
    for member in mapping.members:
        if not member.address:
            continue
        queue = topology.queues.get(member.name)
        remote = None if queue is None else remote_of(queue)
        if queue is None:
            queue = topology.add_queue(
                member.name, True, None, False, {REMOTE: member.address}, topology.numbers.take()
            )
            remote = remote_of(queue)
            assert remote is not None, "the arguments name another broker"
            remote.front = front
            remote.is_new = True
        elif remote is not None and remote.address != member.address:
            remote.change_address(member.address)
            queue.arguments = queue.arguments | {REMOTE: member.address}
            host.cover_queue(queue)
        else:
            continue
        if host.journal.on:
            host.journal.changed(queue_change(host.name, queue))
        host.store.append_definition(queue_change(host.name, queue))
        unlinked.append(queue)
    return unlinked


def link_elsewhere(topology: Topology, unlinked: list[Queue]) -> None:
    """Open the links of new members in other brokers."""
    for queue in unlinked:
        remote = remote_of(queue)
        if remote is not None:
            topology.host.remote_links().open(remote)


def delete_orphans(topology: Topology) -> None:
    """Delete the queues for members in other brokers that are no members, because a crash has parted both."""
    for queue in list(topology.queues.values()):
        remote = remote_of(queue)
        if remote is not None and remote.front and queue.member is None:
            topology.host.warn(
                f"queue '{queue.name}' in vhost '{queue.vhost}' is deleted: it is no member of queue "
                f"'{remote.front}' any more"
            )
            topology.host.delete_unused_queue(queue)


def keep_logins(topology: Topology, members: object, pins: object, front: str) -> tuple[object, object]:
    """Return members and pins whose addresses have the log-ins of the present members.

    An address without a log-in gets the log-in of the present member that it names. The name of the queue
    here for such a member means the member. The API shows both, and takes what it has shown.
    """
    return _keep_logins(topology, members, front), _keep_logins(topology, pins, front)


def _keep_logins(topology: Topology, value: object, front: str) -> object:
    if isinstance(value, list):
        return [_keep_logins(topology, each, front) for each in value]
    if isinstance(value, dict):
        return {
            name: each if name in (WEIGHT, SELECTOR) else _keep_logins(topology, each, front)
            for name, each in value.items()
        }
    if not isinstance(value, str) or (is_address(value) and "@" in value):
        return value
    queue = topology.queues.get(member_name(value, front))
    remote = None if queue is None else remote_of(queue)
    return value if remote is None or remote.front != front else remote.address


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
    partitions.history.check_room(where)
    members, pins = keep_logins(topology, members, pins, queue.name)
    arguments = queue.arguments | {PARTITION_MEMBERS: members, PARTITION_PINS: pins}
    if not pins:
        del arguments[PARTITION_PINS]
    check_queue_arguments(arguments, where)
    mapping = check_members(topology, arguments, queue.name, queue.durable, queue)
    if queue.durable:
        topology.host.store.require()
    unlinked = declare_elsewhere(topology, queue.name, mapping)
    former, queue.arguments = queue.arguments, arguments
    topology.host.cover_queue(queue)
    partitions.change(mapping, former, topology.queues)
    link_elsewhere(topology, unlinked)
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
