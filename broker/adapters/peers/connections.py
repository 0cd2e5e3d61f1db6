"""The open connections, and the reasons for not reading from a connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol, final

from mypy_extensions import i64

from broker.core.counters import Reading, Traffic
from broker.core.schedule import Chore, Schedule

HELD_FOR_REPLY: Final = 2  # reasons for not reading; the transport has reason 1 (PAUSED_FULL)
HELD_FOR_LOG: Final = 4
HELD_FOR_PEER: Final = 8  # the peer does not read its answers
HELD_FOR_SHORTAGE: Final = 16
HELD_FOR_STEP: Final = 32  # the step has cost enough
HELD_FOR_END: Final = 64  # the virtual host is deleted, and the connection is about to be closed
HELD: Final = HELD_FOR_REPLY | HELD_FOR_LOG | HELD_FOR_PEER | HELD_FOR_SHORTAGE | HELD_FOR_STEP | HELD_FOR_END


class Edge(Protocol):
    """The socket's side of a connection."""

    def write(self, data: bytes) -> None:
        """Write bytes to the socket."""

    def close(self) -> None:
        """Close after all written bytes have been sent."""

    def end_output(self) -> None:
        """Send no more, and close when the peer closes. Until then input is read and ignored."""

    def await_hangup(self, seconds: int) -> None:
        """Let the peer close first; end the output if it has not done so after `seconds`."""

    def is_closing(self) -> bool:
        """Whether written bytes no longer reach the peer."""

    def hold(self, reason: int) -> None:
        """Pause reading until every reason has been released."""

    def release(self, reason: int) -> None:
        """Release one or more reasons for not reading."""

    def on_logged_in(self) -> None:
        """Note that the peer has authenticated."""

    def limit_close(self, seconds: int) -> None:
        """Wait for close-ok, for at most `seconds`."""


AMQP091: Final = "amqp091"
AMQP10: Final = "amqp10"
"""RabbitMQ's names for the protocols, in metrics."""

FRAME_BYTES_MAX: Final = 8192  # until tune-ok; the specification promises 4096, tokens are longer
STRANGER_BYTES_MAX: Final = 65536  # in all, from a peer that has not logged in
FLUSH_BYTES_MIN: Final = 262144
UNREAD_BYTES_MAX: Final = 8388608  # answers to a peer that does not read: beyond this no requests are taken

OUTPUT_KEPT_MAX: Final = 524288  # a buffer that a long message has made larger is replaced

SLICE: Final[i64] = 2000  # deliveries that are forgotten in a step: a millisecond or two
CONNECTION: Final = 40  # the cost of closing a connection, counted in deliveries; each channel costs 1


