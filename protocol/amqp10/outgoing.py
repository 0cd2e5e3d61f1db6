"""The frames that carry messages to a peer: transfers, split where necessary, dispositions and flows.

Each frame has all fields, null or not. [amqp-1.0 2.6.14, 2.7.4 to 2.7.6]
"""

from collections.abc import Iterator
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from protocol.amqp10.conditions import FRAME_SIZE_TOO_SMALL, PeerError
from protocol.amqp10.constructors import BINARY8, FALSE, LIST8, LIST32, NULL, SMALL_ULONG, UINT
from protocol.amqp10.descriptors import DISPOSITION, FLOW, TRANSFER
from protocol.amqp10.frames import FRAME_HEADER_BYTES
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.amqp10.writing import NULL_VALUE, write_boolean, write_u16, write_u32, write_uint

_WORDS: Final = b"\x02\x00"  # the data offset in words of four bytes, and the type of the frame
_TRANSFER_FIELDS: Final = 11
_DISPOSITION_FIELDS: Final = 6
_FLOW_FIELDS: Final = 11
_LIST8_MAX: Final = 254  # bytes of fields


def fields_after_tag(
    settled: bool,
    more: bool,
    message_format: i64 = MESSAGE_FORMAT,
    state: bytes = NULL_VALUE,
    resume: bool = False,
    aborted: bool = False,
) -> bytes:
    """Return the encoded fields of a transfer after the delivery-tag; `state` is encoded."""
    out = BytesWriter()
    write_uint(out, message_format)
    write_boolean(out, settled)
    write_boolean(out, more)
    out.append(NULL)  # rcv-settle-mode, which is the link's
    out.write(state)
    write_boolean(out, resume)
    write_boolean(out, aborted)
    out.append(FALSE)  # batchable
    return out.getvalue()


_UNSETTLED: Final = fields_after_tag(False, False)
_SETTLED: Final = fields_after_tag(True, False)


@final
class TransferTemplate:
    """The beginning that all transfers of a link share; `size_max`: the peer's max-frame-size."""

    def __init__(self, channel: i64, handle: i64, size_max: i64) -> None:
        self.size_max: i64 = size_max
        out = BytesWriter()
        out.write(_WORDS)
        write_u16(out, channel)
        out.append(0)
        out.append(SMALL_ULONG)
        out.append(TRANSFER)
        self._start = out.getvalue()
        out = BytesWriter()
        write_uint(out, handle)
        out.append(UINT)
        self._handle = out.getvalue()  # and the constructor of the delivery-id

    def whole(self, delivery_id: i64, tag: bytes, settled: bool, payload_bytes: i64) -> bytes | None:
        """Return the bytes before the payload of a transfer in a single frame; None if it does not fit."""
        head = self.head(delivery_id, tag, _SETTLED if settled else _UNSETTLED, payload_bytes)
        return head if len(head) + payload_bytes <= self.size_max else None

    def head(self, delivery_id: i64, tag: bytes, rest: bytes, payload_bytes: i64) -> bytes:
        """Return the bytes before the payload of a frame, which may be too large; `rest`: further fields."""
        fields: i64 = len(self._handle) + 4 + 2 + len(tag) + len(rest)
        listed: i64 = 3 if fields <= _LIST8_MAX else 9
        out = BytesWriter()
        write_u32(out, 4 + len(self._start) + listed + fields + payload_bytes)
        out.write(self._start)
        _write_list_start(out, fields, _TRANSFER_FIELDS)
        out.write(self._handle)
        write_u32(out, delivery_id)
        out.append(BINARY8)
        out.append(len(tag))
        out.write(tag)
        out.write(rest)
        return out.getvalue()


