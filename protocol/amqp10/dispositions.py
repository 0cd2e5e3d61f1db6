"""The performative disposition, read from its frame. [amqp-1.0 2.7.6]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import DISPOSITION
from protocol.amqp10.fields import Fields
from protocol.amqp10.states import DeliveryState, read_state

_FIELDS: Final = 6


@final
class Disposition:
    """One disposition, used again for the next: `read` sets everything.

    `receiver` is the role of who sent it. `last` is `first` when it is null. Whether it comes before `first`
    is not looked at here.
    """

    def __init__(self) -> None:
        self.receiver = False
        self.first: i64 = 0
        self.last: i64 = 0
        self.settled = False
        self.state: DeliveryState | None = None
        self.batchable = False
        self._fields = Fields()

    def read(self, data: bytes, start: i64, end: i64) -> None:
        """Take the performative that lies from `start` to `end`. Raises DecodeError."""
        fields = self._fields
        fields.open(data, start, end, DISPOSITION, "disposition", _FIELDS)
        self.receiver = fields.required_boolean("role")
        self.first = fields.required_uint("first")
        self.last = fields.uint("last")
        if self.last == NONE:
            self.last = self.first
        self.settled = fields.boolean("settled")
        state = fields.raw("state")
        self.state = None if state < 0 else read_state(data, state, fields.p, "disposition.state")
        self.batchable = fields.boolean("batchable")
        if fields.close() != end:
            raise DecodeError("disposition: there are bytes behind it")
