"""Deliveries on their way in parts, as far as the session's window and the socket go. [amqp-1.0 2.6.14]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from protocol.amqp10.constructors import NONE

if TYPE_CHECKING:
    from broker.adapters.amqp10.sender import Sender
    from broker.adapters.amqp10.session import Session10

STEP_BYTES: Final[i64] = 2097152  # then others have their turn
OUTPUT_BYTES_MAX: Final = 524288  # then the connection flushes before it delivers more


def send_on(session: Session10, link: Sender) -> None:
    """Send of a delivery what the peer takes now; the rest follows when it takes more."""
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
        session.sent()
    if len(connection.out) >= OUTPUT_BYTES_MAX:
        connection.full = True
    if sending is None:
        session.sending.pop(link, None)
    else:
        session.sending[link] = None
        if session.outgoing.left > 0:
            connection.full = True
            connection.schedule()
    link.sent_on()


def send_all_on(session: Session10) -> None:
    """The same for all links of a session."""
    for link in list(session.sending):
        send_on(session, link)


def cut(session: Session10, link: Sender) -> i64:
    """Take back the delivery that is on its way, as its link ends.

    Returns its delivery-id; NONE if the peer cannot be told, and so may have it in part.
    """
    sending = link.sending
    link.sending = None
    session.sending.pop(link, None)
    if sending is not None and session.outgoing.left > 0 and not session.ending:
        session.peer.out.write(sending.abort())
        session.outgoing.sent()
        return sending.delivery_id
    return NONE
