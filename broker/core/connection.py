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
        """Arrange one call of `connection.pump`, never from inside this call.

        Connections come in the order of their requests. A connection that is `in_round` comes first.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """The sessions of one peer, and the targets that have work. The adapters' connections extend it.

    `name`: what it is called, by the endpoints of its socket. `address`: the peer's endpoint; "" if no client
    has the connection. `user`: who has logged in. `label`: what the journal calls the connection.
    `scheduled`: a turn has been asked for. `blocked`: the transport takes no more, so nothing is delivered.
    `full`: enough has been delivered for one turn, whatever its budget; whoever flushes the output clears it.
    `gives_way`: consumers elsewhere want the next message of the same queue as much. The turn ends as soon as
    each target that waited has had one message, so that consumers get equal shares, whether they have a
    connection each or share one. `in_round`: the turn ended before that, so the next one comes before those
    of other connections.
    `spent`: looking for messages has cost enough for one turn, which ends at once.
    `patient`: its next turn is one after sockets have had theirs.
    `early`: this turn is one within the turn of another connection; the one that was asked for comes too.
    `effort`: what looking for messages has cost in this turn; see QueueContext.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.name = ""
        self.address = ""
        self.user = ""
        self.label: object | None = None
        self.scheduled: bool = False
        self.blocked: bool = False
        self.full: bool = False
        self.gives_way: bool = False
        self.in_round: bool = False
        self.spent: bool = False
        self.patient: bool = False
        self.early: bool = False
        self.effort: i64 = 0
        self.sessions: dict[Session, None] = {}
        self.first_pending: ConsumerTarget | None = None
        self.last_pending: ConsumerTarget | None = None
        self._round_end: ConsumerTarget | None = None  # the last target of this round

    def notify_work(self, target: ConsumerTarget) -> None:
        """Give `target`, which is not pending, a turn behind the targets that wait already."""
        self._append(target)
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
        """The turn: deliver up to `budget` messages, taking turns among the targets that have work.

        Asks for another turn if work is left. Extensions flush their output afterwards.
        """
        left = budget
        if not self.in_round:
            self.gives_way = False
            self._round_end = self.last_pending
        self.in_round = False
        self.spent = False
        self.patient = False
        self.effort = 0
        unfinished = False
        try:
            while left > 0 and not self.spent and not self.blocked and not self.full:
                target = self.first_pending
                if target is None:
                    break
                unfinished = False
                ends_round = target is self._round_end
                self.first_pending = target.next_pending
                if self.first_pending is None:
                    self.last_pending = None
                target.next_pending = None
                target.pending = False
                delivered = target.process_pending(left)
                left -= delivered if delivered > 0 else 1  # a turn without a message is a step all the same
                if target.again and not target.pending:
                    self._append(target)
                if not ends_round:
                    unfinished = True
                elif self.gives_way:
                    break
                else:
                    self._round_end = self.last_pending
        finally:  # also after an exception: a connection marked as scheduled for ever would never run again
            self.scheduled = self.early
            if self.first_pending is not None:
                self.in_round = unfinished and self.gives_way and not self.spent and not self.patient
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

    def _append(self, target: ConsumerTarget) -> None:
        target.pending = True
        if self.last_pending is None:
            self.first_pending = target
        else:
            self.last_pending.next_pending = target
        self.last_pending = target
