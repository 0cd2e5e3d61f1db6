"""Whether a queue serves a taker at all: elections, gates, and queues that are stopped.

It shares no code with the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.queues.model import Shelf, Taker

PREEMPTS_EQUALS = 127
DRAIN = 9  # milliseconds that an exclusive consumer waits for what one has that was cancelled


class Service:
    """The rule for the served consumer. `stopped`: the disabled parts, `enqueue` or `dequeue`."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.spec = shelf.spec
        self.active: Taker | None = None
        self.draining = False  # nobody is served, for what others have
        self.leavers: list[Taker] = []  # were served when they were cancelled, and are waited for
        self.drained_at: int | None = None  # nobody waits any longer than that
        self.is_open = shelf.spec.gate is None
        self.first_came = 0
        self.stopped: list[str] = []
        self.purges = 0  # purges that go on: nobody gets an entry that is to be purged
        self.returning = False  # nobody is to get what is behind it

    def takers(self) -> list[Taker]:
        return [taker for taker in self.shelf.takers if not taker.browses and not taker.waits]

    # ---- coming and going

    def attached(self, taker: Taker, now: int) -> None:
        if taker.browses or taker.waits:
            return
        gate = self.spec.gate
        count = len(self.takers())
        if count == 1:
            self.first_came = now
        if gate is not None and not self.opened(now):
            self.is_open = 0 < gate[0] <= count
        self.look(now)
        if self.is_candidate(taker) and (self.active is None or self.takes_over(taker, self.active)):
            self.active = taker
            self.draining = self.others_hold()

    def detached(self, taker: Taker, now: int) -> None:
        if self.spec.gate is not None and not self.takers():
            self.is_open = False
        if taker is self.active:
            candidates = [other for other in self.takers() if self.is_candidate(other)]
            self.active = max(candidates, key=lambda other: other.priority, default=None)
            if not self.spec.takeover:
                self.leavers.append(taker)
            self.draining = self.others_hold()
            if self.draining and not self.spec.single_active:
                self.drained_at = now + DRAIN
            self.look(now)

    def is_candidate(self, taker: Taker) -> bool:
        return self.spec.single_active or self.spec.all_exclusive or taker.candidate

    def takes_over(self, newcomer: Taker, active: Taker) -> bool:
        if newcomer.priority == active.priority == PREEMPTS_EQUALS:
            return not self.spec.single_active
        return newcomer.priority > active.priority

    # ---- consequences

    def opened(self, now: int) -> bool:
        """Whether enough takers are attached, or the first one has waited long enough."""
        gate = self.spec.gate
        if gate is not None and not self.is_open and gate[1] is not None and self.takers():
            self.is_open = now >= self.first_came + gate[1]
        return self.is_open

    def others_hold(self) -> bool:
        """Whether takers that are waited for have something."""
        holders = [item.holder for item in self.shelf.items if item.holder is not None]
        if self.spec.single_active or self.spec.takeover == "drain":
            return any(holder is not self.active for holder in holders)
        return any(holder in self.leavers for holder in holders)

    def look(self, now: int) -> None:
        """End the drain if its time is over, or if nobody has anything any more."""
        if not self.others_hold() or (self.drained_at is not None and now >= self.drained_at):
            self.draining = False
        if not self.draining:
            self.leavers.clear()
            self.drained_at = None

    def has_begun(self, now: int) -> bool:
        """Whether all takers but the active one stand by."""
        self.look(now)
        return self.active is not None or self.draining

    def is_served(self, taker: Taker, now: int) -> bool:
        """Whether `taker`, attached, would be given something; a basic.get asks for itself."""
        if taker.browses or taker.gets:
            return True
        if (
            self.purges
            or self.returning
            or "dequeue" in self.stopped
            or not (taker.waits or self.opened(now))
        ):
            return False
        if not self.has_begun(now):
            return True
        return taker is self.active and not self.draining

    def get_refused(self, now: int) -> str:
        """Why a basic.get is refused: "stopped", "locked", or "" if it is not."""
        if "dequeue" in self.stopped:
            return "stopped"
        return "locked" if self.spec.single_active or self.has_begun(now) else ""
