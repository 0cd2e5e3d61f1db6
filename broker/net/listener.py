"""Sockets that accept connections, and the timer that ticks them."""

from __future__ import annotations

import asyncio
import errno
from typing import Final, final

import structlog

from broker.adapters.server import Server
from broker.net.pump import Pump
from broker.net.transport import TICKS_PER_SECOND, Transport

BACKLOG: Final = 1024

_log = structlog.get_logger("amqpd.net")


class ListenError(Exception):
    """An address that cannot be listened on; the text names it and why."""


@final
class Listener:
    """All AMQP addresses of the daemon and every connection that came through them."""

    def __init__(self, server: Server, pump: Pump, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._pump = pump
        self._loop = loop
        self._sockets: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self.transports: set[Transport] = set()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections on an address; port 0 takes a free one. Returns what was bound.

        Raises ListenError.
        """
        try:
            listening = await self._loop.create_server(
                self._accept,  # type: ignore[arg-type]  # duck-typed, see Transport
                host,
                port,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as e:
            why = "address already in use" if e.errno == errno.EADDRINUSE else str(e)
            raise ListenError(f"cannot listen on {host}:{port} for AMQP: {why}") from e
        self._sockets.append(listening)
        if self._timer is None:
            self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)
        name = listening.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, send connection.close 320 to everybody, wait for their close-ok, then hang up."""
        for listening in self._sockets:
            listening.close()
        self._empty = asyncio.Event()
        for transport in list(self.transports):
            if transport.connection is not None:
                transport.connection.force_close("broker shutting down")
            else:
                transport.close()
        if self.transports:
            try:
                await asyncio.wait_for(self._empty.wait(), grace_seconds)
            except TimeoutError:
                _log.warning("clients did not answer connection.close", connections=len(self.transports))
        for transport in list(self.transports):
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()

    def _accept(self) -> Transport:
        transport = Transport(self._server, self._pump, self._loop, self._gone)
        self.transports.add(transport)
        return transport

    def _gone(self, transport: Transport) -> None:
        self.transports.discard(transport)
        if self._empty is not None and not self.transports:
            self._empty.set()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)
        for transport in list(self.transports):
            transport.tick()
