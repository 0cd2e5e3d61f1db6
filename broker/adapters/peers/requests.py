"""Changes of the topology that clients of either protocol request, within the rights of their users.

Each function raises what the virtual host raises, and AccessRefused. `client` is the requesting connection,
which owns its exclusive queues.
"""

from __future__ import annotations

import structlog

from broker.adapters.access import EXCHANGE, QUEUE, Rights
from broker.adapters.peers.peer import ServedConnection
from broker.adapters.peers.server import Server
from broker.auth.terms import CONFIGURE, MAX_CONNECTIONS, READ, WRITE
from broker.core.arguments.queue import ALTERNATE_EXCHANGE, DEAD_LETTER_EXCHANGE
from broker.core.message import Message
from broker.core.names import DEFAULT_EXCHANGE, is_predeclared, refuse_default_exchange
from broker.core.partitions.mapping import member_names
from broker.core.publishing.receipts import receipt_marks
from broker.core.queues.purge import Purge
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange, binding_key
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091 import constants as c
from protocol.errors import NOT_ALLOWED, ProtocolError

_log = structlog.get_logger("amqpd.audit")


def declare_exchange(
    client: ServedConnection,
    virtual_host: VirtualHost,
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, object],
) -> Exchange:
    """Create an exchange, or check that the existing one is as described."""
    refuse_default_exchange(name)
    client.rights.require(CONFIGURE, EXCHANGE, name)
    if name not in virtual_host.topology.exchanges:
        client.rights.require_forwarding(EXCHANGE, name, arguments.get(ALTERNATE_EXCHANGE))
        client.require_memory()
    return virtual_host.declarations.declare_exchange(name, kind, durable, auto_delete, internal, arguments)


def delete_exchange(
    client: ServedConnection, virtual_host: VirtualHost, name: str, if_unused: bool = False
) -> bool:
    """Delete an exchange, which may be absent. Return whether it was durable."""
    exchange = virtual_host.topology.exchanges.get(name)
    if not is_predeclared(name):
        refuse_default_exchange(name)
        client.rights.require(CONFIGURE, EXCHANGE, name)
    virtual_host.declarations.delete_exchange(name, if_unused)
    return exchange is not None and exchange.durable


def declare_queue(
    client: ServedConnection,
    virtual_host: VirtualHost,
    name: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: dict[str, object],
) -> Queue:
    """Create a queue, or check that the existing one is as described; the empty name asks for a new name."""
    generated = not name
    if generated:
        name = virtual_host.declarations.generate_name()
    client.rights.require(CONFIGURE, QUEUE, name)
    if name not in virtual_host.topology.queues:
        client.rights.require_forwarding(QUEUE, name, arguments.get(DEAD_LETTER_EXCHANGE))
        client.rights.require_members(name, member_names(arguments))
        client.rights.require_remote(name, arguments)
        client.require_memory()
    owner = client if exclusive else None
    return virtual_host.declarations.declare_queue(name, durable, owner, auto_delete, arguments, generated)


def use_queue(client: ServedConnection, virtual_host: VirtualHost, name: str) -> Queue:
    """Find a queue, which counts as using the queue (a passive declaration).

    A deleted queue that waits for its last dead letters is not kept by this.
    """
    client.rights.require_any(QUEUE, name)
    queue = virtual_host.declarations.find_queue(name, client)
    if queue.limits is not None:
        queue.limits.touch()
    return queue


def purge_queue(client: ServedConnection, virtual_host: VirtualHost, name: str) -> Purge:
    """Purge the ready messages of a queue, in slices if they are many."""
    client.rights.require(READ, QUEUE, name)
    purge = virtual_host.declarations.purge_queue(name, client)
    _log.info("queue purged", peer=client.peer, user=client.user, vhost=virtual_host.name, queue=name)
    return purge


def delete_queue(
    client: ServedConnection,
    virtual_host: VirtualHost,
    name: str,
    if_unused: bool = False,
    if_empty: bool = False,
) -> tuple[int, bool]:
    """Delete a queue, which may be absent.

    Return the number of ready messages, and whether the queue was durable.
    """
    client.rights.require(CONFIGURE, QUEUE, name)
    queue = virtual_host.topology.queues.get(name)
    durable = queue is not None and queue.durable
    return virtual_host.declarations.delete_queue(name, if_unused, if_empty, client), durable


