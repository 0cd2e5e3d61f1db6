"""The HTTP server inside a running loop: ports, signals, stopping."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest
import uvloop

from broker.admin.server import ACCEPTED_AT_ONCE, AdminError, AdminServer
from tests.support.daemon.daemon import PATIENCE_S

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    """An application that says hello."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def get(host: str, port: int) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"http://{host}:{port}/")).text


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_serves_on_a_port_that_the_system_chose_and_stops() -> None:
    server = AdminServer(hello)
    port = (await server.listen("127.0.0.1", 0))[1]
    assert port > 0
    assert await get("127.0.0.1", port) == "hello"
    await server.stop()
    with pytest.raises(httpx.ConnectError):
        await get("127.0.0.1", port)
    await server.stop()  # once more does no harm


async def test_a_connection_that_comes_while_the_server_stops_is_closed() -> None:
    """The loop may have accepted it before the server stopped to listen."""
    asked: list[Message] = []

    async def note(scope: Message, receive: Receive, send: Send) -> None:
        asked.append(scope)

    server = AdminServer(note)
    await server.listen("127.0.0.1", 0)
    _, front = server.connection()
    await server.stop()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        theirs.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: front, sock=ours)
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):  # the sent bytes have not been read
                assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
    assert asked == []


async def test_a_connection_that_comes_after_the_stop_starts_no_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = AdminServer(hello)
    await server.listen("127.0.0.1", 0)
    await server.stop()
    ticks: list[None] = []
    monkeypatch.setattr(server, "_tick", lambda: ticks.append(None))
    server.connection()
    assert ticks == []


async def test_stop_without_start() -> None:
    await AdminServer(hello).stop()


async def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AdminError) as caught:
            await AdminServer(hello).listen("127.0.0.1", port)
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port} for admin HTTP: Address already in use; "
        "set --admin HOST:PORT or --admin off"
    )


async def test_listening_on_a_foreign_address_raises_an_error() -> None:
    with pytest.raises(AdminError, match=r"cannot listen on 192\.0\.2\.1:1 for admin HTTP: Cannot assign"):
        await AdminServer(hello).listen("192.0.2.1", 1)


async def test_a_host_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(AdminError, match=r"cannot listen on no\.such\.host:1 .*: Name or service not known"):
        await AdminServer(hello).listen("no.such.host", 1)


async def test_every_address_of_a_name_gets_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(*args: object, **kwargs: object) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),  # not here, as ::1 without IPv6
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
    server = AdminServer(hello)
    port = (await server.listen("a.name", 0))[1]
    assert await get("127.0.0.1", port) == await get("127.0.0.2", port) == "hello"
    await server.stop()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6() -> None:
    server = AdminServer(hello)
    port = (await server.listen("::1", 0))[1]
    assert await get("[::1]", port) == "hello"
    with pytest.raises(AdminError, match=rf"cannot listen on \[::1\]:{port} "):
        await AdminServer(hello).listen("::1", port)
    await server.stop()


async def test_signals_stay_with_the_daemon() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = AdminServer(hello)
    await server.listen("127.0.0.1", 0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    await server.stop()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_request_in_flight_does_not_hold_up_the_stop() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def stuck(scope: Message, receive: Receive, send: Send) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    server = AdminServer(stuck)
    _reader, writer = await asyncio.open_connection("127.0.0.1", (await server.listen("127.0.0.1", 0))[1])
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await entered.wait()
    await asyncio.wait_for(server.stop(), 30)
    assert ended.is_set()
    writer.close()


async def test_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = AdminServer(hello)
    await get("127.0.0.1", (await server.listen("127.0.0.1", 0))[1])
    await server.stop()
    assert not [record for record in caplog.records if record.name == "uvicorn.access"]


def test_many_connections_are_accepted_in_one_turn_of_the_loop() -> None:
    async def serve() -> int:
        server = AdminServer(hello)
        address = await server.listen("127.0.0.1", 0)
        clients = [socket.create_connection(address) for _ in range(8 * ACCEPTED_AT_ONCE)]
        turns = 0
        while len(server._state.connections) < len(clients):
            await asyncio.sleep(0)
            turns += 1
        for client in clients:
            client.close()
        await server.stop()
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(serve()) <= 4 * ACCEPTED_AT_ONCE
