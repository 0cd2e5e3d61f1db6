"""An AMQP 1.0 client that does nothing by itself: a test requests every frame that the client sends."""

import socket
from collections.abc import Callable
from typing import Final, TypeVar

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.frames import AMQP_FRAME, FRAME_HEADER_BYTES, SASL_FRAME, frame
from protocol.amqp10.performatives import Close, Open, SaslInit, SaslMechanisms, SaslOutcome
from protocol.amqp10.types import Composite
from tests.support.daemon.daemon import PATIENCE_S, Address

SASL: Final = b"AMQP\x03\x01\x00\x00"
AMQP: Final = b"AMQP\x00\x01\x00\x00"

C = TypeVar("C", bound=Composite)


class Peer10:
    """A client connection to a broker."""

    def __init__(self, address: Address, patience: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    # --- sending

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def write(self, performative: Composite, channel: int = 0, payload: bytes = b"") -> None:
        """Send a single frame."""
        self.send(amqp(performative, channel, payload))

    # --- receiving

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError(f"the broker has hung up; {bytes(self._buffer).hex()} was left")
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def raw_frame(self) -> tuple[int, int, bytes]:
        """Type, channel and body of the next frame, also if it is empty."""
        head = self.take(FRAME_HEADER_BYTES)
        size, offset = int.from_bytes(head[:4], "big"), head[4] * 4
        assert offset >= FRAME_HEADER_BYTES
        body = self.take(size - FRAME_HEADER_BYTES)[offset - FRAME_HEADER_BYTES :]
        return head[5], int.from_bytes(head[6:], "big"), body

    def expect(self, kind: type[C], channel: int = 0, frame_kind: int = AMQP_FRAME) -> C:
        """The performative of the next frame that is not empty, which is of this kind."""
        while True:
            found, on, body = self.raw_frame()
            if body:
                break
        performative, _ = decode_composite(body)
        assert isinstance(performative, kind), performative
        assert (found, on) == (frame_kind, channel)
        return performative

    def expect_end(self) -> None:
        """The broker hangs up, and says nothing more."""
        data = bytes(self._buffer) + self.socket.recv(65536)
        assert data == b"", data.hex()

    def expect_close(self, condition: str, words: str = "") -> Close:
        """The broker closes the connection; answers that, and sees it hang up."""
        close = self.expect(Close)
        assert close.error is not None
        assert close.error.condition == condition, close
        assert words in (close.error.description or ""), close
        self.write(Close())
        self.expect_end()
        return close

    # --- steps that most tests take

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        """Go through the layer of SASL with PLAIN."""
        self.send(SASL)
        assert self.take(8) == SASL
        assert "PLAIN" in self.expect(SaslMechanisms, frame_kind=SASL_FRAME).sasl_server_mechanisms
        self.send(sasl(SaslInit(mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode())))
        assert self.expect(SaslOutcome, frame_kind=SASL_FRAME).code == 0
        self.send(AMQP)
        assert self.take(8) == AMQP

    def open(self, **fields: object) -> Open:
        """Log in and open the connection; returns the broker's open."""
        self.log_in()
        self.write(Open(**{"container_id": "test", **fields}))  # type: ignore[arg-type]
        return self.expect(Open)


def amqp(performative: Composite, channel: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame of AMQP."""
    return frame(channel, encode_composite(performative) + payload)


def sasl(performative: Composite) -> bytes:
    """Return a frame of SASL."""
    return frame(0, encode_composite(performative), SASL_FRAME)


Meet = Callable[..., Peer10]
"""Connects a peer, to the broker of the test if no address is given."""
