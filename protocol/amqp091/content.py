"""Content header and body frames. The broker decodes only the parts that it needs. [amqp-0-9-1 4.2.6]

Content is kept as the frames that the publisher sent: a header frame and its body frames, in a single slice.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i64, u8

from protocol.amqp091.constants import (
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
)
from protocol.errors import FRAME_ERROR, SYNTAX_ERROR, UNEXPECTED_FRAME, ProtocolError

# The lengths of the properties in the order of their flag bits, 15 down to 2. [amqp-0-9-1 1.8]
_SHORT: Final = 1
_TABLE: Final = 2
_OCTET: Final = 3
_TIME: Final = 4
_LAYOUT: Final = bytes(
    [
        _SHORT,
        _SHORT,
        _TABLE,
        _OCTET,
        _OCTET,
        _SHORT,
        _SHORT,
        _SHORT,
        _SHORT,
        _TIME,
        _SHORT,
        _SHORT,
        _SHORT,
        _SHORT,
    ]
)
_DELIVERY_MODE: Final = 3
_PRIORITY: Final = 4
_HEADERS: Final = 2
_FRAME_BYTES_MAX: Final = 2**31 - 1
_REPLY_TO: Final = 6

# bits of the traits that `scan` returns
PERSISTENT: Final = 1
EXPIRES: Final = 2  # the message has an expiration
NAMES_USER: Final = 4  # the message has a user-id
COPIES: Final = 8  # the headers seem to have CC or BCC
REPLIES: Final = 16  # the reply-to is the pseudo-queue of direct replies
DELAYS: Final = 32  # the headers seem to have a delay or a delivery time
RECEIPTS: Final = 64  # the headers seem to request receipts
# the traits that the hot path does not handle
SPECIAL: Final = EXPIRES | NAMES_USER | COPIES | REPLIES | DELAYS | RECEIPTS
PRIORITY_SHIFT: Final = 8  # the position of the priority octet in the traits
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"
_SHORT_TRAITS: Final = bytes(
    [0, 0, 0, 0, 0, 0, REPLIES, EXPIRES, 0, 0, 0, NAMES_USER, 0, 0]
)  # the trait of a present short string; REPLIES only with the pseudo-queue as its value
_DELAYING: Final = b"x-del"  # as in x-delay and x-delivery-time
_RECEIPT: Final = b"x-receipt-"
_COPYING: Final = (b"CC", b"BCC")
_X: Final = 0x78
_C: Final = 0x43
_LONG_STRING: Final = 0x53  # S
_COUNTED: Final[i64] = -1
_UNKNOWN: Final[i64] = -2


def _widths() -> list[i64]:
    """Return the bytes of a field value of each type, after the octet of the type."""
    widths: list[i64] = [_UNKNOWN] * 256
    for kinds, width in (("V\0", 0), ("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("lLdT", 8)):
        for kind in kinds:
            widths[ord(kind)] = width
    for kind in "SFAx":
        widths[ord(kind)] = _COUNTED
    return widths


_WIDTHS: Final = _widths()
_DIRECT_REPLY_TO: Final = b"\x15amq.rabbitmq.reply-to"
CLASS_AND_WEIGHT: Final = CLASS_BASIC << 16  # the weight must be 0
HEADER_PREFIX_BYTES: Final = 7 + 12  # frame header; class id, weight, body size


def body_size(frame: bytes, start: i64, size: i64) -> i64:
    """Return the body size that the header frame at `start` with a payload of `size` bytes announces.

    Raises ProtocolError: FRAME_ERROR when the payload is too short or not of class basic, UNEXPECTED_FRAME
    when its weight is not 0, SYNTAX_ERROR for a negative size.
    """
    if size < 14:
        raise ProtocolError(FRAME_ERROR, f"content header of {size} bytes, at least 14 are needed")
    if read_i16_be(frame, start + 7) != CLASS_BASIC:
        raise ProtocolError(
            FRAME_ERROR, f"content header of class {read_i16_be(frame, start + 7)}, expected 60 (basic)"
        )
    if read_i32_be(frame, start + 7) != CLASS_AND_WEIGHT:
        weight: int = read_i16_be(frame, start + 9)
        raise ProtocolError(UNEXPECTED_FRAME, f"content header of weight {weight & 0xFFFF}, expected 0")
    length = read_i64_be(frame, start + 11)
    if length < 0:
        raise ProtocolError(SYNTAX_ERROR, f"content header announces a body of {length} bytes")
    return length


def scan(frame: bytes, start: i64, size: i64) -> i64:
    """Return the traits of the header frame at `start`: PERSISTENT, SPECIAL ones, and the priority shifted.

    The property list is scanned without being decoded. A list that overruns its frame is refused here and
    never reaches a consumer. Raises ProtocolError(SYNTAX_ERROR).
    """
    p: i64 = start + 7 + 12
    end: i64 = start + 7 + size
    flags: int = read_i16_be(frame, p)
    flags &= 0xFFFF
    p += 2
    if flags & 1:
        raise ProtocolError(SYNTAX_ERROR, "content header has more property flags than class basic defines")
    traits: i64 = 0
    bit: i64 = 15
    while flags != 0 and p <= end:
        mask: i64 = 1 << bit
        if flags & mask:
            flags ^= mask
            kind: i64 = _LAYOUT[15 - bit] if bit >= 2 else 0
            if kind == _SHORT:
                trait: i64 = _SHORT_TRAITS[15 - bit]
                if trait != REPLIES or frame.startswith(_DIRECT_REPLY_TO, p):
                    traits |= trait
                p += 1 + frame[p]
            elif kind == _OCTET:
                if bit == 15 - _DELIVERY_MODE:
                    if frame[p] == 2:
                        traits |= PERSISTENT
                elif bit == 15 - _PRIORITY:
                    traits |= frame[p] << PRIORITY_SHIFT
                p += 1
            elif kind == _TIME:
                p += 8
            elif kind == _TABLE:
                length: int = read_i32_be(frame, p) if p + 4 <= end else -1
                if length < 0:
                    raise ProtocolError(SYNTAX_ERROR, "content header: headers table overruns the frame")
                traits |= _header_traits(frame, p, p + 4 + length)
                p += 4 + length
            else:
                raise ProtocolError(SYNTAX_ERROR, f"content header: property flag {bit} is not defined")
        bit -= 1
    if p > end:
        raise ProtocolError(SYNTAX_ERROR, "content header: property list overruns the frame")
    return traits


def with_reply_to(content: bytes, name: bytes) -> bytes:
    """Return a content with `name` (encoded) as reply-to, in place of the pseudo-queue of direct replies.

    The content has the trait REPLIES.
    """
    p: i64 = HEADER_PREFIX_BYTES
    flags: int = read_i16_be(content, p)
    flags &= 0xFFFF
    p += 2
    for index in range(_REPLY_TO):
        if flags & 1 << (15 - index):
            kind: i64 = _LAYOUT[index]
            if kind == _SHORT:
                p += 1 + content[p]
            elif kind == _TABLE:
                length: int = read_i32_be(content, p)
                p += 4 + length
            else:
                p += 1
    size: int = read_i32_be(content, 3) + len(name) - len(_DIRECT_REPLY_TO)
    head = content[:3] + size.to_bytes(4, "big") + content[7:p]
    return head + name + content[p + len(_DIRECT_REPLY_TO) :]


_SCRATCH: Final = BytesWriter()  # for a function that calls no other one: another writer would cost more


def with_fields(content: bytes, fields: bytes) -> bytes:
    """Return a content with further headers, encoded, behind its own headers.

    Raises ValueError if the frame of the content header would be larger than a frame can be.
    """
    p: i64 = HEADER_PREFIX_BYTES
    flags: int = read_i16_be(content, p)
    flags &= 0xFFFF
    p += 2
    for index in range(_HEADERS):
        if flags & 1 << (15 - index):
            p += 1 + content[p]
    has_headers = flags & 1 << (15 - _HEADERS) != 0
    before: int = read_i32_be(content, p) if has_headers else 0
    start: i64 = p + 4 if has_headers else p
    end: i64 = start + before
    size: int = read_i32_be(content, 3)
    size += len(fields) if has_headers else 4 + len(fields)
    if size > _FRAME_BYTES_MAX:
        raise ValueError(f"the content header would have {size} bytes")
    flags |= 1 << (15 - _HEADERS)
    out = _SCRATCH
    out.truncate(0)
    out.write(content[:p])
    length: i64 = size
    for octet in range(4):
        out[3 + octet] = u8(length >> (24 - 8 * octet) & 0xFF)
    out[HEADER_PREFIX_BYTES] = u8(i64(flags) >> 8)
    write_i32_be(out, before + len(fields))
    if before > 0:
        out.write(content[start:end])
    out.write(fields)
    return out.getvalue() + content[end:]


def _header_traits(frame: bytes, start: i64, end: i64) -> i64:
    """Return COPIES, DELAYS and RECEIPTS, if the headers have such names.

    Headers whose borders cannot be found have the traits whose names occur in their octets.
    """
    traits: i64 = 0
    p: i64 = start + 4
    while p < end:
        size: i64 = frame[p]
        value: i64 = p + 1 + size
        if value >= end:
            return _octet_traits(frame, start, end)
        first: i64 = frame[p + 1]
        if first == _X:
            if frame[p + 1 : p + 1 + len(_DELAYING)] == _DELAYING:
                traits |= DELAYS
            elif frame[p + 1 : p + 1 + len(_RECEIPT)] == _RECEIPT:
                traits |= RECEIPTS
        elif first <= _C and frame[p + 1 : value] in _COPYING:
            traits |= COPIES
        p = behind_value(frame, value, end)
        if p < 0:
            return _octet_traits(frame, start, end)
    return traits if p == end else _octet_traits(frame, start, end)


def behind_value(frame: bytes, start: i64, end: i64) -> i64:
    """Return the offset behind a field value, whose type is at `start`; -1: the type or length is wrong."""
    kind: i64 = frame[start]
    p: i64 = start + 1
    width: i64 = _COUNTED if kind == _LONG_STRING else _WIDTHS[kind]  # most headers are strings
    if width >= 0:
        return p + width
    if width != _COUNTED or p + 4 > end:
        return -1
    length: int = read_i32_be(frame, p)
    return p + 4 + length if length >= 0 else -1


def _octet_traits(frame: bytes, start: i64, end: i64) -> i64:
    traits: i64 = 0
    if frame.find(b"\x02CC", start, end) >= 0 or frame.find(b"\x03BCC", start, end) >= 0:
        traits = COPIES
    if frame.find(b"x-", start, end) >= 0:
        if frame.find(_DELAYING, start, end) >= 0:
            traits |= DELAYS
        if frame.find(_RECEIPT, start, end) >= 0:
            traits |= RECEIPTS
    return traits


def header_frame_bytes(content: bytes) -> i64:
    """Return the length of the header frame at the start of a content."""
    size: int = read_i32_be(content, 3)
    return size + FRAME_OVERHEAD


def with_body_size(header: bytes, size: i64) -> bytes:
    """Return a copy of a header frame that announces a body of `size` bytes."""
    number: int = size
    return header[: HEADER_PREFIX_BYTES - 8] + number.to_bytes(8, "big") + header[HEADER_PREFIX_BYTES:]


def largest_frame(content: bytes) -> i64:
    """Return the size of a content's largest frame. A peer with a smaller frame_max needs smaller frames."""
    largest: i64 = 0
    p: i64 = 0
    n: i64 = len(content)
    while p < n:
        size: int = read_i32_be(content, p + 3) + FRAME_OVERHEAD
        if size > largest:
            largest = size
        p += size
    return largest


