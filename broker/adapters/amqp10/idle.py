"""Idle timeouts: empty frames to the peer, and the close after the peer's silence. [amqp-1.0 2.4.5]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.state import Connection10State
from broker.core.schedule import Alarm
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED
from protocol.amqp10.frames import EMPTY_FRAME

LEAST_MS: Final = 100  # the shortest idle-time-out of a peer
LOOKS: Final = 4  # checks in the allowed time


@final
class Idle:
    """The idle timers of a connection, in both directions."""

    def __init__(self) -> None:
        self._voice: _Voice | None = None
        self._ear: _Ear | None = None

    def start(self, connection: Connection10State, asked: i64, allowed: i64) -> None:
        """Start the timers of `connection`, which is open, in ms; 0: none.

        `asked`: the longest silence that the peer accepts. `allowed`: the longest silence of the peer.
        """
        if asked > 0:
            self._voice = _Voice(connection, max(asked // LOOKS, 1))
        if allowed > 0:
            self._ear = _Ear(connection, max(allowed // LOOKS, 1), allowed)

    def stop(self) -> None:
        """Stop the timers."""
        if self._voice is not None:
            self._voice.stop()
            self._voice = None
        if self._ear is not None:
            self._ear.stop()
            self._ear = None


class _Timer(Alarm):
    """A timer that checks `connection` each `period` ms."""

    def __init__(self, connection: Connection10State, period: i64) -> None:
        super().__init__()
        self.connection = connection
        self.period = period
        self._schedule = connection.server.broker.schedule
        self.check_later()

    def check_later(self) -> None:
        """Request the next check."""
        self._schedule.set(self, self._schedule.now() + self.period)

    def stop(self) -> None:
        """Stop the checks."""
        self._schedule.cancel(self)


@final
class _Voice(_Timer):
    """The timer that sends an empty frame after half of the silence that the peer accepts."""

    def ring(self) -> None:
        """Check for output (Alarm)."""
        connection = self.connection
        if not connection.spoke:
            connection.out.write(EMPTY_FRAME)
            connection.flush()
        connection.spoke = False
        self.check_later()


@final
class _Ear(_Timer):
    """The timer that closes the connection when no input has come for `allowed` ms."""

    def __init__(self, connection: Connection10State, period: i64, allowed: i64) -> None:
        super().__init__(connection, period)
        self._allowed = allowed
        self._silent: i64 = 0

    def ring(self) -> None:
        """Check for input (Alarm)."""
        connection = self.connection
        self._silent = 0 if connection.heard or connection.holds != 0 else self._silent + self.period
        connection.heard = False
        if self._silent >= self._allowed:
            text = f"no frame has arrived for {self._silent} ms, at most {self._allowed} ms are allowed"
            connection.fail(RESOURCE_LIMIT_EXCEEDED, text)
        else:
            self.check_later()
