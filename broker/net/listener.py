"""The sockets that accept AMQP connections, and the timer that ticks the connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, final

import structlog

from broker.adapters.peers.server import Server
from broker.logs import endpoints
from broker.net.pump import Pump
from broker.net.strangers import Stranger, Strangers
from broker.net.tls import NameIn, Tls
from broker.net.tls_listener import TlsListener
from broker.net.transport import TICKS_PER_SECOND, Transport
from config.settings import Settings

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 8
"""The connections accepted in a turn of the event loop, which accepts a connection for each descriptor."""
SCHEMES: Final = {"amqp": "amqp", "amqp/ssl": "amqps", "http/web-amqp": "ws", "https/web-amqp": "wss"}
"""The URL schemes of the protocols, by the names that RabbitMQ's HTTP API has for the protocols."""
PROTOCOL_NAMES: Final = {
    "amqp": "AMQP",
    "amqp/ssl": "AMQP over TLS",
    "http/web-amqp": "AMQP over WebSocket",
    "https/web-amqp": "AMQP over WebSocket and TLS",
}
"""The names of the protocols in messages for operators."""
OPTIONS: Final = {
    "amqp": "--listen",
    "amqp/ssl": "--tls-listen",
    "http/web-amqp": "--websocket-listen",
    "https/web-amqp": "--websocket-tls-listen",
}
"""The options that set the addresses of the protocols."""

Layer = Callable[[Transport], object]
"""A function that returns the protocol for the event loop: the transport, or a layer before the transport."""

Listen = Callable[[int], Awaitable[tuple[str, int]]]
"""A function that listens on a port of a host, and returns the address that is bound. Raises OSError."""

_log = structlog.get_logger("amqpd.net")


class ListenError(Exception):
    """An address cannot be listened on; the text names the address and the reason."""


class Bound(NamedTuple):
    """An address that is listened on, and its protocol, a key of SCHEMES."""

    protocol: str
    host: str
    port: int


@final
class Listener:
    """All AMQP addresses of the daemon, and the connections through these addresses."""

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
            self._tls = TlsListener(tls, loop, strangers, server.handshake_seconds)
        self.bound: list[Bound] = []
        self.is_suspended = False
        self._changing = asyncio.Lock()
        self._listen_again: list[Callable[[], Awaitable[object]]] = []  # for each address that is bound
        self._pump = pump
        self._loop = loop
        self._sockets: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self.transports: set[Transport] = set()

    async def open_all(self, settings: Settings) -> None:
        """Accept connections on all configured addresses, `bound` from then on. Raises ListenError."""
        for place in settings.listen:
            await self._open("amqp", place.host, place.port, _no_layer)
        for place in settings.tls_listen:
            await self._open_tls("amqp/ssl", place.host, place.port, _no_layer)
        if not (settings.websocket_listen or settings.websocket_tls_listen):
            return
        from broker.net.websocket import WebSocket  # slow to import, and few brokers use WebSockets

        def layer_websocket(transport: Transport) -> WebSocket:
            return WebSocket(transport, self._loop, settings.websocket_origins)

        for place in settings.websocket_listen:
            await self._open("http/web-amqp", place.host, place.port, layer_websocket)
        for place in settings.websocket_tls_listen:
            await self._open_tls("https/web-amqp", place.host, place.port, layer_websocket)

    def describe_addresses(self) -> str:
        """Return the addresses as the daemon shows them when it is ready."""
        addresses: dict[str, list[tuple[str, int]]] = {}
        for protocol, host, port in self.bound:
            addresses.setdefault(SCHEMES[protocol], []).append((host, port))
        return " ".join(f"{scheme}={endpoints(places)}" for scheme, places in addresses.items())

    async def _open(self, protocol: str, host: str, port: int, layer: Layer) -> None:
        """Accept connections on an address; port 0 means a free port. Raises ListenError."""

        def make() -> object:
            return layer(self._accept())

        async def listen(port: int) -> tuple[str, int]:
            create: Any = self._loop.create_server  # typed for asyncio protocols only, see Transport
            listening = await create(make, host, port, backlog=BACKLOG, reuse_address=True)
            self._sockets.append(listening)
            for bound in listening.sockets:
                for _ in range(1, ACCEPTED_AT_ONCE):
                    copy = socket.socket(fileno=os.dup(bound.fileno()))
                    self._sockets.append(await create(make, sock=copy, backlog=BACKLOG))
            name = listening.sockets[0].getsockname()
            return str(name[0]), int(name[1])

        await self._bind(protocol, host, port, listen)

    async def _open_tls(self, protocol: str, host: str, port: int, layer: Layer) -> None:
        """Accept connections over TLS on an address, as `_open` does without TLS. Raises ListenError."""
        tls = self._tls
        assert tls is not None  # the settings refuse a TLS address without a certificate
        name_in = tls.tls.name_in

        def make() -> tuple[Transport, object]:
            transport = self._accept(name_in)
            return transport, layer(transport)

        await self._bind(protocol, host, port, lambda port: tls.open(host, port, make))

    async def _bind(self, protocol: str, host: str, port: int, listen: Listen) -> None:
        """Listen on an address, now and after each time that the listeners were suspended."""

        async def listen_at(port: int) -> tuple[str, int]:
            try:
                return await listen(port)
            except OSError as e:
                raise _listen_error(host, port, protocol, e) from e

        where = await listen_at(port)
        self._start_ticking()
        self.bound.append(Bound(protocol, *where))
        self._listen_again.append(partial(listen_at, where[1]))

    async def suspend(self) -> None:
        """Accept no more connections until `resume`. Connections that are open go on."""
        async with self._changing:
            self.is_suspended = True
            await self._close_sockets()
        _log.warning("listeners suspended", addresses=self.describe_addresses())

    async def resume(self) -> None:
        """Accept connections again on all addresses. Raises ListenError; then none of them is open."""
        async with self._changing:
            if not self.is_suspended:
                return
            try:
                for listen in self._listen_again:
                    await listen()
            except ListenError:
                await self._close_sockets()
                raise
            self.is_suspended = False
        _log.warning("listeners resumed", addresses=self.describe_addresses())

    async def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()
        if self._tls is not None:
            await self._tls.stop_accepting()

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, send connection.close 320 to all clients, wait for their close-ok, then hang up."""
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

    def add(self, transport: Transport) -> None:
        """Add a transport whose peer has connected."""
        self.transports.add(transport)
        self._strangers.add(transport, Stranger(transport.peer, 1, transport.abort))

    def on_logged_in(self, transport: Transport) -> None:
        """Note that the peer of a transport has logged in."""
        self._strangers.on_logged_in(transport)

    def remove(self, transport: Transport) -> None:
        """Remove a transport whose peer has disconnected."""
        self.transports.discard(transport)
        self._strangers.remove(transport)
        if self._empty is not None and not self.transports:
            self._empty.set()

    def _start_ticking(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(1 / TICKS_PER_SECOND, self._tick)
        for transport in list(self.transports):
            transport.tick()


def _no_layer(transport: Transport) -> Transport:
    return transport


def _listen_error(host: str, port: int, protocol: str, error: OSError) -> ListenError:
    """Return the error with the address, the reason, and the setting for another address."""
    return ListenError(
        f"cannot listen on {host}:{port} for {PROTOCOL_NAMES[protocol]}: {describe_error(error)}; set "
        f"{OPTIONS[protocol]} HOST:PORT to a free address, or stop the program that listens there"
    )


def describe_error(error: OSError) -> str:
    """Return the reason why an address cannot be listened on, in words."""
    return "address already in use" if error.errno == errno.EADDRINUSE else str(error)
