"""AMQP 0-9-1 framing, parsed in place: bytes in, calls out; no socket, no clock. [amqp-0-9-1 4.2]

A publish whose method, header and body frames are in a single read is a single call. Frames of several reads
go through the channel's assembly, `incoming`. The channel of a client gets deliveries in the same way. No
other error than ProtocolError is raised, whatever the bytes.
"""

from typing import Final, Protocol, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from protocol.amqp091.constants import (
    BASIC_ACK,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
)
from protocol.amqp091.content import CLASS_AND_WEIGHT, PERSISTENT, body_size, scan
from protocol.amqp091.incoming import (
    DISCARD,
    EXPECT_BODY,
    EXPECT_HEADER,
    EXPECT_METHOD,
    HELD,
    IncomingChannel,
    check_start,
)
from protocol.amqp091.repeat import NEVER, RECOGNISES_REPEATS, SKIPPED_MAX, Repeat
from protocol.errors import CHANNEL_ERROR, FRAME_ERROR, SYNTAX_ERROR, UNEXPECTED_FRAME, ProtocolError

DELIVERY_MODE_ONLY: Final = 0x10  # the first octet of the property flags of many messages

_INCOMPLETE: Final = 0  # results of Wire._publish besides the offset after the content
_APART: Final = -1


class MethodSink(Protocol):
    """The connection, which takes every method that is not on the hot path."""

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Take a method frame; `payload` begins with class and method id.

        Raises ProtocolError when the method is unknown or not allowed now, or when its channel is not open.
        """


@final
class _IgnoringSink:
    """The sink of a stopped parser, which ignores methods."""

    def on_method(self, channel: int, method: int, payload: bytes) -> None:
        """Ignore a method."""


_IGNORING: Final = _IgnoringSink()


@final
class Wire:
    """A parser of frames from a byte stream.

    The owning connection opens channels by putting an IncomingChannel into `channels` (index = number). The
    connection may `suspend` the parser: bytes are then kept until `resume`.
    """

    def __init__(self, sink: MethodSink, frame_max: i64) -> None:
        self._sink = sink
        self.frame_max: i64 = frame_max
        self.channels: list[IncomingChannel | None] = []
        self.suspended = False
        self.stopped = False  # closed or broken: the rest of the stream is ignored
        self.rest = b""  # the rest of the bytes in which the connection was closed
        self._halted = False  # suspended or stopped
        self._chunks: list[bytes] = []  # the received bytes of an incomplete frame
        self._have: i64 = 0
        self._need: i64 = 0  # the bytes that the next call needs
        self._repeat: Repeat | None = None  # the publish that the next one may repeat
        self._skipped: i64 = 0 if RECOGNISES_REPEATS else NEVER  # publishes to parse before the next try

    def gathered(self) -> i64:
        """Return the bytes of incomplete contents of all channels that have not been passed on."""
        total: i64 = 0
        for channel in self.channels:
            if channel is not None:
                total += channel.gathered()
        return total

    def channel(self, number: i64) -> IncomingChannel | None:
        """Return the open channel of this number, None if there is none."""
        return self.channels[number] if number < len(self.channels) else None

    def suspend(self) -> None:
        """Keep all bytes until `resume`: later frames must not overtake an answer."""
        self.suspended = True
        self._halted = True

    def resume(self) -> None:
        """Continue with the kept bytes. Raises as `feed`."""
        self.suspended = False
        self._halted = self.stopped
        if self._have > 0:
            self._need = 0
            self.feed(b"")

    def put_back(self, frames: bytes) -> None:
        """Put whole frames that a channel has kept before the bytes received since; `feed` continues.

        Must not be called during `feed`.
        """
        if not self.stopped:
            self._chunks.insert(0, frames)
            self._have += len(frames)
            self._need = 0

    def kept(self) -> bytes:
        """Return the received bytes that are not parsed yet; they begin with a frame."""
        return b"".join(self._chunks)

    def stop(self) -> None:
        """Ignore all later bytes, and drop the reference to the sink."""
        self._sink = _IGNORING
        self.stopped = True
        self._halted = True
        self._repeat = None
        self._chunks = []
        self._have = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream and make the calls that they complete.

        Raises ProtocolError when the peer broke the framing or a call raised it; the stream is then unusable.
        """
        if self.stopped:
            return
        kept = self._have
        p: i64 = 0
        if kept > 0 or self.suspended:
            chunks = self._chunks
            if self.suspended or kept + len(data) < self._need:
                chunks.append(data)
                self._have = kept + len(data)
                return
            self._chunks = []
            self._have = 0
            p = self._bridge(chunks, data, kept) - kept
            if p < 0:
                data = b"".join([*chunks, data])
                p += kept
        p = self._parse(data, p)
        left: i64 = len(data) - p
        if left > 0:
            self._keep(data[p:] if p > 0 else data)

    def _keep(self, rest: bytes) -> None:
        """Keep unused bytes."""
        if self.stopped:
            self.rest = rest
        else:
            self._chunks.append(rest)
            self._have = len(rest)

    def _bridge(self, chunks: list[bytes], data: bytes, kept: i64) -> i64:
        """Parse the `kept` bytes with the first bytes of `data`, so that the rest of `data` is not copied.

        Return the number of used bytes: `kept` or more, or less if the incomplete frame needs more bytes.
        """
        first = self._need - kept + FRAME_MIN_SIZE
        if kept >= self._need or first > len(data) // 2:
            return 0
        return self._parse(b"".join([*chunks, data[:first]]), 0)

    def _parse(self, data: bytes, p: i64) -> i64:
        """Make the calls of all complete frames from `p` on; return the offset of the first unused byte."""
        n: i64 = len(data)
        self._need = 7
        channels = self.channels
        while n - p >= 7:
            if self._halted:
                break
            repeat = self._repeat
            if repeat is not None:
                behind = repeat.publish(data, p)
                if behind > 0:
                    p = behind
                    continue
            channel: int = read_i16_be(data, p + 1)
            size: int = read_i32_be(data, p + 3)
            end: i64 = p + 7 + size
            if end >= n or size < 0 or size > self.frame_max:
                check_start(data[p], size, self.frame_max)
                self._need = end + 1 - p
                break
            if data[end] != FRAME_END:
                raise ProtocolError(FRAME_ERROR, f"frame ends with octet {data[end]} instead of 206")
            if channel < 0:
                channel += 65536
            if data[p] == FRAME_METHOD and size >= 4:
                method: int = read_i32_be(data, p + 7)
                incoming = channels[channel] if channel < len(channels) else None
                if incoming is None:
                    self._other_method(channel, method, data[p + 7 : end])
                elif incoming.expecting != EXPECT_METHOD:
                    self._unexpected_method(incoming, channel, method, data[p : end + 1])
                elif method == incoming.content_method:
                    behind = self._publish(incoming, channel, data, p, end, n)
                    if behind > 0:
                        p = behind
                        continue
                    if behind == _INCOMPLETE:
                        break
                    incoming.check_arguments(data, p, end)
                    incoming.begin_content(data[p + 11 : end])
                elif method == BASIC_ACK and size == 13:
                    incoming.on_ack(read_i64_be(data, p + 11), data[p + 19] & 1 != 0)
                else:
                    self._other_method(channel, method, data[p + 7 : end])
            else:
                self._other_frame(data, p, channel, size)
            p = end + 1
        return p

    def _publish(self, incoming: IncomingChannel, channel: i64, data: bytes, p: i64, end: i64, n: i64) -> i64:
        """Make the call for a publish, or a delivery, at `p` with its content, if the content is complete.

        Return the offset after the content, _INCOMPLETE to wait for more bytes, _APART if its frames do not
        follow each other or the body has several frames.
        """
        h: i64 = end + 1
        if n - h < 7:
            incoming.check_arguments(data, p, end)  # an error of the method must not wait for the content
            self._need = h + 7 - p
            return _INCOMPLETE
        size: int = read_i32_be(data, h + 3)
        header_end: i64 = h + 7 + size
        other: int = read_i16_be(data, h + 1)
        if data[h] != FRAME_HEADER or (other & 0xFFFF) != channel or size < 14:
            return _APART
        if header_end >= n or size + FRAME_OVERHEAD > self.frame_max:
            check_start(data[h], size, self.frame_max)
            self._need = header_end + 1 - p
            return _INCOMPLETE
        if data[header_end] != FRAME_END:
            raise ProtocolError(FRAME_ERROR, f"frame ends with octet {data[header_end]} instead of 206")
        length: i64 = read_i64_be(data, h + 11)
        body_end: i64 = header_end
        if length < 0 or read_i32_be(data, h + 7) != CLASS_AND_WEIGHT:
            length = body_size(data, h, size)  # raises for the wrong value
        if length > 0:
            if length + FRAME_OVERHEAD > self.frame_max or length > incoming.whole_bytes_max:
                return _APART
            body_end = header_end + 8 + length
            if n - header_end >= 8:
                first: int = read_i32_be(data, header_end + 4)
                other = read_i16_be(data, header_end + 2)
                if first != length or data[header_end + 1] != FRAME_BODY or (other & 0xFFFF) != channel:
                    return _APART
            if body_end >= n:
                self._need = body_end + 1 - p
                return _INCOMPLETE
            if data[body_end] != FRAME_END:
                raise ProtocolError(FRAME_ERROR, f"frame ends with octet {data[body_end]} instead of 206")
        traits: i64 = 0
        if size == 15 and data[h + 19] == DELIVERY_MODE_ONLY and data[h + 20] == 0:
            traits = PERSISTENT if data[h + 21] == 2 else 0
        elif size != 14 or data[h + 19] != 0 or data[h + 20] != 0:
            traits = scan(data, h, size)
        arguments = data[p + 11 : end]
        if self._skipped > 0:
            self._skipped -= 1
        else:
            start = data[p : body_end - length]
            self._expect_repeat(Repeat(incoming, start, arguments, h - p, body_end - p, length, traits))
        incoming.on_publish(arguments, data[h : body_end + 1], length, traits)
        return body_end + 1

    def _expect_repeat(self, repeat: Repeat) -> None:
        """Expect a repetition of this publish; after a publish that differs, expect none for a while."""
        if self._repeat is None:
            self._repeat = repeat
        else:
            self._repeat = None
            self._skipped = SKIPPED_MAX

    def _other_method(self, channel: i64, method: i64, payload: bytes) -> None:
        self._repeat = None  # the channel or frame_max may change with the method
        self._sink.on_method(channel, method, payload)

    def _unexpected_method(self, incoming: IncomingChannel, channel: i64, method: i64, frame: bytes) -> None:
        if incoming.expecting == HELD:
            incoming.keep(frame, method)
        elif incoming.expecting == DISCARD:
            self._other_method(channel, method, frame[7:-1])
        else:
            raise ProtocolError(UNEXPECTED_FRAME, "expected content frame, got method frame instead", method)

    def _other_frame(self, data: bytes, p: i64, channel: i64, size: i64) -> None:
        kind: i64 = data[p]
        if kind == FRAME_HEARTBEAT:
            if channel != 0:
                raise ProtocolError(UNEXPECTED_FRAME, f"heartbeat on channel {channel} instead of 0")
            return
        if kind == FRAME_METHOD:
            raise ProtocolError(SYNTAX_ERROR, f"method frame of {size} bytes, at least 4 are needed")
        check_start(kind, size, self.frame_max)
        incoming = self.channel(channel)
        if incoming is None:
            raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'")
        if incoming.expecting == DISCARD:
            return
        if incoming.expecting == HELD:
            incoming.keep(data[p : p + size + FRAME_OVERHEAD], 0)
        elif kind == FRAME_HEADER and incoming.expecting == EXPECT_HEADER:
            incoming.header_frame(data, p, size)
        elif kind == FRAME_BODY and incoming.expecting == EXPECT_BODY:
            incoming.body_frame(data, p, size)
        elif incoming.expecting == EXPECT_METHOD:
            raise ProtocolError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        else:
            wanted = "header" if incoming.expecting == EXPECT_HEADER else "body"
            raise ProtocolError(UNEXPECTED_FRAME, f"expected content {wanted} frame, got another one instead")
