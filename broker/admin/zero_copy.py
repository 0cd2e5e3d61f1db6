"""Parts of files over HTTP, which the kernel sends as they lie there. [ASGI, Zero Copy Send 1.0]"""

import asyncio
import os
import socket
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

EXTENSION: Final = "http.response.zerocopysend"
PIECE_BYTES: Final = 512 * 1024  # that are sent before others have their turn


class _Part:
    """Bytes of a file in an answer: h11 frames them, and takes their number only."""

    def __init__(self, fd: int, offset: int, count: int) -> None:
        self.fd = fd
        self.offset = offset
        self.count = count

    def __len__(self) -> int:
        return self.count


class ZeroCopyProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 for applications that send parts of files, by their descriptors."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._application: Any = self.app
        self.app = self._extended

    async def _extended(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[EXTENSION] = {}

        async def send_any(message: Any) -> None:
            if message["type"] != EXTENSION:
                await send(message)
                return
            if scope["method"] != "HEAD" and not self.transport.is_closing():
                await self._send(_Part(message["file"], message["offset"], message["count"]))
            if not message.get("more_body", False):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._application(scope, receive, send_any)

    async def _send(self, part: _Part) -> None:
        """Send a part on a descriptor of the connection's own, which the transport does not know of."""
        connection = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        try:
            connection.setblocking(False)
            while self.transport.get_write_buffer_size():  # what is to go before it
                await self._writable(connection)
                await asyncio.sleep(0)
            if self.transport.is_closing():
                return
            pieces: Any = self.conn.send_with_data_passthrough(h11.Data(data=cast("bytes", part)))
            for piece in pieces:
                if isinstance(piece, _Part):
                    await self._send_file(connection, piece)
                else:
                    await self.loop.sock_sendall(connection, piece)
        except ConnectionError:  # whoever asked has gone
            self.cycle.disconnected = True
            self.transport.abort()
        finally:
            connection.close()

    async def _send_file(self, connection: socket.socket, part: _Part) -> None:
        """Raises ConnectionError; EOFError: the file is shorter."""
        offset, left = part.offset, part.count
        while left:
            try:
                sent = os.sendfile(connection.fileno(), part.fd, offset, min(left, PIECE_BYTES))
            except BlockingIOError:
                await self._writable(connection)
                continue
            if not sent:
                raise EOFError(f"a file of which {left} bytes from {offset} on were to be sent ends there")
            offset += sent
            left -= sent
            await asyncio.sleep(0)

    async def _writable(self, connection: socket.socket) -> None:
        """Wait until the peer takes more, or has gone."""
        ready = asyncio.Event()
        self.loop.add_writer(connection, ready.set)
        try:
            await ready.wait()
        finally:
            self.loop.remove_writer(connection)
