"""One AMQP 1.0 connection: its layers, its states, its errors. [amqp-1.0 2.4]"""

from __future__ import annotations

from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.access import Origin
from broker.adapters.amqp10 import opening
from broker.adapters.amqp10.control import control
from broker.adapters.amqp10.idle import Idle
from broker.adapters.amqp10.login import SaslLogin
from broker.adapters.amqp10.sessions import Sessions
from broker.adapters.amqp10.states import (
    AUTHENTICATED,
    AUTHENTICATING,
    CLOSED,
    CLOSING,
    OPENED,
    OPENING,
)
from broker.adapters.handshake091 import FRAME_BYTES_MAX, STRANGER_BYTES_MAX
from broker.adapters.served import ServedConnection
from broker.adapters.server import HELD, HELD_FOR_END, Edge, Server
from broker.core.allowance import METHOD, PAYLOAD
from broker.core.connection import Scheduler
from broker.core.vhost import VirtualHost
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.conditions import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    INTERNAL_ERROR,
    PeerError,
)
from protocol.amqp10.frames import AMQP_FRAME, FRAME_MAX_MIN, SASL_FRAME, Frames, frame
from protocol.amqp10.performatives import Close
from protocol.amqp10.types import Composite
from protocol.sniff import AMQP_1_0

CLOSING_SECONDS: Final = 2

_log = structlog.get_logger("amqpd.connection")


