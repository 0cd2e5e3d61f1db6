"""The sending end of a link, whatever it sends. [amqp-1.0 2.6]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.adapters.amqp10.link import Link10
from protocol.amqp10.conditions import NOT_ALLOWED
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate
from protocol.amqp10.transfers import Transfer

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10

FRAME_BYTES_MAX: Final[i64] = 2097152  # of frames that are sent, each of which is made in memory


class Sender(Link10):
    """`sending`: the delivery of which the peer has some frames, and not all."""

    def __init__(self, session: Session10, name: str, handle: i64) -> None:
        super().__init__(session, name, handle, False, 0)
        self.template = TransferTemplate(
            session.channel, handle, min(session.peer.frame_max, FRAME_BYTES_MAX)
        )
        self.sending: SplitTransfer | None = None

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """It is not for the receiver to send. [amqp-1.0 2.6.12]"""
        if not self.leaving:
            self.detach(NOT_ALLOWED, f"transfer on link '{self.name}', of which the peer is the receiver")

    def sent_on(self) -> None:
        """More of the delivery that is on its way has been sent, or all."""
        raise NotImplementedError
