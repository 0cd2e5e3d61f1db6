"""A client's connection of either protocol, and the steps in which the connection takes frames."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import Origin, Rights
from broker.adapters.peers.connections import HELD_FOR_STEP, Edge, Octets
from broker.adapters.peers.server import Server
from broker.core.delivery.session import Connection, Scheduler
from broker.core.schedule import TimedTask, Worker


class ServedConnection(Connection):
    """A client's connection. Created by the transport after the protocol header; ends with the socket.

    `heartbeat`: the seconds after which the transport sends AMQP 0-9-1 heartbeats and expects heartbeats of
    the peer; 0: no heartbeats. `publishes`: the connection may be ahead of the log. `waits_for_log`: the
    connection was ahead of the log, and is not read.
    """

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(scheduler)
        self.server = server
        self.edge = edge
        self.origin = origin
        self.name = origin.name
        self.peer = origin.peer
        self.address = origin.peer if origin.address else ""
        self.octets = Octets()
        self.mechanism = ""
        self.rights = Rights(server.access, "", "")
        self.heartbeat: i64 = 0
        self.container: str | None = None  # the peer's container-id; clients of AMQP 0-9-1 have none
        self.is_sole = False  # the only connection of its container
        self.publishes = False
        self.waits_for_log = False
        self.vhost_is_deleted = False  # the virtual host is deleted, and the connection is about to be closed

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        raise NotImplementedError

    def start(self) -> None:
        """Send the first frame of this side."""
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with a single write."""
        raise NotImplementedError

    def keep_frames(self, reason: i64) -> None:
        """Take no more frames, but continue to read, until every reason has been released."""
        raise NotImplementedError

    def release(self, reason: i64) -> None:
        """Release reasons; continue unless others are left."""
        raise NotImplementedError

    def kept_bytes(self) -> i64:
        """Return the number of bytes that were read and belong to no frame taken so far."""
        raise NotImplementedError

    def require_memory(self) -> None:
        """Check whether a queue, exchange or binding may be added, because memory may be short.

        Raises:
            LimitReached: memory is short, in AMQP 1.0. In 0-9-1 the connection is held after the addition.
        """
        raise NotImplementedError

    def part_bytes(self) -> i64:
        """Return the bytes in memory of incomplete contents, if frames of the connection may be held."""
        return 0

    def ignores_input(self) -> bool:
        """Whether the connection takes no frames any more."""
        raise NotImplementedError

    def throttle_publisher(self) -> None:
        """Read nothing more from a publishing connection until everything appended is on disk."""
        raise NotImplementedError

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator has closed it, or the broker stops."""
        raise NotImplementedError

    def close_replaced(self, condition: str, text: str, info: dict[str, object]) -> None:
        """Close the connection, which has a container, because another connection has taken its place."""
        raise NotImplementedError

    def on_lost(self, reason: str) -> None:
        """End the connection and release everything that it owns: the socket is closed."""
        raise NotImplementedError


KEPT_BYTES_MAX: Final = 1048576  # with more bytes, reading pauses until the next step


@final
class Steps(Worker):
    """The steps in which a connection takes frames.

    When a step has cost enough, the rest of a read is kept back in its order. Reading continues as long as
    little is kept, because TLS loses bytes that arrive when the peer hangs up while reading is paused. If the
    socket closes first, the kept frames are handled before the connection ends. If the connection is closed,
    the rest is dropped.
    """

    def __init__(self, connection: ServedConnection) -> None:
        self._connection: ServedConnection | None = connection
        self._next: _NextStep | None = None  # while a step is due
        self._ended: str | None = None  # the reason why the socket has closed, if it has

    def stop_turn(self) -> None:
        """Take no more frames in this step."""
        connection = self._connection
        if connection is not None and not connection.ignores_input():
            connection.keep_frames(HELD_FOR_STEP)
            if self._next is None:
                self._next = _NextStep(self)
            schedule = connection.server.broker.schedule
            schedule.set(self._next, schedule.now())

    def defer_end(self, reason: str) -> bool:
        """Return whether the connection, whose socket has closed, ends after the kept frames are handled.

        If not, no further step follows.
        """
        connection = self._connection
        if connection is not None and self._next is not None and not connection.ignores_input():
            self._ended = reason
            return True
        if connection is not None and self._next is not None:
            connection.server.broker.schedule.cancel(self._next)
        self._next = None
        self._connection = None
        return False

    def take_frames(self) -> None:
        """Take the next frames."""
        self._next = None
        connection = self._connection
        if connection is None:
            return
        connection.release(HELD_FOR_STEP)
        if self._is_due():
            if connection.kept_bytes() > KEPT_BYTES_MAX:
                connection.edge.hold(HELD_FOR_STEP)
        elif self._ended is not None:
            reason, self._ended = self._ended, None
            connection.on_lost(reason)

    def _is_due(self) -> bool:
        """Whether another step has been requested."""
        return self._next is not None


@final
class _NextStep(TimedTask):
    """The timed task for the next step."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def do_due_work(self) -> None:
        """Take the next frames."""
        self._steps.take_frames()
