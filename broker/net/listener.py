"""Sockets that accept connections, and the timer that ticks them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol, final

import structlog

from broker.adapters.server import Server
from broker.logs import endpoints
from broker.net.pump import Pump
from broker.net.strangers import Stranger, Strangers
from broker.net.tls import NameIn, Tls, TlsError
from broker.net.tls_listener import TlsListener
from broker.net.transport import TICKS_PER_SECOND, Transport

BACKLOG: Final = 1024

_log = structlog.get_logger("amqpd.net")


class ListenError(Exception):
    """An address that cannot be listened on; the text names it and why."""


class Place(Protocol):
    """An address to listen on; port 0: any that is free."""

    @property
    def host(self) -> str:
        """A name or an address."""

    @property
    def port(self) -> int:
        """The port."""


@final
class Listener:
    """All AMQP addresses of the daemon and every connection that came through them."""

    def __init__(
        self,
        server: Server,
        pump: Pump,
        loop: asyncio.AbstractEventLoop,
        strangers: Strangers,
        tls: Tls | None = None,
    ) -> None:
        self._server = server
        self._strangers = strangers
        self._tls: TlsListener | None = None
        if tls is not None:
            make = partial(self._accept, tls.name_in)
            self._tls = TlsListener(tls, loop, make, strangers, server.handshake_seconds)
        self.bound: list[tuple[str, int]] = []
        self.bound_tls: list[tuple[str, int]] = []
        self._pump = pump
        self._loop = loop
        self._sockets: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self.transports: set[Transport] = set()

    async def open_all(self, plain: Sequence[Place], secure: Sequence[Place]) -> None:
        """Accept connections on all addresses, `bound` and `bound_tls` from then on. Raises ListenError."""
        self.bound = [await self.open(place.host, place.port) for place in plain]
        if self._tls is not None:
            self.bound_tls = [await self.open_tls(place.host, place.port, self._tls) for place in secure]

    def protocols(self) -> list[tuple[str, str, int]]:
        """Where it listens: protocol (as RabbitMQ calls it), host and port."""
        plain = [("amqp", host, port) for host, port in self.bound]
        return plain + [("amqp/ssl", host, port) for host, port in self.bound_tls]

    def where(self) -> str:
        """Where it listens, as the daemon says when it is ready."""
        secure = f" amqps={endpoints(self.bound_tls)}" if self.bound_tls else ""
        return f"amqp={endpoints(self.bound)}{secure}"

    def reload(self) -> None:
        """Read again what stands in files of its own: the certificates."""
        if self._tls is None:
            _log.info("nothing to read again: TLS is off")
            return
        try:
            self._tls.tls.reload()
        except TlsError as error:
            _log.error("TLS stays as it was", reason=str(error))
        else:
            _log.info("TLS certificates read again")

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
            raise ListenError(f"cannot listen on {host}:{port} for AMQP: {_why(e)}") from e
        self._sockets.append(listening)
        self._start_ticking()
        name = listening.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def open_tls(self, host: str, port: int, shaking: TlsListener) -> tuple[str, int]:
        """Accept connections over TLS on an address; as `open` otherwise. Raises ListenError."""
        try:
            bound = await shaking.open(host, port)
        except OSError as e:
            raise ListenError(f"cannot listen on {host}:{port} for AMQP over TLS: {_why(e)}") from e
        self._start_ticking()
        return bound

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, send connection.close 320 to everybody, wait for their close-ok, then hang up."""
        for listening in self._sockets:
            listening.close()
        if self._tls is not None:
            await self._tls.close()
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

    def _accept(self, name_in: NameIn | None = None) -> Transport:
        return Transport(self._server, self._pump, self._loop, self, name_in)

    def arrived(self, transport: Transport) -> None:
        """A peer has connected (Watcher)."""
        self.transports.add(transport)
        self._strangers.arrived(transport, Stranger(transport.peer, 1, transport.abort))

    def logged_in(self, transport: Transport) -> None:
        """It has logged in (Watcher)."""
        self._strangers.logged_in(transport)

    def gone(self, transport: Transport) -> None:
        """It has disconnected (Watcher)."""
        self.transports.discard(transport)
        self._strangers.gone(transport)
        if self._empty is not None and not self.transports:
            self._empty.set()

    def _start_ticking(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)
        for transport in list(self.transports):
            transport.tick()


def _why(error: OSError) -> str:
    return "address already in use" if error.errno == errno.EADDRINUSE else str(error)
