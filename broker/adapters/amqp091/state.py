"""The state of a connection and of a channel of AMQP 0-9-1, as the channel's methods see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from librt.strings import BytesWriter
from mypy_extensions import i64, trait

from broker.adapters.access import Origin
from broker.adapters.peers.connections import FRAME_BYTES_MAX, Edge
from broker.adapters.peers.leases import Leases
from broker.adapters.peers.peer import ServedConnection
from broker.adapters.peers.server import MESSAGE_ORIGINS, ReplyReceiver, Server, StagedReader
from broker.adapters.peers.shortage import Held
from broker.adapters.peers.unsettled import Unacked
from broker.core.counters import Traffic
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import PullingTarget, Scheduler, Session
from broker.core.durations import Stopwatch
from broker.core.errors import BrokerError, NotFound
from broker.core.message import Message
from broker.core.ports import DurableWaiter
from broker.core.transactions.transaction import HeldPublish, Transaction
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.connection import CHANNEL_OPEN, OPEN, STARTING
from protocol.amqp091.incoming import IncomingChannel
from protocol.amqp091.wire import Wire
from protocol.errors import ProtocolError


class Connection091State(ServedConnection):
    """A connection of a client of AMQP 0-9-1.

    `frame_max` and `channel_max` are the negotiated values. `out`: the output of this turn. `bodies`: the
    large bodies that are being sent, behind which `out` waits. `pending_confirms`: the channels' confirms
    that are sent at the end of the turn. `held`: set while the connection is held, because the client has
    published during a shortage. `readers`: the readers of its channels that forward exactly once.
    """

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(server, scheduler, edge, origin)
        self.state = STARTING
        self.client_name = ""
        self.client_properties: dict[str, object] = {}
        self.client_capabilities: dict[str, object] = {}
        self.virtual_host: VirtualHost | None = None
        self.frame_max: i64 = server.frame_max
        self.channel_max: i64 = server.channel_max
        self.out = BytesWriter()
        self.bodies: OutgoingBodies | None = None
        self.wire = Wire(self, FRAME_BYTES_MAX)
        self.pending_confirms: list[PublisherConfirms] = []
        self.held: HeldConnection | None = None
        self.readers: list[StagedReader] = []

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        return self.state == OPEN

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method that is not on the hot path."""
        raise NotImplementedError

    def hold(self, reason: i64) -> None:
        """Take no more frames, and pause reading, until every reason has been released."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write the output of the turn, once."""
        raise NotImplementedError

    def answer(self) -> None:
        """Flush answers, and hold a peer that sends requests and reads nothing."""
        raise NotImplementedError

    def fail(self, error: ProtocolError) -> None:
        """Close the connection with an error. [amqp-0-9-1 1.4.2.9]"""
        raise NotImplementedError

    def internal_error(self) -> None:
        """Close the connection over the broker's own error."""
        raise NotImplementedError

    def on_channel_closed(self, number: i64) -> None:
        """Free the number of a channel that both sides have closed."""
        raise NotImplementedError


class ChannelState(IncomingChannel):
    """A channel.

    `window`: the credit of the whole channel (basic.qos, global=true). `prefetch_count` and `prefetch_bytes`:
    for each later consumer (global=false). `targets`: by consumer tag. `pending_get` and `pending_consume`:
    the basic.get, or the basic.consume of chosen messages, that is not answered yet. `last_queue`: the name
    of the last declared queue, which an empty name means. `reader`: the only consumer of a channel that
    forwards exactly once.
    """

    def __init__(self, connection: Connection091State, number: i64, virtual_host: VirtualHost) -> None:
        super().__init__(connection.server.body_bytes_max)
        self.connection = connection
        self.server = connection.server
        self.number = number
        self.virtual_host = virtual_host
        self.publisher = virtual_host.publisher
        self.state = CHANNEL_OPEN
        self.session = Session(connection, number)
        self.session.names_origins = connection.client_capabilities.get(MESSAGE_ORIGINS) is True
        self.window: Credit | None = None
        self.prefetch_count: i64 = 0
        self.prefetch_bytes: i64 = 0
        self.targets: dict[str, ChannelTarget] = {}
        self.unacked = Unacked(
            Stopwatch(self.server.counters.time_to_acknowledge, virtual_host.schedule.clock)
        )
        self.traffic = Traffic()
        self.confirms: PublisherConfirms | None = None
        self.leases: Leases | None = None
        self.transaction: ChannelTransaction | None = None
        self.replies: ChannelReplies | None = None
        self.reader: StagedReader | None = None
        self.pending_get: PendingRequest | None = None
        self.pending_consume: PendingRequest | None = None
        self.last_queue = ""

    def is_open(self) -> bool:
        """Whether the client would understand an answer."""
        return self.state == CHANNEL_OPEN and self.connection.is_open()

    @property
    def unconfirmed(self) -> int:
        """The publishes that are not confirmed yet."""
        confirms = self.confirms
        return 0 if confirms is None else int(confirms.published - confirms.answered)

    def count_confirms(self) -> Traffic:
        """Return the counts of the channel, those of its confirms included."""
        if self.confirms is not None:
            self.traffic.to_confirm = self.confirms.published
        return self.traffic

    def reply(self, frame: bytes) -> None:
        """Answer the current method."""
        raise NotImplementedError

    def refuse(self, error: BrokerError, method: int) -> None:
        """End the channel over a refusal; raises ProtocolError where the reply code ends the connection."""
        raise NotImplementedError

    def fail(self, code: int, text: str, method: int) -> None:
        """Close the channel with an error. [amqp-0-9-1 1.5.2.5]"""
        raise NotImplementedError

    def get_target(self) -> ChannelTarget:
        """Return the target through which basic.get delivers."""
        raise NotImplementedError

    def forget_target(self, target: ChannelTarget) -> None:
        """Free the tag of a target that has no consumers any more."""
        raise NotImplementedError

    def forget_publications(self) -> None:
        """Forget the resolved routes: something that they depend on has changed."""
        raise NotImplementedError


