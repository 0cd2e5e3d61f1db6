"""Lines: the ways of bytes between a client of the forwarding and a broker, with or without a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.forwarding.uri import Uri


class Peer(Protocol):
    """The user of a line, whose methods the line calls, never from inside a method of the line."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities of the client, for a broker that requires no handshake."""

    def on_connected(self) -> None:
        """Note that bytes can be written."""

    def on_bytes(self, data: bytes) -> None:
        """Take bytes from the other side."""

    def on_writable(self, writable: bool) -> None:
        """Note that the other side reads more slowly than this side writes, or has caught up."""

    def on_lost(self, reason: str) -> None:
        """Note that the line has ended, or could not be made. No call follows."""


class Line(Protocol):
    """A line to a broker, made by a Dialer."""

    def write(self, data: bytes) -> None:
        """Write bytes; ignored after the end of the line."""

    def hold(self) -> None:
        """Pass no more bytes to the peer until `release`."""

    def release(self) -> None:
        """Pass bytes to the peer again."""

    def close(self) -> None:
        """End the line after all written bytes have been sent. The peer gets no more calls."""

    def abort(self) -> None:
        """End the line now. The peer gets no more calls. Ignored after the end of the line."""

    @property
    def frame_max(self) -> int:
        """The largest frame of a broker that requires no handshake; 0: the broker requires one."""


class Dialer(Protocol):
    """The maker of lines."""

    def dial(self, uri: Uri, peer: Peer, name: str) -> Line:
        """Begin to make a line to the broker at an address.

        `name`: the user of the line, for operators. The line calls `on_connected` or `on_lost` of the peer
        later.
        """

    def make_nonce(self) -> str:
        """Return printable ASCII without commas, which cannot be guessed, for a log-in."""

    def compute(self, work: Callable[[], bytes], done: Callable[[bytes], None]) -> None:
        """Do `work`, which takes long and raises nothing, beside the event loop; `done` gets the result."""
