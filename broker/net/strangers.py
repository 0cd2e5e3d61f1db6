"""Connections that have not logged in yet: limited in number, and the oldest is closed first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import structlog

AMQP: Final = "amqp"
ADMIN: Final = "admin"

_log = structlog.get_logger("amqpd.net")


@final
class Stranger:
    """A peer that has not logged in.

    `descriptors`: the number of its file descriptors. `close` closes its connection at once. `service`: the
    service that the peer has connected to, AMQP or ADMIN.
    """

    def __init__(self, peer: str, descriptors: int, close: Callable[[], object], service: str = AMQP) -> None:
        self.peer = peer
        self.descriptors = descriptors
        self.close = close
        self.service = service


@final
class Strangers:
    """All peers from the moment they are accepted: strangers until they log in, known afterwards.

    Each service has at most `strangers_max` strangers. All peers together have at most `descriptors_max` file
    descriptors, because the log needs descriptors too. With a stranger too many, the oldest stranger of this
    service is closed. With a descriptor too many, the oldest stranger of the service with the most strangers
    is closed, so a flood at a service shuts out no peer of the other service. If all other peers are known,
    the new peer itself is closed.
    """

    def __init__(self, strangers_max: int, descriptors_max: int) -> None:
        self._strangers_max = strangers_max
        self.descriptors_max = descriptors_max
        self._services: dict[str, dict[object, Stranger]] = {AMQP: {}, ADMIN: {}}  # in the order of arrival
        self._known: dict[object, int] = {}  # with the number of descriptors
        self._descriptors = 0

    def add(self, connection: object, stranger: Stranger) -> None:
        """Add a peer that has connected. Over TLS, called on accepting and again after the handshake."""
        strangers = self._services[stranger.service]
        before = strangers.get(connection)
        self._descriptors += stranger.descriptors - (0 if before is None else before.descriptors)
        strangers[connection] = stranger
        while len(strangers) > self._strangers_max:
            self._close_oldest(strangers, "too many connections that have not logged in", self._strangers_max)
        self._keep_descriptors()

    def on_logged_in(self, connection: object, descriptors: int = 1) -> None:
        """Make a stranger known, with the number of descriptors that it may have from now on."""
        if self._forget(connection):
            self._known[connection] = descriptors
            self._descriptors += descriptors
            self._keep_descriptors()

    def remove(self, connection: object) -> None:
        """Remove a peer that has disconnected, known or not; nothing happens if it was closed here."""
        if connection in self._known:
            self._descriptors -= self._known.pop(connection)
        else:
            self._forget(connection)

    def _keep_descriptors(self) -> None:
        while self._descriptors > self.descriptors_max:
            largest = max(self._services.values(), key=len)
            if not largest:
                return
            self._close_oldest(
                largest, "too many connections for the available file descriptors", self.descriptors_max
            )

    def _forget(self, connection: object) -> Stranger | None:
        for strangers in self._services.values():
            stranger = strangers.pop(connection, None)
            if stranger is not None:
                self._descriptors -= stranger.descriptors
                return stranger
        return None

    def _close_oldest(self, strangers: dict[object, Stranger], reason: str, most: int) -> None:
        oldest = self._forget(next(iter(strangers)))
        assert oldest is not None
        _log.warning(reason, closed=oldest.peer, max=most, logged_in=len(self._known))
        oldest.close()
