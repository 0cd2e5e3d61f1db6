"""HTTP connections over real sockets: invalid requests, slow clients, and connections kept open."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.admin.http import BODY_BYTES, PEER, READ_BYTES, Bounds, HttpConnection
from broker.admin.server import AdminServer
from tests.support.daemon.daemon import PATIENCE_S

BOUNDS = Bounds(header_seconds=10.0, body_seconds=30.0)

Application = Callable[[Any, Any, Any], Awaitable[None]]


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Echo:
    """An application that answers with the size of the body, when it may."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.left = 0
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.set()
        await self.may_read.wait()
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left += 1
                return
            size += len(message["body"])
            more = message["more_body"]
        self.seen.append(scope["path"])
        body = str(size).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


class Peer:
    """A client that sends given bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def status(self) -> int:
        """The status of the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def ended(self) -> bytes:
        """Return all bytes until the connection is closed."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()


class Served:
    """A server with an application and a clock."""

    def __init__(self, application: Application) -> None:
        self.clock = Clock()
        self.server = AdminServer(application, None, BOUNDS, clock=self.clock)
        self.port = 0

    @asynccontextmanager
    async def peer(self, sent: bytes = b"") -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent)
            await writer.drain()
            yield Peer(reader, writer)
        finally:
            writer.close()

    @property
    def connections(self) -> list[HttpConnection]:
        return list(self.server._state.connections)

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)

    async def heard(self) -> None:
        """Wait until the server has a connection and has read all sent bytes."""
        await self.wait(lambda: bool(self.connections))
        await asyncio.sleep(0.05)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        for connection in self.connections:
            connection.check()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def served(echo: Echo) -> AsyncIterator[Served]:
    found = Served(echo)
    _, found.port = await found.server.listen("127.0.0.1", 0)
    yield found
    await found.server.stop()


LINES = b"a\n b\r\n\tc\n\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\nHost: h\n\n", "ends with LF"),
        (b"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", "ends with LF"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "folded"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", "folded"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "not both",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            "not both",
        ),
        (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
            "Content-Length",
        ),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", "illegal"),
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", "Host"),
        (b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", "illegal request line"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "illegal request line"),
        (b"AMQP\x00\x00\x09\x01\r\n\r\n", "illegal request line"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "chunk"),
        (CHUNKED + b"0\r\nX: 1\n\r\n\r\n", "ends with LF"),
        (CHUNKED + b"3\r\nabc\r\n0\r\nX: 1\r\n 2\r\n\r\n", "folded"),
        (CHUNKED + b"3\nabc\n0\n\n", "ends with LF"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000, "too long"),
    ],
)
async def test_an_invalid_request_is_answered_with_400_and_ends_the_connection(
    served: Served, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    async with served.peer(sent) as peer:
        answer = await peer.ended()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close" in head
    document = json.loads(body)
    assert document["error"] == "bad_request"
    assert reason in document["reason"]
    assert "Traceback" not in caplog.text


async def test_a_malformed_second_request_on_a_connection_is_refused(served: Served, echo: Echo) -> None:
    async with served.peer(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\nHost: h\n\n") as peer:
        assert await peer.status() == 200
        assert b"400 Bad Request" in await peer.ended()
    assert echo.seen == ["/a"]


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n" + LINES,
        CHUNKED + b"a\r\n" + LINES + b"\r\n0\r\n\r\n",
        CHUNKED + b"4\r\n" + LINES[:4] + b"\r\n6;x=y\r\n" + LINES[4:] + b"\r\n0\r\nX: y\r\n\r\n",
    ],
)
async def test_a_body_may_have_lines_of_all_kinds(served: Served, sent: bytes) -> None:
    async with served.peer(sent + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") as peer:
        assert await peer.status() == 200
        async with asyncio.timeout(PATIENCE_S):
            assert await peer.reader.readuntil(b"200 OK")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: h\r\nX: "])
async def test_the_head_of_a_request_has_a_time_limit(served: Served, sent: bytes) -> None:
    async with served.peer(sent) as peer:
        await served.heard()
        served.pass_time(9.0)
        peer.writer.write(b"G" if not sent else b"y")  # some progress does not help
        await served.heard()
        served.pass_time(2.0)
        assert (await peer.ended()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    await served.wait(lambda: not served.connections)


async def test_the_head_of_a_further_request_has_a_time_limit(served: Served) -> None:
    async with served.peer(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") as peer:
        assert await peer.status() == 200
        served.pass_time(100.0)
        peer.writer.write(b"GET / HTTP/1.1\r\n")
        await served.heard()
        served.pass_time(9.0)
        assert served.connections
        served.pass_time(2.0)
        assert b"408 Request Timeout" in await peer.ended()


async def test_a_body_has_a_time_limit_without_progress(served: Served, echo: Echo) -> None:
    async with served.peer(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n") as peer:
        await echo.entered.wait()
        for _ in range(3):
            served.pass_time(29.0)
            peer.writer.write(b"x")
            await served.heard()
        served.pass_time(31.0)
        assert (await peer.ended()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    await served.wait(lambda: echo.left == 1)
    assert echo.seen == []


async def test_the_rest_of_an_unread_body_has_a_time_limit(served: Served) -> None:
    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    other = Served(deaf)
    _, other.port = await other.server.listen("127.0.0.1", 0)
    async with other.peer(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n") as peer:
        assert await peer.status() == 401
        for _ in range(3):
            other.pass_time(4.0)
            peer.writer.write(b"x")
            await other.heard() if other.connections else None
        await other.wait(lambda: not other.connections)
    await other.server.stop()


async def test_a_body_is_not_read_before_the_application_reads_it(served: Served, echo: Echo) -> None:
    echo.may_read.clear()
    size = 8 * 2**20
    head = f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n".encode()
    async with served.peer(head) as peer:
        peer.writer.write(bytes(size))
        await echo.entered.wait()
        (connection,) = served.connections
        await served.wait(lambda: connection.flow.read_paused)
        assert len(connection.cycle.body) + len(connection.conn.trailing_data[0]) <= BODY_BYTES + READ_BYTES
        served.pass_time(1000.0)  # the broker holds it up, not the peer
        echo.may_read.set()
        assert await peer.status() == 200
        async with asyncio.timeout(PATIENCE_S):
            assert str(size).encode() in await peer.reader.readuntil(str(size).encode())


async def test_a_client_that_reads_nothing_of_an_answer_is_closed(served: Served) -> None:
    async def flood(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not other.connections[0].cycle.disconnected:
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
            await asyncio.sleep(0)

    other = Served(flood)
    _, other.port = await other.server.listen("127.0.0.1", 0)
    async with other.peer(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"):
        await other.wait(lambda: bool(other.connections) and other.connections[0].flow.write_paused)
        await asyncio.sleep(0.2)
        other.pass_time(0.0)
        other.pass_time(29.0)
        assert other.connections
        other.pass_time(2.0)
        await other.wait(lambda: not other.connections)
    await other.server.stop()


async def test_the_application_hears_when_the_peer_leaves(served: Served) -> None:
    gone = asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][PEER].when_gone(gone.set)
        await gone.wait()

    other = Served(waiting)
    _, other.port = await other.server.listen("127.0.0.1", 0)
    async with other.peer(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"):
        await other.heard()
        assert not gone.is_set()
    async with asyncio.timeout(PATIENCE_S):
        await gone.wait()
    await other.server.stop()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nX-Large: " + b"a" * 30_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhello",
        b"no request\r\n\r\n",
    ],
)
async def test_a_closed_connection_is_freed_without_garbage_collection(served: Served, sent: bytes) -> None:
    gc.collect()
    gc.disable()
    try:
        async with served.peer(sent):
            await served.wait(lambda: bool(served.connections))
            kept = [weakref.ref(connection) for connection in served.connections]
            await served.heard()
        await served.wait(lambda: not served.connections and not any(ref() for ref in kept))
    finally:
        gc.enable()
