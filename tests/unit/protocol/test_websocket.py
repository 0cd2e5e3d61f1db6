"""WebSockets without sockets: the handshake, frames in both directions, and refusals."""

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from protocol.websocket import MESSAGE_BYTES, WebSocketWire

PLENTY = 1000


class Client:
    """The library's other side, and the wire that it talks to."""

    def __init__(self) -> None:
        self.wire = WebSocketWire()
        self.library = WSConnection(ConnectionType.CLIENT)

    def send(self, *events: Event) -> bytes:
        """Send all events in a single piece; return the payload that the broker reads."""
        self.wire.feed(b"".join(self.library.send(event) for event in events))
        return self.wire.read(PLENTY)

    def heard(self) -> list[Event]:
        """Return the events of the broker's answer."""
        answer = self.wire.answer() + self.wire.pong()
        if answer:
            self.library.receive_data(answer)
        return list(self.library.events())


@pytest.fixture
def client() -> Client:
    """A client that has done the handshake."""
    client = Client()
    client.send(Request(host="h", target="/", subprotocols=["amqp"]))
    accepted = client.heard()
    assert isinstance(accepted[0], AcceptConnection)
    assert client.wire.open
    return client


def test_payload_is_one_stream_however_it_is_cut(client: Client) -> None:
    sent = (
        client.library.send(BytesMessage(b"ab", message_finished=False))
        + client.library.send(Ping(b"between"))
        + client.library.send(BytesMessage(b"", message_finished=False))
        + client.library.send(BytesMessage(b"cde"))
        + client.library.send(BytesMessage(b"f"))
    )
    read = b""
    for index in range(len(sent)):
        client.wire.feed(sent[index : index + 1])
        read += client.wire.read(PLENTY)
    assert read == b"abcdef"
    assert client.heard() == [Pong(b"between")]


def test_a_frame_is_read_before_all_of_it_is_there(client: Client) -> None:
    sent = client.library.send(BytesMessage(bytes(100_000)))
    client.wire.feed(sent[:-1])
    assert len(client.wire.read(PLENTY)) == 99_999


def test_a_read_takes_so_many_frames_and_says_if_some_may_be_left(client: Client) -> None:
    client.wire.feed(b"".join(client.library.send(BytesMessage(b"%d" % n)) for n in range(5)))
    assert client.wire.has_unread
    assert client.wire.read(2) == b"01"
    assert client.wire.has_unread
    assert client.wire.read(2) == b"23"
    assert client.wire.has_unread
    assert client.wire.read(2) == b"4"
    assert not client.wire.has_unread


def test_the_latest_of_many_pings_is_answered(client: Client) -> None:
    client.send(*[Ping(b"%d" % n) for n in range(9)])
    assert client.heard() == [Pong(b"8")]
    assert client.heard() == []


@pytest.mark.parametrize("size", [0, 1, 125, 126, MESSAGE_BYTES])
def test_sent_bytes_are_a_binary_message(client: Client, size: int) -> None:
    client.library.receive_data(client.wire.message(bytes(size)))
    (message,) = client.library.events()
    assert isinstance(message, BytesMessage)
    assert message.message_finished
    assert message.data == bytes(size)


def test_the_peer_closes(client: Client) -> None:
    assert client.send(BytesMessage(b"last words"), CloseConnection(1001, "gone")) == b"last words"
    assert client.wire.ended
    assert not client.wire.refusal
    assert client.heard() == [CloseConnection(1001, "gone")]
    assert client.wire.close() == b""
    client.wire.feed(b"anything")
    assert client.wire.read(PLENTY) == b""


@pytest.mark.parametrize("code", [None, 1000, 1012, 3000, 4999])
def test_every_code_that_a_peer_may_close_with(client: Client, code: int | None) -> None:
    payload = b"" if code is None else code.to_bytes(2, "big")
    client.wire.feed(b"\x88" + bytes([0x80 + len(payload)]) + bytes(4) + payload)
    client.wire.read(PLENTY)
    assert (client.wire.ended, client.wire.refusal) == (True, "")
    assert client.wire.answer() == b"\x88" + bytes([len(payload)]) + payload


