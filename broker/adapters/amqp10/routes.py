"""The routes of a connection's messages, found once for each exchange and key."""

from __future__ import annotations

from typing import Final, NamedTuple, final

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.state import Connection10State, ConnectionRoutes, Session10State
from broker.adapters.peers import direct_reply, requests
from broker.auth.terms import WRITE
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange, Route
from broker.core.schedule import METHOD
from broker.core.vhosts.deletion import Dependent
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import CREATED_ALWAYS, CREATED_NEVER, Node
from protocol.amqp10.conditions import RESOURCE_DELETED

TOPIC_CAPABILITY: Final = "topic"  # the capability of a terminus that is no queue


def may_create(session: Session10State, node: Node, capabilities: tuple[str, ...]) -> bool:
    """Return whether links may create the absent queue that a terminus names."""
    if node.creation == CREATED_NEVER or TOPIC_CAPABILITY in capabilities:
        return False
    virtual_host = session.vhost
    virtual_host.schedule.allowance.use(METHOD)
    always = node.creation == CREATED_ALWAYS
    return session.peer.server.auto_creation.allows(virtual_host, node.name, always)


def create_queue(session: Session10State, node: Node) -> Queue:
    """Create the queue that a terminus names, after `may_create` has allowed it.

    The queue is durable, shared, and of the virtual host's default type. Policies apply to it.

    Raises:
        AccessRefused: the user may not configure a queue of this name.
        LimitReached: the virtual host has as many queues as it may have.
        StoreFailed: the log has stopped.
    """
    return requests.declare_queue(session.peer, session.vhost, node.name, True, False, False, {})


@final
class Destination(Dependent):
    """The target node of a link, while the link is attached."""

    def __init__(self, link: Link10, node: Queue | Exchange) -> None:
        super().__init__(node)
        self._link = link
        link.session.vhost.dependents.add(self)

    def on_node_deleted(self) -> None:
        """Detach the link after its pending outcomes: the node was deleted."""
        link, node = self._link, self.node
        what = "queue" if isinstance(node, Queue) else "exchange"
        text = f"{what} '{node.name}' in vhost '{link.session.vhost.name}' was deleted"
        pending_frames_of(link.session).outcomes.detach(link, RESOURCE_DELETED, text)
        link.session.peer.schedule()


def destination_of(link: Link10, exchange: str | None, key: str | None) -> Destination | None:
    """Return the destination of a new link; None for an anonymous target or a direct reply."""
    vhost = link.session.vhost
    if exchange is None:
        return None
    if exchange == DEFAULT_EXCHANGE and key is not None:
        queue = vhost.topology.queues.get(key)
        return None if queue is None else Destination(link, queue)
    return Destination(link, vhost.topology.exchanges[exchange])


def is_deleted(destination: Dependent | None) -> bool:
    """Whether the target of a link is deleted; messages on the link are dropped until the detach."""
    return destination is not None and destination.node.deleted


ROUTES_MAX: Final = 4096  # routes; with more all are forgotten, which costs a look-up each


@final
class Routes(ConnectionRoutes):
    """The routes of a connection, which are forgotten when its user's permissions change."""

    def __init__(self, connection: Connection10State, virtual_host: VirtualHost) -> None:
        self._connection = connection
        self._virtual_host = virtual_host
        self._routes: dict[str, dict[str, Route]] = {}
        self._count = 0

    def find(self, exchange: str, key: str) -> Route:
        """Return the route of an exchange and key.

        Raises AccessRefused, and what Publisher.route raises.
        """
        keys = self._routes.get(exchange)
        route = None if keys is None else keys.get(key)
        return self._resolve(exchange, key) if route is None else route

    def check(self, exchange: str, key: str | None) -> None:
        """Check that messages with this key can be routed; None: each message names its key later.

        Raises what `find` does.
        """
        if key is not None:
            self.find(exchange, key)
        else:
            self._connection.rights.require(WRITE, EXCHANGE, exchange)
            self._virtual_host.publisher.route(exchange, "")

    def forget(self) -> None:
        """Forget all routes."""
        self._routes = {}
        self._count = 0

    def _resolve(self, exchange: str, key: str) -> Route:
        connection = self._connection
        rights = connection.rights
        rights.require(WRITE, EXCHANGE, exchange)
        route = self._virtual_host.publisher.route(
            exchange, key, (connection.origin.name, connection.lasting_name())
        )
        rights.require_topic(WRITE, route.exchange, key)
        route.pinned = True
        if self._count >= ROUTES_MAX:
            self.forget()
        self._count += 1
        self._routes.setdefault(exchange, {})[key] = route
        return route


def routes_of(connection: Connection10State) -> Routes:
    """Return the routes of an open connection; messages before open are refused."""
    routes = connection.routes
    assert isinstance(routes, Routes), "an open connection has Routes"
    return routes


class TargetAddress(NamedTuple):
    """The exchange and routing key of a target's node; a key that is None is each message's subject.

    `new_queue`: the queue, if it has just been created.
    """

    exchange: str
    key: str | None
    new_queue: Queue | None = None


def resolve_target(session: Session10State, node: Node, capabilities: tuple[str, ...]) -> TargetAddress:
    """Find the exchange and key for messages to a target's node.

    A bare name is a queue if the queue exists, else an exchange. With the capability `topic` the exchange
    comes first. A requester of AMQP 0-9-1 that waits for direct replies counts as a queue. An absent queue is
    created if this is allowed. Raises NotFound, and what `create_queue` raises.
    """
    virtual_host = session.vhost
    name = node.name
    if node.kind == addresses.EXCHANGE:
        virtual_host.topology.existing_exchange(name)
        return TargetAddress(name, node.key)
    is_queue = name in virtual_host.topology.queues
    prefers_exchange = TOPIC_CAPABILITY in capabilities or not is_queue
    if node.kind == addresses.NAME and prefers_exchange and name in virtual_host.topology.exchanges:
        return TargetAddress(name, None)
    new_queue = None
    if not is_queue and direct_reply.receiver_named(session.peer.server, virtual_host, name) is None:
        session.peer.rights.require(WRITE, EXCHANGE, DEFAULT_EXCHANGE)
        if may_create(session, node, capabilities):
            new_queue = create_queue(session, node)
        else:
            virtual_host.declarations.find_queue(
                name
            )  # raises NotFound; senders may use exclusive queues of others
    return TargetAddress(DEFAULT_EXCHANGE, name, new_queue)
