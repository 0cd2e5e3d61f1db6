"""The windows of sessions and the credit of links, which limit transfers and deliveries.

All numbers except windows and credits are serial numbers of 32 bits that wrap. [amqp-1.0 2.5.6, 2.6.7]
"""

from typing import final

from mypy_extensions import i64

from protocol.amqp10.conditions import TRANSFER_LIMIT_EXCEEDED, WINDOW_VIOLATION, PeerError
from protocol.amqp10.serials import distance, forward


@final
class IncomingWindow:
    """The incoming-window of a session: the transfers that the peer may send.

    `next_id`: next-incoming-id, the transfer-id of the next transfer. `left`: the number of transfers that
    may come before the next flow. `size`: this number after a flow. `is_shut`: flows allow no transfers.
    `passed`: the number of transfer-ids since the beginning of the session.
    """

    def __init__(self, next_id: i64, size: i64) -> None:
        self.next_id: i64 = next_id
        self.size: i64 = size
        self.left: i64 = size
        self.is_shut = False
        self.passed: i64 = 0

    def count_transfer(self) -> bool:
        """Count a received transfer; return whether a flow is due. Raises PeerError(WINDOW_VIOLATION)."""
        if self.left <= 0:
            raise PeerError(WINDOW_VIOLATION, f"transfer {self.next_id} is beyond the session's window")
        self.next_id = forward(self.next_id, 1)
        self.passed += 1
        self.left -= 1
        return self.left <= self.size // 2 and not self.is_shut

    def follow(self, next_outgoing_id: i64) -> None:
        """Take the next-outgoing-id in a flow of the peer, which may have skipped transfers.

        The id may also be the id of a transfer that has arrived. RabbitMQ's Python client 2.0 counts
        deliveries instead of all their transfers. Threads of this client also send flows that were made
        before the transfers that precede them. Only an id before the session's first id is refused. Raises
        PeerError(WINDOW_VIOLATION).
        """
        ahead = distance(self.next_id, next_outgoing_id)
        if ahead + self.passed < 0:
            text = f"next-outgoing-id is {next_outgoing_id}, and the next transfer is {self.next_id}"
            raise PeerError(WINDOW_VIOLATION, text)
        if ahead > 0:
            self.next_id = next_outgoing_id
            self.passed += ahead

    def open(self) -> i64:
        """Open the window for a flow, and return its size, 0 if the window is shut.

        While the window is shut, transfers that the earlier window allowed are still accepted.
        """
        if self.is_shut:
            return 0
        self.left = self.size
        return self.size


@final
class OutgoingWindow:
    """The outgoing-window of a session: the transfers that the peer accepts.

    `next_id`: next-outgoing-id. `left`: remote-incoming-window.
    """

    def __init__(self, peer_window: i64) -> None:
        self.next_id: i64 = 0
        self.left: i64 = peer_window

    def count_transfer(self) -> None:
        """Count a sent transfer."""
        self.next_id = forward(self.next_id, 1)
        self.left -= 1

    def update(self, next_incoming_id: i64, incoming_window: i64) -> None:
        """Take next-incoming-id (-1: null, the peer has received no transfer) and incoming-window of a flow.

        Raises PeerError(WINDOW_VIOLATION): the peer expects a transfer after the next one.
        """
        expected: i64 = 0 if next_incoming_id < 0 else next_incoming_id
        ahead = distance(expected, self.next_id)
        if ahead < 0:
            text = f"next-incoming-id is {expected}, and the next transfer is {self.next_id}"
            raise PeerError(WINDOW_VIOLATION, text)
        self.left = max(incoming_window - ahead, 0)


@final
class LinkCredit:
    """The credit of a link, as either of its ends knows it: the deliveries that the sender may begin.

    `delivery_count`: the delivery-count, whose initial value the sender has chosen. `left`: the link-credit.
    """

    def __init__(self, delivery_count: i64) -> None:
        self.initial: i64 = delivery_count
        self.delivery_count: i64 = delivery_count
        self.left: i64 = 0

    def use(self) -> None:
        """Use a credit for a delivery. Raises PeerError(TRANSFER_LIMIT_EXCEEDED)."""
        if self.left <= 0:
            raise PeerError(TRANSFER_LIMIT_EXCEEDED, "a delivery without credit")
        self.left -= 1
        self.delivery_count = forward(self.delivery_count, 1)

    def grant(self, delivery_count: i64, credit: i64) -> None:
        """Take delivery-count (-1: null) and link-credit in the receiver's flow."""
        seen = self.initial if delivery_count < 0 else delivery_count
        self.left = max(credit - distance(seen, self.delivery_count), 0)

    def follow(self, delivery_count: i64) -> None:
        """Take the delivery-count in the sender's flow. Credit that the sender has drained is used up."""
        steps = distance(self.delivery_count, delivery_count)
        self.delivery_count = delivery_count
        self.left = max(self.left - steps, 0)

    def drain(self) -> None:
        """Use up all credit: no more messages are available. [amqp-1.0 2.6.7]"""
        self.delivery_count = forward(self.delivery_count, self.left)
        self.left = 0
