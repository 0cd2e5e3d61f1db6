"""Definitions: the durable topology in the form of the log, applied at recovery and described for it.

A change that declares an object describes the whole object, so that a later one replaces it. A change that
deletes an object also deletes the objects that need it (the bindings of a queue, the contents of a virtual
host).
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from broker.core.arguments.queue import text_argument
from broker.core.arguments.rule import REMOTE
from broker.core.errors import PreconditionFailed
from broker.core.message import DELAYED, REMEMBERED, Message
from broker.core.names import DEFAULT_EXCHANGE, is_predeclared
from broker.core.partitions.partitioned import partitions_of
from broker.core.policies.policy import OPERATOR_POLICY, POLICY, parse_policy
from broker.core.publishing.delay import delay
from broker.core.queues.dead_letter_backlog import backlog_of
from broker.core.queues.death import marked_reason
from broker.core.queues.duplicates import memory_of
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue
from broker.core.queues.returns import restore_annotations
from broker.core.queues.stops import set_stopped
from broker.core.queues.volatile import LOST
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding, Exchange, binding_key
from broker.core.routing.kinds import new_exchange
from broker.core.routing.topology import Topology, last_number
from broker.core.routing.virtual_host import RoutingHost
from broker.core.streams.list import StreamEntryList
from broker.core.streams.progress import OFFSETS
from broker.core.values import decode_table
from broker.core.vhosts.changes import (
    BINDING,
    DELETED,
    EXCHANGE,
    FORMER,
    FRONT,
    LEAVING,
    QUEUE,
    REROUTE,
    VHOST,
    VHOST_LIMITS,
    VHOST_METADATA,
    Change,
    binding_change,
    exchange_change,
    flag_of,
    limits_change,
    metadata_change,
    number_of,
    queue_change,
    tables_of,
    text_of,
    texts_of,
    vhost_change,
)
from broker.core.vhosts.parameters import COMPONENT
from broker.core.vhosts.reroute import restore_reroute
from broker.core.vhosts.vhost import VirtualHost


def apply_change(vhost: VirtualHost, change: Change) -> None:
    """Apply one change at recovery. An existing object stays, and the deletion of an absent one is no error.

    Exchanges that lose their last binding are not deleted here: the log has such deletions too.

    Raises:
        ValueError: no change of a queue, an exchange, a binding, a policy or a parameter.
    """
    topology = vhost.topology
    kind = text_of(change, "kind")
    if kind == QUEUE:
        _apply_queue(vhost, change)
    elif kind == QUEUE + DELETED:
        queue = topology.queues.get(text_of(change, "name"))
        topology.numbers.reserve(number_of(change, "last" if "last" in change else "number"))
        if queue is not None and queue.number == number_of(change, "number"):
            topology.remove_queue(queue)
    elif kind == EXCHANGE:
        _apply_exchange(topology, change)
    elif kind == EXCHANGE + DELETED:
        exchange = topology.exchanges.get(text_of(change, "name"))
        topology.numbers.reserve(_kept_number(change))
        if exchange is not None:
            topology.remove_exchange(exchange)
    elif kind == BINDING:
        _apply_binding(topology, change)
    elif kind == BINDING + DELETED:
        _apply_binding_deleted(topology, change)
    elif kind in (POLICY, OPERATOR_POLICY):
        _apply_policy(vhost, change, kind == OPERATOR_POLICY)
    elif kind in (POLICY + DELETED, OPERATOR_POLICY + DELETED):
        vhost.policies.remove(text_of(change, "name"), kind == OPERATOR_POLICY + DELETED)
    elif kind in (COMPONENT, COMPONENT + DELETED):
        vhost.parameters.apply(change)
    else:
        raise ValueError(f"no definition is of kind {kind!r}")
    topology.bindings.finish()  # a long log may delete more bindings than ever existed at once


def _apply_queue(vhost: VirtualHost, change: Change) -> None:
    topology = vhost.topology
    name = text_of(change, "name")
    number = number_of(change, "number")
    if number < 1:
        raise ValueError(f"the log knows no queue by the number {number}: {change}")
    arguments = decode_table(change.get("arguments"))
    topology.numbers.reserve(last_number(number, arguments))
    queue = topology.queues.get(name)
    same = topology.numbers.queues.get(number)
    if same is not None and same.vhost == vhost.name and same.name != name:
        if queue is not None:
            topology.remove_queue(queue)
        topology.rename_queue(same, name)
        queue = same
    if queue is not None and queue.number == number:
        # the same queue, altered, or described again at the head of a segment: it may hold messages already
        queue.auto_delete = flag_of(change, "auto_delete")
        queue.arguments = arguments
        vhost.policies.cover_queue(queue)
    else:
        if queue is not None:
            topology.remove_queue(queue)
        queue = topology.add_queue(name, True, None, flag_of(change, "auto_delete"), arguments, number)
    set_stopped(queue, texts_of(change, "stopped"))
    if queue.volatile is not None:
        queue.volatile.restore(change.get(LOST))
    restore_reroute(vhost, queue, change.get(REROUTE))
    partitions = partitions_of(queue)
    if partitions is not None:
        partitions.leaving_found = texts_of(change, LEAVING)
        partitions.former_found = tables_of(change, FORMER)
    remote = remote_of(queue)
    if remote is not None and FRONT in change:
        remote.front = text_of(change, FRONT)
        remote.address = text_argument(arguments, REMOTE) or remote.address
    if isinstance(queue.entries, StreamEntryList):
        queue.entries.offsets_found = change.get(OFFSETS)


def _apply_exchange(topology: Topology, change: Change) -> None:
    name = text_of(change, "name")
    arguments = decode_table(change.get("arguments"))
    flags = flag_of(change, "auto_delete"), flag_of(change, "internal")
    try:
        exchange = new_exchange(name, text_of(change, "type"), True, *flags, arguments)
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    number = _kept_number(change)
    topology.numbers.reserve(number)
    old = topology.exchanges.get(exchange.name)
    if old is not None:
        if exchange_change(topology.host.name, old) == change:
            return
        topology.remove_exchange(old)
    topology.add_exchange(exchange, number)


def _kept_number(change: Change) -> int:
    """Return the number in the log of the queue for an exchange's kept messages, 0 without one."""
    return number_of(change, "number") if "number" in change else 0


