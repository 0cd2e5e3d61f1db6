"""The connections that are open, and the reasons for which a connection is not read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, final

from mypy_extensions import i64

from broker.core.schedule import Alarm, Schedule

HELD_FOR_REPLY: Final = 2  # reasons for not reading; the transport has one of its own
HELD_FOR_LOG: Final = 4
HELD_FOR_PEER: Final = 8  # it does not read the answers to what it asks
HELD_FOR_SHORTAGE: Final = 16
HELD_FOR_TURN: Final = 32  # it has done enough in this one
HELD_FOR_END: Final = 64  # its virtual host is gone, and it is about to be closed
HELD: Final = HELD_FOR_REPLY | HELD_FOR_LOG | HELD_FOR_PEER | HELD_FOR_SHORTAGE | HELD_FOR_TURN | HELD_FOR_END


class Edge(Protocol):
    """The socket's side of a connection."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""

    def close(self) -> None:
        """Close after what was written has been sent."""

    def end_output(self) -> None:
        """Send no more, and close when the peer does; what it still sends is read and ignored."""

    def await_hangup(self, seconds: int) -> None:
        """Let the peer close first; end the output if it has not done so after `seconds`."""

    def is_closing(self) -> bool:
        """Whether writing is pointless."""

    def hold(self, reason: int) -> None:
        """Stop reading until every reason for it has been released."""

    def release(self, reason: int) -> None:
        """Take back one or more reasons for not reading."""

    def logged_in(self) -> None:
        """The peer is no stranger any more."""

    def closing(self, seconds: int) -> None:
        """Close-ok is awaited; give up after `seconds`."""


FRAME_BYTES_MAX: Final = 8192  # until tune-ok; the specification promises 4096, tokens are longer
STRANGER_BYTES_MAX: Final = 65536  # in all, from a peer that has not logged in
FLUSH_BYTES_MIN: Final = 262144
UNREAD_BYTES_MAX: Final = 8388608  # answers to a peer that reads none: beyond it nothing more is asked

OUTPUT_KEPT_MAX: Final = 524288  # a buffer that one long message made larger is not kept

SLICE: Final = 2000  # deliveries that are forgotten in one turn: a millisecond or two
CONNECTION: Final = 40  # as many deliveries as one that is closed; each channel is as one more


