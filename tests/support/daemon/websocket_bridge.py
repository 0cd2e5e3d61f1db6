"""A TCP address behind which a broker is reached over WebSocket, for clients that know sockets only."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon

READ_BYTES: Final = 65536

Bridger = Callable[..., Address]
"""Builds a bridge to a daemon, with a Bridge's options; gives its address. The fixture `bridge` is one."""
Visit = Callable[..., ClientConnection]
"""Opens a WebSocket to a daemon; the fixture `visit` is one."""


class Bridge:
    """A listener on `address` with a WebSocket for each connection; both end together.

    Each read from the client is cut into messages of `message` bytes, and these into frames of `frame` bytes.
    A message from the broker may have at most `max_size` bytes.
    """

    def __init__(
        self,
        url: str,
        message: int = READ_BYTES,
        frame: int = READ_BYTES,
        tls: ssl.SSLContext | None = None,
        max_size: int | None = None,
    ) -> None:
        self._url = url
        self._message = message
        self._frame = frame
        self._tls = tls
        self._max_size = max_size
        self._clients: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listening.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close all sockets."""
        for each in (self._listening, *self._clients):
            with contextlib.suppress(OSError):  # some are closed already
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError), self._listening:  # when it is shut down
            while True:
                client, _ = self._listening.accept()
                self._clients.append(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client:
            with open_websocket(self._url, ssl=self._tls, max_size=self._max_size) as websocket:
                back = threading.Thread(target=_receive, args=(client, websocket), daemon=True)
                back.start()
                with contextlib.suppress(OSError, ConnectionClosed):
                    while data := client.recv(READ_BYTES):
                        for message in _cut(data, self._message):
                            frames = _cut(message, self._frame)
                            websocket.send(frames[0] if len(frames) == 1 else iter(frames))
            back.join()


def _receive(client: socket.socket, websocket: ClientConnection) -> None:
    with contextlib.suppress(OSError, ConnectionClosed):
        while True:
            data = websocket.recv()
            assert isinstance(data, bytes)
            client.sendall(data)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)


def open_websocket(url: str, subprotocols: Sequence[str] = ("amqp",), **options: Any) -> ClientConnection:
    """A WebSocket of the library's client."""
    opened: ClientConnection = connect(
        url,
        subprotocols=[Subprotocol(name) for name in subprotocols],
        server_hostname="localhost" if options.get("ssl") else None,
        open_timeout=PATIENCE_S,
        proxy=None,
        **options,
    )
    return opened


def websocket_address(daemon: Daemon) -> Address:
    """The address of AMQP over WebSocket, with TLS or without."""
    match = re.search(r"wss?=(\S+):(\d+)", daemon.stdout.text())
    assert match is not None, daemon.stdout.text()
    return Address(match[1], int(match[2]))


def websocket_url(daemon: Daemon, path: str = "/") -> str:
    """The same, as a URL."""
    scheme = "wss" if "wss=" in daemon.stdout.text() else "ws"
    return "{}://{}:{}{}".format(scheme, *websocket_address(daemon), path)


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]