def _apply_binding(topology: Topology, change: Change) -> None:
    source = topology.exchanges.get(text_of(change, "source"))
    destination = _destination(topology, change)
    if source is None or destination is None:
        return  # the log was read from the middle and deletes an end of the binding later
    arguments = decode_table(change.get("arguments"))
    try:
        binding = Binding(source, destination, text_of(change, "routing_key"), arguments)
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    topology.add_binding(binding)


def _apply_binding_deleted(topology: Topology, change: Change) -> None:
    source = topology.exchanges.get(text_of(change, "source"))
    destination = _destination(topology, change)
    if source is None or destination is None:
        return
    key = binding_key(text_of(change, "routing_key"), decode_table(change.get("arguments")))
    binding = source.binding(destination, key)
    if binding is not None:
        topology.remove_binding(binding)


def _apply_policy(vhost: VirtualHost, change: Change, operator: bool) -> None:
    try:
        policy = parse_policy(
            vhost.name,
            text_of(change, "name"),
            change.get("pattern"),
            change.get("definition"),
            change.get("priority"),
            change.get("apply_to"),
            operator,
            kept=True,
        )
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    vhost.policies.put(policy)


def _destination(topology: Topology, change: Change) -> Queue | Exchange | None:
    name = text_of(change, "destination")
    if text_of(change, "destination_type") == QUEUE:
        return topology.queues.get(name)
    return topology.exchanges.get(name)


def describe_vhost(vhost: VirtualHost) -> Iterator[list[Change]]:
    """Yield the declarations that recreate everything durable, in a valid order: one list for each object.

    The list of an object that needs no declaration is empty, so that each list takes a short time. Between
    two lists anything may change. An object is described as it is when its list is yielded. An object that
    was deleted before is left out. An object that is new since the beginning is left out too, because the log
    has the change that made it. So the declarations, together with the changes appended between them, make
    the topology as it is at the end:

    - An object that has been described, or made since the beginning, is changed by its later changes.
    - An object that has not been described is absent. Its change then either declares the whole object, and
      the description repeats the declaration, or the change has no effect (a deletion, a binding to it).
    - All ends of bindings exist before the first binding is described, so no later change of a binding is
      lost. A binding that was lost before is described if it still exists.
    """
    name = vhost.name
    policies = vhost.policies
    topology = vhost.topology
    for policy in policies.all():
        there = policies.named(policy.operator).get(policy.name) is policy
        yield [policy.change(name)] if there else []
    yield from vhost.parameters.describe()
    for exchange in list(topology.exchanges.values()):
        yield [exchange_change(name, exchange)] if _is_kept(exchange) else []
    for queue in list(topology.queues.values()):
        yield [queue_change(name, queue)] if queue.durable and not queue.deleted else []
    for exchange in list(topology.exchanges.values()):
        yield []
        if exchange.durable:
            yield from _bindings(name, exchange)


