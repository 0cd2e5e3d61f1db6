"""AMQP over WebSocket: refused clients, the reasons they get, and the ends of connections."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import httpx
import pytest
from pamqp.commands import Connection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from tests.support.amqp091.frames import PROTOCOL_HEADER, method_bytes
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.daemon.websocket_bridge import Bridger, Visit, websocket_address

pytestmark = pytest.mark.amqpd_only("RabbitMQ has it in a commercial plugin")

ON = ("--websocket-listen", "127.0.0.1:0")
KEY = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = f"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{KEY}".encode()
SHAKE = UPGRADE + b"Sec-WebSocket-Protocol: amqp\r\n\r\n"


class Knock(Protocol):
    """Opens a bare socket to where a daemon speaks WebSocket."""

    def __call__(self, daemon: Daemon) -> socket.socket: ...


@pytest.fixture
def knock() -> Iterator[Knock]:
    """Sockets that say nothing by themselves."""
    with ExitStack() as opened:

        def knock(daemon: Daemon) -> socket.socket:
            address = websocket_address(daemon)
            return opened.enter_context(socket.create_connection(address, timeout=PATIENCE_S))

        yield knock


def bytes_until_end(stranger: socket.socket) -> bytes:
    """Return all bytes until the broker closes the socket."""
    data = b""
    while piece := stranger.recv(65536):
        data += piece
    return data


def through(stranger: socket.socket) -> socket.socket:
    """A socket after the handshake of HTTP."""
    stranger.sendall(SHAKE)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += stranger.recv(1)
    assert answer.startswith(b"HTTP/1.1 101 ")
    return stranger


@pytest.mark.spec("wsb-1.0", "2.1")
@pytest.mark.parametrize("subprotocols", [["mqtt"], ["binary", "Amqp"]])
def test_a_subprotocol_that_is_not_spoken(serving: Daemon, visit: Visit, subprotocols: list[str]) -> None:
    with pytest.raises(InvalidStatus) as refused:
        visit(serving, subprotocols=subprotocols)
    assert refused.value.response.status_code == 400
    assert b"expected the subprotocol amqp; requested: " in (refused.value.response.body or b"")
    serving.log.wait_for(f"WebSocket refused .*requested: {', '.join(subprotocols)}")


def test_no_subprotocol_at_all(serving: Daemon, knock: Knock) -> None:
    stranger = knock(serving)
    stranger.sendall(UPGRADE + b"\r\n")
    answer = bytes_until_end(stranger)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"none was requested" in answer


def test_an_origin_of_another_host_is_refused_unless_it_is_permitted(
    serving: Daemon, start_daemon: DaemonStarter, visit: Visit
) -> None:
    host, port = websocket_address(serving)
    assert visit(serving, origin=f"http://{host}:{port + 1}").subprotocol == "amqp"
    foreign = "https://app.example.org"
    with pytest.raises(InvalidStatus) as refused:
        visit(serving, origin=foreign)
    assert refused.value.response.status_code == 403
    daemon = start_daemon(*ON, "--websocket-origins", foreign)
    assert visit(daemon, origin=foreign).subprotocol == "amqp"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_a_plain_http_request_is_answered_with_426(serving: Daemon, method: str) -> None:
    url = "http://{}:{}/api/overview".format(*websocket_address(serving))
    answer = httpx.request(method, url, timeout=PATIENCE_S)
    assert answer.status_code == 426
    assert answer.headers["upgrade"] == "websocket"
    if method != "HEAD":
        assert answer.text.startswith("This address is for AMQP over WebSocket: ")


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (PROTOCOL_HEADER, b"400"),
        (b"AMQP\x03\x01\x00\x00", b"400"),
        (b"\0" * 100, b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n", b"426"),
    ],
)
def test_requests_that_are_no_websocket_handshake(
    serving: Daemon, knock: Knock, start: bytes, status: bytes
) -> None:
    stranger = knock(serving)
    stranger.sendall(start)
    assert bytes_until_end(stranger).startswith(b"HTTP/1.1 " + status + b" ")
    serving.log.wait_for(f"WebSocket refused .*{stranger.getsockname()[1]}")


@pytest.mark.spec("wsb-1.0", "2.4")
def test_text_is_refused(serving: Daemon, visit: Visit) -> None:
    websocket = visit(serving)
    websocket.send("AMQP")
    with pytest.raises(ConnectionClosed) as closed:
        websocket.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
        1003,
        "text messages are not allowed: AMQP is binary",
    )


@pytest.mark.parametrize(
    ("garbage", "code"), [(b"\x82\x03abc", 1002), (b"\xf2\x80\0\0\0\0", 1002), (b"\xff" * 64, 1002)]
)
def test_invalid_websocket_frames(serving: Daemon, knock: Knock, garbage: bytes, code: int) -> None:
    stranger = through(knock(serving))
    stranger.sendall(garbage)
    answer = bytes_until_end(stranger)
    assert answer[0] == 0x88
    assert int.from_bytes(answer[2:4], "big") == code


def test_garbage_in_messages_gets_the_protocol_header_and_is_closed(serving: Daemon, visit: Visit) -> None:
    websocket = visit(serving)
    websocket.send(b"what is it")
    assert websocket.recv(PATIENCE_S) == PROTOCOL_HEADER
    with pytest.raises(ConnectionClosed) as closed:
        websocket.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


def test_pings_are_answered_before_amqp_begins_and_in_it(serving: Daemon, visit: Visit) -> None:
    websocket = visit(serving)
    assert websocket.ping(b"early").wait(PATIENCE_S)
    websocket.send(PROTOCOL_HEADER[:3])
    assert websocket.ping().wait(PATIENCE_S)
    websocket.send(PROTOCOL_HEADER[3:])
    assert websocket.ping(b"late").wait(PATIENCE_S)
    assert websocket.recv(PATIENCE_S)


def test_pings_whose_answers_nobody_reads(serving: Daemon, knock: Knock) -> None:
    """An answer to each would fill the memory; the latest is answered when there is room."""
    stranger = through(knock(serving))
    for number in range(200):
        pings = [
            Frame(Opcode.PING, b"%0120d" % (number * 100 + each)).serialize(mask=True) for each in range(100)
        ]
        stranger.sendall(b"".join(pings))
    answered = b""
    while not answered.endswith(b"%0120d" % 19_999):
        answered += stranger.recv(65536)
    assert len(answered) < 122 * 20_000 / 2


def test_the_client_closes(serving: Daemon, visit: Visit, bridge: Bridger, dial: Dialler) -> None:
    websocket = visit(serving)
    websocket.close(1001, "going")
    assert websocket.close_code == 1001
    peer = dial(bridge(serving)).open()
    known = len(serving.log.lines)
    peer.drop()
    deadline = time.monotonic() + PATIENCE_S
    while not any("connection lost" in line for line in serving.log.lines[known:]):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.spec("wsb-1.0", "4")
def test_the_end_of_amqp_closes_the_websocket(serving: Daemon, visit: Visit) -> None:
    websocket = visit(serving)
    conversation = (
        Connection.StartOk({}, "PLAIN", "\0guest\0guest"),
        Connection.TuneOk(0, 0, 0),
        Connection.Open("/"),
        Connection.Close(200, "", 0, 0),
    )
    websocket.send(PROTOCOL_HEADER + b"".join(method_bytes(method, 0) for method in conversation))
    heard = list(websocket)  # the iteration ends with a close without an error, or raises the error
    assert isinstance(heard[-1], bytes)
    assert heard[-1].endswith(method_bytes(Connection.CloseOk(), 0))
    assert websocket.close_code == 1000


@pytest.mark.parametrize("shaken", [False, True])
def test_the_handshakes_take_no_longer_than_is_allowed(
    start_daemon: DaemonStarter, knock: Knock, visit: Visit, shaken: bool
) -> None:
    daemon = start_daemon(*ON, "--handshake-timeout-s", "1")
    stranger = knock(daemon)
    if shaken:
        through(stranger)
    began = time.monotonic()
    stranger.sendall(b"G" if not shaken else b"\x82\x88\0\0\0\0AM")
    with stranger, suppress(ConnectionResetError):
        assert bytes_until_end(stranger) == b""
    assert time.monotonic() - began < 30
    daemon.log.wait_for("handshake timeout")


def test_a_websocket_that_is_not_logged_in_is_a_stranger_like_all_others(
    start_daemon: DaemonStarter, certificates: Certificates, knock: Knock, bridge: Bridger, dial: Dialler
) -> None:
    daemon = start_daemon(*ON, "--strangers-max", "2", "--handshake-timeout-s", "3600")
    known = dial(bridge(daemon)).open()
    first, second = knock(daemon), through(knock(daemon))
    third = dial(daemon.address)
    third.start()
    assert bytes_until_end(first) == b""
    daemon.log.wait_for(f"too many connections that have not logged in.*{first.getsockname()[1]}")
    fourth = dial(daemon.address)
    fourth.start()
    assert bytes_until_end(second) == b""
    known.channel()
    for peer in (known, third, fourth):
        peer.drop()


def test_many_handshakes_leave_no_open_descriptors(serving: Daemon, knock: Knock, visit: Visit) -> None:
    descriptors = Path(f"/proc/{serving.pid}/fd")
    if not descriptors.exists():
        pytest.skip("descriptors are counted in /proc")
    visit(serving).close()
    before = len(list(descriptors.iterdir()))
    for _ in range(50):
        visit(serving).close()
        knock(serving).close()
        through(knock(serving)).close()
        rude = knock(serving)
        rude.sendall(b"POST / HTTP/1.1\r\n\r\n")
        bytes_until_end(rude)
    deadline = time.monotonic() + PATIENCE_S
    while len(list(descriptors.iterdir())) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_broker_stops(
    start_daemon: DaemonStarter, knock: Knock, visit: Visit, bridge: Bridger, dial: Dialler
) -> None:
    """A logged-in client gets an AMQP close, an open WebSocket a close frame, a bare socket only its end."""
    daemon = start_daemon(*ON)
    peer = dial(bridge(daemon)).open()
    websocket, stranger = visit(daemon), knock(daemon)
    daemon.terminate()
    assert "shutting down" in peer.expect_close(320)
    with pytest.raises(ConnectionClosed) as closed:
        websocket.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert bytes_until_end(stranger) == b""
    daemon.expect_exit(0)
    assert "did not answer" not in daemon.log.text()


def test_an_address_that_is_taken(tmp_path: Path, serving: Daemon) -> None:
    taken = "{}:{}".format(*websocket_address(serving))
    daemon = Daemon(tmp_path, ("--websocket-listen", taken))
    daemon.expect_exit(1)
    expected = (
        f"cannot listen on {taken} for AMQP over WebSocket: address already in use; "
        "set --websocket-listen HOST:PORT to a free address, or stop the program that listens there"
    )
    assert expected in daemon.log.text()
