"""Windows and credit: how many transfers of a session and deliveries of a link each side may send.

All numbers except windows and credits are serial numbers of 32 bits that wrap. [amqp-1.0 2.5.6, 2.6.7]
"""

from typing import final

from mypy_extensions import i64

from protocol.amqp10.conditions import TRANSFER_LIMIT_EXCEEDED, WINDOW_VIOLATION, PeerError
from protocol.amqp10.serials import distance, forward


@final
class IncomingWindow:
    """The transfers that the peer may send in a session.

    `next_id`: the transfer-id of the next one. `left`: how many may come before a flow allows more; of
    `size` when the window is open. `shut`: no flow allows more. `passed`: how many transfer-ids
    are behind it.
    """

    def __init__(self, next_id: i64, size: i64) -> None:
        self.next_id: i64 = next_id
        self.size: i64 = size
        self.left: i64 = size
        self.shut = False
        self.passed: i64 = 0

    def received(self) -> bool:
        """Count a transfer; returns whether it is time for a flow. Raises PeerError(WINDOW_VIOLATION)."""
        if self.left <= 0:
            raise PeerError(WINDOW_VIOLATION, f"transfer {self.next_id} is beyond the session's window")
        self.next_id = forward(self.next_id, 1)
        self.passed += 1
        self.left -= 1
        return self.left <= self.size // 2 and not self.shut

    def follow(self, next_outgoing_id: i64) -> None:
        """Take the next-outgoing-id in a flow of the peer, which may have skipped transfers.

        The id may also be the id of a transfer that has arrived. RabbitMQ's Python client 2.0 counts
        deliveries instead of all their transfers. Its threads also send flows that were written before the
        transfers in front of them. Only an id before the session's first id is refused. Raises
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
        """How many transfers a flow is about to allow: as many as ever, or none if the window is shut.

        Those that are on their way as it is shut are none too many.
        """
        if self.shut:
            return 0
        self.left = self.size
        return self.size


@final
class OutgoingWindow:
    """The transfers that the peer takes in a session. `next_id`: the transfer-id of the next one."""

    def __init__(self, peer_window: i64) -> None:
        self.next_id: i64 = 0
        self.left: i64 = peer_window

    def sent(self) -> None:
        """Count a transfer."""
        self.next_id = forward(self.next_id, 1)
        self.left -= 1

    def update(self, next_incoming_id: i64, incoming_window: i64) -> None:
        """A flow of the peer says which transfer it expects, -1: the first, and how many it takes from there.

        Raises PeerError(WINDOW_VIOLATION): it expects one that comes after the next.
        """
        expected: i64 = 0 if next_incoming_id < 0 else next_incoming_id
        ahead = distance(expected, self.next_id)
        if ahead < 0:
            text = f"next-incoming-id is {expected}, and the next transfer is {self.next_id}"
            raise PeerError(WINDOW_VIOLATION, text)
        self.left = max(incoming_window - ahead, 0)


@final
class LinkCredit:
    """The deliveries that the sender of a link may begin. Each end of it has one, and both are to agree.

    `delivery_count`: as many as have been begun, from a number on that the sender has chosen.
    """

    def __init__(self, delivery_count: i64) -> None:
        self.initial: i64 = delivery_count
        self.delivery_count: i64 = delivery_count
        self.left: i64 = 0

    def use(self) -> None:
        """A delivery begins. Raises PeerError(TRANSFER_LIMIT_EXCEEDED)."""
        if self.left <= 0:
            raise PeerError(TRANSFER_LIMIT_EXCEEDED, "a delivery without credit")
        self.left -= 1
        self.delivery_count = forward(self.delivery_count, 1)

    def grant(self, delivery_count: i64, credit: i64) -> None:
        """The receiver allows `credit` deliveries after the first `delivery_count`; -1: it has seen none."""
        seen = self.initial if delivery_count < 0 else delivery_count
        self.left = max(credit - distance(seen, self.delivery_count), 0)

    def follow(self, delivery_count: i64) -> None:
        """The sender says how far it is: what it has used up without a delivery is gone."""
        steps = distance(self.delivery_count, delivery_count)
        self.delivery_count = delivery_count
        self.left = max(self.left - steps, 0)

    def drain(self) -> None:
        """Use up all that is left, as there is nothing to send."""
        self.delivery_count = forward(self.delivery_count, self.left)
        self.left = 0
