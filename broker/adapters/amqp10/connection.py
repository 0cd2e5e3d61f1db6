"""A connection of AMQP 1.0: its layers, its sessions, its states, its errors. [amqp-1.0 2.4]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.access import Origin
from broker.adapters.amqp10 import handshake
from broker.adapters.amqp10.handshake import answer_close, end_output, open_connection
from broker.adapters.amqp10.idle import Idle
from broker.adapters.amqp10.link import send_more_of_all
from broker.adapters.amqp10.routes import Routes, routes_of
from broker.adapters.amqp10.sasl import SaslLogin
from broker.adapters.amqp10.session import Session10
from broker.adapters.amqp10.shortage import HeldCredit
from broker.adapters.amqp10.state import (
    AUTHENTICATED,
    AUTHENTICATING,
    CLOSED,
    CLOSING,
    OPENED,
    OPENING,
    Connection10State,
    Session10State,
    expire_all,
)
from broker.adapters.amqp10.transactions import Transactions, transactions_of
from broker.adapters.peers.connections import (
    AMQP10,
    FLUSH_BYTES_MIN,
    FRAME_BYTES_MAX,
    HELD_FOR_END,
    HELD_FOR_PEER,
    STRANGER_BYTES_MAX,
    Edge,
)
from broker.adapters.peers.log_throttle import UNSYNCED_BYTES_MAX, throttle, wait_for_log
from broker.adapters.peers.peer import Steps
from broker.adapters.peers.server import Server
from broker.auth.terms import MAX_CHANNELS
from broker.core.delivery.session import Scheduler
from broker.core.errors import LimitReached
from broker.core.schedule import METHOD, PAYLOAD
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.conditions import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    DecodeError,
    PeerError,
)
from protocol.amqp10.constructors import SMALL_ULONG
from protocol.amqp10.descriptors import DISPOSITION, FLOW, TRANSFER
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.fields import Fields
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, FRAME_MAX_MIN, SASL_FRAME, Frames
from protocol.amqp10.performatives import Attach, Begin, Close, Detach, End, Open
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite
from protocol.amqp10.unsettled import decode_attach
from protocol.sniff import AMQP_1_0

PERFORMATIVE_BYTES_MAX: Final = 32768  # decoding takes milliseconds; without a link's unsettled deliveries

_log = structlog.get_logger("amqpd.connection")


def handle_connection_frame(
    connection: Connection10, channel: i64, data: bytes, start: i64, end: i64
) -> None:
    """Handle an open or a close, or refuse another performative in this state. Raises PeerError."""
    performative = decode_performative(data, start, end)
    if connection.state == CLOSING:
        if isinstance(performative, Close):
            end_output(connection)
    elif connection.state == OPENING:
        if not isinstance(performative, Open):
            raise PeerError(ILLEGAL_STATE, f"{name_of(performative)} where open is expected")
        if channel != 0:
            raise PeerError(FRAMING_ERROR, f"open on channel {channel}, expected channel 0")
        open_connection(connection, performative)
    elif isinstance(performative, Close):
        error = performative.error
        reason = None if error is None else f"{error.condition}: {error.description}"
        _log.info("connection closed", peer=connection.peer, user=connection.user, reason=reason)
        answer_close(connection)
    else:
        raise PeerError(NOT_ALLOWED, f"{name_of(performative)} on a connection that is open")


def decode_performative(data: bytes, start: i64, end: i64) -> Composite:
    """Return the performative of a frame. Only an attach with a large unsettled map may be long.

    Raises PeerError.
    """
    if end - start > PERFORMATIVE_BYTES_MAX:
        attach = decode_attach(data, start, end, PERFORMATIVE_BYTES_MAX)
        if attach is None:
            text = f"performative of {end - start} bytes, at most {PERFORMATIVE_BYTES_MAX} are allowed"
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, text)
        return attach
    performative, after = decode_composite(data, int(start), int(end))
    if after != end:
        raise DecodeError(f"{name_of(performative)}: bytes follow the performative")
    return performative


def name_of(performative: Composite) -> str:
    """Return the specification's name of a performative."""
    return type(performative).__name__.lower()