def _is_kept(exchange: Exchange) -> bool:
    """Whether recovery needs the declaration of an exchange."""
    always_there = exchange.name == DEFAULT_EXCHANGE or is_predeclared(exchange.name)
    return exchange.durable and not exchange.deleted and not always_there


def _bindings(vhost: str, exchange: Exchange) -> Iterator[list[Change]]:
    for parallel in list(exchange.outgoing.values()):
        for binding in list(parallel.values()):
            there = exchange.binding(binding.destination, binding.key) is binding
            yield [binding_change(vhost, binding)] if binding.durable and there else []


def changes_of(vhost: VirtualHost) -> list[Change]:
    """Return the changes that declare a virtual host, with its limits and metadata."""
    changes = [vhost_change(vhost.name)]
    if vhost.connections_max is not None or vhost.queues_max is not None:
        changes.append(limits_change(vhost.name, vhost.connections_max, vhost.queues_max))
    if vhost.description or vhost.tags or vhost.default_queue_type is not None or vhost.protected:
        metadata = vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected
        changes.append(metadata_change(vhost.name, *metadata))
    return changes


def apply_vhost_change(vhost: VirtualHost, change: Change) -> None:
    """Apply a change of limits or metadata at recovery. Raises ValueError for a malformed change."""
    kind = text_of(change, "kind")
    if kind == VHOST_LIMITS:
        vhost.connections_max = _limit_of(change, "connections_max")
        vhost.queues_max = _limit_of(change, "queues_max")
    elif kind == VHOST_METADATA:
        tags = change.get("tags")
        if not isinstance(tags, list):
            raise ValueError(f"the tags of a vhost are a list: {change}")
        vhost.description = text_of(change, "description")
        vhost.tags = tuple(str(tag) for tag in tags)
        queue_type = change.get("default_queue_type")
        vhost.default_queue_type = queue_type if isinstance(queue_type, str) else None
        vhost.protected = "protected" in change and flag_of(change, "protected")
    elif kind != VHOST:
        raise ValueError(f"no change of a vhost is of kind {kind!r}")


def _limit_of(change: Change, field: str) -> int | None:
    return None if change.get(field) is None else number_of(change, field)


def restore_message(
    queue: Queue, message: Message, redelivered: bool, delivery_count: i64 = 0, annotations: bytes = b""
) -> bool:
    """Link a recovered `message`, before consumers attach. Recovery restores messages in the log's order.

    A delayed message is delayed again, and a message that waited to be dead-lettered waits again. A record of
    an id or a producer is remembered again; the result is False if the queue does not deduplicate any more.
    The limits, and the expiry, which has continued, are applied when the broker runs.
    """
    if message.marks & REMEMBERED:
        memory = memory_of(queue)
        if memory is not None:
            memory.restore(message)
        return memory is not None
    host = queue.host if isinstance(queue.host, RoutingHost) else None
    if host is None and queue.limits is not None and queue.limits.timetable is not None:
        queue.limits.timetable.add(message)  # the queue is that of a delayed exchange
        return True
    if host is not None and message.marks & DELAYED != 0:
        delay(queue, host, message)
        return True
    latest = queue.entries.latest
    if latest is not None:
        latest.set_aside(message)
    if host is not None and marked_reason(delivery_count) >= 0:
        backlog_of(queue, host).restore(queue.link(message), delivery_count, annotations)
        return True
    entry = queue.link(message)
    entry.redelivered = redelivered
    entry.delivery_count = delivery_count
    if annotations:
        restore_annotations(queue, entry, annotations)
    if message.expiration >= 0 and queue.limits is None and host is not None:
        queue.limits = Limits(queue, host)
    if queue.limits is not None:
        queue.limits.restore_expiry(entry)
    return True
