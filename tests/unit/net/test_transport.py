"""The time that a peer is given to close first, counted by ticks."""

import asyncio
from typing import Any, cast

from broker.net.transport import LINGER_SECONDS, TICKS_PER_SECOND, Transport
from tests.support.adapters.connection_without_socket import BrokerBench

SECONDS = 2


class Socket:
    """An asyncio.Transport that records its calls."""

    def __init__(self, half_closes: bool) -> None:
        self.half_closes = half_closes
        self.asked: list[str] = []

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > low

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name in ("peername", "sockname") else default

    def can_write_eof(self) -> bool:
        return self.half_closes

    def is_closing(self) -> bool:
        return "close" in self.asked or "abort" in self.asked

    def write_eof(self) -> None:
        self.asked.append("write_eof")

    def close(self) -> None:
        self.asked.append("close")

    def abort(self) -> None:
        self.asked.append("abort")


class Door:
    """A Watcher of a single transport."""

    def add(self, transport: Transport) -> None:
        assert transport.connection is None

    on_logged_in = remove = add


def transport_on(bench: BrokerBench, socket: Socket) -> Transport:
    event_loop: Any = None  # only reads need it
    transport = Transport(bench.server, bench.turns, event_loop, Door())
    transport.connection_made(cast("asyncio.Transport", socket))
    return transport


def wait(transport: Transport, seconds: int) -> None:
    for _ in range(seconds * TICKS_PER_SECOND):
        transport.tick()


def test_a_peer_that_must_close_first_is_aborted_after_its_time_and_linger(bench: BrokerBench) -> None:
    socket = Socket(half_closes=True)
    transport = transport_on(bench, socket)
    transport.await_hangup(SECONDS)
    wait(transport, SECONDS)
    assert socket.asked == []
    transport.tick()
    assert socket.asked == ["write_eof"]
    wait(transport, LINGER_SECONDS)
    assert socket.asked == ["write_eof"]
    transport.tick()
    assert socket.asked == ["write_eof", "abort"]


def test_where_output_cannot_end_alone_the_socket_is_closed(bench: BrokerBench) -> None:
    socket = Socket(half_closes=False)
    transport = transport_on(bench, socket)
    transport.await_hangup(SECONDS)
    wait(transport, SECONDS + LINGER_SECONDS)
    assert socket.asked == ["close"]
    wait(transport, 1)
    assert socket.asked == ["close", "abort"]


def test_a_broker_that_stops_waits_for_no_hangup(bench: BrokerBench) -> None:
    socket = Socket(half_closes=True)
    transport = transport_on(bench, socket)
    transport.await_hangup(SECONDS)
    transport.close()
    assert socket.asked == ["close"]
    wait(transport, LINGER_SECONDS)
    assert socket.asked == ["close"]
