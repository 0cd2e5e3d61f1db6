"""Where the messages of a connection go, found out once for each exchange and key."""

from __future__ import annotations

from typing import Final, NamedTuple, final

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.answers import owed_by
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

TOPIC_CAPABILITY: Final = "topic"  # of a terminus: it is no queue


def may_create(session: Session10State, node: Node, capabilities: tuple[str, ...]) -> bool:
    """Return whether the queue that a terminus names, and that is not there, is one that links make."""
    if node.creation == CREATED_NEVER or TOPIC_CAPABILITY in capabilities:
        return False
    virtual_host = session.vhost
    virtual_host.schedule.allowance.use(METHOD)
    always = node.creation == CREATED_ALWAYS
    return session.peer.server.auto_creation.allows(virtual_host, node.name, always)


def create_queue(session: Session10State, node: Node) -> Queue:
    """Make the queue that a terminus names, after `may_create` has allowed it.

    The queue is durable, shared, and of the virtual host's default type. Policies apply to it.

    Raises:
        AccessRefused: the user may not configure a queue of this name.
        LimitReached: the virtual host has as many queues as it may have.
        StoreFailed: the log has stopped.
    """
    return requests.declare_queue(session.peer, session.vhost, node.name, True, False, False, {})


@final
class Destination(Dependent):
    """That of a link from when it is attached until it ends."""

    def __init__(self, link: Link10, node: Queue | Exchange) -> None:
        super().__init__(node)
        self._link = link
        link.session.vhost.dependents.add(self)

    def node_deleted(self) -> None:
        """End the link, behind the answers that its sender waits for (Dependent)."""
        link, node = self._link, self.node
        what = "queue" if isinstance(node, Queue) else "exchange"
        text = f"{what} '{node.name}' in vhost '{link.session.vhost.name}' is gone"
        owed_by(link.session).answers.detach(link, RESOURCE_DELETED, text)
        link.session.peer.schedule()


def destination_of(link: Link10, exchange: str | None, key: str | None) -> Destination | None:
    """Return what a new link depends on; None if each message says where it goes, or is a direct reply."""
    vhost = link.session.vhost
    if exchange is None:
        return None
    if exchange == DEFAULT_EXCHANGE and key is not None:
        queue = vhost.queues.get(key)
        return None if queue is None else Destination(link, queue)
    return Destination(link, vhost.exchanges[exchange])


def is_gone(destination: Dependent | None) -> bool:
    """Whether a link is about to be detached because of that; what comes on it is dropped meanwhile."""
    return destination is not None and destination.node.deleted


REMEMBERED_MAX: Final = 4096  # then all are forgotten, which costs one look-up each


@final
class Routes(ConnectionRoutes):
    """The routes of one connection. They are forgotten when its user's rights change."""

    def __init__(self, connection: Connection10State, virtual_host: VirtualHost) -> None:
        self._connection = connection
        self._virtual_host = virtual_host
        self._known: dict[str, dict[str, Route]] = {}
        self._count = 0

    def find(self, exchange: str, key: str) -> Route:
        """The route of an exchange and a key. Raises what VirtualHost.route raises, and AccessRefused."""
        keys = self._known.get(exchange)
        route = None if keys is None else keys.get(key)
        return self._resolve(exchange, key) if route is None else route

    def check(self, exchange: str, key: str | None) -> None:
        """Whether there is a way there; of a key that is None, which each message says, they say it later.

        Raises what `find` does.
        """
        if key is not None:
            self.find(exchange, key)
        else:
            self._connection.rights.require(WRITE, EXCHANGE, exchange)
            self._virtual_host.route(exchange, "")

    def forget(self) -> None:
        """Nothing holds that was found out before."""
        self._known = {}
        self._count = 0

    def _resolve(self, exchange: str, key: str) -> Route:
        connection = self._connection
        rights = connection.rights
        rights.require(WRITE, EXCHANGE, exchange)
        route = self._virtual_host.route(exchange, key, (connection.origin.name, connection.lasting_name()))
        rights.require_topic(WRITE, route.exchange, key)
        route.pinned = True
        if self._count >= REMEMBERED_MAX:
            self.forget()
        self._count += 1
        self._known.setdefault(exchange, {})[key] = route
        return route


def routes_of(connection: Connection10State) -> Routes:
    """Return the routes of a connection, which is open: what is sent before is refused."""
    routes = connection.routes
    assert isinstance(routes, Routes), "an open connection has these"
    return routes


class Place(NamedTuple):
    """The exchange and routing key that a target's node stands for; a key that is None is each subject.

    `made`: the queue, if it has been made just now.
    """

    exchange: str
    key: str | None
    made: Queue | None = None


def place(session: Session10State, node: Node, capabilities: tuple[str, ...]) -> Place:
    """Find where the messages to a target's node go.

    A bare name is a queue if there is one, else an exchange, or the other way round if `topic` is asked for.
    A requester of AMQP 0-9-1 that waits for direct replies is as good as a queue.
    A queue that is not there is made if it may be.
    Raises NotFound, and what `create_queue` raises.
    """
    virtual_host = session.vhost
    name = node.name
    if node.kind == addresses.EXCHANGE:
        virtual_host.existing_exchange(name)
        return Place(name, node.key)
    is_queue = name in virtual_host.queues
    prefers_exchange = TOPIC_CAPABILITY in capabilities or not is_queue
    if node.kind == addresses.NAME and prefers_exchange and name in virtual_host.exchanges:
        return Place(name, None)
    made = None
    if not is_queue and direct_reply.find(session.peer.server, virtual_host, name) is None:
        session.peer.rights.require(WRITE, EXCHANGE, DEFAULT_EXCHANGE)
        if may_create(session, node, capabilities):
            made = create_queue(session, node)
        else:
            virtual_host.queue(name)  # which says so; whose it is does not matter to who sends
    return Place(DEFAULT_EXCHANGE, name, made)