def test_the_broker_closes_and_the_peer_answers(client: Client) -> None:
    client.library.receive_data(client.wire.close())
    assert not client.wire.open
    assert client.wire.close() == b""
    (closed,) = client.library.events()
    assert isinstance(closed, CloseConnection)
    assert closed.code == 1000
    ended = client.wire.ended
    client.send(closed.response())
    assert (ended, client.wire.ended) == (False, True)
    assert client.wire.answer() == b""
    assert client.library.state is ConnectionState.CLOSED


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\x01a", 1002),  # not masked
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that there is not
        (b"\xc2\x80\0\0\0\0", 1002),  # a bit of an extension
        (b"\x80\x80\0\0\0\0", 1002),  # continues nothing
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in fragments
        (b"\x89\xfe\x00\x7e", 1002),  # a ping of 126 bytes
        (b"\x82\xff\x80\0\0\0\0\0\0\0", 1002),  # a length beyond 63 bits
        (b"\x88\x81\0\0\0\0a", 1002),  # a close with half a code
        (b"\x81\x81\0\0\0\0a", 1003),  # text
        (b"\x81\x81\0\0\0\0\xff", 1007),  # text that is none
    ],
)
def test_frames_that_are_refused(client: Client, frame: bytes, code: int) -> None:
    good = client.library.send(BytesMessage(b"before"))
    client.wire.feed(good + frame)
    assert client.wire.read(PLENTY) == b"before"
    assert client.wire.ended
    assert client.wire.refusal
    (closed,) = client.heard()
    assert isinstance(closed, CloseConnection)
    assert closed.code == code
    assert closed.reason


def test_text_while_the_broker_waits_for_the_end(client: Client) -> None:
    client.wire.close()
    client.send(TextMessage("too late"))
    assert client.wire.ended
    assert client.wire.answer() == b""


def test_a_refusal_that_the_library_understands() -> None:
    client = Client()
    client.send(Request(host="h", target="/", subprotocols=["mqtt"]))
    rejected, body, *_ = client.heard()
    assert isinstance(rejected, RejectConnection)
    assert rejected.status_code == 400
    assert isinstance(body, RejectData)


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
ACCEPTED = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # the key's, from RFC 6455 1.3


def refusal(request: bytes, wire: WebSocketWire | None = None) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """The status line, headers and body of the answer to a request that is refused."""
    wire = wire or WebSocketWire()
    wire.feed(request)
    assert wire.ended
    assert not wire.open
    assert wire.refusal
    head, _, body = wire.answer().partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines)
    assert int(headers[b"content-length"]) == len(body)
    assert body.startswith(b"This address is for AMQP over WebSocket: ")
    assert body.endswith(b"\n")
    assert b"close" in headers[b"connection"]
    return status, headers, body


@pytest.mark.parametrize("path", [b"/", b"/ws", b"/$servicebus/websocket?sb-trace=1"])
def test_the_handshake_on_any_path(path: bytes) -> None:
    wire = WebSocketWire()
    request = UPGRADE.replace(b"/ HTTP", path + b" HTTP") + b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
    for index in range(len(request)):
        assert not wire.open
        wire.feed(request[index : index + 1])
    answer = wire.answer()
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Accept: " + ACCEPTED in answer
    assert wire.open
    assert wire.answer() == b""


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("amqp", "amqp"),
        ("AMQPWSB10", "AMQPWSB10"),
        ("binary, AMQPWSB10, amqp", "amqp"),
        ("binary,AMQPWSB10", "AMQPWSB10"),
    ],
)
def test_choice_of_the_subprotocol(asked: str, chosen: str) -> None:
    wire = WebSocketWire()
    wire.feed(UPGRADE + f"Sec-WebSocket-Protocol: {asked}\r\n\r\n".encode())
    assert f"Sec-WebSocket-Protocol: {chosen}\r\n".encode() in wire.answer()


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_frames_of_a_peer_that_does_not_wait_for_the_answer(end: bytes) -> None:
    request = (UPGRADE + b"Sec-WebSocket-Protocol: amqp\r\n\r\n").replace(b"\r\n", end)
    for cut in (len(request) + 7, len(request), len(request) - 1, len(request) - 3, 1):
        sent, read = request + b"\x82\x82\0\0\0\0\n\n", b""
        wire = WebSocketWire()
        while sent:
            wire.feed(sent[:cut])
            sent = sent[cut:]
            read += wire.read(PLENTY)
        assert read == b"\n\n"
        assert wire.open