def body(content: bytes) -> bytes:
    """Return the body of a content, joined from its frames."""
    return _payloads(content, header_frame_bytes(content))


def body_of_frames(frames: bytes) -> bytes:
    """Return the payloads of body frames, joined."""
    return _payloads(frames, 0)


def _payloads(frames: bytes, p: i64) -> bytes:
    """Return the payloads of the frames from offset `p` on, joined."""
    parts: list[bytes] = []
    n: i64 = len(frames)
    while p < n:
        size: int = read_i32_be(frames, p + 3)
        parts.append(frames[p + 7 : p + 7 + size])
        p += size + FRAME_OVERHEAD
    return b"".join(parts)


def merge_frames(frames: bytes) -> bytes:
    """Return the same body bytes in frames of FRAME_MIN_SIZE, which every peer accepts."""
    high: int = frames[1]
    low: int = frames[2]
    out = BytesWriter()
    write_body(out, _payloads(frames, 0), high << 8 | low, FRAME_MIN_SIZE)
    return out.getvalue()


def write_split(out: BytesWriter, content: bytes, channel: i64, frame_max: i64) -> None:
    """Write a content for `channel` with body frames of at most `frame_max` bytes.

    The header frame is written whole, because it cannot be split. A peer whose frame_max is too small for the
    properties of a message cannot get the message.
    """
    start: i64 = len(out)
    head: i64 = header_frame_bytes(content)
    out.write(content[:head])
    set_channel(out, start, channel)
    write_body(out, _payloads(content, head), channel, frame_max)


