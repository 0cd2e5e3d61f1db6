"""Queues whose messages are never in the log, and what they have lost with the broker."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.host import QueueHost
from broker.core.queues.state import QueueState
from broker.core.schedule import Alarm

NOTE_MS: Final = 10_000  # so often it is looked how many messages there are
LOST: Final = "lost"


@final
class Volatile(Alarm):
    """What a durable queue has lost at restarts: the messages that it had when the broker stopped.

    A clean stop writes how many those are. For crashes the log is told now and then how many there are, when
    their number has changed by more than a tenth, and that counts.

    `lost`: since the queue was declared; `estimated`: it has crashes in it.
    """

    def __init__(self, queue: QueueState, host: QueueHost) -> None:
        super().__init__()
        self.queue = queue
        self.host = host
        self.lost: i64 = 0
        self.estimated = False
        self._noted: i64 = 0  # as the log has it
        self._exact = False  # that is what there was at the end
        self.arm()

    def described(self, exact: bool) -> dict[str, object]:
        """What the definition of the queue says: losses, and what would be lost now, `exact` or as noted."""
        return {
            "messages": int(self.lost),
            "estimated": self.estimated,
            "at_risk": int(self._at_risk() if exact else self._noted),
            "exact": exact,
        }

    def restore(self, found: object) -> None:
        """What a definition has said. Raises ValueError if it makes no sense."""
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

    def restarted(self) -> None:
        """All definitions have come back: what was there is lost."""
        self.lost += self._noted
        self.estimated = self.estimated or not self._exact
        self._noted = 0
        self._exact = False

    def arm(self) -> None:
        """Look again after a while."""
        schedule = self.host.schedule
        schedule.set(self, schedule.now() + NOTE_MS)

    def ring(self) -> None:
        """Tell the log how many messages there are, if that is much more or less than it knows (Alarm)."""
        at_risk = self._at_risk()
        change: int = abs(int(at_risk - self._noted))
        if change > self._noted // 10 and not self.host.store.failure:
            self._noted = at_risk
            self.host.note_queue(self.queue)
        self.arm()

    def _at_risk(self) -> i64:
        """How many messages there are."""
        return self.queue.messages
