"""The performative transfer, read from its frame. [amqp-1.0 2.7.5]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.conditions import INVALID_FIELD, DecodeError, PeerError
from protocol.amqp10.constructors import BINARY8, BINARY32, NONE
from protocol.amqp10.descriptors import TRANSFER
from protocol.amqp10.fields import Fields
from protocol.amqp10.states import DeliveryState, read_state

DELIVERY_TAG_MAX: Final = 32  # bytes [amqp-1.0 2.8.7]
MESSAGE_FORMAT: Final = 0  # of the messages of [amqp-1.0 3.2]

_FIELDS: Final = 11


@final
class Transfer:
    """One transfer, used again for the next: `read` sets everything.

    `delivery_id`, `message_format` and `rcv_settle_mode` are NONE when they are null; what is a boolean is
    False then. `payload` is the offset behind the performative.
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

    def read(self, data: bytes, start: i64, end: i64) -> None:
        """Take the performative that begins at `start`; the frame ends at `end`.

        Raises DecodeError; and PeerError(INVALID_FIELD) when the delivery-tag is too long, for which the link
        `handle` alone is to blame.
        """
        fields = self._fields
        fields.open(data, start, end, TRANSFER, "transfer", _FIELDS)
        self.handle = fields.required_uint("handle")
        self.delivery_id = fields.uint("delivery-id")
        self.delivery_tag = fields.content("delivery-tag", BINARY8, BINARY32)
        self.message_format = fields.uint("message-format")
        self.settled = fields.boolean("settled")
        self.more = fields.boolean("more")
        self.rcv_settle_mode = fields.ubyte("rcv-settle-mode")
        if self.rcv_settle_mode > 1:
            raise DecodeError(f"transfer.rcv-settle-mode is {self.rcv_settle_mode}")
        state = fields.raw("state")
        self.state = None if state < 0 else read_state(data, state, fields.p, "transfer.state")
        self.resume = fields.boolean("resume")
        self.aborted = fields.boolean("aborted")
        self.batchable = fields.boolean("batchable")
        self.payload = fields.close()
        tag = self.delivery_tag
        if tag is not None and len(tag) > DELIVERY_TAG_MAX:
            raise PeerError(INVALID_FIELD, f"delivery-tag of {len(tag)} bytes, at most {DELIVERY_TAG_MAX}")
