"""A TCP connection at the asyncio edge: bytes in, a single write per turn out, timers.

The transport is a duck-typed native class instead of a subclass of asyncio.BufferedProtocol. uvloop needs
only the methods, and a subclass would lose its native layout when compiled.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from contextlib import suppress
from socket import IPPROTO_TCP, SO_SNDBUF, SOL_SOCKET
from typing import Final, Protocol, final

import structlog
from mypy_extensions import i64

from broker.adapters.access import Origin
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.peers.connections import HELD_FOR_PEER, HELD_FOR_SHORTAGE, Octets
from broker.adapters.peers.peer import ServedConnection
from broker.adapters.peers.server import Server
from broker.core.delivery.session import Scheduler
from broker.net.tls import NameIn, origin_of
from protocol.amqp091.constants import HEARTBEAT_FRAME
from protocol.sniff import AMQP_0_9_1, HEADER_BYTES, sniff

READ_BYTES: Final = 262144
WRITE_HIGH_BYTES: Final = 1 << 20
WRITE_LOW_BYTES: Final = 1 << 18
LOOPBACK_SEND_BYTES: Final = 262144  # more bytes for a local process would leave the processor's cache
TICKS_PER_SECOND: Final = 2
TCP_INFO: Final[int] = getattr(sockets, "TCP_INFO", -1)
TCP_ESTABLISHED: Final = 1  # the first octet of the system's tcp_info
PARTS_SECONDS: Final = 30  # for which a held publisher may keep more than PART_BYTES_MAX
PART_BYTES_MAX: Final = 67108864  # for incomplete bodies in memory
PART_BYTES_FREE: Final = 1048576  # for incomplete bodies that any held publisher may keep
LINGER_SECONDS: Final = 30  # for a peer to take what was written before its connection was closed

_BUFFER: Final = bytearray(READ_BYTES)  # shared: parsing is synchronous, so free again on return
_VIEW: Final = memoryview(_BUFFER)

PAUSED_FULL: Final = 1  # a reason for not reading, besides the reasons of the connection
HEARTBEAT_PAUSES: Final = PAUSED_FULL | HELD_FOR_PEER  # pauses during which heartbeats are still expected

_log = structlog.get_logger("amqpd.net")


class Watcher(Protocol):
    """The owner of all transports."""

    def add(self, transport: Transport) -> None:
        """Take a transport whose peer has connected, after the handshake if it is over TLS."""

    def on_logged_in(self, transport: Transport) -> None:
        """Note that the transport's peer has authenticated."""

    def remove(self, transport: Transport) -> None:
        """Forget a transport whose socket is closed."""


