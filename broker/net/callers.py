"""HTTP connections among all connections: their file descriptors are counted with those of AMQP."""

from __future__ import annotations

from typing import Protocol, final

from broker.net.strangers import Stranger, Strangers


class Caller(Protocol):
    """An HTTP connection."""

    @property
    def peer(self) -> str:
        """The peer, as the log names it."""

    def close_now(self) -> None:
        """Close at once."""


@final
class Callers:
    """All HTTP connections. Each is a stranger as long as it is open."""

    def __init__(self, strangers: Strangers) -> None:
        self._strangers = strangers

    def arrived(self, caller: Caller) -> None:
        """A peer has connected, and has shaken hands if that is over TLS."""
        self._strangers.arrived(caller, Stranger(caller.peer, 1, caller.close_now))

    def gone(self, caller: Caller) -> None:
        """The connection is closed."""
        self._strangers.gone(caller)
