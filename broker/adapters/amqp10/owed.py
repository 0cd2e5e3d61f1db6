"""What one session says when a turn ends: outcomes, what is drained, and what more it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.adapters.amqp10.answers import Answers

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink
    from broker.adapters.amqp10.outgoing import OutgoingLink
    from broker.adapters.amqp10.session import Session10


@final
class Owed:
    """Gathered while frames are taken and messages delivered, so that much is said at once."""

    def __init__(self, session: Session10) -> None:
        self.answers = Answers(session)
        self._session = session
        self._touched: dict[IncomingLink, None] = {}
        self._drained: dict[OutgoingLink, None] = {}
        self._owes = False

    def owe(self) -> None:
        """Something is to be said."""
        if not self._owes:
            self._owes = True
            self._session.peer.owing.append(self)

    def touch(self, link: IncomingLink) -> None:
        """It may be time to allow a link more."""
        self._touched[link] = None
        self.owe()

    def drained(self, link: OutgoingLink) -> None:
        """A receiver that wants to hear it is to be told that there is nothing more."""
        self._drained[link] = None
        self.owe()

    def end_turn(self) -> None:
        """Say it."""
        self._owes = False
        if self._session.ending:
            return
        self.answers.end_turn()
        drained, self._drained = self._drained, {}
        for link in drained:
            if link.target.draining and not link.leaving:
                link.drained()
        touched, self._touched = self._touched, {}
        for each in touched:
            each.top_up()

    def clear(self) -> None:
        """Nobody is left to be told."""
        self.answers.clear()
        self._touched = {}
        self._drained = {}
