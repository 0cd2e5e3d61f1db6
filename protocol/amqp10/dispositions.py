"""The performative disposition, read from its frame. [amqp-1.0 2.7.6]

Dispositions of a peer mostly differ in their delivery-ids only. If the bytes before and after the ids equal
those of the previous disposition, only the ids are read.
"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, NULL, UINT
from protocol.amqp10.descriptors import DISPOSITION
from protocol.amqp10.fields import Fields
from protocol.amqp10.states import DeliveryState, read_state

_FIELDS: Final = 6
_USUAL: Final = b"\x00\x53\x15\xc0"  # descriptor and constructor
_HEAD_BYTES: Final = 7  # descriptor, constructor, size, count and role
_ID_END: Final = _HEAD_BYTES + 5
_UINT: Final = bytes((UINT,))
_NULL: Final = bytes((NULL,))


@final
class Disposition:
    """A disposition that is reused for the next frame: `read` sets every field.

    `receiver` is the role of the peer that sent the disposition. `last` is `first` when it is null. `last`
    may be before `first`: the order is not checked here.
    """

    def __init__(self) -> None:
        self.receiver = False
        self.first: i64 = 0
        self.last: i64 = 0
        self.settled = False
        self.state: DeliveryState | None = None
        self.batchable = False
        self._fields = Fields()
        self._head = b""  # the bytes before the ids of the previous disposition
        self._rest = b""  # the bytes after them

    def read(self, data: bytes, start: i64, end: i64) -> None:
        """Read the performative that lies from `start` to `end`. Raises DecodeError."""
        if self._read_similar(data, start, end):
            return
        self._head = b""
        fields = self._fields
        fields.open(data, start, end, DISPOSITION, "disposition", _FIELDS)
        self.receiver = fields.required_boolean("role")
        self.first = fields.required_uint("first")
        self.last = fields.uint("last")
        if self.last == NONE:
            self.last = self.first
        rest = fields.p
        self.settled = fields.boolean("settled")
        state = fields.raw("state")
        self.state = None if state < 0 else read_state(data, state, fields.p, "disposition.state")
        self.batchable = fields.boolean("batchable")
        if fields.close() != end:
            raise DecodeError("disposition: bytes follow the performative")
        if data[start : start + 4] == _USUAL:
            self._head = data[start : start + _HEAD_BYTES]
            self._rest = data[rest:end]

    def _read_similar(self, data: bytes, start: i64, end: i64) -> bool:
        """Read a disposition that differs from the previous one in its ids only; False: it does not."""
        if end - start < _ID_END or data[start : start + _HEAD_BYTES] != self._head:
            return False
        if data[start + _HEAD_BYTES] != UINT or end - start != 5 + data[start + 4]:
            return False
        p = start + _ID_END
        first: int = read_i32_be(data, p - 4)
        last: int = first
        if data[p : p + 1] == _UINT and end - p >= 5:
            last = read_i32_be(data, p + 1)
            p += 5
        elif data[p : p + 1] == _NULL:
            p += 1
        else:
            return False
        if data[p:end] != self._rest:
            return False
        self.first = first & 0xFFFFFFFF
        self.last = last & 0xFFFFFFFF
        return True
