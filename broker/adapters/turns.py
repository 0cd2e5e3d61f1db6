"""A connection that has done enough in one turn goes on in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.adapters.server import HELD_FOR_TURN
from broker.core.schedule import Alarm, Worker

if TYPE_CHECKING:
    from broker.adapters.served import ServedConnection

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