@final
class Connection10(ServedConnection):
    """One of a client of AMQP 1.0. `secured`: it begins with the layer of SASL."""

    def __init__(
        self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin, secured: bool
    ) -> None:
        super().__init__(server, scheduler, edge, origin)
        self.state = AUTHENTICATING
        self.secured = secured
        self.container = ""  # the name that the peer has
        self.virtual_host: VirtualHost | None = None
        self.frame_max: i64 = FRAME_MAX_MIN  # of frames that the peer takes
        self.channel_max: i64 = 0
        self.out = BytesWriter()
        self.login: SaslLogin | None = SaslLogin(self)
        self.mapped = Sessions(self)
        self.idle = Idle(self)
        self.spoke = False
        self.heard = False
        self._frames = Frames(SASL_FRAME, FRAME_BYTES_MAX, 0)
        self._stranger_bytes: i64 = 0
        self._holds: i64 = 0  # reasons for which frames are kept back
        self._taking = False

    def is_open(self) -> bool:
        """Whether both sides have said open, and neither has said close."""
        return self.state == OPENED

    def start(self) -> None:
        """Say which mechanisms there are, or let the peer in without one. [amqp-1.0 5.3.2]"""
        if self.login is not None:
            self.login.start()
        self.flush()

    # -- in

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        if self.state == CLOSED:
            return
        self.heard = True
        if self.login is not None:
            self._stranger_bytes += len(data)
        self._frames.append(data)
        self._take()

    def _take(self) -> None:
        """Handle the frames that have arrived, until there is a reason not to. No error leaves here."""
        if self._taking:
            return
        self._taking = True
        try:
            if self.login is not None and self._stranger_bytes > STRANGER_BYTES_MAX:
                raise PeerError(FRAMING_ERROR, f"more than {STRANGER_BYTES_MAX} bytes before the log-in")
            while self._holds == 0 and self.state != CLOSED:
                if self.state == AUTHENTICATED:
                    if not self._take_header():
                        break
                elif self._frames.advance():
                    self._take_frame()
                else:
                    break
        except PeerError as error:
            self.fail(error.condition, error.text)
        except Exception:
            self.internal_error()
        self._taking = False
        self.flush()

    def _take_header(self) -> bool:
        """The header of AMQP behind the layer of SASL; False if it has not arrived. [amqp-1.0 5.3.2]"""
        header = self._frames.protocol_header()
        if header is None:
            return False
        if header != AMQP_1_0:
            raise PeerError(FRAMING_ERROR, f"protocol header {header.hex()} behind the log-in")
        self.begin_amqp()
        return True

    def _take_frame(self) -> None:
        frames = self._frames
        data, start, end = frames.data, frames.start, frames.end
        if self.login is not None:
            self.login.on_frame(data, start, end)
            return
        if start < end:  # else it is there, and has nothing to say
            self.server.broker.schedule.allowance.use(METHOD + (end - start) // PAYLOAD)
            if self.state != OPENED or not self.mapped.take(frames.channel, data, start, end):
                control(self, frames.channel, data, start, end)

    def begin_amqp(self) -> None:
        """The peer is let in, and the layer of AMQP begins. [amqp-1.0 2.2]"""
        self.login = None
        self.state = OPENING
        self._frames.kind = AMQP_FRAME
        self._frames.size_max = max(self.server.frame_max, FRAME_MAX_MIN)
        self.out.write(AMQP_1_0)

    def logged_in(self) -> None:
        """The peer has proved who it is: its header of AMQP is next, unless it came first."""
        if self.secured:
            self.login = None
            self.state = AUTHENTICATED
        else:
            self.begin_amqp()

    def opened(self) -> None:
        """Both sides have said open."""
        self.state = OPENED

    def is_held(self) -> bool:
        """Whether this side reads nothing at the moment."""
        return self._holds != 0

    def set_channel_max(self, channel_max: i64) -> None:
        """Take no frames on channels above this one. [amqp-1.0 2.7.1]"""
        self.channel_max = channel_max
        self._frames.channel_max = channel_max

    def hold(self, reason: i64) -> None:
        """Take no more frames, and read no more, until every reason for it has been released."""
        self._holds |= reason
        self.edge.hold(reason)

    def release(self, reason: i64) -> None:
        """Go on, unless there is another reason not to."""
        if self._holds & reason:
            self._holds &= ~reason
            self.edge.release(reason)
            if self._holds == 0:
                self._take()

    # -- out

    def write(self, performative: Composite, channel: int = 0) -> None:
        """Say something, at the end of the turn."""
        self.out.write(frame(channel, encode_composite(performative)))

    def flush(self) -> None:
        """Write what the turn has produced, once."""
        if len(self.out) > 0:
            self.spoke = True
            self.edge.write(self.out.getvalue())
            self.out = BytesWriter()

    # -- the end

    def internal_error(self) -> None:
        """The broker's own mistake costs this connection and no other."""
        _log.exception("internal error", peer=self.peer)
        self.fail(INTERNAL_ERROR, "internal error, see the broker's log")

    def fail(self, condition: str, text: str) -> None:
        """The connection ends: say why, and wait for the peer's close. [amqp-1.0 2.4.3]"""
        if self.state in (CLOSING, CLOSED):
            return
        _log.warning("connection error", peer=self.peer, user=self.user, condition=condition, reason=text)
        if self.state in (AUTHENTICATING, AUTHENTICATED):  # the peer cannot be told
            self.drop()
            return
        self.close(condition, text)

    def close(self, condition: str, text: str) -> None:
        """Send close with an error, and open before it if that has not been said."""
        if self.state == OPENING:
            opening.refuse(self)
        self._let_go()
        self.state = CLOSING
        self.write(opening.close_with(condition, text))
        self._holds = 0
        self.edge.release(HELD)
        self.edge.closing(CLOSING_SECONDS)
        self.flush()

    def closed_by_peer(self) -> None:
        """Answer the peer's close. [amqp-1.0 2.4.3]"""
        self._let_go()
        self.write(Close())
        self.end()

    def end(self) -> None:
        """Nothing more is to be said: the output ends, and the peer closes."""
        self.state = CLOSED
        self.flush()
        self.edge.release(HELD)
        self.edge.end_output()

    def drop(self) -> None:
        """Close the socket without a word. What was written before is still sent."""
        self._let_go()
        self.state = CLOSED
        self.flush()
        self.edge.close()

    def lost(self, reason: str) -> None:
        """The socket is gone."""
        if self.state == OPENED:
            why = reason or "closed by the peer"
            _log.info("connection lost", peer=self.peer, user=self.user, reason=why)
        self._let_go()
        self.state = CLOSED
        self.out = BytesWriter()

    def _let_go(self) -> None:
        """Everything that the connection holds goes back."""
        self.idle.stop()
        self.mapped.let_go()
        if self.login is not None:
            self.login.abandon()
        if self.virtual_host is not None:
            self.server.connections.remove(self, self.user, self.virtual_host.name)
            self.virtual_host.delete_exclusive_queues(self)

    def force_close(self, reason: str) -> None:
        """Close the connection (OpenConnection)."""
        if self.state == OPENED:
            self.close(CONNECTION_FORCED, reason)
        else:
            self.edge.close()

    def rights_changed(self) -> None:
        """What the user may do has changed (OpenConnection)."""

    def shortage_began(self) -> None:
        """Whatever publishes has to be held (OpenConnection)."""

    def log_is_behind(self) -> None:
        """Publish nothing more until the log has caught up (OpenConnection)."""

    def vhost_deleted(self) -> None:
        """Hear nothing more until `force_close` follows (OpenConnection)."""
        self.hold(HELD_FOR_END)

    def forget_deliveries(self, most: i64) -> i64:
        """Forget up to `most` that are outstanding, of queues that are gone (OpenConnection)."""
        return 0

    def channels_open(self) -> int:
        """How many sessions it has (OpenConnection)."""
        return len(self.mapped.all())
