"""A connection of AMQP 0-9-1: its handshake, its states, its channels and its end. [amqp-0-9-1 1.4]

An error on a connection ends this connection only.
"""

from __future__ import annotations

from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64
from pamqp import base, commands

from broker.adapters.access import Login, Origin, Rights
from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.large import drop_bodies, send_bodies, take_output, unsent_bytes
from broker.adapters.amqp091.shortage import hold_publisher
from broker.adapters.amqp091.state import ChannelState, Connection091State
from broker.adapters.peers.connections import (
    AMQP091,
    FLUSH_BYTES_MIN,
    HELD,
    HELD_FOR_END,
    HELD_FOR_PEER,
    HELD_FOR_REPLY,
    STRANGER_BYTES_MAX,
    UNREAD_BYTES_MAX,
    Edge,
)
from broker.adapters.peers.log_throttle import UNSYNCED_BYTES_MAX, throttle, wait_for_log
from broker.adapters.peers.peer import Steps
from broker.adapters.peers.requests import vhost_for
from broker.adapters.peers.server import Server
from broker.auth.terms import MAX_CHANNELS
from broker.core.arguments.queue import GET_WAIT, queue_argument_objection
from broker.core.delivery.session import Scheduler
from broker.core.schedule import METHOD, PAYLOAD
from broker.core.values import show
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.closing import CloseWatch
from protocol.amqp091.connection import (
    AUTHENTICATED,
    AUTHENTICATING,
    CHALLENGED,
    CLOSED,
    CLOSING,
    ERROR,
    OPEN,
    advance,
)
from protocol.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    REPLY_NAMES,
    RESOURCE_ERROR,
    ProtocolError,
)
from protocol.sasl import EXTERNAL

_log = structlog.get_logger("amqpd.connection")


