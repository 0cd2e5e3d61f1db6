"""One session of an AMQP 1.0 connection: its windows and the handles of its links. [amqp-1.0 2.5]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from mypy_extensions import i64

from broker.core.session import Session
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import (
    FRAMING_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
    PeerError,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.outgoing import flow as flow_frame
from protocol.amqp10.performatives import Attach, Begin, Detach, End
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.windows import IncomingWindow, OutgoingWindow

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

LINKS_MAX: Final = 255  # the highest handle
WINDOW_BYTES: Final[i64] = 16777216  # of transfers that the peer may send before it hears of more
WINDOW_MIN: Final[i64] = 16
BOUNDLESS: Final[i64] = 2147483647  # nobody counts the transfers of this side

_log = structlog.get_logger("amqpd.session")


@final
class Session10(Session):
    """A session that the peer has begun. Its channel and its handles are the peer's, in both directions."""

    def __init__(self, connection: Connection10, channel: i64, begin: Begin) -> None:
        super().__init__(connection)
        self.peer = connection
        self.channel = channel
        window = max(WINDOW_BYTES // max(connection.server.frame_max, 512), WINDOW_MIN)
        self.incoming = IncomingWindow(begin.next_outgoing_id, window)
        self.outgoing = OutgoingWindow(begin.incoming_window)
        self.handle_max: i64 = min(begin.handle_max, LINKS_MAX)
        self.refused: set[int] = set()  # handles of links whose end has not been answered
        self.ending = False  # the peer has been told, and its own end is to come

    def begin(self) -> None:
        """Answer the peer's begin. [amqp-1.0 2.5.1]"""
        channel: int = self.channel
        window: int = self.incoming.size
        answer = Begin(
            remote_channel=channel,
            next_outgoing_id=0,
            incoming_window=window,
            outgoing_window=BOUNDLESS,
            handle_max=LINKS_MAX,
        )
        self.peer.write(answer, channel)

    # -- what the peer says

    def on_attach(self, attach: Attach) -> None:
        """A link. Raises PeerError for what ends the connection. [amqp-1.0 2.6.3]"""
        if attach.handle > self.handle_max:
            raise PeerError(FRAMING_ERROR, f"handle {attach.handle} of at most {self.handle_max}")
        refuse_link(self, attach, NOT_IMPLEMENTED, "there are no links yet")

    def on_flow(self, flow: Flow) -> None:
        """What the peer has received, and how much more it takes. [amqp-1.0 2.5.6]"""
        try:
            self.outgoing.update(flow.next_incoming_id, flow.incoming_window)
            self.incoming.check(flow.next_outgoing_id)
        except PeerError as error:
            self.fail(error.condition, error.text)
            return
        if flow.handle != NONE:
            if flow.handle not in self.refused:
                self._unattached(flow.handle)
        elif flow.echo:
            self.say_flow()

    def on_transfer(self, transfer: Transfer) -> None:
        """A part of a delivery. [amqp-1.0 2.6.12]"""
        try:
            if self.incoming.received():
                self.say_flow()
        except PeerError as error:
            self.fail(error.condition, error.text)
            return
        if transfer.handle not in self.refused:  # else it was sent before the peer knew
            self._unattached(transfer.handle)

    def on_disposition(self, disposition: Disposition) -> None:
        """What becomes of deliveries; of those that are not known nothing does. [amqp-1.0 2.7.6]"""

    def on_detach(self, detach: Detach) -> None:
        """The end of a link; of one that has been refused it is the answer. [amqp-1.0 2.6.5]"""
        if detach.handle in self.refused:
            self.refused.remove(detach.handle)
        else:
            self._unattached(detach.handle)

    def on_end(self) -> None:
        """The end of the session; answered, unless that was the answer. [amqp-1.0 2.5.7]"""
        if not self.ending:
            channel: int = self.channel
            self.peer.write(End(), channel)
        self.let_go()

    # -- what is said to it

    def say_flow(self) -> None:
        """Say how much is taken from now on."""
        incoming, outgoing = self.incoming, self.outgoing
        incoming.open(incoming.size)
        self.peer.out.write(
            flow_frame(
                self.channel,
                incoming.next_id,
                incoming.left,
                outgoing.next_id,
                BOUNDLESS,
                NONE,
                NONE,
                NONE,
                NONE,
                False,
                False,
            )
        )

    def fail(self, condition: str, text: str) -> None:
        """A session error: say why; whatever else comes before the peer's end is ignored. [amqp-1.0 2.5.8]"""
        if self.ending:
            return
        connection = self.peer
        _log.warning(
            "session error",
            peer=connection.peer,
            user=connection.user,
            channel=self.channel,
            condition=condition,
            reason=text,
        )
        self.ending = True
        self.close_targets()
        channel: int = self.channel
        connection.write(End(error=Error(condition=condition, description=text)), channel)

    def let_go(self) -> None:
        """Nothing of it is left: its channel is free again."""
        self.close_targets()
        self.peer.mapped.ended(self.channel)

    def _unattached(self, handle: i64) -> None:
        self.fail(UNATTACHED_HANDLE, f"there is no link with handle {handle}")


def begin_session(connection: Connection10, channel: i64, begin: Begin) -> Session10:
    """Take the peer's begin. Raises PeerError."""
    if begin.remote_channel is not None:
        raise PeerError(NOT_ALLOWED, "begin.remote-channel answers a session that nobody has begun")
    session = Session10(connection, channel, begin)
    session.begin()
    return session


def refuse_link(session: Session10, attach: Attach, condition: str, text: str) -> None:
    """Answer an attach, without a terminus of this side, and detach at once. [amqp-1.0 2.6.3]"""
    receives = not attach.role  # this side is what the peer is not
    answer = Attach(
        name=attach.name,
        handle=attach.handle,
        role=receives,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        source=attach.source if receives else None,
        target=None if receives else attach.target,
        initial_delivery_count=None if receives else 0,
    )
    channel: int = session.channel
    session.refused.add(attach.handle)
    session.peer.write(answer, channel)
    error = Error(condition=condition, description=text)
    session.peer.write(Detach(handle=attach.handle, closed=True, error=error), channel)
