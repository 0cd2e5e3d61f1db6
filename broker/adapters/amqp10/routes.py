"""Where the messages of a connection go, found out once for each exchange and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from broker.adapters import direct_reply
from broker.adapters.access import EXCHANGE
from broker.adapters.amqp10.creating import TOPIC_CAPABILITY, create_queue, may_create
from broker.auth.terms import WRITE
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Route
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import Node

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10
    from broker.adapters.amqp10.session import Session10
    from broker.core.vhosts.vhost import VirtualHost

REMEMBERED_MAX: Final = 4096  # then all are forgotten, which costs one look-up each


@final
class Routes:
    """The routes of one connection. They are forgotten when its user's rights change."""

    def __init__(self, connection: Connection10, virtual_host: VirtualHost) -> None:
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
        route = self._virtual_host.route(exchange, key, (connection.origin.name, lasting_name(connection)))
        rights.require_topic(WRITE, route.exchange, key)
        route.pinned = True
        if self._count >= REMEMBERED_MAX:
            self.forget()
        self._count += 1
        self._known.setdefault(exchange, {})[key] = route
        return route


def lasting_name(connection: Connection10) -> str:
    """What a peer is called by subscriptions that outlive its connections and do not get its messages."""
    return f"{connection.user}/{connection.client_name}"


class Place(NamedTuple):
    """The exchange and routing key that a target's node stands for; a key that is None is each subject.

    `made`: the queue, if it has been made just now.
    """

    exchange: str
    key: str | None
    made: Queue | None = None


def place(session: Session10, node: Node, capabilities: tuple[str, ...]) -> Place:
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
