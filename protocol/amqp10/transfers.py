"""The performative transfer, read from its frame. [amqp-1.0 2.7.5]

Transfers of a sender mostly have the same fields after their delivery-tags. If these bytes equal those of the
previous transfer, they are not read again.
"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import INVALID_FIELD, DecodeError, PeerError
from protocol.amqp10.constructors import BINARY8, BINARY32, NONE, SMALL_UINT, UINT, UINT0
from protocol.amqp10.descriptors import TRANSFER
from protocol.amqp10.fields import Fields
from protocol.amqp10.states import DeliveryState, read_state

DELIVERY_TAG_MAX: Final = 32  # bytes [amqp-1.0 2.8.7]
MESSAGE_FORMAT: Final = 0  # the format of messages as in [amqp-1.0 3.2]

_FIELDS: Final = 11
_USUAL: Final = b"\x00\x53\x14\xc0"  # descriptor and constructor
_USUAL_BYTES_MIN: Final = 16  # in a frame of so many bytes all offsets before the tag are valid


@final
class Transfer:
    """A transfer that is reused for the next frame: `read` sets every field.

    `delivery_id`, `message_format` and `rcv_settle_mode` are NONE when they are null. Booleans that are null
    are False. `payload` is the offset after the performative.
    """

    def __init__(self) -> None:
        self.handle: i64 = 0
        self.delivery_id: i64 = NONE
        self.delivery_tag: bytes | None = None
        self.message_format: i64 = NONE
        self.settled = False
        self.more = False
        self.rcv_settle_mode: i64 = NONE
        self.state: DeliveryState | None = None
        self.resume = False
        self.aborted = False
        self.batchable = False
        self.payload: i64 = 0
        self._fields = Fields()
        self._rest = b""  # the fields after the delivery-tag of the previous transfer
        self._count: i64 = NONE  # the number of all its fields

    def read(self, data: bytes, start: i64, end: i64) -> None:
        """Read the performative that begins at `start`; the frame ends at `end`.

        Raises:
            DecodeError: the bytes are no transfer.
            PeerError: INVALID_FIELD; the delivery-tag is too long, an error of the link `handle` only.
        """
        if self._read_similar(data, start, end):
            return
        fields = self._fields
        fields.open(data, start, end, TRANSFER, "transfer", _FIELDS)
        self._count = NONE
        count = fields.left
        self.handle = fields.required_uint("handle")
        self.delivery_id = fields.uint("delivery-id")
        self.delivery_tag = fields.content("delivery-tag", BINARY8, BINARY32)
        rest = fields.p
        self.message_format = fields.uint("message-format")
        self.settled = fields.boolean("settled")
        self.more = fields.boolean("more")
        self.rcv_settle_mode = fields.ubyte("rcv-settle-mode")
        if self.rcv_settle_mode > 1:
            raise DecodeError(f"transfer.rcv-settle-mode is {self.rcv_settle_mode}, expected 0 or 1")
        state = fields.raw("state")
        self.state = None if state < 0 else read_state(data, state, fields.p, "transfer.state")
        self.resume = fields.boolean("resume")
        self.aborted = fields.boolean("aborted")
        self.batchable = fields.boolean("batchable")
        self.payload = fields.close()
        self._rest = data[rest : self.payload]
        self._count = count
        tag = self.delivery_tag
        if tag is not None and len(tag) > DELIVERY_TAG_MAX:
            raise PeerError(INVALID_FIELD, f"delivery-tag of {len(tag)} bytes, at most {DELIVERY_TAG_MAX}")

    def _read_similar(self, data: bytes, start: i64, end: i64) -> bool:
        """Read a transfer that equals the previous one after its tag; False: it does not."""
        if end - start < _USUAL_BYTES_MIN or data[start : start + 4] != _USUAL:
            return False
        if data[start + 5] != self._count:
            return False
        size: i64 = data[start + 4]
        payload = start + 5 + size
        p = start + 6
        constructor = data[p]
        handle: i64 = 0
        if constructor == SMALL_UINT:
            handle = data[p + 1]
            p += 2
        elif constructor == UINT0:
            p += 1
        else:
            return False
        if data[p] != UINT or data[p + 5] != BINARY8:
            return False
        tag = p + 7
        p = tag + data[p + 6]
        if p > payload or p - tag > DELIVERY_TAG_MAX or payload > end or data[p:payload] != self._rest:
            return False
        number: int = read_i32_be(data, tag - 6)
        self.handle = handle
        self.delivery_id = number & 0xFFFFFFFF
        self.delivery_tag = data[tag:p]
        self.payload = payload
        return True
