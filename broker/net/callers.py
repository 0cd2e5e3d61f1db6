"""HTTP connections: their limits in all and for each network, and the connection closed for a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

import structlog

from broker.auth.backoff import network
from broker.logs import Seldom
from broker.net.strangers import ADMIN, Stranger, Strangers

SHARE: Final = 4  # HTTP connections have at most a quarter of the file descriptors for connections
DESCRIPTORS: Final = 3  # for a connection with a request of a known user, whose answer may send files

_log = structlog.get_logger("amqpd.admin")


class Caller(Protocol):
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
class Callers:
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
        self._seldom = Seldom(clock)
        self._networks: dict[str, dict[Caller, None]] = {}  # in the order of arrival
        self._count = 0
        self._busy: set[Caller] = set()

    def __len__(self) -> int:
        return self._count

    def arrived(self, caller: Caller) -> None:
        """Add a connection whose peer has connected, after the handshake if it is over TLS."""
        where = network(caller.address)
        mine = self._networks.setdefault(where, {})
        mine[caller] = None
        self._count += 1
        if len(mine) > self._per_address:
            self._turn_away(mine, caller, "too many HTTP connections from one address", self._per_address)
        if self._count > self._most:
            largest = max(self._networks.values(), key=len)
            self._turn_away(largest, caller, "too many HTTP connections", self._most)
        if caller in self._networks.get(where, {}):
            self._strangers.arrived(caller, _stranger(caller))
        else:
            self._strangers.gone(caller)  # over TLS, the caller is a stranger since its handshake

    def logged_in(self, caller: Caller) -> None:
        """Protect a connection from being closed for a new one: a request of a known user has begun."""
        if caller in self._networks.get(network(caller.address), {}):
            self._busy.add(caller)
            self._strangers.logged_in(caller, DESCRIPTORS)

    def answered(self, caller: Caller) -> None:
        """End the protection of a connection: the request has been answered."""
        if caller in self._busy:
            self._busy.remove(caller)
            self._strangers.gone(caller)
            self._strangers.arrived(caller, _stranger(caller))

    def gone(self, caller: Caller) -> None:
        """Remove a connection that is closed."""
        self._forget(caller)
        self._strangers.gone(caller)

    def _forget(self, caller: Caller) -> None:
        where = network(caller.address)
        mine = self._networks.get(where)
        if mine is None or caller not in mine:
            return
        del mine[caller]
        self._count -= 1
        self._busy.discard(caller)
        if not mine:
            del self._networks[where]

    def _turn_away(self, among: dict[Caller, None], newest: Caller, reason: str, most: int) -> None:
        idle = next((caller for caller in among if caller not in self._busy), newest)
        self._forget(idle)
        self._strangers.gone(idle)
        self._seldom.warning(_log, reason, closed=idle.peer, max=most)
        if idle is newest:
            idle.refuse()
        else:
            idle.close_now()


def _stranger(caller: Caller) -> Stranger:
    return Stranger(caller.peer, 1, caller.close_now, ADMIN)
