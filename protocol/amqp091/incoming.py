"""The incoming frames of a channel: content in several pieces. [amqp-0-9-1 4.2.6]"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from protocol.amqp091.constants import (
    BASIC_PUBLISH,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
)
from protocol.amqp091.content import body_size, merge_frames, scan
from protocol.errors import FRAME_ERROR, SYNTAX_ERROR, ProtocolError

EXPECT_METHOD: Final = 0
EXPECT_HEADER: Final = 1
EXPECT_BODY: Final = 2
DISCARD: Final = 3  # this side has closed the channel: other frames than close and close-ok are dropped
HELD: Final = 4  # a request is not answered yet: the next frames of the channel are kept

WHOLE_BYTES_MAX: Final = 1048576  # a larger body is passed on in pieces of about this size
PARTS_MAX: Final = 1024  # the number of frames of a content that are checked together:
SMALL_BYTES: Final = 256  # frames with fewer bytes on average are merged


@mypyc_attr(allow_interpreted_subclasses=True)
class IncomingChannel:
    """The incoming frames of an open channel: which frames may come next, and content in several pieces.

    `content_method`: the method whose content `on_publish` takes; a client's channel takes basic.deliver
    instead of basic.publish, and checks its arguments. The subclass implements the calls `on_...`, which
    raise ProtocolError only.
    """

    def __init__(self, body_bytes_max: i64) -> None:
        self.expecting: i64 = EXPECT_METHOD
        self.content_method: i64 = BASIC_PUBLISH
        self.body_bytes_max: i64 = body_bytes_max
        self.whole_bytes_max: i64 = min(body_bytes_max, WHOLE_BYTES_MAX)
        self._arguments: bytes = b""
        self._parts: list[bytes] = []
        self._merged: i64 = 0  # parts before this index are merged already
        self._missing: i64 = 0
        self._gathered: i64 = 0  # bytes of a large body in the parts
        self._head: bytes = b""  # the header frame of a large body
        self._size: i64 = 0
        self._traits: i64 = 0
        self._kept: list[bytes] = []
        self.kept_bytes: i64 = 0

    def on_publish(self, arguments: bytes, content: bytes, size: i64, traits: i64) -> None:
        """Take a whole message.

        `arguments` are the arguments of basic.publish as sent. `content`: the header and body frames. `size`:
        the bytes of the body. `traits`: the result of `content.scan`. If the body has more than
        WHOLE_BYTES_MAX bytes, all its frames have been given to `on_piece` before, and `content` is the
        header frame alone.
        """
        raise NotImplementedError

    def check_arguments(self, data: bytes, p: i64, end: i64) -> None:
        """Check the frame at `p` of the content's method, which ends before `end`. Raises ProtocolError."""
        check_publish(data, p, end)

    def on_piece(self, frames: bytes, size: i64, traits: i64) -> None:
        """Take body frames of a large body, with `size` bytes of the body.

        The other pieces follow in order, and then `on_publish`. If the channel ends before, `discard`
        follows.
        """
        raise NotImplementedError

    def on_ack(self, tag: i64, multiple: bool) -> None:
        """Take a basic.ack."""
        raise NotImplementedError

    def on_oversized(self, size: i64) -> None:
        """End the channel: a content header announces a body larger than `body_bytes_max`."""
        raise NotImplementedError

    def on_kept(self, method: i64) -> None:
        """Note that a frame has been kept: a method, or 0 for a part of a content."""

    def hold(self) -> None:
        """Keep all further frames until `end_hold`. Called while a method of the channel is handled."""
        self.expecting = HELD

    def keep(self, frame: bytes, method: i64) -> None:
        """Take a frame while the channel is held; `method` is 0 for other frames."""
        self._kept.append(frame)
        self.kept_bytes += len(frame)
        self.on_kept(method)

    def end_hold(self) -> bytes:
        """Stop keeping frames; return the kept frames, which the caller puts back into the stream."""
        if self.expecting == HELD:
            self.expecting = EXPECT_METHOD
        frames = b"".join(self._kept)
        self._kept = []
        self.kept_bytes = 0
        return frames

    def begin_content(self, arguments: bytes) -> None:
        """Begin a content whose basic.publish has arrived alone."""
        self._arguments = arguments
        self.expecting = EXPECT_HEADER

    def header_frame(self, data: bytes, start: i64, size: i64) -> None:
        """Take the header frame at `start` of `data`."""
        self._size = body_size(data, start, size)
        self._traits = scan(data, start, size)
        if self._size > self.body_bytes_max:
            self.expecting = EXPECT_METHOD
            self.on_oversized(self._size)
            return
        self._parts = [data[start : start + size + FRAME_OVERHEAD]]
        self._merged = 1
        self._missing = self._size
        if self._size > WHOLE_BYTES_MAX:
            self._head = self._parts.pop()
            self._merged = 0
            self._gathered = 0
        self.expecting = EXPECT_BODY
        if self._missing == 0:
            self._complete()

    def body_frame(self, data: bytes, start: i64, size: i64) -> None:
        """Take the body frame at `start` of `data`. Raises ProtocolError(FRAME_ERROR)."""
        self._missing -= size
        if self._missing < 0:
            raise ProtocolError(
                FRAME_ERROR, f"body frames carry {-self._missing} bytes more than the {self._size} announced"
            )
        if size > 0:  # an empty frame has no effect, and consumers do not get it
            self._parts.append(data[start : start + size + FRAME_OVERHEAD])
            if len(self._parts) - self._merged >= PARTS_MAX:
                self._merge()
            if self._size > WHOLE_BYTES_MAX:
                self._gather(size)
        if self._missing == 0:
            self._complete()

    def gathered(self) -> i64:
        """Return the bytes of an incomplete content that have not been passed on."""
        if self.expecting != EXPECT_BODY:
            return 0
        return self._gathered if self._size > WHOLE_BYTES_MAX else self._size - self._missing

    def discard(self) -> None:
        """Drop an incomplete content and all later frames: this side has closed the channel."""
        self.expecting = DISCARD
        self._parts = []
        self._head = b""

    def _gather(self, size: i64) -> None:
        """Pass on the received part of a large body, if the part is large enough for a piece."""
        self._gathered += size
        if self._gathered >= WHOLE_BYTES_MAX or self._missing == 0:
            frames = b"".join(self._parts)
            self._parts = []
            self._merged = 0
            gathered = self._gathered
            self._gathered = 0
            self.on_piece(frames, gathered, self._traits)

    def _merge(self) -> None:
        """Merge many small frames, which would take fifty times their body in memory."""
        recent = b"".join(self._parts[self._merged :])
        if len(recent) < PARTS_MAX * SMALL_BYTES:
            del self._parts[self._merged :]
            self._parts.append(merge_frames(recent))
        self._merged = len(self._parts)

    def _complete(self) -> None:
        content = self._head if self._size > WHOLE_BYTES_MAX else b"".join(self._parts)
        self._parts = []
        self._head = b""
        self.expecting = EXPECT_METHOD
        self.on_publish(self._arguments, content, self._size, self._traits)


