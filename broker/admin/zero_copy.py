"""Parts of files over HTTP, which the kernel sends directly from the file. [ASGI, Zero Copy Send 1.0]"""

import asyncio
import errno
import os
import socket
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

EXTENSION: Final = "http.response.zerocopysend"
PIECE_BYTES: Final = 512 * 1024  # sent before other work runs
COPIED_BYTES: Final = 64 * 1024  # read at once where the kernel cannot send the file
STALLED_SECONDS: Final = 300  # a peer that takes nothing for longer would keep a deleted file open
GONE: Final = frozenset(
    {
        errno.EPIPE,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
    }
)
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class _Part:
    """Bytes of a file in an answer. h11 frames the part, and uses only its length."""

    def __init__(self, fd: int, offset: int, count: int) -> None:
        self.fd = fd
        self.offset = offset
        self.count = count

    def __len__(self) -> int:
        return self.count


class ZeroCopyProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 for applications that send parts of files, by their descriptors.

    A part has `file`, `offset`, `count` and `more_body`. If the peer disconnects, the application gets
    http.disconnect, and whatever it sends later is dropped. Over TLS parts are read and encrypted.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._application: Any = self.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a client.

        A failed TLS handshake, which is not reported, leaves no reference cycle behind.
        """
        self.app = self._extended
        super().connection_made(transport)

    async def _extended(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[EXTENSION] = {}
        cycle = self.cycle

        async def send_any(message: Any) -> None:
            if message["type"] != EXTENSION:
                await send(message)
                return
            part = _Part(message["file"], message["offset"], message["count"])
            deliver = self._copied if scope["scheme"] == "https" else self._sent
            if scope["method"] != "HEAD" and not await deliver(part, send):
                cycle.disconnected = True
                cycle.message_event.set()
            await asyncio.sleep(0)  # otherwise a cancelled application would notice that only at its end
            if not message.get("more_body", False):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._application(scope, receive, send_any)

    async def _sent(self, part: _Part, send: Any) -> bool:
        """Send a part on a duplicate of the connection's descriptor, which the transport does not know.

        Returns False if the peer has disconnected before the end of the part.
        """
        if self.transport.is_closing():
            return False
        try:
            connection = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            return await self._copied(part, send)
        try:
            connection.setblocking(False)
            return await self._framed(part, connection)
        except OSError as error:
            if error.errno not in GONE and not isinstance(error, TimeoutError):
                raise
            self.transport.abort()
            return False
        finally:
            connection.close()

    async def _copied(self, part: _Part, send: Any) -> bool:
        """Send a part as an ordinary body; returns as `_sent`. Raises EOFError: the file is shorter."""
        offset, left = part.offset, part.count
        while left and not self.transport.is_closing():
            data = os.pread(part.fd, min(left, COPIED_BYTES), offset)
            if not data:
                raise _cut(offset, left)
            await send({"type": "http.response.body", "body": data, "more_body": True})
            await asyncio.sleep(0)
            offset += len(data)
            left -= len(data)
        return not left

    async def _framed(self, part: _Part, connection: socket.socket) -> bool:
        """Send a part by the kernel.

        Raises TimeoutError: the peer takes nothing; EOFError: the file is shorter.
        """
        while self.transport.get_write_buffer_size():  # bytes that go before the part
            await self._writable(connection)
            await asyncio.sleep(0)
        if self.transport.is_closing():
            return False
        pieces: Any = self.conn.send_with_data_passthrough(h11.Data(data=cast("bytes", part)))
        for piece in pieces:
            if isinstance(piece, _Part):
                await self._send_file(connection, piece)
            else:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self.loop.sock_sendall(connection, piece)
        return True

    async def _send_file(self, connection: socket.socket, part: _Part) -> None:
        offset, left = part.offset, part.count
        while left:
            try:
                sent = os.sendfile(connection.fileno(), part.fd, offset, min(left, PIECE_BYTES))
            except BlockingIOError:
                await self._writable(connection)
                continue
            if not sent:
                raise _cut(offset, left)
            offset += sent
            left -= sent
            await asyncio.sleep(0)

    async def _writable(self, connection: socket.socket) -> None:
        """Wait until the peer takes more, or has disconnected. Raises TimeoutError."""
        ready = asyncio.Event()
        self.loop.add_writer(connection, ready.set)
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await ready.wait()
        finally:
            self.loop.remove_writer(connection)


def _cut(offset: int, left: int) -> EOFError:
    return EOFError(f"a file of which {left} bytes from {offset} on were to be sent ends there")
