"""Channels and consumers that no client has: through them the API publishes and takes as a client would."""

from broker.adapters.access import Origin, Rights
from broker.adapters.channel091 import Channel
from broker.adapters.connection091 import Connection091
from broker.adapters.server import Server
from broker.core.connection import Connection, Scheduler
from broker.core.consumer import QueueConsumer
from broker.core.consumer_target import ConsumerTarget
from broker.core.credit import Credit
from broker.core.queue import Queue
from broker.core.session import Session
from broker.core.vhost import VirtualHost


class _NoTurns(Scheduler):
    """Nothing is ever delivered here, so no turn is needed."""

    def schedule(self, connection: Connection) -> None:
        """Ignored (Scheduler)."""


class _NoSocket:
    """The edge of a connection without a peer: nothing is sent (Edge)."""

    def write(self, data: bytes) -> None:
        """Ignored."""

    def close(self) -> None:
        """Ignored."""

    def end_output(self) -> None:
        """Ignored."""

    def abort(self) -> None:
        """Ignored."""

    def is_closing(self) -> bool:
        """There is nobody to write to."""
        return True

    def hold(self, reason: int) -> None:
        """Ignored."""

    def release(self, reason: int) -> None:
        """Ignored."""

    def logged_in(self) -> None:
        """Ignored."""

    def closing(self, seconds: int) -> None:
        """Ignored."""


def channel_for(server: Server, rights: Rights, vhost: VirtualHost) -> Channel:
    """A channel in a virtual host for a user with these rights."""
    connection = Connection091(server, _NoTurns(), _NoSocket(), Origin("", 0, True))
    connection.user = rights.user
    connection.rights = rights
    connection.virtual_host = vhost
    return Channel(connection, 1, vhost)


def taker_of(queue: Queue) -> QueueConsumer:
    """Somebody who may own entries that are taken one by one."""
    return QueueConsumer(ConsumerTarget(Session(Connection(_NoTurns())), Credit()), queue)