def bind(
    client: ServedConnection,
    virtual_host: VirtualHost,
    kind: str,
    destination: str,
    source: str,
    key: str,
    arguments: dict[str, object],
) -> None:
    """Bind a queue or an exchange, as `kind` says, to an exchange."""
    require_binding(client, virtual_host, kind, destination, source, key)
    if client.server.shortage.memory and not _is_bound(
        virtual_host, kind, destination, source, key, arguments
    ):
        client.require_memory()
    if kind == QUEUE:
        virtual_host.declarations.bind_queue(destination, source, key, arguments, client)
    else:
        virtual_host.declarations.bind_exchange(destination, source, key, arguments)


def unbind(
    client: ServedConnection,
    virtual_host: VirtualHost,
    kind: str,
    destination: str,
    source: str,
    key: str,
    arguments: dict[str, object],
) -> None:
    """Remove a binding, which may be absent."""
    require_binding(client, virtual_host, kind, destination, source, key)
    if kind == QUEUE:
        virtual_host.declarations.unbind_queue(destination, source, key, arguments, client)
    else:
        virtual_host.declarations.unbind_exchange(destination, source, key, arguments)


def require_binding(
    client: ServedConnection, virtual_host: VirtualHost, kind: str, destination: str, source: str, key: str
) -> None:
    """Refuse a user that may neither bind nor unbind these two objects with this key."""
    client.rights.require_binding(kind, destination, source, virtual_host.topology.exchanges.get(source), key)


def _is_bound(
    virtual_host: VirtualHost,
    kind: str,
    destination: str,
    source: str,
    key: str,
    arguments: dict[str, object],
) -> bool:
    """Whether this binding exists."""
    exchange = virtual_host.topology.exchanges.get(source)
    to: Queue | Exchange | None = virtual_host.topology.exchanges.get(destination)
    if kind == QUEUE:
        to = virtual_host.topology.queues.get(destination)
    if exchange is None or to is None:
        return False
    return exchange.binding(to, binding_key(key, arguments)) is not None


class LimitError(ProtocolError):
    """The virtual host or the user has as many connections as allowed; the user may open the virtual host."""


def vhost_for(server: Server, user: str, name: str) -> VirtualHost:
    """Return the virtual host that a user opens.

    Raises ProtocolError(NOT_ALLOWED), in RabbitMQ's words, if the virtual host does not exist or the user may
    not open it. Raises LimitError if the virtual host or the user has as many connections as allowed.
    """
    virtual_host = server.broker.vhosts.get(name)
    if virtual_host is None:
        raise ProtocolError(NOT_ALLOWED, f"vhost {name} not found", c.CONNECTION_OPEN)
    refused = f"access to vhost '{name}' refused for user '{user}'"
    limit: int | None = virtual_host.connections_max
    if limit is not None and server.connections.count_in_vhost(name) >= limit:
        raise LimitError(NOT_ALLOWED, f"{refused}: connection limit ({limit}) is reached", c.CONNECTION_OPEN)
    limit = server.access.limit(user, MAX_CONNECTIONS)
    if limit is not None and server.connections.count_of_user(user) >= limit:
        text = f"connection refused for user '{user}': user connection limit ({limit}) is reached"
        raise LimitError(NOT_ALLOWED, text, c.CONNECTION_OPEN)
    if not server.access.may_access(user, name):
        raise ProtocolError(NOT_ALLOWED, refused, c.CONNECTION_OPEN)
    return virtual_host


def mark_receipts(message: Message, headers: dict[str, object], rights: Rights) -> None:
    """Note the receipts that a message requests.

    Raises:
        PreconditionFailed: the request for receipts makes no sense.
        AccessRefused: the publisher may not publish to the default exchange, as the receipts will be.
    """
    marks = receipt_marks(headers)
    if marks != 0:
        rights.require(WRITE, EXCHANGE, DEFAULT_EXCHANGE)
        message.marks |= marks
