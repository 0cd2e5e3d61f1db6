"""A client's connection of AMQP 0-9-1 with a single channel: bytes in, calls and bytes out.

The client has no socket and no clock. Its owner passes received bytes to `receive`, writes the bytes of
`take_output`, and calls `beat` from time to time. The states are those of [amqp-0-9-1 2.2.4], seen from the
client. Contents are passed on as they were received and written as they are stored: a header frame and body
frames in a single slice, which is never decoded.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i32_be
from mypy_extensions import i64, mypyc_attr
from pamqp import base, commands

from protocol.amqp091 import constants as c
from protocol.amqp091.constants import (
    BASIC_DELIVER,
    BASIC_PUBLISH,
    FRAME_END,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
)
from protocol.amqp091.content import (
    header_frame_bytes,
    largest_frame,
    write_content,
    write_frames,
    write_split,
)
from protocol.amqp091.fields import Reader
from protocol.amqp091.incoming import IncomingChannel
from protocol.amqp091.methods import decode_method, method_frame, settle, short_string
from protocol.amqp091.table import encode_table
from protocol.amqp091.wire import Wire
from protocol.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONTENT_TOO_LARGE,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    ProtocolError,
)
from protocol.sasl import AMQPLAIN, PLAIN, Credentials
from protocol.scram import MECHANISM as SCRAM
from protocol.scram import ClientExchange

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
CHANNEL: Final = 1
BEATS_MAX: Final = 4  # calls of `beat` without input, two in each heartbeat interval, before the peer is dead
MECHANISMS: Final = (SCRAM, PLAIN, AMQPLAIN)
"""The mechanisms of a client that names none, the preferred one first."""

CAPABILITIES: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)
"""The capabilities that the client has. [RabbitMQ client-properties]"""

START: Final = "waiting for connection.start"
TUNE: Final = "waiting for connection.tune"
OPENING: Final = "waiting for connection.open-ok"
OPENING_CHANNEL: Final = "waiting for channel.open-ok"
READY: Final = "ready"
CHANNEL_CLOSED: Final = "without a channel"
CLOSING: Final = "waiting for connection.close-ok"
CLOSED: Final = "closed"

KEPT_BYTES_MAX: Final = 1 << 20  # the buffer of the output keeps its room up to this size

_MANDATORY: Final = 1
_PUBLISH_EXTRA: Final = 4 + 2 + 1  # method id, reserved, bits


@final
class Login(Credentials):
    """The log-in of a client, and its wishes for the connection; 0: the peer's value counts.

    `heartbeat`: in seconds; 0: there are no heartbeats; None: the peer's value counts. `capabilities`: those
    of the client. [RabbitMQ client-properties] `nonce`: for SCRAM-SHA-256, which the client uses only with a
    nonce: printable ASCII without commas, never used before.
    """

    def __init__(
        self,
        user: str,
        password: str,
        vhost: str,
        mechanisms: tuple[str, ...] = MECHANISMS,
        heartbeat: int | None = None,
        frame_max: int = 0,
        channel_max: int = 0,
        capabilities: tuple[str, ...] = CAPABILITIES,
        nonce: str = "",
    ) -> None:
        usable = tuple(each for each in mechanisms if each != SCRAM or nonce)
        super().__init__(user, password, usable)
        self.nonce = nonce
        self.vhost = vhost
        self.heartbeat = heartbeat
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.capabilities = capabilities


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientHandler:
    """The owner of a client, which takes its calls. The calls may write to the client, and close it."""

    def on_ready(self) -> None:
        """Note that the channel is open; this follows each `open_channel`."""
        raise NotImplementedError

    def on_salt(self, salt: bytes, iterations: int) -> None:
        """Begin to salt the password of the log-in, and pass the result to `Client.continue_login`."""
        raise NotImplementedError

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Take a message. `address`: exchange and routing key, encoded. `size`: the bytes of the body.

        `content` and `traits`: as for `IncomingChannel.on_publish`. If `size` is more than WHOLE_BYTES_MAX,
        `content` is the header frame alone. The body frames follow with `on_piece`.
        """
        raise NotImplementedError

    def on_piece(self, frames: bytes, size: i64) -> None:
        """Take body frames of the large body that was delivered last, with `size` bytes of the body."""
        raise NotImplementedError

    def on_get_answer(self, found: bool) -> None:
        """Note whether the queue had a message for a `get`; if so, `on_delivery` follows."""
        raise NotImplementedError

    def on_confirm(self, tag: i64, multiple: bool, accepted: bool) -> None:
        """Take a confirm: the peer has taken, or refused, one publish or all up to this number."""
        raise NotImplementedError

    def on_return(self, code: int, text: str) -> None:
        """Note that the peer has returned a mandatory message, whose confirm follows."""
        raise NotImplementedError

    def on_blocked(self, reason: str) -> None:
        """Note that the peer is short of something and takes no publishes; "": the shortage is over.

        This says nothing of the channel's flow, and `on_flow` says nothing of a shortage.
        """
        raise NotImplementedError

    def on_flow(self, active: bool) -> None:
        """Note that the peer stops, or restarts, the flow of publishes on the channel."""
        raise NotImplementedError

    def on_cancelled(self) -> None:
        """Note that the peer has cancelled the consumer, whose queue was deleted."""
        raise NotImplementedError

    def on_channel_closed(self, code: int, text: str) -> None:
        """Note that the peer has closed the channel over an error; `open_channel` opens another one."""
        raise NotImplementedError

    def on_closed(self, code: int, text: str) -> None:
        """Note that the connection has ended, by the peer or over an error of the peer; 0: both agreed.

        The owner writes the rest of the output and hangs up.
        """
        raise NotImplementedError


