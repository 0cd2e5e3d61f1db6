"""One AMQP 0-9-1 connection: its states, its channels, its errors. [amqp-0-9-1 1.4]

Its methods are in `controlling` and `handshake091`, channels in `channel091`. A mistake ends no more than it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters import ending
from broker.adapters.access import Origin
from broker.adapters.channel091 import Channel
from broker.adapters.confirms import Confirms
from broker.adapters.controlling import control
from broker.adapters.handshake091 import FRAME_BYTES_MAX, Handshake
from broker.adapters.held_publisher import HeldPublisher, hold_publisher
from broker.adapters.large_bodies import LargeBodies, send_on, take_out, unsent_bytes
from broker.adapters.log_waiters import UNSYNCED_BYTES_MAX, brake, wait_for_log
from broker.adapters.opening import open_channel
from broker.adapters.served import ServedConnection
from broker.adapters.server import HELD, HELD_FOR_END, HELD_FOR_PEER, Edge, Server
from broker.adapters.turns import Turns
from broker.core.delivery.session import Scheduler
from broker.core.schedule import METHOD, PAYLOAD
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.closing import CloseWatch
from protocol.amqp091.connection import CLOSED, CLOSING, ERROR, OPEN, STARTING, advance
from protocol.amqp091.wire import Wire
from protocol.errors import CHANNEL_ERROR, CONNECTION_FORCED, INTERNAL_ERROR, ProtocolError

if TYPE_CHECKING:
    from broker.core.vhosts.vhost import VirtualHost

CLOSING_SECONDS: Final = 5
FLUSH_BYTES_MIN: Final = 262144
UNREAD_BYTES_MAX: Final = 8388608  # answers to a peer that reads none: beyond it nothing more is asked

_log = structlog.get_logger("amqpd.connection")
GATHERED_BYTES_MAX: Final = 1048576  # of contents in part, on all channels, while memory is short


@final
class Connection091(ServedConnection):
    """One of a client of AMQP 0-9-1."""

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(server, scheduler, edge, origin)
        self.state = STARTING
        self.client_name = ""
        self.client_properties: dict[str, object] = {}
        self.client_capabilities: dict[str, object] = {}
        self.virtual_host: VirtualHost | None = None
        self.frame_max: i64 = server.frame_max
        self.channel_max: i64 = server.channel_max
        self.channel_count: i64 = 0
        self.out = BytesWriter()
        self.bodies: LargeBodies | None = None  # while there are any on their way: `out` waits behind them
        self.wire = Wire(self, FRAME_BYTES_MAX)
        self.owing: list[Confirms] = []  # channels that owe their publisher an answer at the turn's end
        self.handshake: Handshake | None = Handshake(self)
        self.held: HeldPublisher | None = None
        self._turns = Turns(self)
        self._holds: i64 = 0  # reasons for which frames are kept back
        self._unread: i64 = 0  # bytes of answers since the peer stopped reading
        self.closes: i64 = 0  # of the peer that have been answered
        self._close_watch = CloseWatch()
        self._dead = False

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        return self.state == OPEN

    def start(self) -> None:
        """Send connection.start. [amqp-0-9-1 1.4.2.1]"""
        if self.handshake is not None:
            self.handshake.start()
        self.flush()

    # -- in

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        if self.state == CLOSING:
            ending.await_close_ok(self, self._close_watch.feed(data))
            return
        if self.state == CLOSED:
            ending.answer_closes(self, self._close_watch.feed(data))
            return
        self._take(data)
        if self.publishes and not self.braked and self.server.store.unsynced_bytes > UNSYNCED_BYTES_MAX:
            brake(self)

    def _take(self, data: bytes | None) -> None:
        """Handle the next bytes, or those that were kept back. Nothing that goes wrong leaves here."""
        allowance = self.server.broker.schedule.allowance
        before = allowance.begin(self._turns)
        try:
            if data is None:
                self.wire.resume()
            else:
                self.server.shortage.received(len(data))
                if self.handshake is not None:
                    self.handshake.hear(len(data))
                self.wire.feed(data)
        except ProtocolError as error:
            self.fail(error)
        except Exception:
            self.internal_error()
        allowance.end(before)
        if self.wire.rest and self.state == CLOSED:
            ending.answer_closes(self, self._close_watch.feed(self.wire.rest))
            self.wire.rest = b""
        if self.server.shortage.memory and self.held is None and self.wire.gathered() > GATHERED_BYTES_MAX:
            hold_publisher(self)
        self.end_turn()
        if self.held is not None:
            self.held.listen()

    def internal_error(self) -> None:
        """The broker's own mistake costs this connection and no other."""
        _log.exception("internal error", peer=self.peer)
        self.fail(ProtocolError(INTERNAL_ERROR, "internal error, see the broker's log"))

    def hold(self, reason: i64) -> None:
        """Take no more frames, and read no more, until every reason for it has been released."""
        self.keep_back(reason)
        self.edge.hold(reason)

    def keep_back(self, reason: i64) -> None:
        """Take no more frames, but read on."""
        self._holds |= reason
        self.wire.suspend()

    def kept_bytes(self) -> i64:
        """How much of what was read is kept back (ServedConnection)."""
        return len(self.wire.kept())

    def is_deaf(self) -> bool:
        """Whether nothing is listened to any more (ServedConnection)."""
        return self.wire.stopped

    def release(self, reason: i64) -> None:
        """Go on, unless there is another reason not to."""
        if self._holds & reason:
            self._holds &= ~reason
            self.edge.release(reason)
            if self._holds == 0:
                self._take(None)
            else:
                self.flush()  # the answer that the log had to wait for, say

    def end_turn(self) -> None:
        """Confirm what can be confirmed and flush."""
        if self.owing:
            owing = self.owing
            self.owing = []
            for confirms in owing:
                confirms.end_turn()
        self.answer()

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method that is not the hot path (MethodSink)."""
        self.server.broker.schedule.allowance.use(METHOD + len(payload) // PAYLOAD)
        if channel == 0:
            control(self, method, payload)
            return
        if self.state != OPEN:
            raise ending.not_open(self, channel, method)
        incoming = self.wire.channel(channel)
        if isinstance(incoming, Channel):
            incoming.on_method(method, payload)
        elif method == c.CHANNEL_OPEN:
            open_channel(self, channel)
        elif method != c.CHANNEL_CLOSE_OK:  # to a close that has crossed the peer's own, which ended it
            raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", method)

    def channel_closed(self, number: i64) -> None:
        """Both sides agree that the channel is closed: its number is free again."""
        self.wire.channels[number] = None
        self.channel_count -= 1
        self.server.counters.channels_closed += 1
        self.server.connections.add_channels(self.user, -1)

    # -- out

    def pump(self, budget: i64) -> None:
        """Deliver to this client, and write what that produced."""
        if self.leaving:
            self.scheduled = False
            return
        if self._dead or self.edge.is_closing():
            self.set_blocked(True)  # what is written to a dying socket only comes back redelivered
        self.full = self.bodies is not None
        try:
            super().pump(budget)
        except Exception:  # a message that cannot be read back, say
            self.internal_error()
        self.full = False
        if not self.scheduled or len(self.out) >= FLUSH_BYTES_MIN or self.bodies is not None:
            self.flush()  # else another turn follows at once, and one write will do for both

    def set_blocked(self, blocked: bool) -> None:
        """The transport is full (True), or takes data again (False)."""
        super().set_blocked(blocked)
        if not blocked:
            self._unread = 0
            self.flush()  # what was written meanwhile and got no turn
            if not self.blocked:
                self.release(HELD_FOR_PEER)

    def flush(self) -> None:
        """Write what the turn has produced, once."""
        if self.bodies is not None and not send_on(self, self.bodies):
            return
        if len(self.out) > 0:
            self.edge.write(take_out(self))

    def answer(self) -> None:
        """Flush answers. A peer that asks on and reads nothing is not listened to until it reads.

        Deliveries do not count: they stop by themselves, and a client may be busy sending meanwhile.
        """
        size: i64 = len(self.out)
        self.flush()
        if self.blocked:
            self._unread = self._unread + size if self.bodies is None else unsent_bytes(self)
            if self._unread > UNREAD_BYTES_MAX and not self.wire.stopped:
                self.hold(HELD_FOR_PEER)

    # -- the end

    def fail(self, error: ProtocolError) -> None:
        """A connection error: say why, let everything go, wait for close-ok. [amqp-0-9-1 1.4.2.9]"""
        if self._dead or self.state in (CLOSING, CLOSED):
            return
        ending.tell(self, error)
        self.close(error.code, error.reply_text, error.method)

    def close(self, code: int, text: str, method: int = 0) -> None:
        """Send connection.close and wait for close-ok; whatever else comes is ignored."""
        if self._dead or self.state in (CLOSING, CLOSED):
            return
        self.state = advance(self.state, ERROR)
        self.wire.stop()
        ending.let_go(self)
        self.out.write(methods.close(0, code, text, method))
        self._holds = 0
        self.edge.release(HELD)
        self.edge.closing(CLOSING_SECONDS)
        self.flush()

    def rights_changed(self) -> None:
        """What the user may do has changed (OpenConnection)."""
        for channel in ending.channels_of(self):
            channel.rights_changed()

    def shortage_began(self) -> None:
        """Have the next publish of each channel ask whether there is one (OpenConnection)."""
        for channel in ending.channels_of(self):
            channel.forget_publications()

    def part_bytes(self) -> i64:
        """Bytes in memory of contents that have come in part (ServedConnection)."""
        size: i64 = self.wire.gathered()
        for channel in ending.channels_of(self):
            size += channel.part_bytes()
        return size

    def admit_new(self) -> None:
        """Hold who declares while memory is short, behind this declaration (ServedConnection)."""
        if self.server.shortage.memory:
            hold_publisher(self)

    def log_is_behind(self) -> None:
        """Read nothing more from a publisher until it has caught up (OpenConnection)."""
        if self.publishes and not self.braked:
            wait_for_log(self)

    def vhost_deleted(self) -> None:
        """Hear nothing more, and be sent nothing, until `force_close` follows (OpenConnection)."""
        self.leaving = True
        self.hold(HELD_FOR_END)

    def forget_deliveries(self, most: i64) -> i64:
        """Forget up to `most` that are outstanding, of queues that are gone (OpenConnection)."""
        return ending.forget_deliveries(self, most)

    def channels_open(self) -> int:
        """How many channels it has (OpenConnection)."""
        return len(ending.channels_of(self))

    def force_close(self, reason: str) -> None:
        """Close 320 (OpenConnection). [amqp-0-9-1 connection-forced]"""
        if self.state == OPEN:
            self.close(CONNECTION_FORCED, f"CONNECTION_FORCED - {reason}")
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
        if not self._dead and not self._turns.end_later(reason):
            self._dead = True
            if self.state == OPEN:
                ending.tell_lost(self, reason)
            self.state = CLOSED
            self.wire.stop()
            ending.let_go(self)
            if self.handshake is not None:
                self.handshake.abandon()
                self.handshake = None
            self.out = BytesWriter()  # it may be long until the rest is collected
