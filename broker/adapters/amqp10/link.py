"""The parts that all links share: name, handle, end, and deliveries sent in parts. [amqp-1.0 2.6]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.state import Session10State, SessionLink
from broker.core.vhosts.deletion import Dependent
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import ERRANT_LINK, NOT_ALLOWED, STOLEN
from protocol.amqp10.constructors import NONE
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate
from protocol.amqp10.performatives import Detach
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.windows import LinkCredit

NOTHING_RECEIVED: Final = (
    b"\x00\x53\x23\xc0\x03\x02\x43\x44"  # received(0, 0): the sender must resend the whole delivery
)
DESCRIPTION_BYTES_MAX: Final = 300  # an error's description, which fits the smallest frame


def shorten_description(text: str) -> str:
    """Return as much of a description as fits the frames of every peer."""
    return text.encode()[:DESCRIPTION_BYTES_MAX].decode(errors="ignore")


_log = structlog.get_logger("amqpd.link")


class Link10(SessionLink):
    """An attached link, or a link that this side has detached and the peer not yet.

    `receives`: this side is the receiver. `credit`: the credit of the link's sender. `settles_second`: the
    rcv-settle-mode is second. `destination`: the target node of the peer's messages, if there is one.
    """

    def __init__(self, session: Session10State, name: str, handle: i64, receives: bool, count: i64) -> None:
        super().__init__()
        self.session = session
        self.name = name
        self.handle = handle
        self.receives = receives
        self.credit = LinkCredit(count)
        self.settles_second = False
        self.destination: Dependent | None = None

    def full_name(self) -> str:
        """The name of the link among all links of the broker."""
        return f"{self.session.peer.origin.name} {self.session.channel} {self.handle} {self.name}"

    # -- overridden by subclasses; a link that was refused does nothing

    def on_settled(self, count: i64) -> None:
        """Note that this side has settled the oldest `count` deliveries."""

    def on_sender_settled(self, delivery_id: i64) -> None:
        """Note that the sender has settled a delivery, after this side."""

    def grant_credit(self) -> None:
        """Grant the sender more credit, if it is time for this."""

    def complete_drain(self) -> None:
        """Use up the credit of a draining receiver: no more messages are available."""

    def stop_deliveries(self) -> None:
        """Stop all deliveries to the link before anything is requeued."""

    def release_all(self, closed: bool) -> None:
        """Release everything that the ending link owns, except deliveries that a later link may resume.

        `closed`: no link may resume the deliveries.
        """

    # -- the end

    def close(self) -> None:
        """Close the link from this side without an error: its last message was sent. [amqp-1.0 2.6.6]"""
        self.session.pending.send_outcomes()
        if not self.is_detached:
            self.end(True)
            self.session.send(Detach(handle=self.handle, closed=True))

    def detach(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """Close the link from this side with an error. [amqp-1.0 2.6.5]"""
        session = self.session
        session.pending.send_outcomes()
        if self.is_detached:  # perhaps because those answers have ended the session
            return
        connection = session.peer
        _log.warning(
            "link error",
            peer=connection.peer,
            user=connection.user,
            channel=session.channel,
            link=self.name,
            condition=condition,
            reason=text,
        )
        self.end(condition != STOLEN)
        error = Error(condition=condition, description=shorten_description(text), info=info)
        session.send(Detach(handle=self.handle, closed=True, error=error))

    def end(self, closed: bool) -> None:
        """Release everything that the link owns (`release_all`). Later frames on the link are dropped."""
        self.is_detached = True
        journal = self.session.vhost.journal
        before = journal.actor
        journal.actor = self.session
        try:
            self.session.forget_link(self)
            self.stop_deliveries()
            self.release_all(closed)
            if self.destination is not None:
                self.session.vhost.dependents.remove(self.destination)
                self.destination = None
        finally:
            journal.actor = before
        if self.lifetime is not None:
            self.session.lifetimes[self.lifetime.queue] = self.lifetime

    def drop_delivery(self) -> None:
        """Drop a delivery that the peer sent before it received the detach.

        A delivery beyond the credit ends the session.
        """
        if self.credit.left <= 0:
            self.session.fail(ERRANT_LINK, f"transfer on link '{self.name}', which is detached")
            return
        self.credit.use()


STEP_BYTES: Final[i64] = 2097152  # then other connections are served
OUTPUT_BYTES_MAX: Final = 524288  # then the connection flushes before it delivers more


def send_more(session: Session10State, link: Sender) -> None:
    """Send as much of a delivery as the peer takes now; the rest follows later."""
    connection = session.peer
    sending = link.sending
    step: i64 = 0
    while sending is not None and session.outgoing.left > 0 and step < STEP_BYTES and not connection.blocked:
        parts: list[bytes] = []
        if sending.write(parts):
            link.sending = sending = None
        data = b"".join(parts)
        connection.out.write(data)
        step += len(data)
        session.count_transfer()
    if len(connection.out) >= OUTPUT_BYTES_MAX:
        connection.full = True
    if sending is None:
        session.sending.pop(link, None)
    else:
        session.sending[link] = None
        if session.outgoing.left > 0:
            connection.full = True
            connection.schedule()
    link.continue_sending()


def send_more_of_all(session: Session10State) -> None:
    """Send more of the incomplete deliveries on the links of a session."""
    for link in list(session.sending):
        assert isinstance(link, Sender), "only a sender has an incomplete outgoing delivery"
        send_more(session, link)


def abort_delivery(session: Session10State, link: Sender) -> i64:
    """Abort the incomplete delivery of an ending link.

    Return its delivery-id; NONE if no abort could be sent, so the peer may have a part of the delivery.
    """
    sending = link.sending
    link.sending = None
    session.sending.pop(link, None)
    if sending is not None and session.outgoing.left > 0 and not session.end_sent:
        session.peer.out.write(sending.abort())
        session.outgoing.count_transfer()
        return sending.delivery_id
    return NONE


FRAME_BYTES_MAX: Final[i64] = 2097152  # the size of an outgoing frame, which is built in memory


class Sender(Link10):
    """A link on which this side sends. `sending`: the incomplete delivery."""

    def __init__(self, session: Session10State, name: str, handle: i64) -> None:
        super().__init__(session, name, handle, False, 0)
        self.template = TransferTemplate(
            session.channel, handle, min(session.peer.frame_max, FRAME_BYTES_MAX)
        )
        self.sending: SplitTransfer | None = None

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Detach the link: the peer is its receiver and must not send. [amqp-1.0 2.6.12]"""
        if not self.is_detached:
            self.detach(NOT_ALLOWED, f"transfer on link '{self.name}', whose receiver is the peer")

    def continue_sending(self) -> None:
        """Continue after more of the incomplete delivery, or all of it, has been sent."""
        raise NotImplementedError
