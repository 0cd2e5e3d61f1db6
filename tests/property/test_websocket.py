"""Whatever is sent through a WebSocket, and however it is cut, comes out of it as it went in."""

from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, Ping, Request

from protocol.websocket import WebSocketWire

CUTS = st.lists(st.integers(1, 200_000), min_size=1)


def opened() -> tuple[WebSocketWire, WSConnection]:
    """Both ends after the handshake."""
    wire, client = WebSocketWire(), WSConnection(ConnectionType.CLIENT)
    wire.feed(client.send(Request(host="h", target="/", subprotocols=["amqp"])))
    client.receive_data(wire.answer())
    list(client.events())
    return wire, client


@given(
    st.lists(st.tuples(st.binary(max_size=300) | st.integers(0, 70_000).map(bytes), st.booleans())),
    CUTS,
    st.integers(1, 5),
)
def test_received_frames(frames: list[tuple[bytes, bool]], cuts: list[int], at_once: int) -> None:
    wire, client = opened()
    sent = b"".join(
        client.send(BytesMessage(data, message_finished=last)) + client.send(Ping(b""))
        for data, last in frames
    )
    read, turn = [], 0
    while sent:
        cut = cuts[turn % len(cuts)]
        wire.feed(sent[:cut])
        sent = sent[cut:]
        turn += 1
        while wire.has_unread:
            read.append(wire.read(at_once))
    assert b"".join(read) == b"".join(data for data, _ in frames)
    assert not wire.refusal
    assert wire.open


@given(st.binary(max_size=400), CUTS)
def test_garbage_ends_the_wire_or_has_no_effect_yet(garbage: bytes, cuts: list[int]) -> None:
    """No exception is raised, and an ended wire has no more output."""
    for wire in (WebSocketWire(), opened()[0]):
        rest, turn = garbage, 0
        while rest:
            wire.feed(rest[: cuts[turn % len(cuts)]])
            rest = rest[cuts[turn % len(cuts)] :]
            turn += 1
            while wire.has_unread:
                wire.read(3)
            wire.pong()
        assert bool(wire.answer()) >= bool(wire.refusal)
        if wire.ended:
            assert not wire.open
            assert (wire.answer(), wire.read(9), wire.close()) == (b"", b"", b"")


HEADERS = (
    b"Host: h",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Extensions: x",
    b"Sec-WebSocket-Protocol: amqp,",
)


@given(st.integers(0, len(HEADERS) - 1), st.binary(max_size=60), st.booleans(), st.booleans())
def test_odd_requests_are_answered(which: int, odd: bytes, added: bool, twice: bool) -> None:
    lines = list(HEADERS)
    name, _, value = lines[which].partition(b": ")
    lines[which] = name + b": " + (value if added else b"") + odd.replace(b"\n", b"")
    if twice:
        lines.append(HEADERS[which])
    wire = WebSocketWire()
    wire.feed(b"GET / HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n")
    assert wire.answer().startswith((b"HTTP/1.1 101 ", b"HTTP/1.1 400 ", b"HTTP/1.1 426 "))
    assert wire.ended is not wire.open