class OpenConnection(Protocol):
    """A connection of either protocol after its log-in and the choice of its virtual host."""

    def on_rights_changed(self) -> None:
        """Forget everything that was decided by the user's permissions, which have changed."""

    def on_shortage(self) -> None:
        """Hold the connection from its next publish on."""

    def throttle_publisher(self) -> None:
        """Publish no more until everything appended is on disk."""

    def on_vhost_deleted(self) -> None:
        """Take no more frames and deliver no more: the virtual host is deleted. `force_close` follows."""

    def forget_deliveries(self, most: i64) -> i64:
        """Forget up to `most` unsettled deliveries of deleted queues; return their number."""

    def channels_open(self) -> int:
        """Return the number of channels, or of objects that take as much work to close."""

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator has closed it, or the virtual host or user is deleted."""


@final
class Octets:
    """The bytes that a connection has received and sent, and the reads and writes of its socket."""

    def __init__(self) -> None:
        self.received: i64 = 0
        self.sent: i64 = 0
        self.reads: i64 = 0
        self.writes: i64 = 0
        self.reading: Reading | None = None


@final
class Connections:
    """All open connections of the daemon, in the order in which they were opened, with their users.

    `traffic`: the counts of all channels and sessions by protocol, as far as they were flushed to it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.all: Final[dict[OpenConnection, str]] = {}
        self.traffic: Final = {AMQP091: Traffic(), AMQP10: Traffic()}
        self._of_user: dict[str, dict[OpenConnection, None]] = {}
        self._in_vhost: dict[str, dict[OpenConnection, None]] = {}
        self._channels: dict[str, int] = {}
        self._closures = VhostClosures(schedule)

    def add(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """Add a connection that has been opened."""
        self.all[connection] = user
        self._of_user.setdefault(user, {})[connection] = None
        self._in_vhost.setdefault(vhost, {})[connection] = None

    def remove(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """Remove a connection that is closed; nothing happens if it was never added, or has been removed."""
        if self.all.pop(connection, None) is not None:
            _remove(self._of_user, user, connection)
            _remove(self._in_vhost, vhost, connection)

    def of_user(self, user: str) -> list[OpenConnection]:
        """The connections of a user."""
        return list(self._of_user.get(user, ()))

    def in_vhost(self, vhost: str) -> list[OpenConnection]:
        """The connections to a virtual host."""
        return list(self._in_vhost.get(vhost, ()))

    def count_of_user(self, user: str) -> int:
        """Return the number of a user's connections."""
        return len(self._of_user.get(user, ()))

    def count_in_vhost(self, vhost: str) -> int:
        """Return the number of connections to a virtual host."""
        return len(self._in_vhost.get(vhost, ()))

    def channels_of_user(self, user: str) -> int:
        """Return the number of channels (sessions) that a user has open."""
        return self._channels.get(user, 0)

    def add_channels(self, user: str, count: i64) -> None:
        """Count channels that a user has opened; with a negative count, closed."""
        left = self._channels.get(user, 0) + count
        if left > 0:
            self._channels[user] = left
        else:
            self._channels.pop(user, None)

    # -- changes of users and virtual hosts

    def on_rights_changed(self, user: str) -> None:
        """Notify the connections of a user that the user's permissions have changed."""
        for connection in self.of_user(user):
            connection.on_rights_changed()

    def on_user_deleted(self, user: str) -> None:
        """Close the connections of a deleted user. [RabbitMQ connection tracking]"""
        close_all(self.of_user(user), f"user '{user}' is deleted")

    def on_vhost_deleted(self, vhost: str) -> None:
        """Close the connections of a deleted virtual host, in slices. [RabbitMQ connection tracking]

        The connections no longer count. The connections are closed after everything else in the virtual host
        has been released, because there may be many connections, and a connection may have very many
        consumers.
        """
        for connection in self._in_vhost.pop(vhost, {}):
            _remove(self._of_user, self.all.pop(connection), connection)
            connection.on_vhost_deleted()
            self._closures.add(connection, vhost)

    def on_vhost_released(self, vhost: str) -> None:
        """Begin to close the connections of a deleted virtual host, whose other objects are released."""
        self._closures.begin(vhost)


@final
class VhostClosures(Chore):
    """The connections to deleted virtual hosts, which are closed in slices."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self._waiting: dict[str, list[OpenConnection]] = {}  # by virtual host, until its deletion is complete
        self._due: deque[tuple[OpenConnection, str]] = deque()

    def add(self, connection: OpenConnection, vhost: str) -> None:
        """Add a connection to close, not before `begin`."""
        self._waiting.setdefault(vhost, []).append(connection)

    def begin(self, vhost: str) -> None:
        """Begin to close the connections of a virtual host, the first ones at once."""
        for connection in self._waiting.pop(vhost, ()):
            self._due.append((connection, vhost))
        if self.due == 0:
            self.do_due_work()

    def step(self, budget: i64) -> bool:
        """Forget deliveries and close connections, up to the cost `budget`, in deliveries."""
        while self._due:
            connection, vhost = self._due[0]
            budget -= connection.forget_deliveries(budget)
            if budget <= 0:
                return True
            budget -= CONNECTION + connection.channels_open()
            self._due.popleft()
            connection.force_close(f"vhost '{vhost}' is deleted")
        return False


def close_all(connections: Iterable[OpenConnection], reason: str) -> None:
    """Close connections for `reason`."""
    for connection in connections:
        connection.force_close(reason)


def _remove(group: dict[str, dict[OpenConnection, None]], name: str, connection: OpenConnection) -> None:
    members = group[name]
    del members[connection]
    if not members:
        del group[name]
