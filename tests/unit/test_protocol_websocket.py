"""WebSockets without sockets: frames in and out, and what is refused."""

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
        """Send all in one piece; returns the payload that the broker reads."""
        self.wire.feed(b"".join(self.library.send(event) for event in events))
        return self.wire.read(PLENTY)

    def heard(self) -> list[Event]:
        """What the broker answers."""
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
    assert client.wire.behind
    assert client.wire.read(2) == b"01"
    assert client.wire.behind
    assert client.wire.read(2) == b"23"
    assert client.wire.behind
    assert client.wire.read(2) == b"4"
    assert not client.wire.behind


def test_the_latest_of_many_pings_is_answered(client: Client) -> None:
    client.send(*[Ping(b"%d" % n) for n in range(9)])
    assert client.heard() == [Pong(b"8")]
    assert client.heard() == []


@pytest.mark.parametrize("size", [0, 1, 125, 126, MESSAGE_BYTES])
def test_what_is_sent_is_a_binary_message(client: Client, size: int) -> None:
    client.library.receive_data(client.wire.message(bytes(size)))
    (message,) = client.library.events()
    assert isinstance(message, BytesMessage)
    assert message.message_finished
    assert message.data == bytes(size)


def test_the_peer_closes(client: Client) -> None:
    assert client.send(BytesMessage(b"last words"), CloseConnection(1001, "gone")) == b"last words"
    assert client.wire.ended
    assert not client.wire.trouble
    assert client.heard() == [CloseConnection(1001, "gone")]
    assert client.wire.close() == b""
    client.wire.feed(b"anything")
    assert client.wire.read(PLENTY) == b""


@pytest.mark.parametrize("code", [None, 1000, 1012, 3000, 4999])
def test_every_code_that_a_peer_may_close_with(client: Client, code: int | None) -> None:
    said = b"" if code is None else code.to_bytes(2, "big")
    client.wire.feed(b"\x88" + bytes([0x80 + len(said)]) + bytes(4) + said)
    client.wire.read(PLENTY)
    assert (client.wire.ended, client.wire.trouble) == (True, "")
    assert client.wire.answer() == b"\x88" + bytes([len(said)]) + said


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
    assert client.wire.trouble
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
