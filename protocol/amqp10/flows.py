"""The performative flow, read from its frame. [amqp-1.0 2.7.4]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import FLOW
from protocol.amqp10.fields import Fields

_FIELDS: Final = 11


@final
class Flow:
    """A flow that is reused for the next frame: `read` sets every field.

    `next_incoming_id`, `handle`, `delivery_count`, `link_credit` and `available` are NONE when they are null.
    `properties` is a map, encoded.
    """

    def __init__(self) -> None:
        self.next_incoming_id: i64 = NONE
        self.incoming_window: i64 = 0
        self.next_outgoing_id: i64 = 0
        self.outgoing_window: i64 = 0
        self.handle: i64 = NONE
        self.delivery_count: i64 = NONE
        self.link_credit: i64 = NONE
        self.available: i64 = NONE
        self.drain = False
        self.echo = False
        self.properties: bytes | None = None
        self._fields = Fields()

    def read(self, data: bytes, start: i64, end: i64) -> None:
        """Read the performative that lies from `start` to `end`. Raises DecodeError."""
        fields = self._fields
        fields.open(data, start, end, FLOW, "flow", _FIELDS)
        self.next_incoming_id = fields.uint("next-incoming-id")
        self.incoming_window = fields.required_uint("incoming-window")
        self.next_outgoing_id = fields.required_uint("next-outgoing-id")
        self.outgoing_window = fields.required_uint("outgoing-window")
        self.handle = fields.uint("handle")
        self.delivery_count = fields.uint("delivery-count")
        self.link_credit = fields.uint("link-credit")
        self.available = fields.uint("available")
        self.drain = fields.boolean("drain")
        self.echo = fields.boolean("echo")
        self.properties = fields.raw_map("properties")
        if fields.close() != end:
            raise DecodeError("flow: bytes follow the performative")