@final
class SplitTransfer:
    """A delivery in frames of the peer's max-frame-size, written frame by frame as the window allows.

    The payload is `parts`, followed by `further_bytes` bytes that `further` yields. Each part is requested
    when it is about to be sent. `state` is encoded. Each frame repeats delivery-id, tag and format.
    `left`: the bytes of the payload that no frame has yet. `room`: the bytes of the payload in each frame but
    the last one.
    """

    def __init__(
        self,
        template: TransferTemplate,
        delivery_id: i64,
        tag: bytes,
        settled: bool,
        parts: list[bytes],
        message_format: i64 = MESSAGE_FORMAT,
        state: bytes = NULL_VALUE,
        resume: bool = False,
        further: Iterator[bytes] | None = None,
        further_bytes: i64 = 0,
    ) -> None:
        self.left: i64 = further_bytes  # bytes of the payload that no frame has yet
        self._further = further
        for part in parts:
            self.left += len(part)
        self._template = template
        self.delivery_id: i64 = delivery_id
        self._tag = tag
        self._parts = parts
        self._part = 0  # the index of the first part that is left
        self._at: i64 = 0  # the offset in this part
        self._more = fields_after_tag(settled, True, message_format, state, resume)
        self._last = fields_after_tag(settled, False, message_format, state, resume)
        self._aborted = fields_after_tag(settled, False, message_format, NULL_VALUE, False, True)
        head = len(template.head(delivery_id, tag, self._more, 0))
        self.room: i64 = template.size_max - head
        if self.room <= 0:
            raise PeerError(
                FRAME_SIZE_TOO_SMALL,
                f"a transfer takes {head} bytes of a frame, max-frame-size is {template.size_max}",
            )

    def write(self, out: list[bytes]) -> bool:
        """Append the next frame in pieces; return whether it is the last. Raises what `further` raises."""
        last = self.left <= self.room
        size: i64 = self.left if last else self.room
        rest = self._last if last else self._more
        out.append(self._template.head(self.delivery_id, self._tag, rest, size))
        self.left -= size
        while size > 0:
            if self._part == len(self._parts):
                assert self._further is not None, "`further` has as many bytes as `further_bytes`"
                self._parts = [next(self._further)]
                self._part = 0
            part = self._parts[self._part]
            at = self._at
            end: i64 = len(part)
            if end - at > size:
                end = at + size
                self._at = end
            else:
                self._part += 1
                self._at = 0
            if end > at:
                out.append(part if end - at == len(part) else part[at:end])
            size -= end - at
        return last

    def abort(self) -> bytes:
        """Return the frame that aborts the delivery. [amqp-1.0 2.6.14]"""
        return self._template.head(self.delivery_id, self._tag, self._aborted, 0)


def disposition(channel: i64, receiver: bool, first: i64, last: i64, settled: bool, state: bytes) -> bytes:
    """Return a disposition frame with the encoded `state` of deliveries; `receiver`: this side's role."""
    fields: i64 = 1 + 5 + 5 + 1 + len(state) + 1
    out = BytesWriter()
    _write_frame_start(out, channel, DISPOSITION, fields, _DISPOSITION_FIELDS)
    write_boolean(out, receiver)
    out.append(UINT)
    write_u32(out, first)
    out.append(UINT)
    write_u32(out, last)
    write_boolean(out, settled)
    out.write(state)
    out.append(FALSE)  # batchable
    return out.getvalue()


def flow(
    channel: i64,
    next_incoming_id: i64,
    incoming_window: i64,
    next_outgoing_id: i64,
    outgoing_window: i64,
    handle: i64,
    delivery_count: i64,
    link_credit: i64,
    available: i64,
    drain: bool,
    echo: bool,
    properties: bytes = NULL_VALUE,
) -> bytes:
    """Return a flow frame with the state of a session, and of a link; numbers are null if they are NONE."""
    fields = BytesWriter()
    write_uint(fields, next_incoming_id)
    write_uint(fields, incoming_window)
    write_uint(fields, next_outgoing_id)
    write_uint(fields, outgoing_window)
    write_uint(fields, handle)
    write_uint(fields, delivery_count)
    write_uint(fields, link_credit)
    write_uint(fields, available)
    write_boolean(fields, drain)
    write_boolean(fields, echo)
    fields.write(properties)
    out = BytesWriter()
    _write_frame_start(out, channel, FLOW, len(fields), _FLOW_FIELDS)
    out.write(fields.getvalue())
    return out.getvalue()


def _write_frame_start(out: BytesWriter, channel: i64, code: int, fields: i64, count: int) -> None:
    """Write the bytes before the fields of a performative without a payload; `fields`: their length."""
    listed: i64 = 3 if fields <= _LIST8_MAX else 9
    write_u32(out, FRAME_HEADER_BYTES + 3 + listed + fields)
    out.write(_WORDS)
    write_u16(out, channel)
    out.append(0)
    out.append(SMALL_ULONG)
    out.append(code)
    _write_list_start(out, fields, count)


def _write_list_start(out: BytesWriter, fields: i64, count: int) -> None:
    if fields <= _LIST8_MAX:
        size: int = fields + 1
        out.append(LIST8)
        out.append(size)
        out.append(count)
    else:
        out.append(LIST32)
        write_u32(out, fields + 4)
        write_u32(out, count)