@final
class Handshake:
    """The handshake of a connection that is not open yet, and the applicant of its log-in.

    See `broker.adapters.access`.
    """

    def __init__(self, connection: Connection091) -> None:
        self.connection = connection
        self.authenticated = False
        self._login: Login | None = None
        self._user = ""  # the authenticated user, until the broker's own proof is answered
        self._received_bytes: i64 = 0

    def start(self) -> None:
        """Send connection.start."""
        connection = self.connection
        server = connection.server
        mechanisms = server.access.mechanisms(connection.origin)
        if connection.origin.identity is not None and EXTERNAL not in mechanisms.split():
            _log.info("EXTERNAL not offered", peer=connection.peer, certificate=connection.origin.identity)
        properties = {**server.properties, "cluster_name": server.broker.cluster_name}
        connection.out.write(methods.connection_start(properties, mechanisms))

    def count_bytes(self, size: i64) -> None:
        """Count `size` bytes. Raises ProtocolError(RESOURCE_ERROR) for too many before the log-in."""
        self._received_bytes += size
        if self._received_bytes > STRANGER_BYTES_MAX and not self.authenticated:
            raise ProtocolError(RESOURCE_ERROR, f"more than {STRANGER_BYTES_MAX} bytes before the log-in")

    def on_method(self, method: int, frame: base.Frame) -> None:
        """Take the client's next method, which the state table has allowed."""
        if isinstance(frame, commands.Connection.StartOk):
            self._start_ok(frame)
        elif isinstance(frame, commands.Connection.SecureOk):
            self._respond(_response(frame))
        elif isinstance(frame, commands.Connection.TuneOk):
            self._tune_ok(frame)
        elif isinstance(frame, commands.Connection.Open):
            open_connection(self.connection, frame.virtual_host)
        else:
            raise ProtocolError(COMMAND_INVALID, f"{frame.name} during the handshake", method)

    def abandon(self) -> None:
        """End the log-in: the peer has disconnected."""
        login, self._login = self._login, None
        if login is not None:
            login.abandon()

    def _start_ok(self, frame: commands.Connection.StartOk) -> None:
        connection = self.connection
        properties = frame.client_properties or {}
        connection.client_properties = dict(properties)
        allowed = queue_argument_objection(GET_WAIT, properties.get(GET_WAIT, 0))
        if allowed:
            text = f"client property '{GET_WAIT}' is not {allowed}: '{show(properties[GET_WAIT])}'"
            raise ProtocolError(NOT_ALLOWED, text, c.CONNECTION_START_OK)
        capabilities = properties.get("capabilities")
        connection.client_capabilities = dict(capabilities) if isinstance(capabilities, dict) else {}
        name = properties.get("connection_name")
        connection.client_name = name if isinstance(name, str) else ""
        connection.mechanism = frame.mechanism
        self._login = connection.server.access.login(frame.mechanism, connection.origin, self)
        self._respond(_response(frame))

    def _respond(self, response: object) -> None:
        """Pass the client's response to the log-in, and read nothing more until its answer."""
        raw = bytes(response) if isinstance(response, bytes | bytearray) else str(response).encode()
        self.connection.hold(HELD_FOR_REPLY)
        if self._user:
            self._tune(self._user)
        elif self._login is not None:
            self._login.respond(raw)

    def on_challenge(self, challenge: bytes) -> None:
        """Send a further challenge of the log-in."""
        connection = self.connection
        if connection.state == AUTHENTICATING:  # else the peer has disconnected meanwhile
            connection.state = advance(connection.state, CHALLENGED)
            connection.out.write(methods.connection_secure(challenge))
            connection.release(HELD_FOR_REPLY)

    def on_accepted(self, user: str, proof: bytes) -> None:
        """Accept the peer, after sending it the broker's proof if there is one."""
        if self.connection.state == AUTHENTICATING:
            if proof:
                self._user = user
                self.on_challenge(proof)
            else:
                self._tune(user)

    def _tune(self, user: str) -> None:
        connection = self.connection
        server = connection.server
        server.counters.count_login("amqp091", True)
        self.authenticated = True
        self._login = None
        connection.edge.on_logged_in()
        connection.user = user
        connection.state = advance(connection.state, AUTHENTICATED)
        connection.out.write(methods.connection_tune(server.channel_max, server.frame_max, server.heartbeat))
        connection.release(HELD_FOR_REPLY)

    def on_refused(self, user: str, cause: str) -> None:
        """Close with 403 if the client understands this before tune, else hang up.

        [RabbitMQ authentication_failure_close]
        """
        self._login = None
        connection = self.connection
        if connection.state != AUTHENTICATING:
            return
        connection.server.counters.count_login("amqp091", False)
        text = (
            f"ACCESS_REFUSED - Login was refused using authentication mechanism {connection.mechanism}."
            " For details see the broker logfile."
        )
        _log.warning(
            "login refused", peer=connection.peer, user=user, mechanism=connection.mechanism, reason=cause
        )
        if connection.client_capabilities.get("authentication_failure_close") is True:
            connection.close(ACCESS_REFUSED, text)
        else:
            connection.drop()

    def _tune_ok(self, frame: commands.Connection.TuneOk) -> None:
        connection = self.connection
        server = connection.server
        connection.channel_max = _negotiate("channel_max", frame.channel_max, server.channel_max, 1)
        connection.frame_max = _negotiate("frame_max", frame.frame_max, server.frame_max, c.FRAME_MIN_SIZE)
        connection.wire.frame_max = connection.frame_max
        connection.heartbeat = frame.heartbeat


def _response(frame: object) -> object:
    """Return the client's response, which pamqp decodes as text if it is UTF-8, and as bytes otherwise."""
    response: object = getattr(frame, "response", None)
    return response


def _negotiate(name: str, requested: i64, offered: i64, least: i64) -> i64:
    """Return the client's value, or ours for 0. Raises ProtocolError(NOT_ALLOWED) if it is out of range."""
    if requested == 0:
        return offered
    if requested > offered:
        raise ProtocolError(
            NOT_ALLOWED,
            f"negotiated {name} = {requested} is higher than the maximum allowed value ({offered})",
            c.CONNECTION_TUNE_OK,
        )
    if requested < least:
        raise ProtocolError(
            NOT_ALLOWED,
            f"negotiated {name} = {requested} is lower than the minimum allowed value ({least})",
            c.CONNECTION_TUNE_OK,
        )
    return requested


