"""Invalid input: the right reply code, a line in the log, and no effect on other clients."""

import struct
from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from tests.conformance.conftest import Bystander, logged
from tests.support.amqp091.frames import (
    BODY,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    frame_bytes,
    header_bytes,
    method_bytes,
)
from tests.support.amqp091.peer import Connector, Dialler, Peer, PeerChannel
from tests.support.daemon.daemon import Daemon

TLS_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(64))


@pytest.mark.spec("amqp-0-9-1", "4.2.2")
@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x00\x00\x08\x00",
        b"AMQP\x00\x00\x09\x02",
        b"GET / HTTP/1.1\r\n\r\n",
        b"XMQP\x00\x00\x09\x01",
    ],
    ids=["0-10", "0-8", "0-9-2", "http", "no-amqp"],
)
def test_a_wrong_protocol_header_is_answered_with_the_supported_header(
    dial: Dialler, own: Daemon | None, bystander: Bystander, header: bytes
) -> None:
    peer = dial()
    peer.send(header)
    assert peer.expect_end() == PROTOCOL_HEADER
    logged(own, peer, "header")


@pytest.mark.spec("amqp-0-9-1", "4.2.2")
@pytest.mark.parametrize("first", [TLS_CLIENT_HELLO, bytes(64), b"\xff" * 8], ids=["tls", "zeros", "ones"])
def test_bytes_that_are_no_header_at_all(
    dial: Dialler, own: Daemon | None, bystander: Bystander, first: bytes
) -> None:
    peer = dial()
    peer.send(first)
    assert peer.expect_end() in (b"", PROTOCOL_HEADER)
    logged(own, peer, "header|tls")


def header_of(kind: int, channel: int, size: int) -> bytes:
    """Type, channel and size of a frame that never comes."""
    return struct.pack(">BHI", kind, channel, size)


def oversized(peer: Peer) -> None:
    peer.send(header_of(BODY, 1, peer.frame_max + 1))


def oversized_far(peer: Peer) -> None:
    peer.send(header_of(METHOD, 1, 0xFFFFFFFF))


def oversized_complete(peer: Peer) -> None:
    peer.send(frame_bytes(BODY, 1, bytes(peer.frame_max + 100)))


def wrong_end(peer: Peer) -> None:
    peer.send(frame_bytes(METHOD, 1, method_bytes(Channel.Flow(True), 1)[7:-1], end=0xCD))


def wrong_end_of_body(peer: Peer) -> None:
    peer.send(
        method_bytes(Basic.Publish(routing_key="nowhere"), 1)
        + header_bytes(4, None, 1)
        + frame_bytes(BODY, 1, b"four", end=0)
    )


def body_without_method(peer: Peer) -> None:
    peer.send(frame_bytes(BODY, 1, b"body"))


def header_without_method(peer: Peer) -> None:
    peer.send(header_bytes(0, None, 1))


def body_instead_of_header(peer: Peer) -> None:
    peer.send(method_bytes(Basic.Publish(routing_key="nowhere"), 1) + frame_bytes(BODY, 1, b"body"))


def method_instead_of_header(peer: Peer) -> None:
    peer.write(Basic.Publish(routing_key="nowhere"), 1)
    peer.write(Queue.Declare(), 1)


def method_instead_of_body(peer: Peer) -> None:
    peer.send(method_bytes(Basic.Publish(routing_key="nowhere"), 1) + header_bytes(10, None, 1))
    peer.write(Queue.Declare(), 1)


def weighty(body: bytes) -> bytes:
    """A content header whose weight is not 0."""
    header = header_bytes(len(body), None, 1)
    return header[:9] + b"\0\1" + header[11:]


def header_with_a_weight(peer: Peer) -> None:
    peer.write(Basic.Publish(routing_key="nowhere"), 1)
    peer.send(weighty(b"body"))


def whole_with_a_weight(peer: Peer) -> None:
    whole = weighty(b"body") + frame_bytes(BODY, 1, b"body")
    peer.send(method_bytes(Basic.Publish(routing_key="nowhere"), 1) + whole)


def channel_never_opened(peer: Peer) -> None:
    peer.write(Queue.Declare(), 7)


