"""A client's connection of either protocol, and its turns."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import Origin, Rights
from broker.adapters.peers.connections import HELD_FOR_TURN, Edge
from broker.adapters.peers.server import Server
from broker.core.delivery.session import Connection, Scheduler
from broker.core.schedule import Alarm, Worker


class ServedConnection(Connection):
    """What one client has open. Created by the transport after the protocol header, gone with the socket.

    `heartbeat`: seconds; the transport sends AMQP 0-9-1 heartbeats and hangs up without them; 0: it does
    neither. `publishes`: it may be ahead of the log; `braked`: it was, and is not read from.
    """

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(scheduler)
        self.server = server
        self.edge = edge
        self.origin = origin
        self.name = origin.name
        self.peer = origin.peer
        self.address = origin.peer if origin.address else ""
        self.mechanism = ""
        self.rights = Rights(server.access, "", "")
        self.heartbeat: i64 = 0
        self.container: str | None = None  # the peer's container-id; clients of AMQP 0-9-1 have none
        self.sole = False  # the only one of that
        self.publishes = False
        self.braked = False
        self.leaving = False  # its virtual host is gone: it is about to be closed

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        raise NotImplementedError

    def start(self) -> None:
        """Say what comes first from this side."""
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        raise NotImplementedError

    def keep_back(self, reason: i64) -> None:
        """Take no more frames, but read on, until every reason for it has been released."""
        raise NotImplementedError

    def release(self, reason: i64) -> None:
        """Go on, unless there is another reason not to."""
        raise NotImplementedError

    def kept_bytes(self) -> i64:
        """How much has been read that no frame has been taken from."""
        raise NotImplementedError

    def admit_new(self) -> None:
        """Ask whether a queue, exchange or binding may be added: memory may be short.

        Raises:
            LimitReached: it may not, in AMQP 1.0. In 0-9-1 it may, and the connection is held behind it.
        """
        raise NotImplementedError

    def part_bytes(self) -> i64:
        """Bytes in memory of contents that have come in part, if frames of theirs may be held."""
        return 0

    def is_deaf(self) -> bool:
        """Whether it takes no frames any more."""
        raise NotImplementedError

    def log_is_behind(self) -> None:
        """Read nothing more from whoever publishes until what has been appended is on disk."""
        raise NotImplementedError

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator wants it so, or the broker stops."""
        raise NotImplementedError

    def give_place(self, condition: str, text: str, info: dict[str, object]) -> None:
        """Close the connection, which has a container, because another one has taken its place."""
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """The socket is gone: everything that the connection held goes back."""
        raise NotImplementedError


KEPT_BYTES_MAX: Final = 1048576  # with more, no more is read before the next turn


@final
class Turns(Worker):
    """The turns of one connection in which it takes frames.

    What is left of a read when a turn has cost enough is kept back, in its order. It is read on, as long as
    that is not much: TLS loses what has arrived when the peer hangs up while nobody reads. If the socket goes
    before all is done, that is done first; if the connection is closed, the rest is dropped.
    """

    def __init__(self, connection: ServedConnection) -> None:
        self._connection = connection
        self._next = _NextTurn(self)
        self._ended: str | None = None  # why the socket has gone, if it has

    def give_way(self) -> None:
        """Take no more frames in this turn (Worker)."""
        connection = self._connection
        if not connection.is_deaf():
            connection.keep_back(HELD_FOR_TURN)
            schedule = connection.server.broker.schedule
            schedule.set(self._next, schedule.now())

    def end_later(self, reason: str) -> bool:
        """The socket has gone: whether the connection ends when what was received is done."""
        if self._next.due == 0 or self._connection.is_deaf():
            return False
        self._ended = reason
        return True

    def go_on(self) -> None:
        """Take the next frames."""
        connection = self._connection
        connection.release(HELD_FOR_TURN)
        if self._next.due != 0:
            if connection.kept_bytes() > KEPT_BYTES_MAX:
                connection.edge.hold(HELD_FOR_TURN)
        elif self._ended is not None:
            reason, self._ended = self._ended, None
            connection.lost(reason)


@final
class _NextTurn(Alarm):
    """The next one."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def ring(self) -> None:
        """Go on (Alarm)."""
        self._turns.go_on()