def open_connection(connection: Connection091, name: str) -> None:
    """Take connection.open. Raises ProtocolError(NOT_ALLOWED)."""
    server, user = connection.server, connection.user
    connection.virtual_host = vhost_for(server, user, name)
    connection.rights = Rights(server.access, user, name)
    server.connections.add(connection, user, name)
    connection.out.write(methods.connection_open_ok())
    _log.info(
        "connection opened",
        peer=connection.peer,
        user=user,
        vhost=name,
        client=connection.client_name,
        tls=connection.origin.tls_version or None,
        websocket=connection.origin.websocket or None,
    )


def renew_secret(connection: Connection091) -> None:
    """Take connection.update-secret. [RabbitMQ connection.update-secret]

    As in RabbitMQ, the new secret of a user whose log-in does not expire counts at the next log-in, and is
    not checked now. Raises ProtocolError(NOT_ALLOWED) if the user may no longer use the virtual host.
    """
    assert connection.virtual_host is not None
    user, vhost = connection.user, connection.virtual_host.name
    if not connection.server.access.may_access(user, vhost):
        raise ProtocolError(
            NOT_ALLOWED, f"access to vhost '{vhost}' refused for user '{user}'", c.CONNECTION_UPDATE_SECRET
        )
    _log.info("secret renewed", peer=connection.peer, user=user)
    connection.out.write(methods.method_frame(0, c.CONNECTION_UPDATE_SECRET_OK))


def open_channel(connection: Connection091, number: int) -> None:
    """Take channel.open. Raises ProtocolError(NOT_ALLOWED)."""
    if number > connection.channel_max:
        raise ProtocolError(
            NOT_ALLOWED,
            f"channel {number} is beyond the negotiated channel_max {connection.channel_max}",
            c.CHANNEL_OPEN,
        )
    server, user = connection.server, connection.user
    limit = server.access.limit(user, MAX_CHANNELS)
    if limit is not None and server.connections.channels_of_user(user) >= limit:
        raise ProtocolError(
            NOT_ALLOWED,
            f"number of channels opened for user '{user}' has reached "
            f"the maximum allowed user limit of {limit}",
            c.CHANNEL_OPEN,
        )
    assert connection.virtual_host is not None
    channels = connection.wire.channels
    while len(channels) <= number:
        channels.append(None)
    channels[number] = Channel(connection, number, connection.virtual_host)
    connection.channel_count += 1
    server.counters.channels_opened += 1
    server.connections.add_channels(user, 1)
    connection.out.write(methods.channel_open_ok(number))


HANGUP_SECONDS: Final = 3  # for a client to hang up after its close
CLOSES_MAX: Final = 1024  # answers to a client: more would pile up if it does not read


def log_connection_error(connection: Connection091, error: ProtocolError) -> None:
    """Log the error for which this side closes a connection."""
    _log.warning(
        "connection error",
        peer=connection.peer,
        user=connection.user,
        code=error.code,
        name=REPLY_NAMES[error.code],
        reason=error.text,
    )


def log_lost_socket(connection: Connection091, reason: str) -> None:
    """Log that an open connection has lost its socket."""
    cause = reason or "closed by the peer"
    _log.info("connection lost", peer=connection.peer, user=connection.user, reason=cause)


def not_open_error(connection: Connection091, channel: i64, method: int) -> ProtocolError:
    """Return the error for a channel that is used while the connection is not open."""
    text = f"channel {int(channel)} used on a connection that is {connection.state}"
    return ProtocolError(CHANNEL_ERROR, text, method)


def await_close_ok(connection: Connection091, closes: list[int]) -> None:
    """Handle the methods that a CloseWatch has found after this side has sent connection.close.

    A close that crosses this side's close is answered first: its sender may wait for the answer instead of
    answering.
    """
    if c.CONNECTION_CLOSE in closes:
        connection.state = advance(connection.state, c.CONNECTION_CLOSE)
        answer_closes(connection, closes)
        connection.edge.await_hangup(HANGUP_SECONDS)
    elif closes:
        connection.state = advance(connection.state, c.CONNECTION_CLOSE_OK)
        connection.edge.close()  # the peer sends nothing after close-ok