# each handler takes its own class of pamqp; the tables of handlers have the number of this class as key
Handler = Callable[[ChannelState, Any], None]


def queue_named(channel: ChannelState, name: str) -> str:
    """Return the queue of a name; an empty name means the channel's last declared queue. [amqp-0-9-1 1.7.2.3]

    Raises NotFound without such a queue.
    """
    if name:
        return name
    if not channel.last_queue:
        raise NotFound(f"no previously declared queue in vhost '{channel.virtual_host.name}'")
    return channel.last_queue


class ChannelTarget(PullingTarget):
    """The target of a consumer tag, or of basic.get. `arguments`: the arguments of basic.consume."""

    def __init__(
        self, channel: ChannelState, credit: Credit, channel_credit: Credit | None, tag: str, no_ack: bool
    ) -> None:
        super().__init__(channel.session, credit, channel_credit)
        self.channel = channel
        self.tag = tag
        self.no_ack = no_ack
        self.arguments: dict[str, object] = {}

    def share(self, window: Credit) -> None:
        """Count in the channel's window too; the caller adds the unsettled deliveries to the window."""
        self.session_credit = window
        self.sized = True
        window.targets[self] = None


class PublisherConfirms(DurableWaiter):
    """The confirms of a channel. Sequence numbers count from 1.

    `published`: the number of the latest publish. `answered`: the number up to which publishes are confirmed.
    Nothing more is answered after `ended` has been set.
    """

    def __init__(self) -> None:
        self.published: i64 = 0
        self.answered: i64 = 0
        self.ended = False

    def add(self, message: Message) -> None:
        """Count a message that was taken, or returned."""
        raise NotImplementedError

    def add_refused(self) -> None:
        """Count a message that a full or stopped queue has refused; the nack is sent in order."""
        raise NotImplementedError

    def refuse(self) -> None:
        """Nack a message that could not be stored, after the confirms of earlier messages."""
        raise NotImplementedError

    def end_turn(self) -> None:
        """Confirm the publishes of this turn, or do so when the log is synced."""
        raise NotImplementedError


class ChannelTransaction(Transaction):
    """The transaction of a channel: the work of the next tx.commit."""

    def hold_publish(self, publish: HeldPublish) -> None:
        """Hold a publish. Raises PreconditionFailed when the transaction holds too much."""
        raise NotImplementedError

    def note_independent(self, message: Message) -> None:
        """Note that a queue has an independent message: the next commit or rollback waits for the disk."""
        raise NotImplementedError

    def settle(self, tags: list[i64], outcome: i64, returned: i64) -> None:
        """Hold the settlements of these unacknowledged deliveries, which then count as settled."""
        raise NotImplementedError

    def tags(self) -> set[int]:
        """Return the tags of the deliveries that the transaction settles."""
        raise NotImplementedError

    def forget(self, most: i64) -> i64:
        """Forget up to `most` settlements of deleted queues; return their number."""
        raise NotImplementedError

    def roll_back(self, cause: str) -> None:
        """Forget the publishes, and make the deliveries unacknowledged again. [amqp-0-9-1 1.9.2.6]

        `cause`: the cause, for the journal; "" for tx.rollback of the client.
        """
        raise NotImplementedError


class ChannelReplies(ReplyReceiver):
    """The consumer of direct replies of a channel, with its tag. `name`: the reply address, encoded."""

    def __init__(self, tag: str, name: bytes) -> None:
        self.tag = tag
        self.name = name

    def resume(self) -> None:
        """Deliver again: the client has restarted deliveries."""
        raise NotImplementedError

    def close(self) -> None:
        """End the consumer, which is cancelled or ends with its channel."""
        raise NotImplementedError


@trait
class PendingRequest:
    """A request that is not answered yet. Meanwhile the channel keeps the frames after the request."""

    def frame_kept(self, method: i64) -> None:
        """Note that another frame is kept; `method` is 0 for a part of a content."""
        raise NotImplementedError

    def on_rights_changed(self) -> None:
        """End the request if the user may no longer make it."""
        raise NotImplementedError

    def abandon(self) -> None:
        """End the request without an answer: the channel ends."""
        raise NotImplementedError


class OutgoingBodies:
    """The large bodies that a connection sends. `waiting`: the bytes of answers of which nothing is sent."""

    def __init__(self) -> None:
        self.waiting: i64 = 0

    def send_more(self) -> bool:
        """Write about as much as the peer reads; return whether all bodies are sent.

        Raises what MessageStore.load raises.
        """
        raise NotImplementedError


class HeldConnection(Held):
    """The hold of a connection that has published during a shortage."""

    def check_kept_frames(self) -> None:
        """Check the frames that are kept back: more bytes have arrived."""
        raise NotImplementedError

    def forget(self) -> None:
        """End the hold of a connection that has ended or is no longer held."""
        raise NotImplementedError
