"""Channels that no client has: through them the API publishes as a client would."""

from broker.adapters.access import Origin, Rights
from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.peers.server import Server
from broker.core.delivery.session import NoTurns
from broker.core.vhosts.vhost import VirtualHost


class _NoSocket:
    """The edge of a connection without a peer: nothing is sent (Edge)."""

    def write(self, data: bytes) -> None:
        """Ignored."""

    def close(self) -> None:
        """Ignored."""

    def end_output(self) -> None:
        """Ignored."""

    def await_hangup(self, seconds: int) -> None:
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
    connection = Connection091(server, NoTurns(), _NoSocket(), Origin("", 0, True))
    connection.user = rights.user
    connection.rights = rights
    connection.virtual_host = vhost
    return Channel(connection, 1, vhost)