def accept_close(connection: Connection091) -> None:
    """Answer the peer's close, and let the peer hang up.

    A client that reads the end of the stream after close-ok may take it for a failure. Frames of other
    channels may still arrive after the close. Closing the socket with these unread would reset the
    connection, and the peer might never receive the close-ok.
    """
    _log.info("connection closed", peer=connection.peer, user=connection.user)
    connection.state = CLOSED
    connection.wire.stop()
    release_channels(connection)
    answer_closes(connection, [c.CONNECTION_CLOSE])
    connection.edge.release(HELD)  # so that the end of the stream is read
    connection.edge.await_hangup(HANGUP_SECONDS)


def answer_closes(connection: Connection091, received: list[int]) -> None:
    """Answer each connection.close in `received`: several threads of a client may close a connection."""
    closes = min(received.count(c.CONNECTION_CLOSE), CLOSES_MAX - connection.closes_answered)
    if closes > 0:
        connection.closes_answered += closes
        connection.out.write(methods.method_frame(0, c.CONNECTION_CLOSE_OK) * closes)
        connection.flush()


def channels_of(connection: Connection091) -> list[Channel]:
    """Return the open channels."""
    return [channel for channel in connection.wire.channels if isinstance(channel, Channel)]


def channel_name(channel: ChannelState) -> str:
    """Return the name of a channel: the connection's name and the channel's number."""
    return f"{channel.connection.origin.name} ({channel.number})"


def forget_deliveries(connection: Connection091, most: i64) -> i64:
    """Forget unsettled deliveries of deleted queues; see `OpenConnection`."""
    left = most
    for channel in channels_of(connection):
        left -= channel.unacked.forget(left)
        if channel.transaction is not None:
            left -= channel.transaction.forget(left)
    return most - left


def release_channels(connection: Connection091) -> None:
    """Release everything that the channels own, after stopping the deliveries to all channels.

    Otherwise messages of the first channel would be delivered to the second channel of the same connection.
    """
    channels = channels_of(connection)
    drop_bodies(connection)
    for channel in channels:
        channel.stop_deliveries()
    for channel in channels:
        channel.release_everything("the connection ended")
        connection.on_channel_closed(channel.number)
    connection.pending_confirms = []
    if connection.held is not None:
        connection.held.forget()
    if connection.virtual_host is not None:
        connection.server.connections.remove(connection, connection.user, connection.virtual_host.name)
        journal = connection.virtual_host.journal
        before = journal.actor
        journal.actor = connection
        try:
            connection.virtual_host.declarations.delete_exclusive_queues(connection)
        finally:
            journal.actor = before


def handle_control(connection: Connection091, method: int, payload: bytes) -> None:
    """Take a method of channel 0. Raises ProtocolError."""
    if method >> 16 != c.CLASS_CONNECTION:
        methods.decode_method(method, payload)
        raise ProtocolError(CHANNEL_ERROR, f"method of class {method >> 16} on channel 0", method)
    frame = methods.decode_method(method, payload)
    state = advance(connection.state, method)
    if state == CLOSED:
        accept_close(connection)
    elif method == c.CONNECTION_UPDATE_SECRET:
        renew_secret(connection)
    elif connection.handshake is not None:
        connection.state = state
        connection.handshake.on_method(method, frame)
        if connection.state == OPEN:
            connection.handshake = None


CLOSING_SECONDS: Final = 5
GATHERED_BYTES_MAX: Final = 1048576  # for incomplete contents, on all channels, while memory is short


