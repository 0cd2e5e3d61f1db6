"""A message too large to be kept whole: what is in front of its body, and the rest piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.ingest import Arrival, check_front
from broker.core.message import Body, piece_of
from protocol.amqp10.bodies import BodyScan
from protocol.amqp10.headers import Header
from protocol.amqp10.sections import scan_front

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

PIECE_BYTES: Final = 524288


@final
class LargeArrival:
    """One that is under way. What of it is durable goes to the disk as it comes, whatever its route.

    All of its sections together make it large: its body may be as short as that of any other. What is counted
    as its size is all that is kept in pieces, its footer too.

    Pieces that no message comes to have, or that no queue takes, are let go of with the body.
    """

    def __init__(self, connection: Connection10, start: bytes, header: Header) -> None:
        """`start` holds all that is in front of the body. Raises DecodeError and PeerError."""
        layout = scan_front(start)
        front = check_front(start, layout, header)
        self.arrival = Arrival(start[:front], layout, header)
        self._body: Body = connection.server.store.new_body()
        self._connection = connection
        self._scan = BodyScan()
        self._parts: list[bytes] = []
        self._gathered: i64 = 0
        self._kept_bytes: i64 = 0
        self.feed(start[front:])

    def feed(self, part: bytes) -> None:
        """More of it. Raises DecodeError."""
        self._scan.feed(part)
        self._parts.append(part)
        self._gathered += len(part)
        if self._gathered >= PIECE_BYTES:
            self._keep()

    def end(self) -> Arrival:
        """That was all. Raises DecodeError."""
        self._scan.end()
        if self._parts:
            self._keep()
        arrival = self.arrival
        arrival.size = self._kept_bytes
        arrival.body = self._body
        return arrival

    def _keep(self) -> None:
        data = b"".join(self._parts)
        self._parts = []
        self._gathered = 0
        self._kept_bytes += len(data)
        piece = piece_of(self._body, data, len(data))
        if self.arrival.durable:
            self._connection.server.store.append_piece(piece)