class OpenConnection(Protocol):
    """A connection of any protocol after its log-in and the choice of its virtual host."""

    def rights_changed(self) -> None:
        """What the user may do is no longer what it was: nothing that was decided before holds."""

    def shortage_began(self) -> None:
        """Whatever publishes from now on has to be held."""

    def log_is_behind(self) -> None:
        """Publish nothing more until what has been appended is on disk."""

    def vhost_deleted(self) -> None:
        """Its virtual host is gone: hear nothing more, and be sent nothing, until `force_close` follows."""

    def forget_deliveries(self, most: i64) -> i64:
        """Forget up to `most` that are outstanding, of queues that are gone; returns how many those were."""

    def channels_open(self) -> int:
        """How many channels it has, or what is as much work to close."""

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator wants it so, or what it works with is gone."""


@final
class Connections:
    """All open connections of the daemon, in the order in which they were opened, with their users."""

    def __init__(self, schedule: Schedule) -> None:
        self.all: Final[dict[OpenConnection, str]] = {}
        self._of_user: dict[str, dict[OpenConnection, None]] = {}
        self._in_vhost: dict[str, dict[OpenConnection, None]] = {}
        self._channels: dict[str, int] = {}
        self._farewells = Farewells(schedule)

    def add(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """A connection has been opened."""
        self.all[connection] = user
        self._of_user.setdefault(user, {})[connection] = None
        self._in_vhost.setdefault(vhost, {})[connection] = None

    def remove(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """A connection is gone; nothing happens if it was never added, or has been removed."""
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
        """How many connections a user has."""
        return len(self._of_user.get(user, ()))

    def count_in_vhost(self, vhost: str) -> int:
        """How many connections there are to a virtual host."""
        return len(self._in_vhost.get(vhost, ()))

    def channels_of_user(self, user: str) -> int:
        """How many channels (sessions) a user has open."""
        return self._channels.get(user, 0)

    def add_channels(self, user: str, count: i64) -> None:
        """A user has opened channels; with a negative count, closed some."""
        left = self._channels.get(user, 0) + count
        if left > 0:
            self._channels[user] = left
        else:
            self._channels.pop(user, None)

    # -- what others tell them

    def rights_changed(self, user: str) -> None:
        """What a user may do has changed."""
        for connection in self.of_user(user):
            connection.rights_changed()

    def user_deleted(self, user: str) -> None:
        """A user is gone, and all connections with him. [RabbitMQ connection tracking]"""
        close_all(self.of_user(user), f"user '{user}' is deleted")

    def vhost_deleted(self, vhost: str) -> None:
        """A virtual host is gone, and all connections with it. [RabbitMQ connection tracking]

        They count no longer, and are closed when all else in it has been let go of: there may be many, and
        one may have very many consumers.
        """
        for connection in self._in_vhost.pop(vhost, {}):
            _remove(self._of_user, self.all.pop(connection), connection)
            connection.vhost_deleted()
            self._farewells.add(connection, vhost)

    def vhost_left(self, vhost: str) -> None:
        """What was in a virtual host that is gone has been let go of."""
        self._farewells.begin(vhost)


@final
class Farewells(Alarm):
    """Connections to virtual hosts that are gone, to be closed in slices."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._waiting: dict[str, list[OpenConnection]] = {}  # by virtual host, until that has been let go of
        self._due: deque[tuple[OpenConnection, str]] = deque()

    def add(self, connection: OpenConnection, vhost: str) -> None:
        """Have one be closed, not before `begin`."""
        self._waiting.setdefault(vhost, []).append(connection)

    def begin(self, vhost: str) -> None:
        """Have those that were in a virtual host be closed, the first of them at once."""
        for connection in self._waiting.pop(vhost, ()):
            self._due.append((connection, vhost))
        if self.due == 0:
            self.ring()

    def ring(self) -> None:
        """Close some of them (Alarm)."""
        self._schedule.set(self, self._schedule.now())  # first: should one fail, the others follow
        room: i64 = SLICE
        while self._due:
            connection, vhost = self._due[0]
            room -= connection.forget_deliveries(room)
            if room <= 0:
                return
            room -= CONNECTION + connection.channels_open()
            self._due.popleft()
            connection.force_close(f"vhost '{vhost}' is deleted")
        self._schedule.cancel(self)


def close_all(connections: Iterable[OpenConnection], reason: str) -> None:
    """Close connections, saying why."""
    for connection in connections:
        connection.force_close(reason)


def _remove(group: dict[str, dict[OpenConnection, None]], name: str, connection: OpenConnection) -> None:
    members = group[name]
    del members[connection]
    if not members:
        del group[name]


LOOK_BYTES: Final = 16777216
"""Received bytes after which memory is looked at: a fast client fills it several times in a second."""


class Held:
    """Somebody who publishes and is held."""

    def end(self) -> None:
        """There is enough again."""
        raise NotImplementedError


@final
class Shortage:
    """Whether there is one, of what, and whom it holds. `reason` is empty while there is none.

    As with RabbitMQ a connection is held when it publishes during a shortage, and told so if it understands
    that. Who only consumes goes on, and makes room. `look` measures, and may call `update`.
    """

    def __init__(self, connections: Connections) -> None:
        self.memory = False
        self.disk = False
        self.reason = ""
        self.held: dict[Held, None] = {}
        self.look: Callable[[], None] = _look_nowhere
        self._connections = connections
        self._unlooked: i64 = 0  # bytes that were received since the last look

    def update(self, memory: bool, disk: bool) -> None:
        """Say what is short now; holds publishers from their next publish on, or lets them go."""
        self.memory = memory
        self.disk = disk
        words = [word for word, short in (("memory", memory), ("disk", disk)) if short]
        before = self.reason
        self.reason = "low on " + " & ".join(words) if words else ""
        if self.reason and not before:
            for connection in list(self._connections.all):
                connection.shortage_began()
        elif before and not self.reason:
            for publisher in list(self.held):
                publisher.end()

    def received(self, size: i64) -> None:
        """Count bytes that a client has sent, before they are taken; may begin a shortage and ends none."""
        self._unlooked += size
        if self._unlooked >= LOOK_BYTES:
            self._unlooked = 0
            if not self.reason:
                self.look()


def _look_nowhere() -> None:
    """Nothing is watched."""