@final
class ClientChannel(IncomingChannel):
    """The channel of a client, whose contents are deliveries and returned messages."""

    def __init__(self, handler: ClientHandler, body_bytes_max: i64) -> None:
        super().__init__(body_bytes_max)
        self.content_method = BASIC_DELIVER
        self.returning = False  # the next content is a returned message
        self.getting = False  # the next content answers a basic.get
        self._delivers = False  # the head of a large body has been delivered
        self._handler = handler

    def check_arguments(self, data: bytes, p: i64, end: i64) -> None:
        """Check the frame of a basic.deliver at `p`. Raises ProtocolError(SYNTAX_ERROR)."""
        _tag_offset(data[p + 11 : end])

    def on_publish(self, arguments: bytes, content: bytes, size: i64, traits: i64) -> None:
        """Take a whole message; `arguments` are those of basic.deliver or basic.return."""
        if self._delivers:
            self._delivers = False
            return
        if self.returning:
            self.returning = False
            reader = Reader(arguments)
            code = int.from_bytes(reader.take(2), "big")
            self._handler.on_return(code, _short_string(reader))
            return
        if self.getting:
            self.getting = False
            self._deliver_got(arguments, content, size, traits)
            return
        self._deliver(arguments, content, size, traits)

    def _deliver(self, arguments: bytes, content: bytes, size: i64, traits: i64) -> None:
        p = _tag_offset(arguments)
        tag = read_i64_be(arguments, p)
        self._handler.on_delivery(tag, arguments[p + 8] != 0, arguments[p + 9 :], content, size, traits)

    def _deliver_got(self, arguments: bytes, content: bytes, size: i64, traits: i64) -> None:
        """Deliver the message of a basic.get-ok, whose arguments have been decoded. [amqp-0-9-1 1.8.3.11]"""
        tag, redelivered = read_i64_be(arguments, 0), arguments[8] != 0
        self._handler.on_delivery(tag, redelivered, arguments[9:-4], content, size, traits)

    def on_piece(self, frames: bytes, size: i64, traits: i64) -> None:
        """Take a piece of a large body. The pieces of a returned message are dropped."""
        if self.returning:
            return
        if not self._delivers:
            self._delivers = True
            if self.getting:
                self.getting = False
                self._deliver_got(self._arguments, self._head, self._size, traits)
            else:
                self._deliver(self._arguments, self._head, self._size, traits)
        self._handler.on_piece(frames, size)

    def on_ack(self, tag: i64, multiple: bool) -> None:
        """Take a confirm."""
        self._handler.on_confirm(tag, multiple, True)

    def on_oversized(self, size: i64) -> None:
        """Refuse a message that is larger than this side takes. Raises ProtocolError."""
        raise ProtocolError(
            CONTENT_TOO_LARGE,
            f"a message of {size} bytes is larger than the largest allowed, {self.body_bytes_max}",
            BASIC_DELIVER,
        )

    def on_kept(self, method: i64) -> None:
        """Do nothing: a client holds no frames back."""


