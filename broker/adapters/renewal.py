"""A client that renews its secret on an open connection. [RabbitMQ connection.update-secret]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from broker.adapters.server import HELD_FOR_REPLY
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import OPEN
from protocol.errors import NOT_ALLOWED, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

WITHOUT_SECRET: Final = ("EXTERNAL", "ANONYMOUS")
"""Mechanisms whose users have nothing to renew."""

_log = structlog.get_logger("amqpd.connection")


@final
class Renewal:
    """One update-secret: the secret is checked as that of the log-in was, and frames wait meanwhile."""

    def __init__(self, connection: Connection091, reason: str | None) -> None:
        self._connection = connection
        self._reason = reason

    def begin(self, secret: str | None) -> None:
        """Check the secret, and answer update-secret-ok or close 530."""
        connection = self._connection
        connection.hold(HELD_FOR_REPLY)
        if connection.mechanism in WITHOUT_SECRET:
            self._checked(True)
        else:
            connection.server.access.check(connection.user, secret or "", connection.origin, self._checked)

    def _checked(self, right: bool) -> None:
        connection = self._connection
        if connection.state != OPEN:
            return
        if not right:
            text = "New secret was refused by one of the backends"
            connection.fail(ProtocolError(NOT_ALLOWED, text, c.CONNECTION_UPDATE_SECRET))
            return
        _log.info("secret renewed", peer=connection.peer, user=connection.user, reason=self._reason)
        connection.out.write(methods.method_frame(0, c.CONNECTION_UPDATE_SECRET_OK))
        connection.release(HELD_FOR_REPLY)
