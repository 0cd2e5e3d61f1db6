"""How connections end: everything that they hold goes back. [amqp-1.0 2.4.3]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog
from librt.strings import BytesWriter

from broker.adapters.amqp10 import opening
from broker.adapters.amqp10.states import CLOSED, CLOSING, OPENED, OPENING
from broker.adapters.amqp10.suspended import expire_all
from broker.adapters.server import HELD
from protocol.amqp10.performatives import Close

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

CLOSING_SECONDS: Final = 2

_log = structlog.get_logger("amqpd.connection")


def close(
    connection: Connection10, condition: str, text: str, info: Mapping[str, object] | None = None
) -> None:
    """Send close with an error, and open before it if that has not been said; the peer's close follows."""
    if connection.state == OPENING:
        opening.refuse(connection)
    let_go(connection)
    connection.state = CLOSING
    connection.write(opening.close_with(condition, text, info))
    connection.hearing.holds = 0
    connection.edge.release(HELD)
    connection.edge.closing(CLOSING_SECONDS)
    connection.flush()


def closed_by_peer(connection: Connection10) -> None:
    """Answer the peer's close."""
    connection.say_owed()
    let_go(connection)
    connection.write(Close())
    end_output(connection)


def end_output(connection: Connection10) -> None:
    """Nothing more is to be said: the output ends, and the peer closes."""
    connection.state = CLOSED
    connection.flush()
    connection.edge.release(HELD)
    connection.edge.end_output()


def drop(connection: Connection10) -> None:
    """Close the socket without a word. What was written before is still sent."""
    let_go(connection)
    connection.state = CLOSED
    connection.flush()
    connection.edge.close()


def lost(connection: Connection10, reason: str) -> None:
    """The socket is gone."""
    if connection.state == OPENED:
        why = reason or "closed by the peer"
        _log.info("connection lost", peer=connection.peer, user=connection.user, reason=why)
    let_go(connection)
    connection.state = CLOSED
    connection.out = BytesWriter()


def let_go(connection: Connection10) -> None:
    """Everything that the connection holds goes back, and the connection is the actor of that."""
    virtual_host = connection.virtual_host
    if virtual_host is None:
        _let_go(connection)
        return
    journal = virtual_host.journal
    before = journal.actor
    journal.actor = connection
    try:
        _let_go(connection)
        connection.server.connections.remove(connection, connection.user, virtual_host.name)
        virtual_host.delete_exclusive_queues(connection)
    finally:
        journal.actor = before


def _let_go(connection: Connection10) -> None:
    connection.idle.stop()
    connection.mapped.let_go()
    connection.transactions.roll_back("the connection ended")
    expire_all(connection.suspended)
    for lifetime in connection.lifetimes.values():
        lifetime.connection_ended()
    connection.owing = []
    connection.held_credit.forget()
    if connection.login is not None:
        connection.login.abandon()
