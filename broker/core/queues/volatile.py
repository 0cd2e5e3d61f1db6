"""Volatile queues: their messages are never in the log, and a restart counts how many were lost."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.state import QueueState
from broker.core.queues.virtual_host import QueueHost
from broker.core.schedule import TimedTask

NOTE_MS: Final = 10_000  # the interval of checks of the number of messages
LOST: Final = "lost"


@final
class Volatile(TimedTask):
    """The losses of a durable, volatile queue at restarts: the messages that it had when the broker stopped.

    A clean stop writes their exact number. For crashes, the log records the number of messages now and then,
    when it has changed by more than a tenth. After a crash this number counts.

    `lost`: since the queue was declared; `estimated`: crashes contribute to `lost`.
    """

    def __init__(self, queue: QueueState, host: QueueHost) -> None:
        super().__init__()
        self.queue = queue
        self.host = host
        self.lost: i64 = 0
        self.estimated = False
        self._noted: i64 = 0  # the number in the log
        self._exact = False  # whether a clean stop wrote that number
        self.arm()

    def described(self, exact: bool) -> dict[str, object]:
        """Return the queue's losses for its definition, and the messages at risk, `exact` or as noted."""
        return {
            "messages": int(self.lost),
            "estimated": self.estimated,
            "at_risk": int(self._at_risk() if exact else self._noted),
            "exact": exact,
        }

    def restore(self, found: object) -> None:
        """Restore the losses from a definition. Raises ValueError if it is malformed."""
        if found is None:
            return
        if not isinstance(found, dict):
            raise ValueError(f"what a volatile queue has lost is no table: {found!r}")
        lost, at_risk = found.get("messages"), found.get("at_risk")
        if not isinstance(lost, int) or not isinstance(at_risk, int):
            raise ValueError(f"what a volatile queue has lost is no number: {found!r}")
        self.lost = lost
        self.estimated = found.get("estimated") is True
        self._noted = at_risk
        self._exact = found.get("exact") is True

    def note_restart(self) -> None:
        """Count the messages at risk as lost, after all definitions have been restored."""
        self.lost += self._noted
        self.estimated = self.estimated or not self._exact
        self._noted = 0
        self._exact = False

    def arm(self) -> None:
        """Set the task for the next check."""
        schedule = self.host.schedule
        schedule.set(self, schedule.now() + NOTE_MS)

    def do_due_work(self) -> None:
        """Append the number of messages to the log, if it has changed enough."""
        at_risk = self._at_risk()
        change: int = abs(int(at_risk - self._noted))
        if change > self._noted // 10 and not self.host.store.failure:
            self._noted = at_risk
            self.host.note_queue(self.queue)
        self.arm()

    def _at_risk(self) -> i64:
        """Return the number of messages."""
        return self.queue.messages
