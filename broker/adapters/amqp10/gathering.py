"""Small messages to nodes of the broker's own, out of the transfers that bring them. [amqp-1.0 2.6.14]"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from protocol.amqp10.conditions import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.windows import LinkCredit


@final
class Gathering:
    """The delivery that is under way on one link. `delivery_id` and `settled` are those of the latest."""

    def __init__(self, credit: LinkCredit, bytes_max: i64) -> None:
        self.delivery_id: i64 = NONE
        self.settled = False
        self._credit = credit
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._under_way = False

    def take(self, transfer: Transfer, data: bytes, end: i64) -> bytes | None:
        """The message, if this transfer was the last of it. Raises PeerError."""
        if not self._under_way:
            if transfer.delivery_id == NONE:
                raise PeerError(INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
            self._credit.use()
            self._under_way = True
            self.delivery_id = transfer.delivery_id
            self.settled = False
        self.settled = self.settled or transfer.settled
        if transfer.aborted:
            self.forget()
            return None
        self._size += end - transfer.payload
        if self._size > self._bytes_max:
            text = f"a message of more than {self._bytes_max} bytes, which is the link's max-message-size"
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        self._parts.append(data[transfer.payload : end])
        if transfer.more:
            return None
        message = b"".join(self._parts)
        self.forget()
        return message

    def forget(self) -> None:
        """Nothing is under way."""
        self._parts = []
        self._size = 0
        self._under_way = False