def write_frames(out: BytesWriter, frames: bytes, channel: i64, frame_max: i64) -> None:
    """Write body frames for `channel`, as received, or in new frames for a smaller `frame_max`."""
    if len(frames) > frame_max and largest_frame(frames) > frame_max:
        write_body(out, _payloads(frames, 0), channel, frame_max)
    else:
        write_content(out, frames, channel)


def write_body(out: BytesWriter, payload: bytes, channel: i64, frame_max: i64) -> None:
    """Write a body, or a part of a body, in as few frames as `frame_max` allows."""
    room: i64 = frame_max - FRAME_OVERHEAD
    p: i64 = 0
    n: i64 = len(payload)
    while p < n:
        piece = payload[p : p + room]
        start: i64 = len(out)
        out.append(FRAME_BODY)
        out.append(0)
        out.append(0)
        set_channel(out, start, channel)
        write_i32_be(out, len(piece))
        out.write(piece)
        out.append(FRAME_END)
        p += room


def set_channel(out: BytesWriter, start: i64, channel: i64) -> None:
    """Overwrite the channel number of the frame that begins at `start`."""
    number: int = channel
    out[start + 1] = number >> 8 & 0xFF
    out[start + 2] = number & 0xFF


def write_content(out: BytesWriter, content: bytes, channel: i64) -> None:
    """Write a content as it was received, with the channel number of each frame set to `channel`."""
    p: i64 = len(out)
    out.write(content)
    n: i64 = len(out)
    number: int = channel
    high: int = number >> 8 & 0xFF
    low: int = number & 0xFF
    q: i64 = 0
    while p < n:
        out[p + 1] = high
        out[p + 2] = low
        size: int = read_i32_be(content, q + 3) + FRAME_OVERHEAD
        p += size
        q += size
