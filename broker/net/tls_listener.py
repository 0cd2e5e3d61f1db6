"""Listeners for TLS: each connection completes its handshake before the protocol takes it over.

The handshakes are tasks of the daemon, not of a server of the event loop. So failed handshakes are logged
with their peers, the number of handshakes is limited, and a new certificate counts for the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, final

import structlog

from broker.adapters.access import Origin
from broker.auth.backoff import network
from broker.logs import SeldomEach
from broker.net.strangers import ADMIN, AMQP, Stranger, Strangers
from broker.net.tls import HandshakeFailed, Tls

BACKLOG: Final = 1024
PAUSE_SECONDS: Final = 1.0  # after an accept without free descriptors: the loop must not spin
DESCRIPTORS: Final = 2  # for a handshake: see `_do_handshake`
SHUTDOWN_SECONDS: Final = 5.0  # for the peer to close TLS
UNREAD_BYTES: Final = 4096  # read at once of input that is ignored

Address = tuple[str, int]
Make = Callable[[], tuple[object, object]]
"""A function that returns a new connection, the key among the strangers, and its asyncio protocol."""

_log = structlog.get_logger("amqpd.net")


@final
class TlsListener:
    """Listening sockets, and the handshakes in progress on them.

    A connection is made before its handshake, and is counted among the `strangers` of a `service` from then
    on. No handshake takes longer than `seconds`. With `per_address`, each network has at most this number of
    handshakes at once; for a new handshake above the limit, the oldest of the network is ended. A network is
    an IPv4 address, or 64 bits of an IPv6 address.
    """

    def __init__(
        self,
        tls: Tls,
        loop: asyncio.AbstractEventLoop,
        strangers: Strangers,
        seconds: float,
        service: str = AMQP,
        per_address: int = 0,
    ) -> None:
        self.tls = tls
        self._loop = loop
        self._strangers = strangers
        self._seconds = seconds
        self._service = service
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._per_address = per_address
        self._handshakes: dict[asyncio.Task[bool], str] = {}  # with the network; oldest first
        self._counts: Counter[str] = Counter()  # handshakes, by network
        # a flood must not fill the log
        self._seldom = SeldomEach(time.monotonic) if service == ADMIN else None

    async def open(self, host: str, port: int, make: Make) -> Address:
        """Accept connections on every address of `host`. Returns the address bound first. Raises OSError."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        bound: list[Address] = []
        for family, kind, number, _, address in dict.fromkeys(addresses):
            listening = socket.socket(family, kind, number)
            self._sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            self._accepting.append(self._loop.create_task(self._accept(listening, make)))
            name = listening.getsockname()
            bound.append((str(name[0]), int(name[1])))
        return bound[0]

    async def stop_accepting(self) -> None:
        """Close the listening sockets. `open` may open others."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        self._accepting.clear()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def close(self) -> None:
        """Stop accepting, and end the handshakes in progress."""
        await self.stop_accepting()
        tasks = list(self._handshakes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket, make: Make) -> None:
        while True:
            try:
                client, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    _log.error("no connection can be accepted", reason=error.strerror)
                    await asyncio.sleep(PAUSE_SECONDS)
                continue  # or the client has disconnected before the accept
            peer = Origin(str(address[0]), int(address[1]), False).peer
            connection, protocol = make()
            task = self._loop.create_task(self._do_handshake(client, peer, protocol))
            group = network(str(address[0]))
            self._handshakes[task] = group
            self._counts[group] += 1
            task.add_done_callback(partial(self._done, client, connection))
            self._strangers.add(connection, Stranger(peer, DESCRIPTORS, task.cancel, self._service))
            if self._per_address and self._counts[group] > self._per_address:
                self._end_oldest(group)

    def _end_oldest(self, group: str) -> None:
        """End the oldest handshake of a network."""
        oldest = next(task for task, of in self._handshakes.items() if of == group)
        self._forget(oldest)
        oldest.cancel()
        self._log_failure("too many TLS handshakes from one address", group, f"at most {self._per_address}")

    def _forget(self, task: asyncio.Task[bool]) -> None:
        group = self._handshakes.pop(task, None)
        if group is not None:
            self._counts[group] -= 1
            if not self._counts[group]:
                del self._counts[group]

    def _log_failure(self, event: str, peer: str, reason: str) -> None:
        if self._seldom is None:
            _log.warning(event, peer=peer, reason=reason)
        else:
            self._seldom.warning(_log, event, (), peer=peer, reason=reason)

    async def _do_handshake(self, client: socket.socket, peer: str, protocol: object) -> bool:
        """Do the handshake; return whether `protocol` has taken over the connection."""
        try:
            spare = client.dup()  # the event loop closes `client` when a handshake fails
        except OSError as error:
            _log.error("TLS handshake failed", peer=peer, reason=error.strerror)
            client.close()
            return False
        try:
            await self._loop.connect_accepted_socket(  # type: ignore[type-var]  # some are duck-typed, see Transport
                lambda: protocol,
                client,
                ssl=self.tls.context,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except HandshakeFailed as error:
            self._log_failure("TLS handshake failed", peer, error.cause)
            client.close()
            await self._send_alert(spare, error.alert)
        except OSError as error:
            self._log_failure("TLS handshake failed", peer, str(error) or "closed")
            client.close()
        else:
            return True
        finally:
            spare.close()
        return False

    async def _send_alert(self, client: socket.socket, alert: bytes) -> None:
        """Send the reason why the handshake failed, and read until the peer has received the reason.

        A socket that is closed with unread bytes resets the connection, and the peer could lose the alert.
        """
        with contextlib.suppress(OSError, TimeoutError):
            client.send(alert)
            client.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                while await self._loop.sock_recv(client, UNREAD_BYTES):
                    pass

    def _done(self, client: socket.socket, connection: object, task: asyncio.Task[bool]) -> None:
        self._forget(task)
        if task.cancelled():
            client.close()  # the handshake may not have begun
        elif task.exception() is not None:
            _log.error("TLS handshake failed", reason=repr(task.exception()))
        elif task.result():
            return
        self._strangers.remove(connection)
