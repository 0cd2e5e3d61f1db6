"""Large bodies: piece by piece as they come, and on their way to a client as fast as it takes them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.held_publisher import hold_publisher
from broker.core.message import Body, Message, piece_of
from protocol.amqp091.content import write_frames

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

OUTPUT_KEPT_MAX: Final = 524288  # a buffer that one long message made larger is not kept
STEP_BYTES: Final = 2097152  # then other connections have their turn
STEP_BYTES_MIN: Final = 65536  # a step counts as so many, as it may have read what it has not written


class Sending:
    """One body for one channel, and what was written before it. `sent`: so many pieces.

    `counted`: so many of its bytes are in LargeBodies.waiting.
    """

    def __init__(self, before: bytes, body: Body, channel: i64, counted: i64) -> None:
        self.before = before
        self.body = body
        self.channel: i64 = channel
        self.counted: i64 = counted
        self.sent: i64 = 0

    def is_over(self) -> bool:
        """Whether there is nothing more to write."""
        return not self.before and self.sent == len(self.body.pieces)

    def next(self, connection: Connection091) -> bytes:
        """What is to be written next, if anything; it took a step to find out.

        Raises what MessageStore.load raises.
        """
        if self.before:
            return self.take_before()
        out = BytesWriter()
        write_frames(out, self.take_piece(connection), self.channel, connection.frame_max)
        return out.getvalue()

    def take_before(self) -> bytes:
        """What stands before the body, which is not there any more then."""
        before = self.before
        self.before = b""
        return before

    def take_piece(self, connection: Connection091) -> bytes:
        """The content of the next piece. Raises what MessageStore.load raises."""
        piece = self.body.pieces[self.sent]
        self.sent += 1
        return self.content_of(piece, connection)

    def content_of(self, piece: Message, connection: Connection091) -> bytes:
        """The content of a piece. Raises what MessageStore.load raises."""
        content = piece.content
        return connection.server.store.load(piece) if content is None else content


@final
class LargeBodies:
    """What a connection sends while it has large bodies to send, in order.

    Whatever is written meanwhile waits behind them: no other frame of its channel may stand in a content
    [amqp-0-9-1 4.2.6], and what is on its way is in memory only by the piece.

    `waiting`: bytes of answers of which nothing has been written yet.
    """

    def __init__(self, connection: Connection091) -> None:
        self._connection = connection
        self._sendings: deque[Sending] = deque()
        self.waiting: i64 = 0

    def add(self, sending: Sending) -> None:
        """Send this behind the others."""
        self._sendings.append(sending)
        self.waiting += sending.counted

    def go_on(self) -> bool:
        """Write what the peer takes, about STEP_BYTES; returns whether that was the last of it.

        Raises what MessageStore.load raises.
        """
        connection = self._connection
        edge = connection.edge
        written: i64 = 0
        sendings = self._sendings
        while sendings and written < STEP_BYTES and not connection.blocked:
            if edge.is_closing():
                sendings.clear()
                break
            sending = sendings[0]
            data = sending.next(connection)
            if sending.is_over():
                sendings.popleft()
            if data:
                self.waiting -= sending.counted
                sending.counted = 0
                edge.write(data)
            written += max(len(data), STEP_BYTES_MIN)
        return not sendings


def take_piece(connection: Connection091, body: Body, frames: bytes, size: i64, persistent: bool) -> None:
    """Take a part of a body that is coming. A persistent one goes to disk at once, whatever its route.

    What no queue takes is let go of with the body. A publisher of either is held during a shortage, in the
    middle of the body: one of many channels could fill memory otherwise.
    """
    piece = piece_of(body, frames, size)
    if persistent:
        connection.server.store.append_piece(piece)
        connection.publishes = True  # so that it waits while too much is on the way to the disk
    if connection.server.shortage.reason:
        hold_publisher(connection)


def send_body(connection: Connection091, body: Body, channel: i64, size: i64) -> None:
    """Send a large body behind what has been written, which ends with its content header.

    `size`: its bytes if it is an answer, 0 if it is a delivery: those stop by themselves.
    """
    before = take_out(connection)
    enqueue(connection, Sending(before, body, channel, len(before) + size))


def enqueue(connection: Connection091, sending: Sending) -> None:
    """Send this when what is before it has been sent."""
    if connection.bodies is None:
        connection.bodies = LargeBodies(connection)
    connection.bodies.add(sending)
    connection.full = True
    connection.schedule()


def unsent_bytes(connection: Connection091) -> i64:
    """Bytes that have been written, and large bodies of answers, of which the socket has nothing yet."""
    waiting: i64 = 0 if connection.bodies is None else connection.bodies.waiting
    return len(connection.out) + waiting


def take_out(connection: Connection091) -> bytes:
    """What has been written and not flushed; whoever takes it sends it."""
    out = connection.out
    written = out.getvalue()
    if len(out) > OUTPUT_KEPT_MAX:
        connection.out = BytesWriter()
    else:
        out.truncate(0)
    return written


def send_on(connection: Connection091, bodies: LargeBodies) -> bool:
    """Send on what is on its way; returns whether that is done. A disk that fails ends the connection."""
    try:
        done = bodies.go_on()
    except Exception:
        connection.internal_error()
        return False
    if done:
        connection.bodies = None
    else:
        connection.schedule()
    return done


def cut_bodies(connection: Connection091) -> None:
    """Send no more of what is on its way, nor of what is behind it: the connection ends."""
    if connection.bodies is not None:
        connection.bodies = None
        connection.out = BytesWriter()
