"""Idle timeouts: empty frames to the peer, and the close after the peer's silence. [amqp-1.0 2.4.5]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.state import Connection10State
from broker.core.schedule import TimedTask
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED
from protocol.amqp10.frames import EMPTY_FRAME

LEAST_MS: Final = 100  # the shortest idle-time-out of a peer
CHECKS: Final = 4  # checks in the allowed time


@final
class Idle:
    """The idle timers of a connection, in both directions."""

    def __init__(self) -> None:
        self._heartbeats: _HeartbeatTimer | None = None
        self._silence: _SilenceTimer | None = None

    def start(self, connection: Connection10State, peer_timeout: i64, own_timeout: i64) -> None:
        """Start the timers of `connection`, which is open, in ms; 0: none.

        `peer_timeout`: the peer's idle-time-out. `own_timeout`: the longest silence of the peer.
        """
        if peer_timeout > 0:
            self._heartbeats = _HeartbeatTimer(connection, max(peer_timeout // CHECKS, 1))
        if own_timeout > 0:
            self._silence = _SilenceTimer(connection, max(own_timeout // CHECKS, 1), own_timeout)

    def stop(self) -> None:
        """Stop the timers."""
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None
        if self._silence is not None:
            self._silence.stop()
            self._silence = None


class _Timer(TimedTask):
    """A timer that checks `connection` each `period` ms."""

    def __init__(self, connection: Connection10State, period: i64) -> None:
        super().__init__()
        self.connection = connection
        self.period = period
        self._schedule = connection.server.broker.schedule
        self.schedule_check()

    def schedule_check(self) -> None:
        """Request the next check."""
        self._schedule.set(self, self._schedule.now() + self.period)

    def stop(self) -> None:
        """Stop the checks."""
        self._schedule.cancel(self)


@final
class _HeartbeatTimer(_Timer):
    """The timer that sends an empty frame after half of the silence that the peer accepts."""

    def do_due_work(self) -> None:
        """Check for output."""
        connection = self.connection
        if not connection.has_sent:
            connection.out.write(EMPTY_FRAME)
            connection.flush()
        connection.has_sent = False
        self.schedule_check()


@final
class _SilenceTimer(_Timer):
    """The timer that closes the connection when no input has come for `own_timeout` ms."""

    def __init__(self, connection: Connection10State, period: i64, own_timeout: i64) -> None:
        super().__init__(connection, period)
        self._timeout = own_timeout
        self._silent: i64 = 0

    def do_due_work(self) -> None:
        """Check for input."""
        connection = self.connection
        self._silent = 0 if connection.has_received or connection.holds != 0 else self._silent + self.period
        connection.has_received = False
        if self._silent >= self._timeout:
            text = f"no frame has arrived for {self._silent} ms, at most {self._timeout} ms are allowed"
            connection.fail(RESOURCE_LIMIT_EXCEEDED, text)
        else:
            self.schedule_check()