def check_publish(data: bytes, p: i64, end: i64) -> None:
    """Check the basic.publish frame at `p`: two short strings and an octet of bits.

    Raises ProtocolError(SYNTAX_ERROR).
    """
    q: i64 = p + 13
    for _ in range(2):
        if q < end:
            q += 1 + data[q]
    if q + 1 != end:
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", BASIC_PUBLISH)


def check_start(kind: i64, size: i64, frame_max: i64) -> None:
    """Refuse a frame whose first 7 bytes are never valid.

    Clients may leave the 8 bytes around a payload out of the frame size [RabbitMQ FRAME_SIZE_FUDGE], but not
    for a content header, which cannot be split for consumers. Raises ProtocolError(FRAME_ERROR).
    """
    if kind != FRAME_METHOD and kind != FRAME_HEADER and kind != FRAME_BODY and kind != FRAME_HEARTBEAT:
        raise ProtocolError(FRAME_ERROR, f"unknown frame type {kind}")
    most = frame_max - FRAME_OVERHEAD if kind == FRAME_HEADER else frame_max
    if size < 0 or size > most:
        shown = size if size >= 0 else size + 4294967296
        raise ProtocolError(
            FRAME_ERROR,
            f"frame of {shown + FRAME_OVERHEAD} bytes, the negotiated maximum is {frame_max}",
        )
