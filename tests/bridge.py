"""A TCP address behind which a broker is reached over WebSocket, for clients that know sockets only."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.daemon import PATIENCE_S, Address

READ_BYTES: Final = 65536

Bridger = Callable[..., Address]
"""Builds a bridge to a URL, cutting as that says, and gives its address; the fixture `bridge` is one."""


class Bridge:
    """Listens on `address`. Each connection has a WebSocket of its own, which ends with it, and it with that.

    What a client sends goes in messages of `message` bytes and more than one frame if `frame` is less: each
    read from the client is cut so.
    """

    def __init__(
        self,
        url: str,
        message: int = READ_BYTES,
        frame: int = READ_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._message = message
        self._frame = frame
        self._tls = tls
        self._open: list[ClientConnection | socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listening.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let go of everything."""
        self._listening.close()
        for each in self._open:
            if isinstance(each, ClientConnection):
                each.socket.close()
            else:
                each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # when it is closed
            while True:
                client, _ = self._listening.accept()
                self._join(client)

    def _join(self, client: socket.socket) -> None:
        websocket = connect(
            self._url,
            subprotocols=["amqp"],  # type: ignore[list-item]  # a word of the library's own
            ssl=self._tls,
            server_hostname="localhost" if self._tls else None,
            compression=None,
            max_size=None,
            open_timeout=PATIENCE_S,
        )
        self._open += [client, websocket]
        for work in (self._send, self._receive):
            threading.Thread(target=work, args=(client, websocket), daemon=True).start()

    def _send(self, client: socket.socket, websocket: ClientConnection) -> None:
        with contextlib.suppress(OSError, ConnectionClosed):
            while data := client.recv(READ_BYTES):
                for message in _cut(data, self._message):
                    frames = _cut(message, self._frame)
                    websocket.send(frames[0] if len(frames) == 1 else iter(frames))
        websocket.close()

    def _receive(self, client: socket.socket, websocket: ClientConnection) -> None:
        with contextlib.suppress(OSError, ConnectionClosed):
            while True:
                data = websocket.recv()
                assert isinstance(data, bytes)
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]
