"""The senders that get no more credit while memory or disk space is short. [RabbitMQ resource alarms]"""

from __future__ import annotations

from typing import final

import structlog

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.state import Connection10State, Session10State
from broker.adapters.peers.shortage import Held

_log = structlog.get_logger("amqpd.connection")


@final
class HeldCredit(Held):
    """The hold of a connection's senders during a shortage.

    The senders get no more credit, and the incoming windows of their sessions are shut. Transfers that are
    already allowed are accepted, and the connection's receivers continue.
    """

    def __init__(self, connection: Connection10State) -> None:
        self._connection: Connection10State | None = connection  # None: it has ended
        self._shortage = connection.server.shortage
        self._shut_sessions: list[Session10State] = []

    def hold(self) -> None:
        """Hold the senders, unless they are held or there are none."""
        connection = self._connection
        if connection is None:
            return
        publishing = [session for session in connection.open_sessions() if _publishes(session)]
        if not publishing or self in self._shortage.held:
            return
        self._shortage.held[self] = None
        self._shut_sessions = publishing
        for session in publishing:
            session.incoming.is_shut = True
            session.send_flow()
        reason = self._shortage.reason
        _log.info("publisher held", peer=connection.peer, user=connection.user, reason=reason)

    def end(self) -> None:
        """Grant credit again: the shortage is over."""
        shut = self._shut_sessions
        self.forget()
        for session in shut:
            if not session.is_released:
                session.incoming.is_shut = False
                session.send_flow()
        if self._connection is not None:
            for session in self._connection.open_sessions():
                _check_credits(session)
            self._connection.end_turn()

    def forget_connection(self) -> None:
        """Forget the senders and the connection, which has ended."""
        self.forget()
        self._connection = None

    def forget(self) -> None:
        """Forget the senders, which are no longer held."""
        self._shortage.held.pop(self, None)
        self._shut_sessions = []


def _publishes(session: Session10State) -> bool:
    return any(isinstance(link, IncomingLink) for link in session.links.values())


def _check_credits(session: Session10State) -> None:
    """Grant the senders of a session more credit."""
    for link in session.links.values():
        if isinstance(link, IncomingLink):
            pending_frames_of(session).check_credit(link)