@final
class Sessions:
    """The mapped sessions of a connection, by channels, and the dispatch of frames to them.

    The objects for decoded transfers, dispositions and flows are reused for each frame.
    """

    def __init__(self, connection: Connection10) -> None:
        self._connection: Connection10 | None = connection  # None: it has ended
        self._mapped: list[Session10 | None] = []
        self._fields = Fields()
        self._transfer = Transfer()
        self._disposition = Disposition()
        self._flow = Flow()

    def all(self) -> list[Session10]:
        """Return all sessions, in the order of their channels."""
        return [session for session in self._mapped if session is not None]

    def dispatch(self, channel: i64, data: bytes, start: i64, end: i64) -> bool:
        """Pass the performative of a frame to its session; False if it is open or close. Raises PeerError."""
        if end - start > 2 and data[start] == 0 and data[start + 1] == SMALL_ULONG:
            code: i64 = data[start + 2]
        else:
            code = self._fields.descriptor(data, start, end, "performative")
        if code == TRANSFER:
            session = self._session(channel, "transfer")
            try:
                self._transfer.read(data, start, end)
            except DecodeError:
                raise
            except PeerError as error:  # the error concerns the link only
                session.fail_link(self._transfer.handle, error)
                return True
            if not session.end_sent:
                session.on_transfer(self._transfer, data, end)
        elif code == DISPOSITION:
            session = self._session(channel, "disposition")
            self._disposition.read(data, start, end)
            if not session.end_sent:
                session.on_disposition(self._disposition)
        elif code == FLOW:
            session = self._session(channel, "flow")
            self._flow.read(data, start, end)
            if not session.end_sent:
                session.on_flow(self._flow)
        else:
            return self._dispatch_other(channel, data, start, end)
        return True

    def free_channel(self, channel: i64) -> None:
        """Free the channel of a session."""
        session = self._mapped[channel]
        self._mapped[channel] = None
        connection = self._owner()
        if session is not None:
            session.traffic.flush(connection.server.connections.traffic[AMQP10])
        connection.server.counters.channels_closed += 1
        connection.server.connections.add_channels(connection.user, -1)

    def send_more(self) -> bool:
        """Send more of the incomplete deliveries; return whether more can be sent at once."""
        more = False
        for session in self.all():
            if session.sending:
                send_more_of_all(session)
                more = more or (len(session.sending) > 0 and session.outgoing.left > 0)
        return more

    def release_all(self) -> None:
        """End all sessions, after stopping the deliveries to all of them: the connection has ended."""
        if self._connection is None:
            return
        self._connection.close_targets()
        for session in self.all():
            session.release_all()
            self.free_channel(session.channel)

    def forget(self) -> None:
        """Forget the connection, whose sessions have all ended."""
        self._connection = None

    def _owner(self) -> Connection10:
        assert self._connection is not None, "a connection that has ended takes no frames"
        return self._connection

    def _dispatch_other(self, channel: i64, data: bytes, start: i64, end: i64) -> bool:
        allowance = self._owner().server.broker.schedule.allowance
        allowance.use(METHOD + (end - start) // PAYLOAD)
        performative = decode_performative(data, start, end)
        if isinstance(performative, Open | Close):
            return False
        if isinstance(performative, Begin):
            self._begin(channel, performative)
            return True
        session = self._session(channel, name_of(performative))
        if isinstance(performative, End):
            session.on_end()
        elif session.end_sent:
            return True  # and ignore the frame
        elif isinstance(performative, Attach):
            session.on_attach(performative)
        elif isinstance(performative, Detach):
            session.on_detach(performative)
        else:
            raise PeerError(ILLEGAL_STATE, f"{name_of(performative)} is not a performative for a session")
        return True

    def _begin(self, channel: i64, begin: Begin) -> None:
        mapped = self._mapped
        while len(mapped) <= channel:
            mapped.append(None)
        if mapped[channel] is not None:
            raise PeerError(ILLEGAL_STATE, f"begin on channel {channel}, which has a session")
        connection = self._owner()
        mapped[channel] = session = _begin_session(connection, channel, begin)
        connection.server.counters.channels_opened += 1
        server, user = connection.server, connection.user
        limit = server.access.limit(user, MAX_CHANNELS)
        if limit is not None and server.connections.channels_of_user(user) >= limit:
            text = f"user '{user}' has {limit} sessions and channels, which is the limit"
            session.fail(RESOURCE_LIMIT_EXCEEDED, text)
        server.connections.add_channels(user, 1)

    def _session(self, channel: i64, what: str) -> Session10:
        session = self._mapped[channel] if channel < len(self._mapped) else None
        if session is None:
            raise PeerError(ILLEGAL_STATE, f"{what} on channel {channel}, which has no session")
        return session


def _begin_session(connection: Connection10, channel: i64, begin: Begin) -> Session10:
    """Take the peer's begin. Raises PeerError."""
    if begin.remote_channel is not None:
        raise PeerError(
            NOT_ALLOWED, f"begin.remote-channel is {begin.remote_channel}, but this side has begun no session"
        )
    virtual_host = connection.virtual_host
    assert virtual_host is not None, "an open connection has a virtual host"
    session = Session10(connection, virtual_host, channel, begin)
    session.begin()
    return session


@final
class FrameInput:
    """The input of a connection: the bytes that have arrived, and the loop that handles their frames."""

    def __init__(self, connection: Connection10) -> None:
        self.frames = Frames(SASL_FRAME, FRAME_BYTES_MAX, 0)
        self.turns = Steps(connection)
        self._connection: Connection10 | None = connection  # None: it has ended
        self._unauthenticated_bytes: i64 = 0
        self._is_handling = False

    def receive(self, data: bytes) -> None:
        """Add the next bytes, and handle the frames that have arrived."""
        if self._connection is None:
            return
        if self._connection.login is not None:
            self._unauthenticated_bytes += len(data)
        self.frames.append(data)
        self.handle_frames()

    def handle_frames(self) -> None:
        """Handle the frames that have arrived, until there is a reason to stop. No error is raised."""
        connection = self._connection
        if self._is_handling or connection is None:
            return
        self._is_handling = True
        allowance = connection.server.broker.schedule.allowance
        before = allowance.begin(self.turns)
        try:
            if connection.login is not None and self._unauthenticated_bytes > STRANGER_BYTES_MAX:
                raise PeerError(FRAMING_ERROR, f"more than {STRANGER_BYTES_MAX} bytes before the log-in")
            while connection.holds == 0 and connection.state != CLOSED:
                if connection.state == AUTHENTICATED:
                    if not self._read_protocol_header(connection):
                        break
                elif self.frames.advance():
                    self._handle_frame(connection)
                else:
                    break
        except PeerError as error:
            connection.fail(error.condition, error.text, error.info)
        except Exception:
            connection.internal_error()
        finally:
            allowance.end(before)
            self._is_handling = False
        connection.end_turn()

    def begin_amqp(self, size_max: i64) -> None:
        """Begin the layer of AMQP, with frames of at most this size."""
        self.frames.kind = AMQP_FRAME
        self.frames.size_max = max(size_max, FRAME_MAX_MIN)

    def forget(self) -> None:
        """Forget the connection, which has ended, and the bytes of its incomplete frame."""
        self._connection = None
        self.frames = Frames(SASL_FRAME, FRAME_BYTES_MAX, 0)

    def _read_protocol_header(self, connection: Connection10) -> bool:
        """Take the protocol header after the SASL layer; False if it has not arrived. [amqp-1.0 5.3.2]"""
        header = self.frames.take_protocol_header()
        if header is None:
            return False
        if header != AMQP_1_0:
            raise PeerError(
                FRAMING_ERROR,
                f"protocol header {header.hex()} after the SASL layer, expected {AMQP_1_0.hex()}",
            )
        connection.begin_amqp()
        return True

    def _handle_frame(self, connection: Connection10) -> None:
        frames = self.frames
        data, start, end = frames.data, frames.start, frames.end
        if connection.login is not None:
            connection.login.on_frame(data, start, end)
        elif start < end and (
            connection.state != OPENED or not connection.mapped.dispatch(frames.channel, data, start, end)
        ):  # an empty frame contains nothing
            handle_connection_frame(connection, frames.channel, data, start, end)


CLOSING_SECONDS: Final = 2


@final
class Connection10(Connection10State):
    """A connection of a client of AMQP 1.0."""

    def __init__(
        self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin, secured: bool
    ) -> None:
        super().__init__(server, scheduler, edge, origin, secured)
        self.transactions = Transactions(server)
        self.login: SaslLogin | None = SaslLogin(self)
        self.mapped = Sessions(self)
        self.idle = Idle()
        self.input = FrameInput(self)
        self.held_credit = HeldCredit(self)

    def start(self) -> None:
        """Offer the SASL mechanisms, or accept the peer without SASL. [amqp-1.0 5.3.2]"""
        if self.login is not None:
            self.login.start()
        self.flush()

    # -- input

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with a single write."""
        if self.state == CLOSED:
            return
        self.has_received = True
        self.server.shortage.count_received(len(data))
        self.input.receive(data)
        if (
            self.publishes
            and not self.waits_for_log
            and self.server.store.unsynced_bytes > UNSYNCED_BYTES_MAX
        ):
            throttle(self)

    def begin_amqp(self) -> None:
        """Begin the layer of AMQP, after the peer has been accepted. [amqp-1.0 2.2]"""
        self.login = None
        self.state = OPENING
        self.input.begin_amqp(self.server.frame_max)
        self.out.write(AMQP_1_0)

    def on_logged_in(self) -> None:
        """Expect the peer's protocol header, unless it came before: the peer has authenticated."""
        if self.secured:
            self.login = None
            self.state = AUTHENTICATED
        else:
            self.begin_amqp()

    def on_opened(self, virtual_host: VirtualHost, idle_time_out: i64) -> None:
        """Note that both sides have sent open."""
        self.server.connections.add(self, self.user, virtual_host.name)
        self.virtual_host = virtual_host
        self.routes = Routes(self, virtual_host)
        self.state = OPENED
        self.idle.start(self, idle_time_out, self.server.heartbeat * 2000)

    def set_channel_max(self, channel_max: i64) -> None:
        """Take no frames on channels above this one. [amqp-1.0 2.7.1]"""
        self.channel_max = channel_max
        self.input.frames.channel_max = channel_max

    def kept_bytes(self) -> i64:
        """Return the number of bytes that were read and belong to no handled frame."""
        return self.input.frames.unconsumed_bytes()

    def ignores_input(self) -> bool:
        """Whether the connection takes no frames any more."""
        return self.state == CLOSED

    def release(self, reason: i64) -> None:
        """Release reasons; continue unless others are left."""
        if self.holds & reason:
            self.holds &= ~reason
            self.edge.release(reason)
            if self.holds == 0:
                self.input.handle_frames()

    def pump(self, budget: i64) -> None:
        """Deliver to this client, and write the deliveries."""
        if self.vhost_is_deleted:
            self.scheduled = False
            return
        if self.state != OPENED or self.edge.is_closing():
            self.set_blocked(True)  # deliveries to a dying socket would only be redelivered
        self.full = False
        try:
            more = self.mapped.send_more()
            super().pump(budget)
        except Exception:  # perhaps a message that cannot be read back
            self.internal_error()
            more = False
        self.full = False
        if more:
            self.schedule()
        self.unwritten = self.scheduled and len(self.out) < FLUSH_BYTES_MIN and not self.pending_sessions
        if not self.unwritten:
            self.end_turn()  # else a later turn of the same slice of time writes both

    def write_output(self) -> None:
        """Write the output that earlier turns have left."""
        self.unwritten = False
        self.end_turn()

    def set_blocked(self, blocked: bool) -> None:
        """Note that the transport is full (True), or takes data again (False)."""
        super().set_blocked(blocked)
        if not blocked:
            self._unread = 0
            self.flush()  # output that was written outside a turn
            if not self.blocked:
                self.schedule()
                self.release(HELD_FOR_PEER)

    # -- sessions

    def open_sessions(self) -> list[Session10State]:
        """Return the sessions that are mapped, in the order of their channels."""
        return list(self.mapped.all())

    def on_session_ended(self, channel: i64) -> None:
        """Free the channel of a session."""
        self.mapped.free_channel(channel)

    def hold_senders(self) -> None:
        """Hold the senders during a shortage."""
        self.held_credit.hold()

    # -- the end

    def release_all(self) -> None:
        """Release everything that the connection owns, as the actor in the journal."""
        virtual_host = self.virtual_host
        if virtual_host is None:
            self._release_all()
            return
        journal = virtual_host.journal
        before = journal.actor
        journal.actor = self
        try:
            self._release_all()
            self.server.connections.remove(self, self.user, virtual_host.name)
            virtual_host.declarations.delete_exclusive_queues(self)
        finally:
            journal.actor = before

    def _release_all(self) -> None:
        self.idle.stop()
        self.mapped.release_all()
        transactions_of(self).roll_back("the connection ended")
        expire_all(self.suspended)
        for lifetime in self.lifetimes.values():
            lifetime.on_connection_ended()
        self.pending_sessions = []
        self.held_credit.forget()
        if self.login is not None:
            self.login.abandon()

    def internal_error(self) -> None:
        """Close this connection, and no other, over the broker's own error."""
        _log.exception("internal error", peer=self.peer)
        self.fail(INTERNAL_ERROR, "internal error, see the broker's log")

    def fail(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """Close the connection with an error, and wait for the peer's close. [amqp-1.0 2.4.3]"""
        if self.state in (CLOSING, CLOSED):
            return
        _log.warning("connection error", peer=self.peer, user=self.user, condition=condition, reason=text)
        if self.state in (AUTHENTICATING, AUTHENTICATED):  # the peer cannot read a close yet
            handshake.drop_connection(self)
            return
        handshake.close_connection(self, condition, text, info)

    def close_replaced(self, condition: str, text: str, info: dict[str, object]) -> None:
        """Close the connection because another one has taken its place."""
        handshake.close_connection(self, condition, text, info)

    def on_lost(self, reason: str) -> None:
        """End the connection: the socket is closed."""
        if not self.input.turns.defer_end(reason):
            handshake.end_lost_connection(self, reason)
            self.forget_targets()
            self.login = None
            self.routes = None
            self.lifetimes = {}
            self.mapped.forget()
            self.input.forget()
            self.held_credit.forget_connection()

    def force_close(self, reason: str) -> None:
        """Close the connection."""
        if self.state == OPENED:
            handshake.close_connection(self, CONNECTION_FORCED, reason)
        else:
            self.edge.close()

    def on_rights_changed(self) -> None:
        """Forget all routes, and check all links: the user's permissions have changed."""
        if self.routes is not None:
            routes_of(self).forget()
        for session in self.mapped.all():
            session.on_rights_changed()
        self.end_turn()

    def on_shortage(self) -> None:
        """Give senders no more credit."""
        self.held_credit.hold()
        self.end_turn()

    def require_memory(self) -> None:
        """Refuse a new object while memory is short."""
        reason = self.server.shortage.reason
        if self.server.shortage.memory:
            raise LimitReached(f"nothing new can be declared while the broker is {reason}")

    def throttle_publisher(self) -> None:
        """Read nothing more from a publishing connection until the log has caught up."""
        if self.publishes and not self.waits_for_log:
            wait_for_log(self)

    def on_vhost_deleted(self) -> None:
        """Take no more frames and deliver no more until `force_close` follows."""
        self.vhost_is_deleted = True
        self.hold(HELD_FOR_END)

    def forget_deliveries(self, most: i64) -> i64:
        """Forget up to `most` unsettled deliveries of deleted queues."""
        left = most
        for session in self.mapped.all():
            left -= session.unsettled.forget(left)
        return most - left

    def channels_open(self) -> int:
        """Return the number of sessions."""
        return len(self.mapped.all())
