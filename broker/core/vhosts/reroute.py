"""Reroutes: the whole flow of a queue moves to another broker and back, while its clients stay connected.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: "reroute a client system's input queue"]

A rerouted queue works like a remote queue in the mode `hybrid`. The waiting messages follow to the other
broker, in order, and consumers are served from there. On the way back, later messages stay here. Consumers
are served from the other broker until its queue is empty, and then from here, so no message passes another.
"""

from __future__ import annotations

from typing import Final

from broker.core.arguments.queue import STANDARD, is_non_destructive, is_stream, kind_of
from broker.core.arguments.rule import REMOTE
from broker.core.errors import PreconditionFailed
from broker.core.queues.attach import attach_here, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.remotes.remote import RemoteQueue, remote_of
from broker.core.routing.topology import Topology
from broker.core.routing.virtual_host import RoutingHost
from broker.core.vhosts.changes import queue_change

TO: Final = "to"
RETURNS: Final = "returns"


def reroute(topology: Topology, queue: Queue, address: str) -> None:
    """Move the flow of a queue to a queue of another broker. The consumers stay attached.

    On its way back the queue can be rerouted again, to the same queue.

    Raises:
        PreconditionFailed: the address is no URI of a queue, or the queue or a consumer cannot be served from
            there.
        StoreFailed: the log has stopped.
    """
    host = topology.host
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    host.remote_links().check(address, host.name, queue.name, REMOTE)
    before = remote_of(queue)
    if before is not None and before.is_rerouted and before.address == address:
        host.store.require()
        before.is_returning = False
        before.note_demand()
        _note(host, queue)
        return
    why = _objection(queue, before, host.readers_of(queue))
    if why:
        raise PreconditionFailed(f"{where} cannot be rerouted: it {why}")
    host.store.require()
    remote = RemoteQueue(queue, host, address, hybrid=True)
    remote.is_rerouted = True
    queue.remote = remote
    for consumer in [*queue.manager.gets]:
        consumer.target.on_consumer_cancelled(consumer)
    _move_consumers(queue, remote.inlet)
    host.on_routes_changed()
    _note(host, queue)
    host.remote_links().open(remote)


def return_here(topology: Topology, queue: Queue) -> None:
    """Begin to move the flow of a rerouted queue back.

    Raises:
        PreconditionFailed: the queue is not rerouted.
        StoreFailed: the log has stopped.
    """
    remote = remote_of(queue)
    if remote is None or not remote.is_rerouted:
        raise PreconditionFailed(f"queue '{queue.name}' in vhost '{queue.vhost}' is not rerouted")
    topology.host.store.require()
    remote.is_returning = True
    _note(topology.host, queue)
    remote.note_demand()


def finish_return(host: RoutingHost, queue: Queue) -> None:
    """Serve the consumers of a rerouted queue from here again: the queue of the other broker is empty."""
    remote = remote_of(queue)
    assert remote is not None, "the queue is rerouted"
    queue.remote = None
    for consumer in remote.waiting_gets():
        consumer.target.on_consumer_cancelled(consumer)
    remote.inlet.origin = None
    remote.end()
    _move_consumers(remote.inlet, queue)
    if queue.limits is not None:
        queue.limits.touch()  # the time without consumers begins
    host.on_routes_changed()
    _note(host, queue)


def restore_reroute(host: RoutingHost, queue: Queue, described: object) -> None:
    """Restore the reroute of a queue from its definition, which contains `described`; None: it has none.

    Raises:
        ValueError: the description is malformed.
    """
    remote = remote_of(queue)
    if described is None:
        if remote is not None and remote.is_rerouted:
            queue.remote = None
        return
    if not isinstance(described, dict) or not isinstance(described.get(TO), str):
        raise ValueError(f"queue '{queue.name}' has a malformed reroute")
    if remote is None or not remote.is_rerouted or remote.address != described[TO]:
        remote = RemoteQueue(queue, host, str(described[TO]), hybrid=True)
        remote.is_rerouted = True
        queue.remote = remote
    remote.is_returning = described.get(RETURNS) is True


def _objection(queue: Queue, remote: RemoteQueue | None, readers: list[str]) -> str:
    """Return why a queue cannot be rerouted; "" if it can. `readers`: as for `RoutingHost.readers_of`."""
    arguments = queue.arguments
    why = ""
    if REMOTE in arguments:
        why = "is remote already"
    elif remote is not None:
        why = f"is rerouted to {remote.shown_address} already, move it back first"
    elif is_stream(arguments):
        why = "is a stream"
    elif kind_of(arguments) != STANDARD or queue.partitions is not None:
        why = f"is of the kind '{kind_of(arguments)}'"
    elif queue.member is not None:
        why = f"is a member of queue '{queue.member.front_name}'"
    elif not queue.logged or queue.exclusive_owner is not None or queue.auto_delete:
        why = "is not durable, volatile, exclusive or auto-delete"
    elif is_non_destructive(arguments):
        why = "keeps its messages (x-non-destructive)"
    elif queue.discipline is not None or queue.election is not None or queue.manager.gate is not None:
        why = "has groups, an order or a rule that depends on its consumers"
    elif queue.stops is not None:
        why = "is stopped"
    elif readers:
        why = f"is read exactly once by {readers[0]}: delete that first"
    elif queue.manager.purges or queue.manager.returns:
        why = "is being purged, or many messages are being requeued: try again"
    else:
        for consumer in queue.manager.all:
            if not consumer.acquires or consumer.filter is not None or consumer.front is not None:
                why = f"has consumer '{consumer.tag}', which browses or selects messages"
    return why


def _move_consumers(source: Queue, target: Queue) -> None:
    """Attach the consumers of `source` to `target`. Deliveries stay with the former consumers."""
    for former in list(source.manager.all):
        if former.acquires and former.filter is None:
            consumer = QueueConsumer(
                former.target, target, True, former.priority, former.exclusive, former.tag, former.no_ack
            )
            consumer.lease = former.lease
            detach(queue_of(former), former, [])
            attach_here(target, consumer)


def _note(host: RoutingHost, queue: Queue) -> None:
    """Append the definition of the queue, which contains the reroute."""
    change = queue_change(host.name, queue)
    if host.journal.on:
        host.journal.changed(change)
    host.store.append_definition(change)
