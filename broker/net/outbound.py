"""Connections that the broker makes: sockets, TLS and names, for the forwarding. [RabbitMQ URI parameters]"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast, final

from broker.adapters.peers.server import Server
from broker.core.delivery.session import Scheduler
from broker.forwarding.line import Line, Peer
from broker.forwarding.local import LocalLine
from broker.forwarding.uri import Uri
from broker.net.tls import open_regular

READ_BYTES: Final = 262144
WRITE_HIGH_BYTES: Final = 1 << 20
WRITE_LOW_BYTES: Final = 1 << 18
NONCE_BYTES: Final = 24


def tls_context(uri: Uri) -> ssl.SSLContext:
    """Return the TLS of a client by the parameters of a URI.

    Raises OSError (ssl.SSLError is one) for a file that cannot be used; the text names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = uri.files
    if uri.verifies:
        if "cacertfile" in files:
            _use([files["cacertfile"]], lambda: context.load_verify_locations(files["cacertfile"]))
        else:
            context.load_default_certs()
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "certfile" in files:
        key = files.get("keyfile")
        _use(
            [files["certfile"], *([] if key is None else [key])],
            lambda: context.load_cert_chain(files["certfile"], key, uri.key_password or _no_password),
        )
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted: set the parameter 'password'")


def _use(paths: list[str], load: Callable[[], None]) -> None:
    try:
        for path in paths:
            open_regular(path).close()
        load()
    except (OSError, ValueError) as error:
        raise OSError(f"{paths[0]} cannot be used: {error}") from error


@final
class Outbound:
    """The dialer of the daemon: lines to other brokers over sockets, and to this broker without a socket."""

    def __init__(self, server: Server, scheduler: Scheduler, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._scheduler = scheduler
        self._loop = loop
        self._sockets: set[SocketLine] = set()
        self._locals: set[LocalLine] = set()
        self._empty = asyncio.Event()

    def dial(self, uri: Uri, peer: Peer, name: str) -> Line:
        """Begin to make a line to the broker at an address."""
        if uri.is_local:
            local = LocalLine(self._server, self._scheduler, uri, peer, name, self._locals.discard)
            self._locals.add(local)
            return local
        line = SocketLine(peer, self._forget)
        self._sockets.add(line)
        self._empty.clear()
        line.task = self._loop.create_task(self._connect(uri, line))
        return line

    def make_nonce(self) -> str:
        """Return a nonce for a log-in."""
        return secrets.token_urlsafe(NONCE_BYTES)

    def compute(self, work: Callable[[], bytes], done: Callable[[bytes], None]) -> None:
        """Do `work` in a thread; `done` gets the result in the event loop, unless the loop ends before."""

        def report(future: asyncio.Future[bytes]) -> None:
            if not future.cancelled():
                done(future.result())

        self._loop.run_in_executor(None, work).add_done_callback(report)

    async def close(self, seconds: float) -> None:
        """End all lines, whose users have closed them; wait `seconds` for other brokers to answer."""
        for local in list(self._locals):
            local.finish()
        if self._sockets:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        for line in list(self._sockets):
            line.abort()

    def _forget(self, line: SocketLine) -> None:
        self._sockets.discard(line)
        if not self._sockets:
            self._empty.set()

    async def _connect(self, uri: Uri, line: SocketLine) -> None:
        try:
            context = None
            if uri.tls:  # reading files of authorities takes long
                context = await self._loop.run_in_executor(None, tls_context, uri)
            if line.ended:
                return
            name = (uri.server_name or uri.host) if context is not None else None
            await self._loop.create_connection(
                lambda: line, uri.host, uri.port, ssl=context, server_hostname=name
            )
        except (OSError, ssl.CertificateError, ValueError) as error:
            line.fail(_reason(error))


def _reason(error: Exception) -> str:
    """Return why a connection could not be made, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


@final
class SocketLine(asyncio.Protocol):
    """A line over a socket. `ended`: its user has closed it, or it could not be made."""

    frame_max = 0

    def __init__(self, peer: Peer, forget: Callable[[SocketLine], None]) -> None:
        self.ended = False
        self.task: asyncio.Task[None] | None = None  # the attempt to connect
        self._forget = forget
        self._peer: Peer | None = peer
        self._socket: asyncio.Transport | None = None
        self._holds = False

    # -- calls of the user

    def write(self, data: bytes) -> None:
        """Write bytes to the socket."""
        if self._socket is not None:
            self._socket.write(data)

    def hold(self) -> None:
        """Read nothing until `release`."""
        self._holds = True
        if self._socket is not None and not self._socket.is_closing():
            self._socket.pause_reading()

    def release(self) -> None:
        """Read again."""
        if self._holds:
            self._holds = False
            if self._socket is not None and not self._socket.is_closing():
                self._socket.resume_reading()

    def close(self) -> None:
        """Close the socket after all written bytes have been sent."""
        self.ended = True
        self._peer = None
        if self._socket is not None:
            self._socket.close()
        elif self.task is not None:
            self.task.cancel()
            self._forget(self)

    def abort(self) -> None:
        """Close the socket at once."""
        self.ended = True
        self._peer = None
        if self._socket is not None:
            self._socket.abort()
        elif self.task is not None:
            self.task.cancel()
            self._forget(self)

    # -- calls of the event loop

    def fail(self, reason: str) -> None:
        """Note that the line could not be made."""
        self._end(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        made = cast("asyncio.Transport", transport)  # uvloop's transports are none by inheritance
        if self._peer is None:
            made.abort()
            return
        self._socket = made
        if made.get_extra_info("sockname") == made.get_extra_info("peername"):
            made.abort()  # the system has chosen the port of a stopped local broker for this end
            self._end("connection refused: the socket was connected to itself")
            return
        made.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._peer.on_connected()

    def data_received(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        if self._peer is not None:
            self._peer.on_bytes(bytes(data))

    def pause_writing(self) -> None:
        """Note that the broker reads too slowly."""
        if self._peer is not None:
            self._peer.on_writable(False)

    def resume_writing(self) -> None:
        """Note that the broker has caught up."""
        if self._peer is not None:
            self._peer.on_writable(True)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the socket is closed."""
        self._socket = None
        self._end("" if error is None else _reason(error))

    def _end(self, reason: str) -> None:
        self.ended = True
        self._forget(self)
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.on_lost(reason)