@final
class Transport:
    """The protocol that uvloop calls and the socket that a connection writes to, for an accepted socket."""

    def __init__(
        self,
        server: Server,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
        watcher: Watcher,
        name_in: NameIn | None = None,
    ) -> None:
        self._server = server
        self._scheduler = scheduler
        self._loop = loop
        self._watcher = watcher
        self._name_in = name_in
        self._socket: asyncio.Transport | None = None
        self._head = b""
        self.connection: ServedConnection | None = None
        self._octets = Octets()
        self._origin = Origin("", 0, False)
        self._pauses: i64 = 0
        self._has_received = False
        self._receive_idle_ticks: i64 = 0
        self._has_sent = False
        self._send_idle_ticks: i64 = 0
        self._age_ticks: i64 = 0
        self._handshake_ticks: i64 = int(server.handshake_seconds * TICKS_PER_SECOND)
        self._closing_ticks: i64 = -1  # -1: not closing
        self._held_ticks: i64 = 0  # the ticks for which the peer was held with incomplete bodies
        self._ended = False
        self._peer_closes = False  # the peer is given time to close first
        self._unsent: i64 = 0  # output bytes of a peer that is held because it does not read

    # -- called by the event loop

    def connection_made(self, socket: asyncio.Transport) -> None:
        """Take the socket of a client that has connected."""
        self._socket = socket
        socket.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._origin = origin_of(socket, self._name_in, self._server.broker.schedule.date())
        if self._origin.loopback:
            with suppress(OSError):  # some systems refuse the option for a closed socket
                socket.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, LOOPBACK_SEND_BYTES)
        self._server.counters.connections_opened += 1
        self._watcher.add(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer into which the loop reads."""
        return _VIEW

    def buffer_updated(self, size: int) -> None:
        """Take `size` bytes that have arrived."""
        self._has_received = True
        octets = self._octets
        octets.received += size
        octets.reads += 1
        data = bytes(_VIEW[:size])
        connection = self.connection
        if connection is not None:
            connection.receive(data)
        else:
            self._sniff(data)
        if size == READ_BYTES and self._pauses == 0:
            # libuv would continue to read; the other work of the loop comes first
            self._pause(PAUSED_FULL)
            self._loop.call_soon(self._resume_full)

    def eof_received(self) -> bool:
        """Close this side after the client has closed its side."""
        return False

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than the broker writes."""
        if self.connection is not None:
            self.connection.set_blocked(True)

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        if self.connection is not None:
            self.connection.set_blocked(False)

    def connection_lost(self, error: Exception | None) -> None:
        """End the connection: the socket is closed, and everything that the connection owned is released."""
        connection = self.connection
        if connection is not None:
            connection.on_lost("" if error is None else str(error))
        self._socket = None
        self.connection = None
        self._server.counters.connections_closed += 1
        self._watcher.remove(self)

    # -- called by the connection

    def write(self, data: bytes) -> None:
        """Write `data` to the socket; nothing happens after the socket is closed."""
        if not self.is_closing() and self._socket is not None:
            self._has_sent = True
            octets = self._octets
            octets.sent += len(data)
            octets.writes += 1
            self._socket.write(data)

    def close(self) -> None:
        """Close after all written bytes have been sent."""
        if self._closing_ticks < 0 or self._peer_closes:
            self._peer_closes = False
            self._closing_ticks = LINGER_SECONDS * TICKS_PER_SECOND
        if self._socket is not None:
            self._socket.close()

    def end_output(self) -> None:
        """Send no more, and close when the peer closes. Until then input is read and ignored."""
        socket = self._socket
        if socket is None or socket.is_closing() or not socket.can_write_eof():
            self.close()
        elif not self._ended:
            self._ended = True
            self._peer_closes = False
            self._closing_ticks = LINGER_SECONDS * TICKS_PER_SECOND
            socket.write_eof()

    def await_hangup(self, seconds: int) -> None:
        """Let the peer close first; end the output if it has not done so after `seconds`."""
        if not self.is_closing():
            self._peer_closes = True
            self._closing_ticks = seconds * TICKS_PER_SECOND

    def abort(self) -> None:
        """Close at once."""
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        """Whether written bytes no longer reach the peer."""
        return self._ended or self._socket is None or self._socket.is_closing()

    def hold(self, reason: int) -> None:
        """Pause reading until every reason has been released."""
        self._pause(reason)

    def release(self, reason: int) -> None:
        """Release one or more reasons for not reading."""
        self._unpause(reason)

    def on_logged_in(self) -> None:
        """Note that the peer has authenticated."""
        self._watcher.on_logged_in(self)

    def limit_close(self, seconds: int) -> None:
        """Wait for close-ok, for at most `seconds`."""
        self._closing_ticks = seconds * TICKS_PER_SECOND

    @property
    def peer(self) -> str:
        """The peer, as the log names it."""
        return self._origin.peer

    # -- called by the listener's timer

    def tick(self) -> None:
        """Check heartbeats and the deadlines of handshake and closing; called every half second."""
        self._age_ticks += 1
        connection = self.connection
        if self._closing_ticks >= 0:
            self._closing_ticks -= 1
            if self._closing_ticks < 0:
                if self._peer_closes:
                    self._peer_closes = False
                    self.end_output()
                else:
                    self.abort()
                return
        if connection is None or not connection.is_open():
            if self._closing_ticks < 0 and self._age_ticks > self._handshake_ticks:
                _log.warning(
                    "handshake timeout", peer=self._origin.peer, seconds=self._server.handshake_seconds
                )
                self.abort()
            return
        if self._pauses & HELD_FOR_SHORTAGE and not self._keeps_parts(connection):
            return
        self._heartbeats(connection.heartbeat)

    def _keeps_parts(self, connection: ServedConnection) -> bool:
        """Whether a held publisher may keep its incomplete bodies in memory; ends the connection if not.

        This memory is free again when the bodies are complete, but they cannot complete before memory is
        free.
        """
        size = connection.part_bytes()
        if size <= PART_BYTES_FREE:
            self._held_ticks = 0
            return True
        self._held_ticks += 1
        if self._has_hung_up():
            _log.info("held publisher has hung up", peer=self._origin.peer, bytes_of_bodies=size)
            self.abort()
            return False
        if size > PART_BYTES_MAX and self._held_ticks > PARTS_SECONDS * TICKS_PER_SECOND:
            text = f"low on memory for {PARTS_SECONDS} seconds, with {size} bytes of incomplete bodies"
            _log.warning("held publisher is closed", peer=self._origin.peer, reason=text)
            connection.force_close(text)
            return False
        return True

    def _has_hung_up(self) -> bool:
        """Whether the peer has closed the connection while reading is paused, by the state of TCP."""
        if TCP_INFO < 0 or self._socket is None:
            return False
        try:
            state: int = self._socket.get_extra_info("socket").getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0]
        except OSError:
            return True
        return state != TCP_ESTABLISHED

    def _heartbeats(self, seconds: i64) -> None:
        """Send a heartbeat after half the interval without output; hang up after two intervals without input.

        [amqp-0-9-1 4.2.7]
        """
        if self._has_received:
            self._has_received = False
            self._receive_idle_ticks = 0
        else:
            self._receive_idle_ticks += 1
        if self._has_sent:
            self._has_sent = False
            self._send_idle_ticks = 0
        else:
            self._send_idle_ticks += 1
        if seconds == 0:
            return
        if self._pauses & HELD_FOR_PEER and self._socket is not None:
            unsent: i64 = self._socket.get_write_buffer_size()
            if unsent < self._unsent:
                self._receive_idle_ticks = 0  # the peer's input is not read, but the peer reads
            self._unsent = unsent
        if self._send_idle_ticks * 2 >= seconds * TICKS_PER_SECOND:
            self._send_idle_ticks = 0
            self.write(HEARTBEAT_FRAME)
        if (
            self._receive_idle_ticks > 2 * seconds * TICKS_PER_SECOND
            and self._pauses & ~HEARTBEAT_PAUSES == 0
        ):
            _log.warning("missed heartbeats", peer=self._origin.peer, heartbeat_s=seconds)
            self.abort()

    def _sniff(self, data: bytes) -> None:
        self._head += data
        kind = sniff(self._head)
        if kind == "more":
            return
        if not kind.startswith("amqp-"):
            _log.warning(
                "bad protocol header", peer=self._origin.peer, looks_like=kind, head=self._head[:8].hex()
            )
            if kind != "tls":  # a client of TLS could not read the header
                self.write(AMQP_0_9_1)
            self.close()
            return
        rest = self._head[HEADER_BYTES:]
        self._head = b""
        connection = self._connection_of(kind)
        connection.octets = self._octets
        self.connection = connection
        connection.start()
        if rest:
            connection.receive(rest)

    def _connection_of(self, kind: str) -> ServedConnection:
        server, scheduler, origin = self._server, self._scheduler, self._origin
        if kind == "amqp-0-9-1":
            return Connection091(server, scheduler, self, origin)
        return Connection10(server, scheduler, self, origin, kind == "amqp-1.0-sasl")

    def _pause(self, reason: i64) -> None:
        if self._pauses == 0 and self._socket is not None and not self._socket.is_closing():
            self._socket.pause_reading()
        self._pauses |= reason

    def _unpause(self, reason: i64) -> None:
        if self._pauses & reason == 0:
            return
        self._pauses &= ~reason
        if self._pauses == 0 and self._socket is not None and not self._socket.is_closing():
            self._socket.resume_reading()

    def _resume_full(self) -> None:
        self._unpause(PAUSED_FULL)
