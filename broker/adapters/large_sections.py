"""Large bodies of AMQP 1.0 on their way to a client of AMQP 0-9-1.

A content header says how long the body is. Of sections that is known when they have been walked over, which
is done step by step as sending them is. [amqp-0-9-1 4.2.6.1]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.adapters.large_bodies import Sending, enqueue, take_out
from broker.core.message import Body
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

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

_ENCODED: Final = Properties(content091(b"", opaque=True))  # with the type of a body that is sections


@final
class SendingSections(Sending):
    """A body that is kept as sections, of a message whose `kept` content is what stands in front of them.

    What is in data sections is the body; of another kind the sections themselves are it, and if they are none
    the whole message. `before` ends with a content header of `head` bytes that says of none of this.
    """

    def __init__(self, before: bytes, body: Body, channel: i64, counted: i64, kept: bytes, head: i64) -> None:
        super().__init__(before, body, channel, counted)
        self._kept = kept
        self._head: i64 = head
        self._parts = BodyParts()
        self._walked: i64 = 0  # so many pieces
        self._measured = False
        self._as_they_are = False  # the pieces are the body

    def next(self, connection: Connection091) -> bytes:
        """What is to be written next, if anything (Sending)."""
        if not self._measured:
            self._measure(connection)
            return b""
        if self.before:
            return self.take_before()
        piece = self.take_piece(connection)
        if not self._as_they_are:
            piece = b"".join(self._parts.feed(piece))
        out = BytesWriter()
        write_body(out, piece, self.channel, connection.frame_max)
        return out.getvalue()

    def _measure(self, connection: Connection091) -> None:
        """Walk on to the next piece that has to be looked into; behind the last one, say what was found."""
        parts = self._parts
        pieces = self.body.pieces
        try:
            while self._walked < len(pieces) and not parts.ended:
                piece = pieces[self._walked]
                self._walked += 1
                if piece.size > parts.left:
                    parts.feed(self.content_of(piece, connection))
                    return
                parts.pass_over(piece.size)
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
        """The sections as they are will follow."""
        properties = Properties(self._header())
        properties.adopt(_ENCODED, TYPE)
        header = properties.content()
        if len(header) > frame_max:
            self._announce_whole(frame_max)
        else:
            self._as_they_are = True
            self._announce(header, self._piece_bytes())

    def _announce_whole(self, frame_max: i64) -> None:
        """All of the message will follow; what is in front of the body is written."""
        whole = content091(self._kept, opaque=True)
        size = header_frame_bytes(whole)
        out = BytesWriter()
        write_content(out, whole[:size], self.channel)
        header = out.getvalue()
        out.truncate(0)
        write_frames(out, whole[size:], self.channel, frame_max)
        self._as_they_are = True
        self._announce(header, len(self._kept) + self._piece_bytes())
        self.before += out.getvalue()

    def _header(self) -> bytes:
        return self.before[len(self.before) - self._head :]

    def _announce(self, header: bytes, size: i64) -> None:
        """Write this content header, with this size of a body, in place of the one that is there."""
        self.before = self.before[: len(self.before) - self._head] + with_body_size(header, size)

    def _piece_bytes(self) -> i64:
        size: i64 = 0
        for piece in self.body.pieces:
            size += piece.size
        return size


def send_sections(
    connection: Connection091, body: Body, channel: i64, size: i64, kept: bytes, head: i64
) -> None:
    """As `send_body`, for a message that is kept as sections, `kept` and then those of the body.

    What has been written ends with its content header, of `head` bytes.
    """
    before = take_out(connection)
    enqueue(connection, SendingSections(before, body, channel, len(before) + size, kept, head))
