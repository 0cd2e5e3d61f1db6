"""Large bodies, handled piece by piece as they arrive and as the client takes them.

A content header contains the length of the body. For a body of sections the length is known only after a scan
of all sections. The scan is done step by step, as is the sending. [amqp-0-9-1 4.2.6.1]
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.amqp091.shortage import hold_publisher
from broker.adapters.amqp091.state import Connection091State, OutgoingBodies
from broker.adapters.peers.connections import OUTPUT_KEPT_MAX
from broker.core.message import Body, Message, piece_of
from protocol.amqp091.content import (
    header_frame_bytes,
    with_body_size,
    write_body,
    write_content,
    write_frames,
)
from protocol.amqp091.properties import TYPE, Properties
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE
from protocol.conversion.parts import BodyParts
from protocol.conversion.to091 import content091

STEP_BYTES: Final = 2097152  # then other connections are served
STEP_BYTES_MIN: Final = 65536  # a step counts at least this, because it may read without writing


class OutgoingBody:
    """A body to send on a channel, and the output before the body. `sent`: the number of pieces sent.

    `counted`: the bytes of this sending that are included in LargeBodies.waiting.
    """

    def __init__(self, before: bytes, body: Body, channel: i64, counted: i64) -> None:
        self.before = before
        self.body = body
        self.channel: i64 = channel
        self.counted: i64 = counted
        self.sent: i64 = 0

    def is_over(self) -> bool:
        """Whether everything is written."""
        return not self.before and self.sent == len(self.body.pieces)

    def next_bytes(self, connection: Connection091State) -> bytes:
        """Return the next bytes to write, perhaps none after a step of preparation.

        Raises what MessageStore.load raises.
        """
        if self.before:
            return self.take_before()
        out = BytesWriter()
        write_frames(out, self.take_piece(connection), self.channel, connection.frame_max)
        return out.getvalue()

    def take_before(self) -> bytes:
        """Remove and return the output before the body."""
        before = self.before
        self.before = b""
        return before

    def take_piece(self, connection: Connection091State) -> bytes:
        """Return the content of the next piece. Raises what MessageStore.load raises."""
        piece = self.body.pieces[self.sent]
        self.sent += 1
        return self.content_of(piece, connection)

    def content_of(self, piece: Message, connection: Connection091State) -> bytes:
        """Return the content of a piece. Raises what MessageStore.load raises."""
        content = piece.content
        return connection.server.store.load(piece) if content is None else content


@final
class LargeBodies(OutgoingBodies):
    """The large bodies that a connection sends, in order.

    Later output waits behind the bodies, because no other frame of a channel may interrupt a
    content [amqp-0-9-1 4.2.6]. Only a piece at a time of these bodies is in memory.
    """

    def __init__(self, connection: Connection091State) -> None:
        super().__init__()
        self._connection = connection
        self._unsent: deque[OutgoingBody] = deque()

    def add(self, outgoing: OutgoingBody) -> None:
        """Add a body after the others."""
        self._unsent.append(outgoing)
        self.waiting += outgoing.counted

    def send_more(self) -> bool:
        """Write about STEP_BYTES, as far as the peer takes them."""
        connection = self._connection
        edge = connection.edge
        written: i64 = 0
        unsent = self._unsent
        while unsent and written < STEP_BYTES and not connection.blocked:
            if edge.is_closing():
                unsent.clear()
                break
            outgoing = unsent[0]
            data = outgoing.next_bytes(connection)
            if outgoing.is_over():
                unsent.popleft()
            if data:
                self.waiting -= outgoing.counted
                outgoing.counted = 0
                edge.write(data)
            written += max(len(data), STEP_BYTES_MIN)
        return not unsent


def take_piece(
    connection: Connection091State, body: Body, frames: bytes, size: i64, persistent: bool
) -> None:
    """Take a part of an incoming body. A persistent part goes to disk at once, whatever its route.

    Parts of a message that no queue takes are released with the body. During a shortage the publisher is
    held in the middle of the body, because a single channel of many could fill memory otherwise.
    """
    piece = piece_of(body, frames, size)
    if persistent:
        connection.server.store.append_piece(piece)
        connection.publishes = True  # so that the publisher waits while the log is behind
    if connection.server.shortage.reason:
        hold_publisher(connection)


def send_body(connection: Connection091State, body: Body, channel: i64, size: i64) -> None:
    """Send a large body after the output, which ends with its content header.

    `size`: the bytes of the body if it is an answer. 0 for a delivery, because deliveries stop by themselves.
    """
    before = take_output(connection)
    enqueue(connection, OutgoingBody(before, body, channel, len(before) + size))


def enqueue(connection: Connection091State, outgoing: OutgoingBody) -> None:
    """Send a body after everything before it has been sent."""
    bodies_of(connection).add(outgoing)
    connection.full = True
    connection.schedule()


def bodies_of(connection: Connection091State) -> LargeBodies:
    """Return the large bodies that a connection sends; creates the object if there is none."""
    if connection.bodies is None:
        connection.bodies = LargeBodies(connection)
    assert isinstance(connection.bodies, LargeBodies), "bodies are made here only"
    return connection.bodies


def unsent_bytes(connection: Connection091State) -> i64:
    """Return the bytes of output and of large answers of which the socket has nothing yet."""
    waiting: i64 = 0 if connection.bodies is None else connection.bodies.waiting
    return len(connection.out) + waiting


def take_output(connection: Connection091State) -> bytes:
    """Remove and return the output that is not flushed; the caller has to send it."""
    out = connection.out
    written = out.getvalue()
    if len(out) > OUTPUT_KEPT_MAX:
        connection.out = BytesWriter()
    else:
        out.truncate(0)
    return written


def send_bodies(connection: Connection091State, bodies: OutgoingBodies) -> bool:
    """Send more of the large bodies; return whether all are sent. A disk error ends the connection."""
    try:
        all_sent = bodies.send_more()
    except Exception:
        connection.internal_error()
        return False
    if all_sent:
        connection.bodies = None
    else:
        connection.schedule()
    return all_sent


def drop_bodies(connection: Connection091State) -> None:
    """Drop the large bodies and the output behind them: the connection ends."""
    if connection.bodies is not None:
        connection.bodies = None
        connection.out = BytesWriter()


_ENCODED: Final = Properties(content091(b"", opaque=True))  # with the type of an encoded body


@final
class OutgoingSections(OutgoingBody):
    """A body that is stored as sections; `kept` is the message's stored content before the body.

    The content of data sections is sent as the body. Sections of another kind are sent unchanged. If the
    bytes are no sections, the whole message is sent. `before` ends with a content header of `head` bytes,
    which the scan replaces.
    """

    def __init__(self, before: bytes, body: Body, channel: i64, counted: i64, kept: bytes, head: i64) -> None:
        super().__init__(before, body, channel, counted)
        self._kept = kept
        self._head: i64 = head
        self._parts = BodyParts()
        self._scanned: i64 = 0  # the number of scanned pieces
        self._measured = False
        self._is_unchanged = False  # the pieces are the body, unchanged

    def next_bytes(self, connection: Connection091State) -> bytes:
        """Return the next bytes to write, if any (Sending)."""
        if not self._measured:
            self._measure(connection)
            return b""
        if self.before:
            return self.take_before()
        piece = self.take_piece(connection)
        if not self._is_unchanged:
            piece = b"".join(self._parts.feed(piece))
        out = BytesWriter()
        write_body(out, piece, self.channel, connection.frame_max)
        return out.getvalue()

    def _measure(self, connection: Connection091State) -> None:
        """Scan up to the next piece that must be read; after the last piece, write the content header."""
        parts = self._parts
        pieces = self.body.pieces
        try:
            while self._scanned < len(pieces) and not parts.ended:
                piece = pieces[self._scanned]
                self._scanned += 1
                if piece.size > parts.left:
                    parts.feed(self.content_of(piece, connection))
                    return
                parts.skip(piece.size)
            if parts.code in (AMQP_VALUE, AMQP_SEQUENCE):
                self._announce_encoded(connection.frame_max)
            else:
                parts.end()
                self._announce(self._header(), parts.size)
        except DecodeError:
            self._announce_whole(connection.frame_max)
        self._parts = BodyParts()
        self._measured = True

    def _announce_encoded(self, frame_max: i64) -> None:
        """Announce the unchanged sections as the body."""
        properties = Properties(self._header())
        properties.adopt(_ENCODED, TYPE)
        header = properties.content()
        if len(header) > frame_max:
            self._announce_whole(frame_max)
        else:
            self._is_unchanged = True
            self._announce(header, self._piece_bytes())

    def _announce_whole(self, frame_max: i64) -> None:
        """Announce the whole message as the body, and write its part before the sections."""
        whole = content091(self._kept, opaque=True)
        size = header_frame_bytes(whole)
        out = BytesWriter()
        write_content(out, whole[:size], self.channel)
        header = out.getvalue()
        out.truncate(0)
        write_frames(out, whole[size:], self.channel, frame_max)
        self._is_unchanged = True
        self._announce(header, len(self._kept) + self._piece_bytes())
        self.before += out.getvalue()

    def _header(self) -> bytes:
        return self.before[len(self.before) - self._head :]

    def _announce(self, header: bytes, size: i64) -> None:
        """Replace the content header by this one, with this size of the body."""
        self.before = self.before[: len(self.before) - self._head] + with_body_size(header, size)

    def _piece_bytes(self) -> i64:
        size: i64 = 0
        for piece in self.body.pieces:
            size += piece.size
        return size


def send_sections(
    connection: Connection091State, body: Body, channel: i64, size: i64, kept: bytes, head: i64
) -> None:
    """As `send_body`, for a message that is stored as sections: `kept` and then the sections of the body.

    The output ends with the message's content header, of `head` bytes.
    """
    before = take_output(connection)
    enqueue(connection, OutgoingSections(before, body, channel, len(before) + size, kept, head))
