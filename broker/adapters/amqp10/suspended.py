"""Links that are gone and may come back, with what was unsettled on them. [amqp-1.0 2.6.13, 3.5]

A link that is detached and not closed, or whose session or connection ends, is suspended until its terminus
expires. It is known for that time by its name, and so is a link that is to take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.lifetimes import CONNECTION_CLOSE, EXPIRY_SECONDS_MAX, LINK_DETACH, SESSION_END
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.returns import release_entries
from broker.core.schedule import Alarm, Schedule
from protocol.amqp10.composites import Source, Target

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10
    from broker.adapters.amqp10.stealing import LinkNames, Name

SUSPENDED_MAX: Final = 1000  # links of one user
KEPT_MAX: Final = 5000  # deliveries of one link; what is more goes back at once

Held = tuple[QueueConsumer, QueueEntry]
"""A delivery that was sent, as its queue knows it."""


@final
class Expiry:
    """When a terminus begins to expire (`policy`, as in `lifetimes`), and how many seconds that takes."""

    def __init__(self, policy: str, seconds: i64) -> None:
        self.policy = policy
        self.seconds = min(seconds, EXPIRY_SECONDS_MAX)


def expiry_of(terminus: Source | Target | None) -> Expiry:
    """That of a terminus; one that says nothing expires with its session."""
    if terminus is None:
        return Expiry(SESSION_END, 0)
    return Expiry(terminus.expiry_policy, terminus.timeout)


@final
class Suspended(Alarm):
    """What is kept of one link, whose sender has, by their tags, deliveries that are unsettled.

    `sent`: what this side has sent, which its queue does not give to anybody else meanwhile. `received`: what
    it has received, and the outcomes, encoded. `batch`: when the log has synced it, they are safe.
    `abandoned`: how what was sent comes back to its queue. `lease`: how many milliseconds it may be away, as
    its consumer or queue says; 0: any number.
    """

    def __init__(self, schedule: Schedule, names: LinkNames, name: Name, expiry: Expiry) -> None:
        super().__init__()
        self.name = name
        self.sent: dict[bytes, Held] = {}
        self.received: dict[bytes, bytes] = {}
        self.batch: i64 = 0
        self.abandoned: i64 = 0
        self.lease: i64 = 0
        self._expiry = expiry
        self._schedule = schedule
        self._names = names
        self._awaiting: dict[Suspended, None] | None = None  # what waits for the same end, with this

    def wait(self, session: Session10) -> None:
        """Begin to expire when that is due, at the latest when all of them do."""
        policy = self._expiry.policy
        if self.lease > 0:
            self._end_within(self.lease)
        if policy == LINK_DETACH:
            self.expire()
        elif policy in (SESSION_END, CONNECTION_CLOSE):
            self._awaiting = session.suspended if policy == SESSION_END else session.peer.suspended
            self._awaiting[self] = None
        else:
            self._end_within(EXPIRY_SECONDS_MAX * 1000)

    def expire(self) -> None:
        """The time begins after which nobody can come back for it."""
        self._await_nothing()
        if self._expiry.seconds == 0:
            self.end()
        else:
            self._end_within(self._expiry.seconds * 1000)

    def end_soon(self) -> None:
        """End in one of the next turns, each of which takes some of those that are to end."""
        self._schedule.set(self, self._schedule.now())

    def ring(self) -> None:
        """Nobody came back (Alarm)."""
        self.end()

    def resumed(self) -> None:
        """Somebody has taken it over."""
        self._await_nothing()
        self._schedule.cancel(self)
        self._names.resumed(self)

    def end(self) -> None:
        """Nobody takes it over: what was sent goes back."""
        self.resumed()
        sent, self.sent = self.sent, {}
        give_back(list(sent.values()), self.abandoned)

    def _end_within(self, milliseconds: i64) -> None:
        due = self._schedule.after(milliseconds)
        if self.due == 0 or due < self.due:
            self._schedule.set(self, due)

    def _await_nothing(self) -> None:
        if self._awaiting is not None:
            self._awaiting.pop(self, None)
            self._awaiting = None


def give_back(held: list[Held], outcome: i64) -> None:
    """These go back to their queues."""
    entries: dict[QueueConsumer, list[QueueEntry]] = {}
    for consumer, entry in held:
        entries.setdefault(consumer, []).append(entry)
    for consumer, its in entries.items():
        release_entries(consumer.queue, its, consumer, outcome)


def expire_all(suspended: dict[Suspended, None]) -> None:
    """What these have waited for has come."""
    for each in list(suspended):
        each.expire()
