"""A peer's connection, as far as dispatch is concerned, and whoever gives connections their turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from broker.core.suspending import close_together, update_together

if TYPE_CHECKING:
    from broker.core.consumer_target import ConsumerTarget
    from broker.core.session import Session


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Gives scheduled connections their turns: calls `connection.pump` once, later, for each `schedule`."""

    def schedule(self, connection: Connection) -> None:
        """Arrange one call of `connection.pump`, in the order of requests, never from inside this call."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """The sessions of one peer and which of them have work. The adapters' connections extend it.

    `name`: what it is called, by the endpoints of its socket. `user`: who has logged in.
    `scheduled`: a turn has been asked for. `blocked`: the transport takes no more, so nothing is delivered.
    `full`: enough has been delivered for one turn, whatever its budget; whoever flushes the output clears it.
    `gives_way`: this turn ends, because others want the next message of the same queue as much, or because
    looking for messages took long.
    `patient`: its next turn is one after sockets have had theirs.
    `early`: this turn is one within the turn of another connection; the one that was asked for comes too.
    `effort`: what looking for messages has cost in this turn; see QueueContext.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.name = ""
        self.user = ""
        self.scheduled: bool = False
        self.blocked: bool = False
        self.full: bool = False
        self.gives_way: bool = False
        self.patient: bool = False
        self.early: bool = False
        self.effort: i64 = 0
        self.sessions: dict[Session, None] = {}
        self.first_pending: Session | None = None
        self.last_pending: Session | None = None

    def notify_work(self, session: Session) -> None:
        """`session`, which is not pending, has work."""
        session.pending = True
        if self.last_pending is None:
            self.first_pending = session
        else:
            self.last_pending.next_pending = session
        self.last_pending = session
        self.schedule()

    def schedule(self) -> None:
        """Ask for a turn, unless one has been asked for or the transport takes nothing."""
        if not self.scheduled and not self.blocked:
            self.scheduled = True
            self.scheduler.schedule(self)

    def wait_for_sockets(self) -> None:
        """A browser has been shown its share: this turn ends, the next one is after sockets had theirs."""
        self.gives_way = True
        self.patient = True

    def pump(self, budget: i64) -> None:
        """The turn: deliver up to `budget` messages, taking turns among the sessions that have work.

        Asks for another turn if work is left. Extensions flush their output afterwards.
        """
        left = budget
        self.gives_way = False
        self.patient = False
        self.effort = 0
        try:
            while left > 0 and not self.gives_way and not self.blocked and not self.full:
                session = self.first_pending
                if session is None:
                    break
                self._pop(session)
                delivered = session.process_pending(left)
                left -= delivered if delivered > 0 else 1  # a turn without a message is a step all the same
                if session.first_pending is not None and not session.pending:
                    self.notify_work(session)
        finally:  # also after an exception: a connection marked as scheduled for ever would never run again
            self.scheduled = self.early
            if self.first_pending is not None:
                self.schedule()

    def pump_early(self, budget: i64) -> None:
        """Take the turn that has been asked for, if one has: a request must not overtake its deliveries."""
        if self.scheduled:
            self.early = True
            try:
                self.pump(budget)
            finally:
                self.early = False

    def set_blocked(self, blocked: bool) -> None:
        """The transport is full (True), or takes data again (False)."""
        if blocked == self.blocked:
            return
        self.blocked = blocked
        update_together(self._targets())
        if not blocked and self.first_pending is not None:
            self.schedule()

    def close_targets(self) -> None:
        """The connection ends: close the targets of all sessions before the first one gives anything back."""
        close_together(self._targets())
        for session in list(self.sessions):
            session.close_targets()

    def _targets(self) -> list[ConsumerTarget]:
        return [target for session in self.sessions for target in session.targets]

    def _pop(self, session: Session) -> None:
        self.first_pending = session.next_pending
        if self.first_pending is None:
            self.last_pending = None
        session.next_pending = None
        session.pending = False
