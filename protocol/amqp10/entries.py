"""The entries of an encoded map, found by their keys without decoding the values. [amqp-1.0 types 1.6.23]"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import MAP8, MAP32, STRING8, STRING32, SYMBOL8, SYMBOL32, value_end

NAMED: Final = 0  # instead of a constructor: keys may be strings and symbols


@final
class Entries:
    """The entries of the map from `value` to `end` whose keys are of a given type.

    `kind`: the short constructor of this type, STRING8 or SYMBOL8, or NAMED. After each `advance` that
    returned True, the content of the key lies from `key` to `key_end`, and the encoded value from `key_end`
    to `end`. An absent map, whose offset is NONE, has no entries. A `malformed` map has the entries before
    the fault.
    """

    def __init__(self, data: bytes, value: i64, end: i64, kind: i64) -> None:
        self.data = data
        self.key: i64 = 0
        self.key_end: i64 = 0
        self.end: i64 = end
        self.malformed = False
        self._kind = kind
        self._limit = end
        self._left: i64 = 0
        if value < 0:
            return
        constructor: i64 = data[value] if value < end else 0
        count: int = -1
        if constructor == MAP8 and end - value >= 3:
            count = data[value + 2]
            self.end = value + 3
        elif constructor == MAP32 and end - value >= 9:
            count = read_i32_be(data, value + 5)
            self.end = value + 9
        if count < 0:
            self.malformed = True
        else:
            self._left = count // 2

    def advance(self) -> bool:
        """Go to the next entry; False after the last entry."""
        data = self.data
        while self._left > 0:
            self._left -= 1
            start = self.end
            try:
                self.key_end = value_end(data, start, self._limit, "map")
                self.end = value_end(data, self.key_end, self._limit, "map")
            except DecodeError:
                self._left = 0
                self.malformed = True
                return False
            constructor: i64 = data[start]
            kind = self._kind
            if constructor == kind or (kind == NAMED and constructor in (STRING8, SYMBOL8)):
                self.key = start + 2
                return True
            if constructor == kind | 0x10 or (kind == NAMED and constructor in (STRING32, SYMBOL32)):
                self.key = start + 5
                return True
        if self.end != self._limit:
            self.malformed = True
        return False

    def name(self) -> bytes:
        """Return the content of the entry's key."""
        return self.data[self.key : self.key_end]

    def has_key(self, name: bytes) -> bool:
        """Whether the content of the entry's key is `name`."""
        return self.key_end - self.key == len(name) and self.data.startswith(name, self.key)
