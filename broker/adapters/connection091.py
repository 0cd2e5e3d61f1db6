"""One AMQP 0-9-1 connection: its states, its channels, its errors. [amqp-0-9-1 1.4]

Control methods go through the table of `protocol.amqp091.connection`; the handshake is in `handshake091`,
channels are in `channel091`. A peer's mistake ends at most its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.channel091 import Channel
from broker.adapters.confirms import Confirms
from broker.adapters.handshake091 import Handshake
from broker.adapters.log_waiters import UNSYNCED_BYTES_MAX, DurableReply, LogBrake
from broker.adapters.server import HELD_FOR_LOG, HELD_FOR_REPLY, Edge, Server
from broker.core.connection import Connection, Scheduler
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import CLOSED, CLOSING, ERROR, OPEN, STARTING, advance
from protocol.amqp091.wire import Wire
from protocol.errors import (
    CHANNEL_ERROR,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    REPLY_NAMES,
    ProtocolError,
)

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost

CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
CLOSING_SECONDS: Final = 5
FLUSH_BYTES_MIN: Final = 65536

_log = structlog.get_logger("amqpd.connection")


@final
class Connection091(Connection):
    """What one client has open. Created by the transport after the protocol header, gone with the socket."""

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, peer: str, loopback: bool) -> None:
        super().__init__(scheduler)
        self.server = server
        self.edge = edge
        self.peer = peer
        self.loopback = loopback
        self.state = STARTING
        self.user = ""
        self.client_name = ""
        self.client_capabilities: dict[str, object] = {}
        self.virtual_host: VirtualHost | None = None
        self.frame_max: i64 = server.frame_max
        self.channel_max: i64 = server.channel_max
        self.heartbeat: i64 = 0
        self.channel_count: i64 = 0
        self.out = BytesWriter()
        self.wire = Wire(self, server.frame_max)
        self.owing: list[Confirms] = []  # channels that owe their publisher an answer at the turn's end
        self._handshake: Handshake | None = Handshake(self)
        self.publishes = False
        self.braked = False
        self._tail = b""
        self._dead = False

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        return self.state == OPEN

    def start(self) -> None:
        """Send connection.start. [amqp-0-9-1 1.4.2.1]"""
        if self._handshake is not None:
            self._handshake.start()
        self.flush()

    # -- in

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        if self.state == CLOSING:
            self._await_close_ok(data)
            return
        try:
            self.wire.feed(data)
        except ProtocolError as error:
            self.fail(error)
        except Exception:
            _log.exception("internal error", peer=self.peer)
            self.fail(ProtocolError(INTERNAL_ERROR, "internal error, see the broker's log"))
        self.end_turn()
        if self.publishes and not self.braked and self.server.store.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.braked = True
            self.edge.hold(HELD_FOR_LOG)
            self.server.store.wait(LogBrake(self))

    def end_turn(self) -> None:
        """Confirm what can be confirmed and flush."""
        if self.owing:
            owing = self.owing
            self.owing = []
            for confirms in owing:
                confirms.end_turn()
        self.flush()

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method that is not the hot path (MethodSink)."""
        if channel == 0:
            self._connection_method(method, payload)
            return
        if self.state != OPEN:
            raise ProtocolError(
                CHANNEL_ERROR, f"channel {channel} used on a connection that is {self.state}", method
            )
        incoming = self.wire.channel(channel)
        if incoming is not None:
            assert isinstance(incoming, Channel)
            incoming.on_method(method, payload)
        elif method == c.CHANNEL_OPEN:
            self._open_channel(channel)
        else:
            raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", method)

    def _connection_method(self, method: int, payload: bytes) -> None:
        if method >> 16 != c.CLASS_CONNECTION:
            methods.decode_method(method, payload)
            raise ProtocolError(CHANNEL_ERROR, f"method of class {method >> 16} on channel 0", method)
        frame = methods.decode_method(method, payload)
        state = advance(self.state, method)
        if state == CLOSED:
            self._closed_by_peer(method)
        elif method == c.CONNECTION_UPDATE_SECRET:
            self.out.write(methods.method_frame(0, c.CONNECTION_UPDATE_SECRET_OK))
        elif self._handshake is not None:
            self.state = state
            self._handshake.on_method(method, frame)
            if self.state == OPEN:
                self._handshake = None

    def _open_channel(self, number: int) -> None:
        if number > self.channel_max:
            raise ProtocolError(
                NOT_ALLOWED,
                f"channel {number} is beyond the negotiated channel_max {self.channel_max}",
                c.CHANNEL_OPEN,
            )
        assert self.virtual_host is not None
        channels = self.wire.channels
        while len(channels) <= number:
            channels.append(None)
        channels[number] = Channel(self, number, self.virtual_host)
        self.channel_count += 1
        self.server.counters.channels_opened += 1
        self.out.write(methods.channel_open_ok(number))

    def channel_closed(self, number: i64) -> None:
        """Both sides agree that the channel is closed: its number is free again."""
        self.wire.channels[number] = None
        self.channel_count -= 1
        self.server.counters.channels_closed += 1

    # -- out

    def pump(self, budget: i64) -> None:
        """Deliver to this client, and write what that produced."""
        if self._dead or self.edge.is_closing():
            self.set_blocked(True)  # what is written to a dying socket only comes back redelivered
        super().pump(budget)
        self.full = False
        if not self.scheduled or len(self.out) >= FLUSH_BYTES_MIN:
            self.flush()  # else another turn follows at once, and one write will do for both

    def flush(self) -> None:
        """Write what the turn has produced, once."""
        if len(self.out) > 0:
            self.edge.write(self.out.getvalue())
            self.out.truncate(0)

    def await_durable(self, reply: bytes) -> None:
        """Answer with `reply` when all that was appended is on disk, and take no more frames before."""
        self.wire.suspend()
        self.edge.hold(HELD_FOR_REPLY)
        self.server.store.wait(DurableReply(self, reply))

    def reply_durable(self, reply: bytes) -> None:
        """Give the answer that waited for the log, and read on."""
        if self._dead or self.state != OPEN:
            return
        self.out.write(reply)
        self.edge.release(HELD_FOR_REPLY)
        try:
            self.wire.resume()
        except ProtocolError as error:
            self.fail(error)
        self.end_turn()

    # -- the end

    def fail(self, error: ProtocolError) -> None:
        """A connection error: say why, let everything go, wait for close-ok. [amqp-0-9-1 1.4.2.9]"""
        if self._dead or self.state in (CLOSING, CLOSED):
            return
        _log.warning(
            "connection error",
            peer=self.peer,
            user=self.user,
            code=error.code,
            name=REPLY_NAMES[error.code],
            reason=error.text,
        )
        self.close(error.code, error.reply_text, error.method)

    def close(self, code: int, text: str, method: int = 0) -> None:
        """Send connection.close and wait for close-ok; whatever else comes is ignored."""
        if self._dead or self.state in (CLOSING, CLOSED):
            return
        self.state = advance(self.state, ERROR)
        self.wire.stop()
        self._let_go()
        self.out.write(methods.close(0, code, text, method))
        self.edge.release(HELD_FOR_REPLY)
        self.edge.release(HELD_FOR_LOG)
        self.edge.closing(CLOSING_SECONDS)
        self.flush()

    def shut_down(self) -> None:
        """The daemon stops: close 320. [amqp-0-9-1 connection-forced]"""
        if self.state == OPEN:
            self.close(CONNECTION_FORCED, "CONNECTION_FORCED - broker shutting down")
        else:
            self.edge.close()

    def drop(self) -> None:
        """Close the socket without a word: the peer cannot be told. What was written before is still sent."""
        self.state = CLOSED
        self.wire.stop()
        self.flush()
        self.edge.close()

    def lost(self, reason: str) -> None:
        """The socket is gone."""
        if not self._dead:
            self._dead = True
            if self.state == OPEN:
                _log.info(
                    "connection lost", peer=self.peer, user=self.user, reason=reason or "closed by the peer"
                )
            self.state = CLOSED
            self.wire.stop()
            self._let_go()

    def _await_close_ok(self, data: bytes) -> None:
        """After an error the stream may be out of step, so look for the one frame that matters."""
        self._tail = (self._tail + data)[-len(CLOSE_OK_FRAME) :]
        if CLOSE_OK_FRAME in self._tail or CLOSE_OK_FRAME in data:
            self.state = CLOSED
            self.edge.close()

    def _closed_by_peer(self, method: int) -> None:
        self.state = CLOSED
        self.wire.stop()
        self._let_go()
        if method == c.CONNECTION_CLOSE:
            self.out.write(methods.method_frame(0, c.CONNECTION_CLOSE_OK))
        self.flush()
        self.edge.close()

    def _let_go(self) -> None:
        """Everything that the channels hold goes back, with every consumer silenced first.

        Otherwise the first channel's messages would go to the second channel of the same dying connection.
        """
        channels = [channel for channel in self.wire.channels if isinstance(channel, Channel)]
        for channel in channels:
            channel.silence()
        for channel in channels:
            channel.let_go()
            self.channel_closed(channel.number)
        self.owing = []
        if self.virtual_host is not None:
            self.virtual_host.delete_exclusive_queues(self)
