"""Who has connected and not logged in yet: no more than so many, and who came first goes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import structlog

_log = structlog.get_logger("amqpd.net")


@final
class Stranger:
    """A peer that has not logged in. It has so many file descriptors; `turn_away` ends it at once."""

    def __init__(self, peer: str, descriptors: int, turn_away: Callable[[], object]) -> None:
        self.peer = peer
        self.descriptors = descriptors
        self.turn_away = turn_away


@final
class Strangers:
    """All peers, from the moment they are accepted: each is a stranger until it logs in, then it is known.

    At most `strangers_max` are strangers, and all together have at most `descriptors_max` file descriptors:
    the log needs others. When there is one too many, the stranger that came first gives way; that is the new
    one itself if all others are known.
    """

    def __init__(self, strangers_max: int, descriptors_max: int) -> None:
        self._strangers_max = strangers_max
        self._descriptors_max = descriptors_max
        self._strangers: dict[object, Stranger] = {}  # in the order in which they came
        self._known: set[object] = set()
        self._descriptors = 0

    def arrived(self, connection: object, stranger: Stranger) -> None:
        """Somebody has connected; over TLS once when it is accepted, and once more after the handshake."""
        before = self._strangers.get(connection)
        self._descriptors += stranger.descriptors - (0 if before is None else before.descriptors)
        self._strangers[connection] = stranger
        while len(self._strangers) > self._strangers_max:
            self._turn_away("too many connections that have not logged in", self._strangers_max)
        while self._strangers and self._descriptors > self._descriptors_max:
            self._turn_away("too many connections for the file descriptors there are", self._descriptors_max)

    def logged_in(self, connection: object) -> None:
        """It is no stranger any more."""
        if self._forget(connection):
            self._known.add(connection)
            self._descriptors += 1

    def gone(self, connection: object) -> None:
        """It has disconnected, known or not; harmless if it was turned away."""
        if connection in self._known:
            self._known.remove(connection)
            self._descriptors -= 1
        else:
            self._forget(connection)

    def _forget(self, connection: object) -> Stranger | None:
        stranger = self._strangers.pop(connection, None)
        if stranger is not None:
            self._descriptors -= stranger.descriptors
        return stranger

    def _turn_away(self, reason: str, most: int) -> None:
        oldest = self._forget(next(iter(self._strangers)))
        assert oldest is not None
        _log.warning(reason, closed=oldest.peer, max=most, logged_in=len(self._known))
        oldest.turn_away()
