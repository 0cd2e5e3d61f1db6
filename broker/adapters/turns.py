"""A connection that has done enough in one turn goes on in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.adapters.server import HELD_FOR_TURN
from broker.core.allowance import Worker
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091


@final
class Turns(Worker):
    """The turns of one connection in which it takes frames.

    What is left of a read when a turn has cost enough is kept back, in its order, and nothing is read before
    the next turn. If the connection ends before, the rest is dropped with all else that was not read.
    """

    def __init__(self, connection: Connection091) -> None:
        self._connection = connection
        self._next = _NextTurn(connection)

    def give_way(self) -> None:
        """Take no more frames in this turn (Worker)."""
        connection = self._connection
        if not connection.wire.stopped:
            connection.hold(HELD_FOR_TURN)
            schedule = connection.server.broker.schedule
            schedule.set(self._next, schedule.now())


@final
class _NextTurn(Alarm):
    """Its next one."""

    def __init__(self, connection: Connection091) -> None:
        super().__init__()
        self._connection = connection

    def ring(self) -> None:
        """Go on (Alarm)."""
        self._connection.release(HELD_FOR_TURN)