@final
class Connection091(Connection091State):
    """A connection of an AMQP 0-9-1 client."""

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(server, scheduler, edge, origin)
        self.channel_count: i64 = 0
        self.handshake: Handshake | None = Handshake(self)
        self._steps = Steps(self)
        self._holds: i64 = 0  # the reasons for keeping frames back
        self._unread: i64 = 0  # bytes of answers since the peer stopped reading
        self.closes_answered: i64 = 0  # the number of the peer's connection.close that are answered
        self._close_watch = CloseWatch()
        self._has_ended = False

    def start(self) -> None:
        """Send connection.start. [amqp-0-9-1 1.4.2.1]"""
        if self.handshake is not None:
            self.handshake.start()
        self.flush()

    # -- input

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with a single write."""
        if self.state == CLOSING:
            await_close_ok(self, self._close_watch.feed(data))
            return
        if self.state == CLOSED:
            answer_closes(self, self._close_watch.feed(data))
            return
        self._take(data)
        if (
            self.publishes
            and not self.waits_for_log
            and self.server.store.unsynced_bytes > UNSYNCED_BYTES_MAX
        ):
            throttle(self)

    def _take(self, data: bytes | None) -> None:
        """Handle `data`, or the kept bytes if None. An error ends the connection and is not raised."""
        allowance = self.server.broker.schedule.allowance
        before = allowance.begin(self._steps)
        try:
            if data is None:
                self.wire.resume()
            else:
                self.server.shortage.count_received(len(data))
                if self.handshake is not None:
                    self.handshake.count_bytes(len(data))
                self.wire.feed(data)
        except ProtocolError as error:
            self.fail(error)
        except Exception:
            self.internal_error()
        finally:
            allowance.end(before)
        if self.wire.rest and self.state == CLOSED:
            answer_closes(self, self._close_watch.feed(self.wire.rest))
            self.wire.rest = b""
        if self.server.shortage.memory and self.held is None and self.wire.gathered() > GATHERED_BYTES_MAX:
            hold_publisher(self)
        self.end_turn()
        if self.held is not None:
            self.held.check_kept_frames()

    def internal_error(self) -> None:
        """Close this connection only, over the broker's own error."""
        _log.exception("internal error", peer=self.peer)
        self.fail(ProtocolError(INTERNAL_ERROR, "internal error, see the broker's log"))

    def hold(self, reason: i64) -> None:
        """Take no more frames, and pause reading."""
        self.keep_frames(reason)
        self.edge.hold(reason)

    def keep_frames(self, reason: i64) -> None:
        """Take no more frames, but continue to read."""
        self._holds |= reason
        self.wire.suspend()

    def kept_bytes(self) -> i64:
        """Return the number of bytes that were read and kept back."""
        return len(self.wire.kept())

    def ignores_input(self) -> bool:
        """Whether the connection takes no frames any more."""
        return self.wire.stopped

    def release(self, reason: i64) -> None:
        """Release reasons; continue unless others are left."""
        if self._holds & reason:
            self._holds &= ~reason
            self.edge.release(reason)
            if self._holds == 0:
                self._take(None)
            else:
                self.flush()  # perhaps an answer that has waited for the log

    def end_turn(self) -> None:
        """Send the confirms that can be sent, and flush."""
        if self.pending_confirms:
            pending_confirms = self.pending_confirms
            self.pending_confirms = []
            for confirms in pending_confirms:
                confirms.end_turn()
        self.answer()

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method that is not on the hot path."""
        self.server.broker.schedule.allowance.use(METHOD + len(payload) // PAYLOAD)
        if channel == 0:
            handle_control(self, method, payload)
            return
        if self.state != OPEN:
            raise not_open_error(self, channel, method)
        incoming = self.wire.channel(channel)
        if isinstance(incoming, Channel):
            incoming.on_method(method, payload)
        elif method == c.CHANNEL_OPEN:
            open_channel(self, channel)
        elif method != c.CHANNEL_CLOSE_OK:  # the answer to a close that crossed the peer's own close
            raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", method)

    def on_channel_closed(self, number: i64) -> None:
        """Free the number of a channel that both sides have closed."""
        channel = self.wire.channels[number]
        if isinstance(channel, Channel):
            channel.count_confirms().flush(self.server.connections.traffic[AMQP091])
        self.wire.channels[number] = None
        self.channel_count -= 1
        self.server.counters.channels_closed += 1
        self.server.connections.add_channels(self.user, -1)

    # -- output

    def pump(self, budget: i64) -> None:
        """Deliver to this client, and write the deliveries."""
        if self.vhost_is_deleted:
            self.scheduled = False
            return
        if self._has_ended or self.edge.is_closing():
            self.set_blocked(True)  # deliveries to a dying socket would only be redelivered
        self.full = self.bodies is not None
        try:
            super().pump(budget)
        except Exception:  # perhaps a message that cannot be read back
            self.internal_error()
        self.full = False
        self.unwritten = self.scheduled and len(self.out) < FLUSH_BYTES_MIN and self.bodies is None
        if not self.unwritten:
            self.flush()  # else a later turn of the same slice of time writes both

    def write_output(self) -> None:
        """Write the output that earlier turns have left."""
        self.unwritten = False
        self.flush()

    def set_blocked(self, blocked: bool) -> None:
        """Note that the transport is full (True), or takes data again (False)."""
        super().set_blocked(blocked)
        if not blocked:
            self._unread = 0
            self.flush()  # output that was written outside a turn
            for reader in list(self.readers):
                reader.resume()
            if not self.blocked:
                self.release(HELD_FOR_PEER)

    def flush(self) -> None:
        """Write the output of the turn, once."""
        if self.bodies is not None and not send_bodies(self, self.bodies):
            return
        if len(self.out) > 0:
            self.edge.write(take_output(self))

    def answer(self) -> None:
        """Flush answers. A peer that sends on and reads nothing is held until it reads.

        Deliveries do not count, because they stop by themselves, and a client may be busy sending meanwhile.
        """
        size: i64 = len(self.out)
        self.flush()
        if self.blocked:
            self._unread = self._unread + size if self.bodies is None else unsent_bytes(self)
            if self._unread > UNREAD_BYTES_MAX and not self.wire.stopped:
                self.hold(HELD_FOR_PEER)

    # -- the end of the connection

    def fail(self, error: ProtocolError) -> None:
        """Close with an error, release everything, and wait for close-ok."""
        if self._has_ended or self.state in (CLOSING, CLOSED):
            return
        log_connection_error(self, error)
        self.close(error.code, error.reply_text, error.method)

    def close(self, code: int, text: str, method: int = 0) -> None:
        """Send connection.close and wait for close-ok; all other input is ignored."""
        if self._has_ended or self.state in (CLOSING, CLOSED):
            return
        self.state = advance(self.state, ERROR)
        self.wire.stop()
        release_channels(self)
        self.out.write(methods.close(0, code, text, method))
        self._holds = 0
        self.edge.release(HELD)
        self.edge.limit_close(CLOSING_SECONDS)
        self.flush()

    def on_rights_changed(self) -> None:
        """Notify all channels that the user's permissions have changed."""
        for channel in channels_of(self):
            channel.on_rights_changed()

    def on_shortage(self) -> None:
        """Make the next publish of each channel check for the shortage."""
        for channel in channels_of(self):
            channel.forget_publications()

    def part_bytes(self) -> i64:
        """Return the bytes in memory of incomplete contents."""
        size: i64 = self.wire.gathered()
        for channel in channels_of(self):
            size += channel.part_bytes()
        return size

    def require_memory(self) -> None:
        """Hold the connection after a declaration while memory is short."""
        if self.server.shortage.memory:
            hold_publisher(self)

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
        return forget_deliveries(self, most)

    def channels_open(self) -> int:
        """Return the number of channels."""
        return len(channels_of(self))

    def force_close(self, reason: str) -> None:
        """Close with 320. [amqp-0-9-1 connection-forced]"""
        if self.state == OPEN:
            self.close(CONNECTION_FORCED, f"CONNECTION_FORCED - {reason}")
        else:
            self.edge.close()

    def drop(self) -> None:
        """Close the socket without connection.close, which the peer would not understand.

        Output that was written before is still sent.
        """
        self.state = CLOSED
        self.wire.stop()
        self.flush()
        self.edge.close()

    def on_lost(self, reason: str) -> None:
        """End the connection: the socket is closed."""
        if not self._has_ended and not self._steps.defer_end(reason):
            self._has_ended = True
            if self.state == OPEN:
                log_lost_socket(self, reason)
            self.state = CLOSED
            self.wire.stop()
            release_channels(self)
            if self.handshake is not None:
                self.handshake.abandon()
                self.handshake = None
            self.forget_targets()
            self.out = BytesWriter()
