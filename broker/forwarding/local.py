"""Lines to this broker, without a socket: the forwarding uses the broker as any client does.

The bytes between a client of the forwarding and the broker's connection are passed on in later steps of the
schedule, so neither side is called while it works. The connection needs no log-in: like RabbitMQ's direct
connections of shovels, it may do everything in its virtual host. A URI with a user is a log-in as over a
socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import Login, Origin, Rights
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.amqp10.handshake import SESSIONS_MAX
from broker.adapters.peers.connections import HELD
from broker.adapters.peers.server import Server
from broker.auth.terms import Applicant
from broker.core.delivery.session import Scheduler
from broker.core.schedule import Schedule, TimedTask
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.line import Peer
from broker.forwarding.uri import AMQP10, Uri
from protocol.amqp091.client import PROTOCOL_HEADER
from protocol.amqp091.connection import OPEN
from protocol.errors import COMMAND_INVALID, ProtocolError

HIGH_BYTES: Final = 1 << 20  # on the way in one direction: beyond this the sender waits
LOW_BYTES: Final = 1 << 18
STEPS_MAX: Final = 8  # steps of a line that ends at once: a client that closes needs three
OWN_USER: Final = "none"
"""The user of connections that need no log-in, as in RabbitMQ."""


@final
class OwnAccess:
    """The rights of the broker's own connections, which may do everything in their virtual hosts."""

    def mechanisms(self, origin: Origin) -> str:
        """No mechanism: nobody logs in."""
        return ""

    def login(self, mechanism: str, origin: Origin, applicant: Applicant) -> Login:
        """Refuse a log-in. Raises ProtocolError."""
        raise ProtocolError(COMMAND_INVALID, "the broker's own connections do not log in")

    def may_access(self, user: str, vhost: str) -> bool:
        """Whether the virtual host may be used: yes."""
        return True

    def is_allowed(self, user: str, vhost: str, right: str, name: str) -> bool:
        """Whether an exchange or queue may be used: yes."""
        return True

    def is_topic_allowed(self, user: str, vhost: str, right: str, exchange: str, routing_key: str) -> bool:
        """Whether a routing key may be used: yes."""
        return True

    def may_impersonate(self, user: str) -> bool:
        """Whether messages may name their publishers: yes, others have published them."""
        return True

    def may_forward(self, user: str) -> bool:
        """Whether queues may be remote: yes, a policymaker has defined the shovel."""
        return True

    def limit(self, user: str, kind: str) -> int | None:
        """No limit."""
        return None


@final
class LocalEdge:
    """The broker's side of a local line: the Edge of a connection."""

    def __init__(self, line: LocalLine) -> None:
        self._line = line
        self.pauses: i64 = 0
        self.closing = False

    def write(self, data: bytes) -> None:
        """Pass bytes to the client in a later step."""
        self._line.pass_to_client(data)

    def close(self) -> None:
        """End the line after the bytes that were written."""
        self.closing = True
        self._line.wake()

    def end_output(self) -> None:
        """End the line after the bytes that were written."""
        self.close()

    def await_hangup(self, seconds: int) -> None:
        """End the line: its client sends nothing after a close."""
        self.close()

    def is_closing(self) -> bool:
        """Whether bytes no longer reach the client."""
        return self.closing

    def hold(self, reason: int) -> None:
        """Take nothing from the client until every reason has been released."""
        self.pauses |= reason

    def release(self, reason: int) -> None:
        """Release one or more reasons."""
        self.pauses &= ~reason
        self._line.wake()

    def on_logged_in(self) -> None:
        """Do nothing: no stranger is on the line."""

    def limit_close(self, seconds: int) -> None:
        """Do nothing: the client answers a close at once."""


