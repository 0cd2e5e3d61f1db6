"""One AMQP 1.0 connection: its layers, its states, its errors. [amqp-1.0 2.4]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.access import Origin
from broker.adapters.amqp10 import ending
from broker.adapters.amqp10.hearing import Hearing
from broker.adapters.amqp10.held_credit import HeldCredit
from broker.adapters.amqp10.idle import Idle
from broker.adapters.amqp10.lifetimes import Lifetime
from broker.adapters.amqp10.login import SaslLogin
from broker.adapters.amqp10.owed import Owed
from broker.adapters.amqp10.routes import Routes
from broker.adapters.amqp10.sessions import Sessions
from broker.adapters.amqp10.states import (
    AUTHENTICATED,
    AUTHENTICATING,
    CLOSED,
    CLOSING,
    OPENED,
    OPENING,
)
from broker.adapters.amqp10.suspended import Suspended
from broker.adapters.amqp10.transactions import Transactions
from broker.adapters.connection091 import FLUSH_BYTES_MIN, UNREAD_BYTES_MAX
from broker.adapters.large_bodies import OUTPUT_KEPT_MAX
from broker.adapters.log_waiters import UNSYNCED_BYTES_MAX, brake, wait_for_log
from broker.adapters.served import ServedConnection
from broker.adapters.server import HELD_FOR_END, HELD_FOR_PEER, Edge, Server
from broker.core.delivery.session import Scheduler
from broker.core.errors import LimitReached
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.conditions import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
)
from protocol.amqp10.frames import FRAME_MAX_MIN, frame
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
        self.client_name = ""  # the peer's container-id
        self.client_properties: Mapping[str, object] = {}
        self.virtual_host: VirtualHost | None = None
        self._routes: Routes | None = None
        self.frame_max: i64 = FRAME_MAX_MIN  # of frames that the peer takes
        self.channel_max: i64 = 0
        self.out = BytesWriter()
        self.login: SaslLogin | None = SaslLogin(self)
        self.mapped = Sessions(self)
        self.idle = Idle(self)
        self.owing: list[Owed] = []  # sessions that have something to say at the turn's end
        self.spoke = False
        self.heard = False
        self.hearing = Hearing(self)
        self._unread: i64 = 0  # bytes of answers since the peer stopped reading
        self.held_credit = HeldCredit(self)
        self.transactions = Transactions(self)
        self.suspended: dict[Suspended, None] = {}  # links, until it ends
        self.lifetimes: dict[Queue, Lifetime] = {}  # that sessions have left behind

    def is_open(self) -> bool:
        """Whether both sides have said open, and neither has said close."""
        return self.state == OPENED

    def start(self) -> None:
        """Say which mechanisms there are, or let the peer in without one. [amqp-1.0 5.3.2]"""
        if self.login is not None:
            self.login.start()
        self.flush()

    @property
    def routes(self) -> Routes:
        """Where its messages go, once it is open."""
        assert self._routes is not None, "what is sent before it is open is refused"
        return self._routes

    # -- in

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        if self.state == CLOSED:
            return
        self.heard = True
        self.server.shortage.received(len(data))
        self.hearing.hear(data)
        if self.publishes and not self.braked and self.server.store.unsynced_bytes > UNSYNCED_BYTES_MAX:
            brake(self)

    def begin_amqp(self) -> None:
        """The peer is let in, and the layer of AMQP begins. [amqp-1.0 2.2]"""
        self.login = None
        self.state = OPENING
        self.hearing.begin_amqp(self.server.frame_max)
        self.out.write(AMQP_1_0)

    def logged_in(self) -> None:
        """The peer has proved who it is: its header of AMQP is next, unless it came first."""
        if self.secured:
            self.login = None
            self.state = AUTHENTICATED
        else:
            self.begin_amqp()

    def opened(self, virtual_host: VirtualHost) -> None:
        """Both sides have said open."""
        self.virtual_host = virtual_host
        self._routes = Routes(self, virtual_host)
        self.state = OPENED

    def set_channel_max(self, channel_max: i64) -> None:
        """Take no frames on channels above this one. [amqp-1.0 2.7.1]"""
        self.channel_max = channel_max
        self.hearing.frames.channel_max = channel_max

    def hold(self, reason: i64) -> None:
        """Take no more frames, and read no more, until every reason for it has been released."""
        self.keep_back(reason)
        self.edge.hold(reason)

    def keep_back(self, reason: i64) -> None:
        """Take no more frames, but read on (ServedConnection)."""
        self.hearing.holds |= reason

    def kept_bytes(self) -> i64:
        """How much of what was read is in no frame that has been taken (ServedConnection)."""
        return self.hearing.frames.kept()

    def is_deaf(self) -> bool:
        """Whether nothing is listened to any more (ServedConnection)."""
        return self.state == CLOSED

    def release(self, reason: i64) -> None:
        """Go on, unless there is another reason not to (ServedConnection)."""
        hearing = self.hearing
        if hearing.holds & reason:
            hearing.holds &= ~reason
            self.edge.release(reason)
            if hearing.holds == 0:
                hearing.take()

    # -- out

    def write(self, performative: Composite, channel: int = 0) -> None:
        """Say something, at the end of the turn."""
        self.out.write(frame(channel, encode_composite(performative)))

    def end_turn(self) -> None:
        """Have the sessions say what they owe, and write it.

        A peer that asks on and reads nothing has to wait. Deliveries do not count: they stop by themselves.
        """
        if self.owing:
            self.say_owed()
        size: i64 = len(self.out)
        self.flush()
        if self.blocked:
            self._unread += size
            if self._unread > UNREAD_BYTES_MAX and self.state == OPENED:
                self.hold(HELD_FOR_PEER)

    def say_owed(self) -> None:
        """Have the sessions say what they owe."""
        owing, self.owing = self.owing, []
        for owed in owing:
            owed.end_turn()

    def flush(self) -> None:
        """Write what the turn has produced, once."""
        out = self.out
        if len(out) > 0:
            self.spoke = True
            self.edge.write(out.getvalue())
            if len(out) > OUTPUT_KEPT_MAX:
                self.out = BytesWriter()
            else:
                out.truncate(0)

    def pump(self, budget: i64) -> None:
        """Deliver to this client, and write what that produced (Connection)."""
        if self.leaving:
            self.scheduled = False
            return
        if self.state != OPENED or self.edge.is_closing():
            self.set_blocked(True)  # what is written to a dying socket only comes back redelivered
        self.full = False
        try:
            more = self.mapped.send_on()
            super().pump(budget)
        except Exception:  # a message that cannot be read back, say
            self.internal_error()
            more = False
        self.full = False
        if more:
            self.schedule()
        if self.owing or not self.scheduled or len(self.out) >= FLUSH_BYTES_MIN:
            self.end_turn()  # else another turn follows at once, and one write will do for both

    def set_blocked(self, blocked: bool) -> None:
        """The transport is full (True), or takes data again (False)."""
        super().set_blocked(blocked)
        if not blocked:
            self._unread = 0
            self.flush()  # what was written meanwhile and got no turn
            if not self.blocked:
                self.schedule()
                self.release(HELD_FOR_PEER)

    # -- the end

    def internal_error(self) -> None:
        """The broker's own mistake costs this connection and no other."""
        _log.exception("internal error", peer=self.peer)
        self.fail(INTERNAL_ERROR, "internal error, see the broker's log")

    def fail(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """The connection ends: say why, and wait for the peer's close. [amqp-1.0 2.4.3]"""
        if self.state in (CLOSING, CLOSED):
            return
        _log.warning("connection error", peer=self.peer, user=self.user, condition=condition, reason=text)
        if self.state in (AUTHENTICATING, AUTHENTICATED):  # the peer cannot be told
            ending.drop(self)
            return
        ending.close(self, condition, text, info)

    def give_place(self, condition: str, text: str, info: dict[str, object]) -> None:
        """Close the connection because another one has taken its place (ServedConnection)."""
        ending.close(self, condition, text, info)

    def lost(self, reason: str) -> None:
        """The socket is gone."""
        if not self.hearing.turns.end_later(reason):
            ending.lost(self, reason)

    def force_close(self, reason: str) -> None:
        """Close the connection (OpenConnection)."""
        if self.state == OPENED:
            ending.close(self, CONNECTION_FORCED, reason)
        else:
            self.edge.close()

    def rights_changed(self) -> None:
        """What the user may do has changed (OpenConnection)."""
        if self._routes is not None:
            self._routes.forget()
        for session in self.mapped.all():
            session.rights_changed()
        self.end_turn()

    def shortage_began(self) -> None:
        """Publishers are allowed no more (OpenConnection)."""
        self.held_credit.hold()
        self.end_turn()

    def admit_new(self) -> None:
        """Refuse something new while memory is short (ServedConnection)."""
        reason = self.server.shortage.reason
        if self.server.shortage.memory:
            raise LimitReached(f"nothing new can be declared while the broker is {reason}")

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
        left = most
        for session in self.mapped.all():
            left -= session.unsettled.forget(left)
        return most - left

    def channels_open(self) -> int:
        """How many sessions it has (OpenConnection)."""
        return len(self.mapped.all())
