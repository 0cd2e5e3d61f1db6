"""The only place that delivers: connections with work are pumped round-robin, in slices of time.

Notification never delivers [Qpid pull model, Thread Model]. An operation that makes work only schedules a
connection here, once. The pump runs from the event loop, after this operation has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from broker.core.delivery.session import Connection, Scheduler

SLICE_SECONDS: Final = 0.008  # then sockets, timers and acknowledgements are served
QUANTUM: Final = 1024  # messages for a connection before the next connection is served


@final
class Pump(Scheduler):
    """The ready connections, served round-robin."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._ready: deque[Connection] = deque()
        self._patient: list[Connection] = []  # connections to serve in the next run
        self._unwritten: dict[Connection, None] = {}  # connections whose output a turn has left
        self._armed = False

    def schedule(self, connection: Connection) -> None:
        """Pump `connection` in one of the next turns of the loop.

        A connection calls this once until it is pumped.
        """
        if connection.in_round:
            self._ready.appendleft(connection)
        elif connection.patient:
            self._patient.append(connection)
        else:
            self._ready.append(connection)
        if not self._armed:
            self._armed = True
            self._call_soon(self.run)

    def run(self) -> None:
        """Pump ready connections until no connection is ready or the slice of time is over.

        Then all output is written: with many connections, a connection with a single consumer would otherwise
        collect the messages of many slices before the first byte is sent.
        """
        self._armed = False
        end = self._clock() + SLICE_SECONDS
        ready = self._ready
        unwritten = self._unwritten
        if self._patient:
            ready.extend(self._patient)
            self._patient.clear()
        try:
            while ready:
                connection = ready.popleft()
                connection.pump(QUANTUM)
                if connection.unwritten:
                    unwritten[connection] = None
                if self._clock() >= end:
                    break
            while unwritten:
                connection = next(iter(unwritten))
                del unwritten[connection]
                connection.write_output()
        finally:  # an exception in one connection must not strand the others [QPID-3821]
            if (ready or self._patient or unwritten) and not self._armed:
                self._armed = True
                self._call_soon(self.run)