def channel_opened_twice(peer: Peer) -> None:
    peer.write(Channel.Open(), 1)


def channel_closed_before(peer: Peer) -> None:
    peer.write(Channel.Close(200, "", 0, 0), 1)
    peer.expect(Channel.CloseOk, 1)
    peer.write(Queue.Declare(), 1)


def consumer_tag_twice(peer: Peer) -> None:
    channel = PeerChannel(peer, 1)
    channel.consume(channel.declare(exclusive=True), tag="twice")
    channel.write(Basic.Consume(consumer_tag="twice"))


NO_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
REUSE = "NOT_ALLOWED - attempt to reuse consumer tag 'twice'"
MISDEEDS: list[tuple[int, str, str, Callable[[Peer], None]]] = [
    (501, "4.2.3", "FRAME_ERROR", oversized),
    (501, "4.2.3", "FRAME_ERROR", oversized_far),
    (501, "4.2.3", "FRAME_ERROR", oversized_complete),
    (501, "4.2.3", "FRAME_ERROR", wrong_end),
    (501, "4.2.3", "FRAME_ERROR", wrong_end_of_body),
    (
        505,
        "4.2.6",
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
        body_without_method,
    ),
    (
        505,
        "4.2.6",
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
        header_without_method,
    ),
    (505, "4.2.6", "UNEXPECTED_FRAME", body_instead_of_header),
    (505, "4.2.6", "UNEXPECTED_FRAME", method_instead_of_header),
    (505, "4.2.6", "UNEXPECTED_FRAME", method_instead_of_body),
    (505, "4.2.6.1", "UNEXPECTED_FRAME - content header of weight 1, expected 0", header_with_a_weight),
    (
        505,
        "4.2.6.1",
        "UNEXPECTED_FRAME - content header of weight 1, expected 0",
        whole_with_a_weight,
    ),
    (504, "4.3", "CHANNEL_ERROR - expected 'channel.open'", channel_never_opened),
    (504, "4.3", "CHANNEL_ERROR - expected 'channel.open'", channel_closed_before),
    (504, "channel.open", "CHANNEL_ERROR - second 'channel.open' seen", channel_opened_twice),
    (
        530,
        "basic.consume#consumer-tag",
        "NOT_ALLOWED - attempt to reuse consumer tag 'twice'",
        consumer_tag_twice,
    ),
]


@pytest.mark.spec("amqp-0-9-1", "4.8.1")
@pytest.mark.parametrize(
    ("code", "clause", "text", "misdeed"), MISDEEDS, ids=[misdeed.__name__ for *_, misdeed in MISDEEDS]
)
def test_a_misdeed_closes_the_connection_with_its_code(
    connect: Connector,
    own: Daemon | None,
    bystander: Bystander,
    code: int,
    clause: str,
    text: str,
    misdeed: Callable[[Peer], None],
) -> None:
    peer = connect()
    peer.channel()
    misdeed(peer)
    assert peer.expect_close(code).startswith(text), f"[{clause}]"
    logged(own, peer, rf"\b{code}\b")


