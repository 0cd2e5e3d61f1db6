"""Publishers that are allowed no more while the machine is short of something. [RabbitMQ resource alarms]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from broker.adapters.shortage import Held

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

_log = structlog.get_logger("amqpd.connection")


@final
class HeldCredit(Held):
    """A connection of AMQP 1.0 whose senders have used up half of what they were allowed during a shortage.

    What it consumes goes on.
    """

    def __init__(self, connection: Connection10) -> None:
        self._connection = connection
        shortage = connection.server.shortage
        shortage.held[self] = None
        _log.info("publisher held", peer=connection.peer, user=connection.user, reason=shortage.reason)

    def end(self) -> None:
        """There is enough again: allow senders more (Held)."""
        self.forget()
        connection = self._connection
        connection.mapped.top_up()
        connection.end_turn()

    def forget(self) -> None:
        """The connection is gone, or held no longer."""
        self._connection.held = None
        self._connection.server.shortage.held.pop(self, None)


def hold_credit(connection: Connection10) -> None:
    """Allow the senders of a connection no more until there is enough again."""
    if connection.held is None:
        connection.held = HeldCredit(connection)