@final
class LocalLine(TimedTask):
    """A line to a connection of this broker. `frame_max`: the broker's, or 0 if the client logs in.

    `ended` is called once, at the end of the line.
    """

    def __init__(
        self,
        server: Server,
        scheduler: Scheduler,
        uri: Uri,
        peer: Peer,
        name: str,
        ended: Callable[[LocalLine], None],
    ) -> None:
        super().__init__()
        self._report_end = ended
        self._schedule: Schedule = server.broker.schedule
        self._server = server
        self._peer: Peer | None = peer
        self._uri = uri
        self._to_broker: list[bytes] = []
        self._broker_bytes: i64 = 0
        self._to_client: list[bytes] = []
        self._client_bytes: i64 = 0
        self._holds = False  # the client takes nothing
        self._is_full = False  # the client has been notified that it must wait
        self._connected = False
        self._skips_header = uri.names_user  # the broker's connection begins behind the protocol header
        self._ended = False
        self._edge = LocalEdge(self)
        origin = Origin("127.0.0.1", 0, True, since=server.broker.schedule.date())
        origin.name = origin.peer = name
        self._connection: Connection091 | Connection10
        if uri.protocol == AMQP10:
            self._connection = Connection10(server, scheduler, self._edge, origin, True)
        else:
            self._connection = Connection091(server, scheduler, self._edge, origin)
        self.frame_max = 0 if uri.names_user else int(server.frame_max)
        self.wake()

    # -- the client's side

    def write(self, data: bytes) -> None:
        """Pass bytes to the broker in a later step."""
        if self._skips_header:
            self._skips_header = False
            data = data[len(PROTOCOL_HEADER) :]
        if not self._ended and data:
            self._to_broker.append(data)
            self._broker_bytes += len(data)
            self.wake()

    def hold(self) -> None:
        """Pass nothing to the client until `release`."""
        self._holds = True

    def release(self) -> None:
        """Pass bytes to the client again."""
        self._holds = False
        self.wake()

    def close(self) -> None:
        """End the line after the bytes that were written."""
        self._peer = None
        self.wake()

    def abort(self) -> None:
        """End the line now."""
        self._peer = None
        self._end()

    def finish(self) -> None:
        """Pass all bytes on that can be passed on, and end the line now: the broker stops."""
        for _ in range(STEPS_MAX):
            if self._ended or not (self._to_broker or self._to_client or self._edge.closing):
                break
            self.do_due_work()
        self._end()

    # -- steps

    def wake(self) -> None:
        """Request a step."""
        if not self._ended:
            self._schedule.set(self, self._schedule.now())

    def pass_to_client(self, data: bytes) -> None:
        """Pass bytes to the client in a later step."""
        self._to_client.append(data)
        self._client_bytes += len(data)
        if self._client_bytes > HIGH_BYTES:
            self._connection.set_blocked(True)
        self.wake()

    def do_due_work(self) -> None:
        """Pass the bytes of both directions on."""
        if not self._connected:
            self._connect()
            return
        if self._to_broker and self._edge.pauses & HELD == 0 and not self._edge.closing:
            data = b"".join(self._to_broker)
            self._to_broker = []
            self._broker_bytes = 0
            self._connection.receive(data)
        peer = self._peer
        if peer is None:
            if not self._to_broker or self._edge.closing or self._edge.pauses & HELD != 0:
                self._end()
            return
        self._report_room(peer)
        if self._to_client and not self._holds:
            data = b"".join(self._to_client)
            self._to_client = []
            self._client_bytes = 0
            peer.on_bytes(data)
            if self._connection.blocked:
                self._connection.set_blocked(False)
        if self._edge.closing and not self._to_client:
            peer = self._peer
            self._peer = None
            self._end()
            if peer is not None:
                peer.on_lost("")

    def _report_room(self, peer: Peer) -> None:
        """Make the client wait while the broker takes nothing."""
        if not self._is_full and self._broker_bytes > HIGH_BYTES:
            self._is_full = True
            peer.on_writable(False)
        elif self._is_full and self._broker_bytes < LOW_BYTES:
            self._is_full = False
            peer.on_writable(True)

    def _connect(self) -> None:
        peer = self._peer
        self._connected = True
        vhost = self._server.broker.vhosts.get(self._uri.vhost)
        if peer is None or (self.frame_max and vhost is None):
            self._peer = None
            self._ended = True
            self._report_end(self)
            if peer is not None:
                peer.on_lost(f"no vhost '{self._uri.vhost}'")
            return
        if self.frame_max and vhost is not None:
            self._open(peer, vhost)
        else:
            self._connection.start()
        peer.on_connected()

    def _open(self, peer: Peer, vhost: VirtualHost) -> None:
        """Put the broker's connection into the state after a handshake, without a log-in."""
        connection = self._connection
        connection.user = OWN_USER
        connection.client_name = connection.peer
        connection.client_properties = {"product": "amqpd", "connection_name": connection.peer}
        connection.virtual_host = vhost
        connection.rights = Rights(OwnAccess(), OWN_USER, vhost.name)
        if isinstance(connection, Connection10):
            connection.login = None
            connection.input.begin_amqp(self._server.frame_max)
            connection.set_channel_max(SESSIONS_MAX)
            connection.frame_max = self._server.frame_max
            connection.container = connection.peer
            connection.on_opened(vhost, 0)
            connection.idle.stop()  # the client cannot be lost
            return
        connection.handshake = None
        connection.state = OPEN
        connection.client_capabilities = dict.fromkeys(peer.capabilities, True)
        connection.wire.frame_max = connection.frame_max
        self._server.connections.add(connection, OWN_USER, vhost.name)

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._report_end(self)
        self._edge.closing = True
        self._to_broker = []
        self._to_client = []
        self._schedule.cancel(self)
        self._connection.on_lost("")