def test_compression_is_not_agreed_to() -> None:
    wire = WebSocketWire()
    wire.feed(
        UPGRADE + b"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    )
    assert b"extensions" not in wire.answer().lower()
    assert wire.open


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"", b"expected the subprotocol amqp; none was requested"),
        (b"Sec-WebSocket-Protocol: mqtt, AMQP\r\n", b"expected the subprotocol amqp; requested: mqtt, AMQP"),
        (b"Sec-WebSocket-Protocol: \xe9\r\n", b"beyond ASCII"),
    ],
)
def test_without_a_subprotocol_that_is_known(header: bytes, words: bytes) -> None:
    status, _, body = refusal(UPGRADE + header + b"\r\n")
    assert status == b"HTTP/1.1 400 Bad Request"
    assert words in body


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"Connection: Upgrade"),
        (b"GET / HTTP/1.0\r\n\r\n", b"Connection: Upgrade"),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", b"GET"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", b"GET"),
        (UPGRADE.replace(b": 13", b": 8") + b"\r\n", b"Sec-WebSocket-Version"),
        (UPGRADE.replace(b"Sec-WebSocket-Key: ", b"Other: ") + b"\r\n", b"Sec-WebSocket-Key"),
        (UPGRADE.replace(b"WebSocket\r\n", b"h2c\r\n") + b"\r\n", b"Upgrade"),
    ],
)
def test_a_request_that_does_not_ask_for_a_websocket(request_: bytes, words: bytes) -> None:
    status, headers, body = refusal(request_)
    assert status == b"HTTP/1.1 426 Upgrade Required"
    assert headers[b"upgrade"] == b"websocket"
    assert headers[b"sec-websocket-version"] == b"13"
    assert words in body


@pytest.mark.parametrize(
    "start",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x03\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x01",
        b"\0\0",
        b"say what?\r\n\r\n",
    ],
)
def test_requests_that_are_not_http(start: bytes) -> None:
    status, _, _ = refusal(start)
    assert status == b"HTTP/1.1 400 Bad Request"


def test_amqp_that_comes_byte_by_byte_is_noticed_at_its_fourth() -> None:
    wire = WebSocketWire()
    for byte in (b"A", b"M", b"Q"):
        wire.feed(byte)
        assert not wire.ended
    assert b"expected an HTTP request for a WebSocket, got AMQP or TLS" in refusal(b"P", wire)[2]


def test_a_request_without_end() -> None:
    status, _, _ = refusal(UPGRADE + b"X-Long: " + b"x" * 20_000)
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("h", "http://h"),
        ("h:15678", "https://H:3000"),
        ("127.0.0.1:1", "http://127.0.0.1"),
        ("[::1]:1", "http://[::1]:8080"),
        ("h:1", "h:1"),  # as netty says it
        ("xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("h", "https://app.example.org"),
        ("h", "HTTPS://App.example.org"),
    ],
)
def test_pages_that_are_welcome(host: str, origin: str) -> None:
    wire = WebSocketWire(("https://app.example.org",))
    request = UPGRADE.replace(b"Host: h", b"Host: " + host.encode())
    wire.feed(request + b"Origin: " + origin.encode() + b"\r\nSec-WebSocket-Protocol: amqp\r\n\r\n")
    assert wire.open, wire.refusal


FOREIGN = [
    b"http://evil.example",
    b"http://h.evil.example",
    b"http://evil.example:80/://h",
    b"https://app.example.org.evil.example",
    b"http://app.example.org",
    b"https://app.example.org:8443",
    b"null",
    b"",
    b"[::1]",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_pages_that_are_not_welcome(origin: bytes) -> None:
    request = UPGRADE + b"Origin: " + origin + b"\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    status, _, body = refusal(request, WebSocketWire(("https://app.example.org",)))
    assert status == b"HTTP/1.1 403 Forbidden"
    assert (
        b"web pages of " + origin + b" are not allowed; add the origin to the setting websocket_origins"
        in body
    )
    everybody = WebSocketWire(("any",))
    everybody.feed(request)
    assert everybody.open


def test_the_second_of_two_origins_is_foreign() -> None:
    request = UPGRADE + b"Origin: http://h\r\nOrigin: http://evil\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    assert refusal(request)[0] == b"HTTP/1.1 403 Forbidden"


def test_bytes_after_a_refusal_are_not_read() -> None:
    wire = WebSocketWire()
    refusal(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", wire)
    wire.feed(UPGRADE + b"Sec-WebSocket-Protocol: amqp\r\n\r\n")
    assert (wire.open, wire.answer(), wire.read(PLENTY), wire.pong()) == (False, b"", b"", b"")
