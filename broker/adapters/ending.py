"""How connections end: everything that they hold goes back. [amqp-0-9-1 1.4.2.9, 1.4.2.10]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from mypy_extensions import i64

from broker.adapters.channel091 import Channel
from broker.adapters.large_bodies import cut_bodies
from broker.adapters.server import HELD
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import CLOSED, advance
from protocol.errors import CHANNEL_ERROR, REPLY_NAMES, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

HANGUP_SECONDS: Final = 3  # for a client that has closed to hang up
CLOSES_MAX: Final = 1024  # answers to one client: more would pile up if the client reads none

_log = structlog.get_logger("amqpd.connection")


def tell(connection: Connection091, error: ProtocolError) -> None:
    """Log why a connection is ended from this side."""
    _log.warning(
        "connection error",
        peer=connection.peer,
        user=connection.user,
        code=error.code,
        name=REPLY_NAMES[error.code],
        reason=error.text,
    )


def tell_lost(connection: Connection091, reason: str) -> None:
    """Log that an open connection has lost its socket."""
    why = reason or "closed by the peer"
    _log.info("connection lost", peer=connection.peer, user=connection.user, reason=why)


def not_open(connection: Connection091, channel: i64, method: int) -> ProtocolError:
    """A channel is used before the connection is open, or after that."""
    text = f"channel {int(channel)} used on a connection that is {connection.state}"
    return ProtocolError(CHANNEL_ERROR, text, method)


def await_close_ok(connection: Connection091, found: list[int]) -> None:
    """Take what a CloseWatch has found after this end has sent close.

    A close that has crossed this end's own comes first: its sender may wait for the answer instead of giving
    one.
    """
    if c.CONNECTION_CLOSE in found:
        connection.state = advance(connection.state, c.CONNECTION_CLOSE)
        answer_closes(connection, found)
        connection.edge.await_hangup(HANGUP_SECONDS)
    elif found:
        connection.state = advance(connection.state, c.CONNECTION_CLOSE_OK)
        connection.edge.close()  # close-ok was the last thing that the peer had to say


def closed_by_peer(connection: Connection091) -> None:
    """Answer the peer's close, and let the peer hang up.

    A client that finds the end of the stream behind close-ok may take it for a failure. Frames of other
    channels may be on their way behind the close: closing the socket with them unread would reset the
    connection, and the peer might never see the close-ok.
    """
    connection.state = CLOSED
    connection.wire.stop()
    let_go(connection)
    answer_closes(connection, [c.CONNECTION_CLOSE])
    connection.edge.release(HELD)  # its end has to be read
    connection.edge.await_hangup(HANGUP_SECONDS)


def answer_closes(connection: Connection091, found: list[int]) -> None:
    """Answer each close among `found`: several threads of a client may close one connection."""
    closes = min(found.count(c.CONNECTION_CLOSE), CLOSES_MAX - connection.closes)
    if closes > 0:
        connection.closes += closes
        connection.out.write(methods.method_frame(0, c.CONNECTION_CLOSE_OK) * closes)
        connection.flush()


def channels_of(connection: Connection091) -> list[Channel]:
    """The channels that are open."""
    return [channel for channel in connection.wire.channels if isinstance(channel, Channel)]


def forget_deliveries(connection: Connection091, most: i64) -> i64:
    """Forget what is outstanding of queues that are gone; see `OpenConnection`."""
    left = most
    for channel in channels_of(connection):
        left -= channel.unacked.forget(left)
        if channel.transaction is not None:
            left -= channel.transaction.forget(left)
    return most - left


def let_go(connection: Connection091) -> None:
    """Everything that the channels hold goes back, with every consumer silenced first.

    Otherwise the first channel's messages would go to the second channel of the same dying connection.
    """
    channels = channels_of(connection)
    cut_bodies(connection)
    for channel in channels:
        channel.silence()
    for channel in channels:
        channel.let_go("the connection ended")
        connection.channel_closed(channel.number)
    connection.owing = []
    if connection.held is not None:
        connection.held.forget()
    if connection.virtual_host is not None:
        connection.server.connections.remove(connection, connection.user, connection.virtual_host.name)
        journal = connection.virtual_host.journal
        before = journal.actor
        journal.actor = connection
        try:
            connection.virtual_host.delete_exclusive_queues(connection)
        finally:
            journal.actor = before