@final
class Client:
    """A client's connection, with a channel that publishes, or consumes one queue, or both.

    `properties`: the client-properties, without capabilities. `body_bytes_max`: the largest body that the
    client takes. `server_properties`: the properties of the peer, after connection.start. `published`: the
    number of the last publish, counted from 1 on each channel.
    """

    def __init__(
        self, handler: ClientHandler, login: Login, properties: Mapping[str, object], body_bytes_max: i64
    ) -> None:
        self.state = START
        self.server_properties: dict[str, object] = {}
        self.frame_max: i64 = FRAME_MIN_SIZE
        self.heartbeat = 0
        self.published: i64 = 0
        self._handler = handler
        self._login = login
        self._exchange: ClientExchange | None = None  # a log-in by SCRAM that is not over
        self._properties = properties
        self._body_bytes_max = body_bytes_max
        self._wire = Wire(self, 131072)  # some peers send a long connection.start
        self._channel: ClientChannel | None = None
        self._awaited: deque[tuple[int, Callable[[base.Frame], None]]] = deque()
        self._out = BytesWriter()
        self._has_sent = False
        self._has_received = False
        self._silent_beats = 0

    @property
    def beat_ms(self) -> int:
        """The time between two calls of `beat`, 0: none are needed."""
        return self.heartbeat * 500

    def start(self) -> None:
        """Send the protocol header. [amqp-0-9-1 4.2.2]"""
        self._out.write(PROTOCOL_HEADER)

    def start_open(self, frame_max: int) -> None:
        """Start on a connection whose peer needs no handshake: open the channel at once."""
        self.frame_max = self._wire.frame_max = frame_max
        self.state = OPENING
        self.open_channel()

    # -- bytes

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the peer. An error of the peer ends the connection and is not raised."""
        self._has_received = True
        try:
            self._wire.feed(data)
        except ProtocolError as error:
            self._fail(error)

    def take_output(self) -> bytes:
        """Return the bytes to send, and remove them from the client."""
        if len(self._out) == 0:
            return b""
        self._has_sent = True
        output = self._out.getvalue()
        if len(output) > KEPT_BYTES_MAX:
            self._out = BytesWriter()
        else:
            self._out.truncate(0)  # and its room stays
        return output

    def beat(self, reads: bool = True) -> bool:
        """Note that half of a heartbeat interval has passed; false: the peer is dead. [amqp-0-9-1 4.2.7]

        `reads`: this side has taken what the peer has sent meanwhile; otherwise silence means nothing. Writes
        a heartbeat if nothing has been sent meanwhile.
        """
        if self._has_received or not reads:
            self._silent_beats = 0
        else:
            self._silent_beats += 1
        self._has_received = False
        if not self._has_sent and self.state not in (START, CLOSED):
            self._out.write(c.HEARTBEAT_FRAME)
        self._has_sent = False
        return self._silent_beats < BEATS_MAX

    # -- requests

    def open_channel(self) -> None:
        """Open the channel, after the connection or after the end of an earlier channel."""
        assert self.state in (OPENING, CHANNEL_CLOSED), f"a connection that is {self.state} opens no channel"
        self.state = OPENING_CHANNEL
        self.published = 0
        self._channel = ClientChannel(self._handler, self._body_bytes_max)
        self._wire.channels = [None, self._channel]
        self._out.write(method_frame(CHANNEL, c.CHANNEL_OPEN, b"\0"))

    def ask(self, request: base.Frame, reply: int, done: Callable[[base.Frame], None]) -> None:
        """Send a synchronous method on the channel; `done` gets its answer, a method with the id `reply`."""
        self._awaited.append((reply, done))
        self._out.write(method_frame(CHANNEL, request.index, request.marshal()))

    def request(
        self, method: int, arguments: bytes, reply: int, done: Callable[[base.Frame], None] | None = None
    ) -> None:
        """Send a synchronous method with encoded arguments; `done` gets its answer, as for `ask`."""
        self._awaited.append((reply, done or _ignore))
        self._out.write(method_frame(CHANNEL, method, arguments))

    def order(self, method: int, arguments: bytes) -> None:
        """Send a method with encoded arguments, to which the peer sends no answer (no-wait)."""
        self._out.write(method_frame(CHANNEL, method, arguments))

    def consume(
        self, queue: str, tag: str, no_ack: bool, arguments: bytes, done: Callable[[base.Frame], None]
    ) -> None:
        """Send basic.consume; `arguments` is an encoded table. [amqp-0-9-1 1.8.3.3]"""
        self._awaited.append((c.BASIC_CONSUME_OK, done))
        name, bits = short_string(queue) + short_string(tag), bytes([2 if no_ack else 0])
        self._out.write(method_frame(CHANNEL, c.BASIC_CONSUME, b"\0\0" + name + bits + arguments))

    def cancel(self, tag: str) -> None:
        """Send basic.cancel, without an answer. [amqp-0-9-1 1.8.3.5]"""
        self._out.write(method_frame(CHANNEL, c.BASIC_CANCEL, short_string(tag) + b"\1"))

    def get(self, queue: str) -> None:
        """Send basic.get; its message is to be acknowledged. [amqp-0-9-1 1.8.3.10]"""
        self._out.write(method_frame(CHANNEL, c.BASIC_GET, b"\0\0" + short_string(queue) + b"\0"))

    def declare(
        self, queue: str, flags: int, arguments: bytes, done: Callable[[commands.Queue.DeclareOk], None]
    ) -> None:
        """Send queue.declare; `flags`: PASSIVE, DURABLE, EXCLUSIVE. [amqp-0-9-1 1.7.2.1]"""

        def take(frame: base.Frame) -> None:
            assert isinstance(frame, commands.Queue.DeclareOk), "the id of the method has been compared"
            done(frame)

        self._awaited.append((c.QUEUE_DECLARE_OK, take))
        request = b"\0\0" + short_string(queue) + bytes([flags]) + arguments
        self._out.write(method_frame(CHANNEL, c.QUEUE_DECLARE, request))

    def publish(self, address: bytes, content: bytes, mandatory: bool) -> None:
        """Publish a content, or the header of a large body, whose frames follow with `add_piece`.

        `address`: exchange and routing key, encoded. Raises ValueError for a content header that is longer
        than a frame of this connection.
        """
        if len(content) > FRAME_MIN_SIZE and header_frame_bytes(content) > self.frame_max:
            raise ValueError(
                f"the content header has {header_frame_bytes(content)} bytes, "
                f"the negotiated frame_max is {self.frame_max}"
            )
        out = self._out
        out.append(FRAME_METHOD)
        out.append(0)
        out.append(CHANNEL)
        write_i32_be(out, _PUBLISH_EXTRA + len(address))
        write_i32_be(out, BASIC_PUBLISH)
        out.append(0)
        out.append(0)
        out.write(address)
        out.append(_MANDATORY if mandatory else 0)
        out.append(FRAME_END)
        if len(content) > self.frame_max and largest_frame(content) > self.frame_max:
            write_split(out, content, CHANNEL, self.frame_max)
        elif content[1] == 0 and content[2] == CHANNEL and len(content) <= FRAME_MIN_SIZE:
            out.write(content)
        else:
            write_content(out, content, CHANNEL)
        self.published += 1

    def add_piece(self, frames: bytes) -> None:
        """Write body frames of the message that was published last."""
        write_frames(self._out, frames, CHANNEL, self.frame_max)

    def ack(self, tag: i64, multiple: bool) -> None:
        """Acknowledge a delivery, or all up to this one. [amqp-0-9-1 1.8.3.13]"""
        self._out.write(settle(CHANNEL, c.BASIC_ACK, tag, 1 if multiple else 0))

    def reject(self, tag: i64) -> None:
        """Reject a delivery, which the peer dead-letters or drops. [amqp-0-9-1 1.8.3.14]"""
        self._out.write(settle(CHANNEL, c.BASIC_REJECT, tag, 0))

    def requeue(self, tag: i64, multiple: bool) -> None:
        """Return a delivery, or all up to this one, to the queue. [RabbitMQ basic.nack]"""
        self._out.write(settle(CHANNEL, c.BASIC_NACK, tag, 3 if multiple else 2))

    def close(self) -> None:
        """Send connection.close; everything but close-ok is ignored from now on."""
        if self.state in (CLOSING, CLOSED):
            return
        if self.state in (START, TUNE):
            self._end()
            return
        self.state = CLOSING
        self._awaited.clear()
        if self._channel is not None:
            self._channel.discard()
        request = b"\x00\xc8" + short_string("Goodbye") + b"\0\0\0\0"  # no method is to blame
        self._out.write(method_frame(0, c.CONNECTION_CLOSE, request))

    # -- methods

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method that is neither a delivery nor an ack. Raises ProtocolError."""
        if self.state == CLOSING:
            if method in (c.CONNECTION_CLOSE_OK, c.CONNECTION_CLOSE):
                if method == c.CONNECTION_CLOSE:
                    self._out.write(method_frame(0, c.CONNECTION_CLOSE_OK))
                self._end()
                self._handler.on_closed(0, "")
            return
        if channel == 0:
            self._on_control(method, decode_method(method, payload))
        elif channel == CHANNEL and self._channel is not None:
            self._on_channel(self._channel, method, payload)
        else:
            raise ProtocolError(CHANNEL_ERROR, f"method on channel {channel}, which is not open", method)

    def _on_control(self, method: int, frame: base.Frame) -> None:
        """Take a method of the connection."""
        if isinstance(frame, commands.Connection.Close):
            self._out.write(method_frame(0, c.CONNECTION_CLOSE_OK))
            self._end()
            self._handler.on_closed(frame.reply_code or 0, str(frame.reply_text))
        elif isinstance(frame, commands.Connection.Start) and self.state == START:
            self._take_start(frame)
        elif isinstance(frame, commands.Connection.Secure) and self._exchange is not None:
            self._take_secure(self._exchange, frame)
        elif isinstance(frame, commands.Connection.Tune) and self.state == TUNE and self._exchange is None:
            self._take_tune(frame)
        elif isinstance(frame, commands.Connection.OpenOk) and self.state == OPENING:
            self.open_channel()
        elif isinstance(frame, commands.Connection.Blocked):
            self._handler.on_blocked(str(frame.reason) or "blocked")
        elif isinstance(frame, commands.Connection.Unblocked):
            self._handler.on_blocked("")
        else:
            raise self._unexpected(frame, method)

    def _take_start(self, frame: commands.Connection.Start) -> None:
        login = self._login
        self.server_properties = dict(frame.server_properties or {})
        mechanism = login.choose(str(frame.mechanisms))
        if mechanism == SCRAM:
            self._exchange = ClientExchange(login.user, login.nonce)
            response = self._exchange.first()
        else:
            response = login.respond(mechanism)
        properties = {**self._properties, "capabilities": dict.fromkeys(login.capabilities, True)}
        self.state = TUNE
        self._out.write(
            method_frame(
                0,
                c.CONNECTION_START_OK,
                encode_table(properties)
                + short_string(mechanism)
                + len(response).to_bytes(4, "big")
                + response
                + short_string("en_US"),
            )
        )

    def _take_secure(self, exchange: ClientExchange, frame: commands.Connection.Secure) -> None:
        """Take a challenge of the peer, or its proof of knowing the password. [amqp-0-9-1 1.4.2.3]"""
        challenge = frame.challenge or b""
        message = challenge.encode(errors="surrogateescape") if isinstance(challenge, str) else challenge
        if not exchange.is_challenged:
            exchange.take_challenge(message)
            self._handler.on_salt(exchange.salt, exchange.iterations)
        elif exchange.check(message):
            self._exchange = None
            self._respond(b"")
        else:
            raise ProtocolError(
                COMMAND_INVALID, "the peer does not know the password of the log-in", c.CONNECTION_SECURE
            )

    def continue_login(self, salted: bytes) -> None:
        """Continue a log-in with the salted password. Ignored after the end of the log-in."""
        if self._exchange is not None and self.state == TUNE:
            self._respond(self._exchange.final(salted))

    def _respond(self, response: bytes) -> None:
        """Send connection.secure-ok. [amqp-0-9-1 1.4.2.4]"""
        size = len(response).to_bytes(4, "big")
        self._out.write(method_frame(0, c.CONNECTION_SECURE_OK, size + response))

    def _take_tune(self, frame: commands.Connection.Tune) -> None:
        """Take the smaller limits of both sides, and the shorter heartbeat. [amqp-0-9-1 1.4.2.5, 1.4.2.6]"""
        login = self._login
        channel_max = _least(int(frame.channel_max), login.channel_max)
        frame_max = _least(int(frame.frame_max), login.frame_max) or 131072
        if frame_max < FRAME_MIN_SIZE:
            raise ProtocolError(
                SYNTAX_ERROR, f"frame_max {frame_max} is below the least, {FRAME_MIN_SIZE}", c.CONNECTION_TUNE
            )
        self.frame_max = self._wire.frame_max = frame_max
        own = login.heartbeat
        if own is None:
            self.heartbeat = int(frame.heartbeat)
        else:
            self.heartbeat = _least(int(frame.heartbeat), own) if own else 0
        self.state = OPENING
        limits = struct.pack(">HIH", channel_max, frame_max, self.heartbeat)
        self._out.write(method_frame(0, c.CONNECTION_TUNE_OK, limits))
        self._out.write(method_frame(0, c.CONNECTION_OPEN, short_string(login.vhost) + b"\0\0"))

    def _on_channel(self, channel: ClientChannel, method: int, payload: bytes) -> None:
        """Take a method of the channel."""
        if method == c.BASIC_NACK and len(payload) == 13:
            self._handler.on_confirm(read_i64_be(payload, 4), payload[12] & 1 != 0, False)
        elif method == c.BASIC_RETURN:
            decode_method(method, payload)
            channel.returning = True
            channel.begin_content(payload[4:])
        elif method == c.BASIC_GET_OK:
            decode_method(method, payload)
            self._handler.on_get_answer(True)
            channel.getting = True
            channel.begin_content(payload[4:])
        elif method == c.BASIC_GET_EMPTY:
            self._handler.on_get_answer(False)
        else:
            done = self._take_awaited(method)
            frame = decode_method(method, payload)
            if done is None:
                self._on_event(method, frame)
            else:
                done(frame)

    def _take_awaited(self, method: int) -> Callable[[base.Frame], None] | None:
        """Return what takes an answer, the first one that awaits this method; None: nobody awaits it.

        RabbitMQ answers basic.consume and basic.cancel of quorum queues later than the requests behind them.
        """
        for place, (reply, done) in enumerate(self._awaited):
            if reply == method:
                del self._awaited[place]
                return done
        return None

    def _on_event(self, method: int, frame: base.Frame) -> None:
        """Take a method of the channel that answers no request."""
        if isinstance(frame, commands.Channel.OpenOk) and self.state == OPENING_CHANNEL:
            self.state = READY
            self._handler.on_ready()
        elif isinstance(frame, commands.Channel.Close):
            self._out.write(method_frame(CHANNEL, c.CHANNEL_CLOSE_OK))
            self._channel = None
            self._wire.channels = []
            self._awaited.clear()
            self.state = CHANNEL_CLOSED
            self._handler.on_channel_closed(frame.reply_code or 0, str(frame.reply_text))
        elif isinstance(frame, commands.Channel.Flow):
            self._out.write(method_frame(CHANNEL, c.CHANNEL_FLOW_OK, bytes([bool(frame.active)])))
            self._handler.on_flow(bool(frame.active))
        elif isinstance(frame, commands.Basic.Cancel):
            self._handler.on_cancelled()
        else:
            raise self._unexpected(frame, method)

    def _unexpected(self, frame: base.Frame, method: int) -> ProtocolError:
        return ProtocolError(UNEXPECTED_FRAME, f"{frame.name} on a connection that is {self.state}", method)

    # -- the end

    def _fail(self, error: ProtocolError) -> None:
        """Close over an error of the peer, which is informed if it would understand."""
        if self.state == CLOSED:
            return
        if self.state == CLOSING:
            self._end()
            self._handler.on_closed(0, "")
            return
        if self.state not in (START, TUNE):
            close = struct.pack(">H", error.code) + short_string(error.text)
            close += struct.pack(">I", error.method & 0xFFFFFFFF)
            self._out.write(method_frame(0, c.CONNECTION_CLOSE, close))
        self._end()
        self._handler.on_closed(error.code, error.reply_text)

    def _end(self) -> None:
        self.state = CLOSED
        self._awaited.clear()
        self._channel = None
        self._wire.stop()


PASSIVE: Final = 1
DURABLE: Final = 2
EXCLUSIVE: Final = 4


def _ignore(frame: base.Frame) -> None:
    """Ignore an answer that only says that the request was done."""


def _least(one: int, other: int) -> int:
    """Return the smaller of two limits, where 0 is no limit."""
    return min(one, other) if one and other else one or other


def _tag_offset(arguments: bytes) -> i64:
    """Return the offset of the delivery tag in basic.deliver's arguments. Raises ProtocolError."""
    n: i64 = len(arguments)
    p: i64 = 1 + arguments[0] if n > 0 else n
    q: i64 = p + 9  # behind the tag and the octet `redelivered`
    for _ in range(2):
        if q < n:
            q += 1 + arguments[q]
    if q != n or q < p + 11:
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Deliver", BASIC_DELIVER)
    return p


def _short_string(reader: Reader) -> str:
    return reader.take(reader.take(1)[0]).decode(errors="replace")
