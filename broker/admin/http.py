"""One HTTP connection of the admin port."""

from __future__ import annotations

import asyncio
from typing import Protocol

from uvicorn.config import Config
from uvicorn.server import ServerState

from broker.admin.zero_copy import ZeroCopyProtocol


class Watcher(Protocol):
    """Counts the connections."""

    def arrived(self, connection: HttpConnection) -> None:
        """A peer has connected, and has shaken hands if that is over TLS."""

    def gone(self, connection: HttpConnection) -> None:
        """The connection is closed."""


class HttpConnection(ZeroCopyProtocol):
    """Serves the requests of one connection."""

    def __init__(self, config: Config, state: ServerState, watcher: Watcher | None = None) -> None:
        super().__init__(config, state, {})
        self._watcher = watcher

    @property
    def peer(self) -> str:
        """The peer, as the log names it."""
        if self.client is None:
            return ""
        host, port = self.client
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """A client has connected."""
        super().connection_made(transport)
        if self._watcher is not None:
            self._watcher.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(exc)
        if self._watcher is not None:
            self._watcher.gone(self)

    def close_now(self) -> None:
        """Close at once."""
        self.transport.abort()
