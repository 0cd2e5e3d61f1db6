"""The state of an AMQP 1.0 connection and of its sessions, as links and verbs know it. [amqp-1.0 2.4, 2.5]

`connection.py` and `session.py` extend this state. Classes of other modules that the state mentions are known
here by small base classes. Each of these modules has a function that returns its own class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.access import Origin
from broker.adapters.amqp10.lifetimes import Lifetime
from broker.adapters.peers.connections import HELD_FOR_PEER, OUTPUT_KEPT_MAX, UNREAD_BYTES_MAX, Edge
from broker.adapters.peers.leases import Leases
from broker.adapters.peers.peer import ServedConnection
from broker.adapters.peers.server import Server
from broker.adapters.peers.unsettled import Unacked
from broker.core.counters import Traffic
from broker.core.delivery.session import Scheduler, Session
from broker.core.durations import Stopwatch
from broker.core.queues.consumer import ConsumerTarget
from broker.core.queues.queue import Queue
from broker.core.schedule import TimedTask
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.constructors import NONE
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import FRAME_MAX_MIN, frame
from protocol.amqp10.outgoing import flow as flow_frame
from protocol.amqp10.serials import distance
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite
from protocol.amqp10.windows import IncomingWindow, OutgoingWindow

# The states of a connection that this side distinguishes. [amqp-1.0 2.4.6]
AUTHENTICATING: Final = "authenticating"
AUTHENTICATED: Final = "authenticated"  # the peer's protocol header is expected
OPENING: Final = "opening"  # the peer's open is expected
OPENED: Final = "open"
CLOSING: Final = "closing"  # this side has sent close, and the peer's close is expected
CLOSED: Final = "closed"

OUTGOING_WINDOW: Final[i64] = (
    2147483647  # the outgoing-window of this side, which does not limit its transfers
)


class ConnectionRoutes:
    """The routes of a connection; `routes.Routes` extends this class."""


class ConnectionTransactions:
    """The transactions of a connection; `transactions.Transactions` extends this class."""


class LinkPair:
    """Two links of the same name to the management node; `management.links.Pair` extends this class."""


class SuspendedLink(TimedTask):
    """A link that may be resumed; `names.SuspendedLink10` extends this class."""

    def expire(self) -> None:
        """Start the time after which the link cannot be resumed."""
        raise NotImplementedError


def expire_all(suspended: dict[SuspendedLink, None]) -> None:
    """Start the expiry of these links: their session or connection has ended."""
    for each in list(suspended):
        each.expire()


class SessionPendingFrames:
    """The pending frames of a session; `answers.PendingFrames` extends this class."""

    def send_outcomes(self) -> None:
        """Send the outcomes whose batches are on disk, and wait for the log with the others."""
        raise NotImplementedError

    def end_turn(self) -> None:
        """Send all pending frames."""
        raise NotImplementedError


class SessionLink:
    """A link as its session knows it; `link.Link10` extends this class.

    `is_detached`: this side has detached the link; frames that the peer sends before it knows are dropped.
    `lifetime`: the lifetime of a queue that belongs to the link.
    """

    def __init__(self) -> None:
        self.is_detached = False
        self.lifetime: Lifetime | None = None

    # -- overridden by subclasses; a link that was refused does nothing

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's state of the link. [amqp-1.0 2.6.7]"""

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Take a transfer, whose frame ends at `end` of `data`. [amqp-1.0 2.6.12]"""

    def on_rights_changed(self) -> None:
        """Detach the link if the user's permissions, which have changed, no longer allow it."""

    # -- the end

    def detach(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """End the link from this side with an error. [amqp-1.0 2.6.5]"""
        raise NotImplementedError

    def end(self, closed: bool) -> None:
        """Release everything that the link owns. Later frames on the link are dropped."""
        raise NotImplementedError


class Connection10State(ServedConnection):
    """A connection of an AMQP 1.0 client, and its output; `connection.Connection10` extends this class.

    `state`: a constant above. `secured`: the connection begins with the SASL layer. `holds`: the reasons
    for not taking frames. `frame_max`: the peer's max-frame-size, in bytes. `has_sent` and `has_received`:
    output was sent, and input has come, since the last check of `idle`. `pending_sessions`: the pending
    frames of the sessions that have any. `suspended`: links that are suspended until the connection ends.
    `lifetimes`: the lifetimes of queues whose session has ended.
    """

    transactions: ConnectionTransactions

    def __init__(
        self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin, secured: bool
    ) -> None:
        super().__init__(server, scheduler, edge, origin)
        self.state = AUTHENTICATING
        self.secured = secured
        self.client_name = ""  # the peer's container-id
        self.client_properties: Mapping[str, object] = {}
        self.virtual_host: VirtualHost | None = None
        self.routes: ConnectionRoutes | None = None  # set when the connection is open
        self.frame_max: i64 = FRAME_MAX_MIN
        self.channel_max: i64 = 0
        self.holds: i64 = 0
        self.out = BytesWriter()
        self.has_sent = False
        self.has_received = False
        self.pending_sessions: list[SessionPendingFrames] = []
        self.suspended: dict[SuspendedLink, None] = {}
        self.lifetimes: dict[Queue, Lifetime] = {}
        self._unread: i64 = 0  # bytes of answers since the peer stopped reading

    def is_open(self) -> bool:
        """Whether both sides have sent open, and neither has sent close."""
        return self.state == OPENED

    def lasting_name(self) -> str:
        """Return the peer's name for no-local subscriptions that outlive its connections."""
        return f"{self.user}/{self.client_name}"

    def hold(self, reason: i64) -> None:
        """Take no more frames, and stop reading, until every reason has been released."""
        self.keep_frames(reason)
        self.edge.hold(reason)

    def keep_frames(self, reason: i64) -> None:
        """Take no more frames, but continue to read."""
        self.holds |= reason

    # -- output

    def write(self, performative: Composite, channel: int = 0) -> None:
        """Write a performative, to be sent at the end of the turn."""
        self.out.write(frame(channel, encode_composite(performative)))

    def end_turn(self) -> None:
        """Make the sessions send their pending frames, and write the output.

        If the peer reads nothing and the answers to its requests exceed a limit, reading stops. Deliveries do
        not count, because they stop by themselves.
        """
        if self.pending_sessions:
            self.send_pending()
        size: i64 = len(self.out)
        self.flush()
        if self.blocked:
            self._unread += size
            if self._unread > UNREAD_BYTES_MAX and self.state == OPENED:
                self.hold(HELD_FOR_PEER)

    def send_pending(self) -> None:
        """Make the sessions send their pending frames."""
        pending_sessions, self.pending_sessions = self.pending_sessions, []
        for pending in pending_sessions:
            pending.end_turn()

    def flush(self) -> None:
        """Write the output of the turn, once."""
        out = self.out
        if len(out) > 0:
            self.has_sent = True
            self.edge.write(out.getvalue())
            if len(out) > OUTPUT_KEPT_MAX:
                self.out = BytesWriter()
            else:
                out.truncate(0)

    # -- call-outs

    def on_logged_in(self) -> None:
        """Begin the layer of AMQP: the peer has authenticated."""
        raise NotImplementedError

    def set_channel_max(self, channel_max: i64) -> None:
        """Take no frames on channels above this one. [amqp-1.0 2.7.1]"""
        raise NotImplementedError

    def on_opened(self, virtual_host: VirtualHost, idle_time_out: i64) -> None:
        """Note that both sides have sent open.

        `idle_time_out`: the longest silence that the peer accepts, in milliseconds; 0: any.
        """
        raise NotImplementedError

    def open_sessions(self) -> list[Session10State]:
        """Return the sessions that are mapped, in the order of their channels."""
        raise NotImplementedError

    def on_session_ended(self, channel: i64) -> None:
        """Free the channel of a session."""
        raise NotImplementedError

    def hold_senders(self) -> None:
        """Hold the senders during a shortage."""
        raise NotImplementedError

    def fail(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """Close the connection with an error, and wait for the peer's close. [amqp-1.0 2.4.3]"""
        raise NotImplementedError

    def release_all(self) -> None:
        """Release everything that the connection owns, as the actor in the journal."""
        raise NotImplementedError


class Session10State(Session):
    """A session of AMQP 1.0; `session.Session10` extends this class.

    This side uses the peer's channel and the peer's handles.

    `unsettled`: the deliveries sent to the peer, by the numbers 1, 2, ... A delivery-id is the lowest 32 bits
    of the number less one. `confirm_watch` times received deliveries until their outcome is sent, by their
    delivery-ids plus one. `sending`: links with an incomplete delivery. `lifetimes`: the lifetimes of queues
    whose link has ended. `suspended`: links that are suspended until the session ends. `pairs`: the pairs of
    links to the management node, by their names. `end_sent`: this side has sent end, and the peer's end is
    expected. `is_released`: the session has released everything. `unsettled_numbers`: the numbers of
    unsettled deliveries by their targets, while the session ends.
    """

    pending: SessionPendingFrames

    def __init__(
        self,
        connection: Connection10State,
        vhost: VirtualHost,
        channel: i64,
        incoming: IncomingWindow,
        outgoing: OutgoingWindow,
    ) -> None:
        super().__init__(connection, channel)
        self.peer = connection
        self.vhost = vhost
        self.channel = channel
        self.incoming = incoming
        self.outgoing = outgoing
        self.links: dict[int, SessionLink] = {}
        counters, clock = connection.server.counters, vhost.schedule.clock
        self.unsettled = Unacked(Stopwatch(counters.time_to_acknowledge, clock))
        self.confirm_watch = Stopwatch(counters.time_to_confirm, clock)
        self.traffic = Traffic()
        self.lifetimes: dict[Queue, Lifetime] = {}
        self.suspended: dict[SuspendedLink, None] = {}
        self.sending: dict[SessionLink, None] = {}
        self.pairs: dict[str, LinkPair] = {}
        self.end_sent = False
        self.is_released = False
        self.leases: Leases | None = None
        self.unsettled_numbers: dict[ConsumerTarget, list[i64]] | None = None

    def number_of(self, delivery_id: i64) -> i64:
        """Return the number of the delivery with this id, the nearest to the next delivery's number."""
        following = self.unsettled.next_tag()
        return following + distance(following - 1 & 0xFFFFFFFF, delivery_id)

    # -- output

    def send(self, performative: Composite) -> None:
        """Write a performative about the session, or about a link of it."""
        channel: int = self.channel
        self.peer.write(performative, channel)

    def send_flow(self) -> None:
        """Send a flow with the session's windows."""
        self.write_flow(NONE, NONE, NONE, NONE, False)

    def write_flow(self, handle: i64, count: i64, credit: i64, available: i64, drain: bool) -> None:
        """Send a flow with the state of the session, and of a link; numbers that are NONE are null.

        `count`: the delivery-count. [amqp-1.0 2.7.4]
        """
        incoming, outgoing = self.incoming, self.outgoing
        window = incoming.open()
        self.peer.out.write(
            flow_frame(
                self.channel,
                incoming.next_id,
                window,
                outgoing.next_id,
                OUTGOING_WINDOW,
                handle,
                count,
                credit,
                available,
                drain,
                False,
            )
        )

    def count_transfer(self) -> None:
        """Count a written transfer, and stop deliveries when the peer's window is used up."""
        self.outgoing.count_transfer()
        if self.outgoing.left <= 0:
            self.set_flow(False)

    # -- call-outs

    def forget_link(self, link: SessionLink) -> None:
        """Forget the name of a link that has ended."""
        raise NotImplementedError

    def fail(self, condition: str, text: str) -> None:
        """End the session with an error. [amqp-1.0 2.5.8]"""
        raise NotImplementedError
