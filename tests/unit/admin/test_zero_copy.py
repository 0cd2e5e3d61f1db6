"""Parts of files in HTTP answers: their framing, and clients that leave or do not read."""

import asyncio
import os
import random
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.admin import zero_copy
from broker.admin.api.streams import ExtentsResponse
from broker.admin.server import AdminServer
from broker.admin.zero_copy import EXTENSION, ZeroCopyProtocol
from broker.core.ports import StreamExtent

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SIZE = 24_000_000  # more than a connection holds
CONTENT = random.Random(1).randbytes(SIZE)
PARTS = [(0, 10), (10, 5_000_000), (5_000_010, SIZE - 5_000_010)]


class Files:
    """An application that sends a file: in parts by its descriptor, with a few bytes before and behind.

    `sized`: the answer has a Content-Length. `excess`: the number of promised bytes beyond the file. `open`:
    the open descriptors; without any the application is `idle`. `before`: called before the parts are sent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sized = False
        self.excess = 0
        self.open = 0
        self.before: Callable[[], None] = lambda: None
        self.idle = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        assert EXTENSION in scope["extensions"]
        size = [(b"content-length", b"%d" % (SIZE + 6 + self.excess))] if self.sized else []
        await send({"type": "http.response.start", "status": 200, "headers": size})
        await send({"type": "http.response.body", "body": b"<<<", "more_body": True})
        fd = os.open(self.path, os.O_RDONLY)
        self.open += 1
        self.idle.clear()
        try:
            self.before()
            for offset, count in PARTS:
                part = {"file": fd, "offset": offset, "count": count}
                if offset == PARTS[-1][0]:
                    part["count"] += self.excess
                await send({"type": EXTENSION, **part, "more_body": True})
        finally:
            os.close(fd)
            self.open -= 1
            if not self.open:
                self.idle.set()
        await send({"type": "http.response.body", "body": b">>>"})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return Files(path)


@asynccontextmanager
async def served(application: Any) -> AsyncIterator[int]:
    server = AdminServer(application)
    try:
        yield (await server.listen("127.0.0.1", 0))[1]
    finally:
        await server.stop()


@asynccontextmanager
async def connected(
    port: int, requests: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection over which requests have been sent, and of whose answers little fits in."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=peer, limit=32768)
    try:
        writer.write(requests)
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("sized", [False, True])
async def test_the_whole_file_is_sent_and_the_connection_stays_open(files: Files, sized: bool) -> None:
    files.sized = sized
    async with served(files) as port, httpx.AsyncClient(trust_env=False) as client:
        for _ in range(3):
            answer = await client.get(f"http://127.0.0.1:{port}/")
            assert answer.content == b"<<<" + CONTENT + b">>>"
            assert ("content-length" in answer.headers) is sized
        head = await client.head(f"http://127.0.0.1:{port}/")
        assert head.content == b""
        assert (await client.get(f"http://127.0.0.1:{port}/")).content[-4:] == CONTENT[-1:] + b">>>"
    assert files.open == 0


async def test_answers_to_requests_that_were_sent_at_once_come_one_after_the_other(files: Files) -> None:
    files.sized = True
    request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
    async with served(files) as port, connected(port, 2 * request) as (reader, _):
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(SIZE + 6) == b"<<<" + CONTENT + b">>>"


async def test_an_http_1_0_client_gets_the_file_until_the_connection_closes(files: Files) -> None:
    async with served(files) as port, connected(port, b"GET / HTTP/1.0\r\n\r\n") as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read(-1) == b"<<<" + CONTENT + b">>>"


async def test_a_slow_reader_delays_no_other_client_and_gets_everything_later(files: Files) -> None:
    request = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
    files.sized = True
    async with served(files) as port, connected(port, request) as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)
        assert files.open == 1
        async with httpx.AsyncClient(trust_env=False) as client:
            assert len((await client.get(f"http://127.0.0.1:{port}/")).content) == SIZE + 6
        assert files.open == 1
        assert await reader.read(-1) == b"<<<" + CONTENT + b">>>"
        await asyncio.wait_for(files.idle.wait(), 10)


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_client_that_leaves_leaves_no_open_descriptor(
    files: Files, at_once: bool, caplog: Any
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with served(files) as port:
        for _ in range(5):
            async with connected(port, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n") as (reader, writer):
                if not at_once:
                    await reader.readuntil(b"<<<")
                    await asyncio.sleep(0.05)
                writer.transport.abort()
        async with httpx.AsyncClient(trust_env=False) as client:
            assert len((await client.get(f"http://127.0.0.1:{port}/")).content) == SIZE + 6
        await asyncio.wait_for(files.idle.wait(), 10)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_the_remaining_parts_are_skipped_after_the_client_has_left() -> None:
    asked = 0

    async def files() -> AsyncIterator[StreamExtent]:
        nonlocal asked
        while asked < 20_000:
            asked += 1
            yield StreamExtent(os.open("/dev/zero", os.O_RDONLY), 0, 100_000, 0, 1)

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        await ExtentsResponse(files())(scope, receive, send)

    before = len(os.listdir("/proc/self/fd"))
    async with served(application) as port:
        async with connected(port, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n") as (reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(3_000_000)
            writer.transport.abort()
            seen = asked
        await asyncio.sleep(0.3)
        assert seen > 30
        assert asked - seen < 100, "a connection holds some"
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_an_answer_is_not_ended_as_if_it_were_whole_when_its_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections: list[asyncio.Transport] = []

    made = ZeroCopyProtocol.connection_made

    def watched(protocol: ZeroCopyProtocol, transport: asyncio.Transport) -> None:
        connections.append(transport)
        transport.set_write_buffer_limits(2 * SIZE)
        made(protocol, transport)

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(SIZE), "more_body": True})
        connections[0].close()  # there is something left to be sent
        fd = os.open("/dev/zero", os.O_RDONLY)
        await send({"type": EXTENSION, "file": fd, "offset": 0, "count": 5, "more_body": True})
        os.close(fd)
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(ZeroCopyProtocol, "connection_made", watched)
    request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
    async with served(application) as port, connected(port, request) as (reader, _):
        await asyncio.sleep(0.1)
        data = await reader.read(-1)
    assert len(data) > SIZE
    assert not data.endswith(b"0\r\n\r\n")


async def test_a_file_is_sent_even_without_a_spare_descriptor(files: Files) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def take_all() -> None:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        held.extend(iter(lambda: _descriptor(highest), None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))

    def _descriptor(highest: int) -> int | None:
        """Return a free descriptor below `highest`, or None."""
        fd = os.open("/dev/null", os.O_RDONLY)
        if fd < highest:
            return fd
        os.close(fd)
        return None

    held: list[int] = []
    files.before = take_all
    files.sized = True
    request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
    try:
        async with served(files) as port, connected(port, request) as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            data = await reader.readexactly(SIZE + 6)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) != limits
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert data == b"<<<" + CONTENT + b">>>"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in held:
            os.close(fd)


async def test_a_client_that_reads_nothing_for_too_long_is_closed(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(zero_copy, "STALLED_SECONDS", 0.3)
    async with served(files) as port, connected(port, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n") as (reader, _):
        await reader.readuntil(b"<<<")
        assert files.open == 1
        await asyncio.wait_for(files.idle.wait(), 10)
        assert len(await reader.read(-1)) < SIZE
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("sized", [False, True])
async def test_an_answer_breaks_off_where_its_file_ends_too_soon(files: Files, sized: bool) -> None:
    files.sized = sized
    files.excess = 1
    async with served(files) as port, httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.RemoteProtocolError, match="closed connection without"):
            await client.get(f"http://127.0.0.1:{port}/")
    assert files.open == 0


async def test_a_stopping_server_does_not_wait_for_slow_readers(files: Files) -> None:
    server = AdminServer(files)
    port = (await server.listen("127.0.0.1", 0))[1]
    async with connected(port, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n") as (reader, _):
        await reader.readuntil(b"<<<")
        assert files.open == 1
        await server.stop()
        assert files.open == 0
