"""Publishers that are allowed no more while the machine is short of something. [RabbitMQ resource alarms]"""

from __future__ import annotations

from typing import final

import structlog

from broker.adapters.amqp10.answers import owed_by
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.state import Connection10State, Session10State
from broker.adapters.peers.connections import Held

_log = structlog.get_logger("amqpd.connection")


@final
class HeldCredit(Held):
    """Whether the senders of a connection of AMQP 1.0 are held, as there is a shortage.

    Their links get no more credit, and the windows of their sessions are shut. What is on its way is taken,
    and what the connection consumes goes on.
    """

    def __init__(self, connection: Connection10State) -> None:
        self._connection = connection
        self._shortage = connection.server.shortage
        self._shut: list[Session10State] = []

    def hold(self) -> None:
        """Hold them, unless they are held or there are none."""
        connection = self._connection
        publishing = [session for session in connection.open_sessions() if _publishes(session)]
        if not publishing or self in self._shortage.held:
            return
        self._shortage.held[self] = None
        self._shut = publishing
        for session in publishing:
            session.incoming.shut = True
            session.say_flow()
        reason = self._shortage.reason
        _log.info("publisher held", peer=connection.peer, user=connection.user, reason=reason)

    def end(self) -> None:
        """There is enough again (Held)."""
        shut = self._shut
        self.forget()
        for session in shut:
            if not session.gone:
                session.incoming.shut = False
                session.say_flow()
        for session in self._connection.open_sessions():
            _top_up(session)
        self._connection.end_turn()

    def forget(self) -> None:
        """The connection is gone, or held no longer."""
        self._shortage.held.pop(self, None)
        self._shut = []


def _publishes(session: Session10State) -> bool:
    return any(isinstance(link, IncomingLink) for link in session.links.values())


def _top_up(session: Session10State) -> None:
    """Allow the senders of a session more."""
    for link in session.links.values():
        if isinstance(link, IncomingLink):
            owed_by(session).touch(link)
