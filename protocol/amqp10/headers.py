"""The header section of a message, which is decoded, and encoded for each consumer. [amqp-1.0 3.2.1]"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from protocol.amqp10.constructors import LIST8, NONE, NULL, SMALL_ULONG, UBYTE
from protocol.amqp10.descriptors import HEADER
from protocol.amqp10.fields import Fields
from protocol.amqp10.writing import write_boolean, write_uint

PRIORITY_DEFAULT: Final = 4

_FIELDS: Final = 5


@final
class Header:
    """The fields of a header; before `read` the defaults for a message without a header.

    `ttl`: in ms, or NONE. `has_priority`: the priority is not null.
    """

    def __init__(self) -> None:
        self.durable = False
        self.priority: i64 = PRIORITY_DEFAULT
        self.has_priority = False
        self.ttl: i64 = NONE
        self.first_acquirer = False
        self.delivery_count: i64 = 0
        self._fields = Fields()

    def clear(self) -> None:
        """Set the defaults of a message without a header."""
        self.durable = self.has_priority = self.first_acquirer = False
        self.priority = PRIORITY_DEFAULT
        self.ttl = NONE
        self.delivery_count = 0

    def read(self, data: bytes, value: i64, end: i64) -> None:
        """Read the header whose value lies from `value` to `end`. Raises DecodeError."""
        fields = self._fields
        fields.open_list(data, value, end, "header", _FIELDS)
        self.durable = fields.boolean("durable")
        priority = fields.ubyte("priority")
        self.has_priority = priority != NONE
        self.priority = priority if self.has_priority else PRIORITY_DEFAULT
        self.ttl = fields.uint("ttl")
        self.first_acquirer = fields.boolean("first-acquirer")
        count = fields.uint("delivery-count")
        self.delivery_count = 0 if count == NONE else count
        fields.close()


def read_priority(data: bytes, value: i64, end: i64) -> i64:
    """Return the priority in the header whose value lies from `value` to `end`, NONE if it is null.

    Raises DecodeError.
    """
    fields = Fields()
    fields.open_list(data, value, end, "header", _FIELDS)
    fields.boolean("durable")
    return fields.ubyte("priority")


def header_section(
    durable: bool, priority: i64, ttl: i64, first_acquirer: bool, delivery_count: i64
) -> bytes:
    """Return a header section with all its fields; `priority` and `ttl` (ms) are null if they are NONE."""
    out = BytesWriter()
    out.append(0)
    out.append(SMALL_ULONG)
    out.append(HEADER)
    out.append(LIST8)
    out.append(0)  # the size of the list, which is set at the end
    out.append(_FIELDS)
    write_boolean(out, durable)
    if priority == NONE:
        out.append(NULL)
    else:
        out.append(UBYTE)
        octet: int = priority
        out.append(octet)
    write_uint(out, ttl)
    write_boolean(out, first_acquirer)
    write_uint(out, delivery_count)
    out[4] = len(out) - 5
    return out.getvalue()