@pytest.mark.amqpd_only("RabbitMQ takes such a header, and sends it to consumers that do not")
@pytest.mark.spec("amqp-0-9-1", "4.2.3")
@pytest.mark.parametrize("whole", [False, True])
def test_a_content_header_beyond_frame_max_with_its_overhead_closes_the_connection(
    connect: Connector, bystander: Bystander, whole: bool
) -> None:
    peer = connect()
    peer.channel()
    header = header_of(HEADER, 1, peer.frame_max - 7) + (bytes(peer.frame_max - 7) + b"\xce") * whole
    peer.send(method_bytes(Basic.Publish(routing_key="nowhere"), 1) + header)
    assert peer.expect_close(501).startswith("FRAME_ERROR - frame of 131073 bytes")


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "4.2.4")
@pytest.mark.parametrize(
    ("class_id", "method_id"),
    [(99, 10), (0, 0), (65535, 65535), (60, 222), (10, 99), (85, 12)],
)
@pytest.mark.parametrize("number", [0, 1])
def test_an_unknown_class_or_method(
    connect: Connector,
    own: Daemon | None,
    bystander: Bystander,
    class_id: int,
    method_id: int,
    number: int,
) -> None:
    peer = connect()
    peer.channel()
    peer.send(frame_bytes(METHOD, number, struct.pack(">HH", class_id, method_id)))
    text = f"COMMAND_INVALID - unknown method {method_id} of class {class_id}"
    assert peer.expect_close(503) == text
    logged(own, peer, r"\b503\b")


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "4.2.4")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x32",
        struct.pack(">HHHB", 50, 10, 0, 200) + b"short",
        struct.pack(">HHHB", 50, 10, 0, 1) + b"q\x00" + struct.pack(">I", 1000) + b"\x01xt\x01",
        struct.pack(">HHHB", 50, 10, 0, 1) + b"q\x00" + struct.pack(">I", 4) + b"\x01x?\x01",
        struct.pack(">HHHB", 50, 10, 0, 3) + b"\xff\xfe\xfd\x00" + struct.pack(">I", 0),
        struct.pack(">HHHBB", 60, 40, 0, 0, 9) + b"cut",
    ],
    ids=["empty", "half", "short-string", "table-size", "field-type", "not-utf-8", "publish-cut"],
)
def test_a_method_that_cannot_be_decoded_is_a_syntax_error(
    connect: Connector, own: Daemon | None, bystander: Bystander, payload: bytes
) -> None:
    peer = connect()
    peer.channel()
    peer.send(frame_bytes(METHOD, 1, payload) + method_bytes(Channel.Flow(True), 1))
    frame = peer.expect(Connection.Close)
    assert frame.reply_code in (501, 502, 505), frame.reply_text
    peer.write(Connection.CloseOk())
    peer.expect_end()
    logged(own, peer, rf"\b{frame.reply_code}\b")


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "4.2.6.1")
@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x3c", struct.pack(">HHQ", 60, 0, 1), struct.pack(">HHQH", 61, 0, 0, 0)],
    ids=["empty", "half", "no-flags", "other-class"],
)
def test_a_content_header_that_cannot_be_decoded(
    connect: Connector, own: Daemon | None, bystander: Bystander, payload: bytes
) -> None:
    peer = connect()
    peer.channel()
    peer.send(method_bytes(Basic.Publish(routing_key="nowhere"), 1) + frame_bytes(HEADER, 1, payload))
    frame = peer.expect(Connection.Close)
    assert frame.reply_code in (501, 502, 505), frame.reply_text
    peer.write(Connection.CloseOk())
    peer.expect_end()
    logged(own, peer, rf"\b{frame.reply_code}\b")


@pytest.mark.amqpd_only("RabbitMQ takes a body that is longer than it should be")
@pytest.mark.spec("amqp-0-9-1", "4.2.6.2")
def test_more_body_than_the_header_announced(
    connect: Connector, own: Daemon | None, bystander: Bystander
) -> None:
    peer = connect()
    peer.channel()
    peer.send(
        method_bytes(Basic.Publish(routing_key="nowhere"), 1)
        + header_bytes(4, None, 1)
        + frame_bytes(BODY, 1, b"five!")
    )
    frame = peer.expect(Connection.Close)
    assert frame.reply_code in (501, 505), frame.reply_text
    peer.write(Connection.CloseOk())
    peer.expect_end()
    logged(own, peer, rf"\b{frame.reply_code}\b")


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "4.2.3")
@pytest.mark.parametrize("kind", [0, 4, 9, 255])
def test_unknown_frame_types(connect: Connector, own: Daemon | None, bystander: Bystander, kind: int) -> None:
    peer = connect()
    peer.channel()
    peer.send(frame_bytes(kind, 1, b"what"))
    assert peer.expect_close(501).startswith("FRAME_ERROR")
    logged(own, peer, r"\b501\b")


@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_frames_behind_a_connection_error_are_ignored(
    connect: Connector, bystander: Bystander, name: str
) -> None:
    watcher = connect().channel()
    watcher.declare(name, auto_delete=True)
    peer = connect()
    offender = peer.channel()
    peer.send(frame_bytes(BODY, 1, b"") + offender.encode_publish(b"too late", name))
    peer.expect_close(505)
    assert watcher.counts(name) == (0, 0)
    watcher.call(Queue.Delete(queue=name), Queue.DeleteOk)
