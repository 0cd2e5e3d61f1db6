"""A delivery of several transfers, as far as it has come. [amqp-1.0 2.6.14]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.ingest import Arrival, arrival
from broker.adapters.amqp10.large import LargeArrival
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp10.conditions import TRANSFER_LIMIT_EXCEEDED, PeerError
from protocol.amqp10.headers import Header

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

TRANSFERS_MAX: Final = 100_000  # of one delivery


@final
class Assembly:
    """That of one link. `transfers`: how many there have been of the delivery that is under way."""

    def __init__(self, connection: Connection10, header: Header) -> None:
        self.transfers: i64 = 0
        self._connection = connection
        self._header = header
        self._parts: list[bytes] = []
        self._large: LargeArrival | None = None

    def add(self, payload: bytes, size: i64) -> None:
        """One more, with which there are `size` bytes. Raises PeerError."""
        self.transfers += 1
        if self.transfers > TRANSFERS_MAX:
            raise PeerError(TRANSFER_LIMIT_EXCEEDED, f"a delivery of more than {TRANSFERS_MAX} transfers")
        if self._large is not None:
            self._large.feed(payload)
            return
        self._parts.append(payload)
        if size > WHOLE_BYTES_MAX:
            parts, self._parts = self._parts, []
            self._large = LargeArrival(self._connection, b"".join(parts), self._header)

    def whole(self, message_format: i64) -> Arrival:
        """The message, all of which has come. Raises PeerError."""
        large = self._large
        if large is not None:
            return large.end()
        return arrival(b"".join(self._parts), self._header, message_format)

    def clear(self) -> None:
        """Nothing is under way."""
        self.transfers = 0
        self._parts = []
        self._large = None
