"""HTTP connections: their limits in all and for each network, and the connection closed for a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

import structlog

from broker.auth.backoff import network
from broker.logs import SeldomEach
from broker.net.strangers import ADMIN, Stranger, Strangers

SHARE: Final = 4  # HTTP connections have at most a quarter of the file descriptors for connections
DESCRIPTORS: Final = 3  # for a connection with a request of a known user, whose answer may send files

_log = structlog.get_logger("amqpd.admin")


class HttpClient(Protocol):
    """An HTTP connection."""

    @property
    def address(self) -> str:
        """The peer's address without the port."""

    @property
    def peer(self) -> str:
        """The peer, as the log names it."""

    def close_now(self) -> None:
        """Close at once."""

    def refuse(self) -> None:
        """Refuse a new connection because there are too many, and close the connection."""


@final
class HttpConnections:
    """All HTTP connections, by their networks.

    At most `most` are open, and at most `per_address` from the same network: an IPv4 address, or 64 bits of
    an IPv6 address. Above a limit, a connection of the network with the most connections is closed. The
    oldest connection without a request of a known user is closed, or else the new connection. `strangers`
    counts the file descriptors together with the descriptors of AMQP connections.
    """

    def __init__(self, strangers: Strangers, most: int, per_address: int, clock: Callable[[], float]) -> None:
        self._strangers = strangers
        self._most = max(1, min(most, strangers.descriptors_max // SHARE))
        self._per_address = per_address
        self._seldom = SeldomEach(clock)
        self._networks: dict[str, dict[HttpClient, None]] = {}  # in the order of arrival
        self._count = 0
        self._busy: set[HttpClient] = set()

    def __len__(self) -> int:
        return self._count

    def add(self, connection: HttpClient) -> None:
        """Add a connection whose peer has connected, after the handshake if it is over TLS."""
        group = network(connection.address)
        members = self._networks.setdefault(group, {})
        members[connection] = None
        self._count += 1
        if len(members) > self._per_address:
            self._close_one(
                members, connection, "too many HTTP connections from one address", self._per_address
            )
        if self._count > self._most:
            largest = max(self._networks.values(), key=len)
            self._close_one(largest, connection, "too many HTTP connections", self._most)
        if connection in self._networks.get(group, {}):
            self._strangers.add(connection, _stranger_of(connection))
        else:
            self._strangers.remove(connection)  # over TLS, the peer is a stranger since its handshake

    def on_logged_in(self, connection: HttpClient) -> None:
        """Protect a connection from being closed for a new one: a request of a known user has begun."""
        if connection in self._networks.get(network(connection.address), {}):
            self._busy.add(connection)
            self._strangers.on_logged_in(connection, DESCRIPTORS)

    def on_request_answered(self, connection: HttpClient) -> None:
        """End the protection of a connection: the request has been answered."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._strangers.remove(connection)
            self._strangers.add(connection, _stranger_of(connection))

    def remove(self, connection: HttpClient) -> None:
        """Remove a connection that is closed."""
        self._forget(connection)
        self._strangers.remove(connection)

    def _forget(self, connection: HttpClient) -> None:
        group = network(connection.address)
        members = self._networks.get(group)
        if members is None or connection not in members:
            return
        del members[connection]
        self._count -= 1
        self._busy.discard(connection)
        if not members:
            del self._networks[group]

    def _close_one(self, among: dict[HttpClient, None], newest: HttpClient, reason: str, most: int) -> None:
        idle = next((connection for connection in among if connection not in self._busy), newest)
        self._forget(idle)
        self._strangers.remove(idle)
        self._seldom.warning(_log, reason, (), closed=idle.peer, max=most)
        if idle is newest:
            idle.refuse()
        else:
            idle.close_now()


def _stranger_of(connection: HttpClient) -> Stranger:
    return Stranger(connection.peer, 1, connection.close_now, ADMIN)
