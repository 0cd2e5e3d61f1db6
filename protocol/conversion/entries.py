"""The entries of a map of AMQP 1.0, one after the other where they lie. [amqp-1.0 types 1.6.23]"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    LIST32,
    STRING8,
    STRING32,
    SYMBOL8,
    SYMBOL32,
    truncated,
    value_end,
)

_WHAT: Final = "map"


@final
class Entries:
    """The entries of the map whose constructor `code` stands before `start`, and which ends at `end`.

    After each `advance` that returned True `key` is the bytes of a string or symbol, None for any other key,
    and its value lies from `value` to `value_end`. Raises DecodeError.
    """

    def __init__(self, code: i64, data: bytes, start: i64, end: i64) -> None:
        self.key: bytes | None = None
        self.value: i64 = start
        self.value_end: i64 = first_item(code, start, end)
        self._data = data
        self._end: i64 = end

    def advance(self) -> bool:
        """Go to the next entry; False if there is none."""
        p = self.value_end
        if p >= self._end:
            return False
        data = self._data
        behind = value_end(data, p, self._end, _WHAT, "key")
        constructor: i64 = data[p]
        if constructor in (STRING8, SYMBOL8):
            self.key = data[p + 2 : behind]
        elif constructor in (STRING32, SYMBOL32):
            self.key = data[p + 5 : behind]
        else:
            self.key = None
        self.value = behind
        self.value_end = value_end(data, behind, self._end, _WHAT, "value")
        return True


def first_item(code: i64, start: i64, end: i64) -> i64:
    """Where the first value of a list or map begins whose constructor `code` stands before `start`."""
    p: i64 = start + 8 if code >= LIST32 else start + 2
    if p > end:
        raise truncated("compound")
    return p


def check_text(raw: bytes) -> None:
    """Raise DecodeError unless the bytes of a string are UTF-8."""
    if not is_text(raw):
        raise DecodeError("string that is no UTF-8")


def is_text(raw: bytes) -> bool:
    """Whether some bytes are UTF-8."""
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def unsigned32(data: bytes, p: i64) -> i64:
    """The number in the four octets at `p`."""
    number: int = read_i32_be(data, p)
    return number & 0xFFFFFFFF
