"""The fields of an encoded composite, read one after the other. [amqp-1.0 1.3, 1.4]"""

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    BOOLEAN,
    FALSE,
    LIST0,
    LIST8,
    LIST32,
    MAP8,
    MAP32,
    NONE,
    NULL,
    SMALL_UINT,
    SMALL_ULONG,
    SYMBOL8,
    SYMBOL32,
    TRUE,
    UBYTE,
    UINT,
    UINT0,
    ULONG,
    ULONG0,
    truncated_error,
    undefined_error,
    value_end,
)
from protocol.amqp10.descriptors import NUMBERS

UNKNOWN: Final = -1  # the number of a descriptor that is none of the specification's


@final
class Fields:
    """The fields of a composite, read one after the other; fields that are left out are null.

    The object is reused for further composites. Methods that read a field raise DecodeError with its name.
    """

    def __init__(self) -> None:
        self.data = b""
        self.what = ""
        self.p: i64 = 0  # the offset of the next field
        self.end: i64 = 0  # the offset after the composite
        self.left: i64 = 0  # the number of fields that have not been read

    def descriptor(self, data: bytes, p: i64, end: i64, what: str) -> i64:
        """Begin the described value at `p`, and return the number of its descriptor, or UNKNOWN.

        `self.p` is then the offset after the descriptor.
        """
        self.data = data
        self.what = what
        self.end = end
        if end - p >= 3 and data[p] == 0 and data[p + 1] == SMALL_ULONG:
            self.p = p + 3
            return data[p + 2]
        if p >= end:
            raise truncated_error(what)
        if data[p] != 0:
            raise DecodeError(f"{what} has no descriptor")
        p += 1
        after = value_end(data, p, end, what)
        self.p = after
        constructor: i64 = data[p]
        if constructor == ULONG:
            number = read_i64_be(data, p + 1)
            return number if number >= 0 else UNKNOWN
        if constructor == ULONG0:
            return 0
        if constructor == SYMBOL8:
            return NUMBERS.get(data[p + 2 : after], UNKNOWN)
        if constructor == SYMBOL32:
            return NUMBERS.get(data[p + 5 : after], UNKNOWN)
        raise DecodeError(f"{what}: descriptor must not have constructor 0x{constructor:02x}")

    def open(self, data: bytes, p: i64, end: i64, number: i64, what: str, fields_max: i64) -> None:
        """Begin the composite at `p`, whose descriptor must be `number`, with at most `fields_max` fields."""
        descriptor = self.descriptor(data, p, end, what)
        if descriptor != number:
            raise DecodeError(f"{what} has a wrong descriptor")
        self.open_list(data, self.p, end, what, fields_max)

    def open_list(self, data: bytes, p: i64, end: i64, what: str, fields_max: i64) -> None:
        """Begin the list of fields at `p`, the offset after the descriptor."""
        self.data = data
        self.what = what
        if p >= end:
            raise truncated_error(what)
        constructor: i64 = data[p]
        size: int = 0
        count: int = 0
        if constructor == LIST8:
            size = data[p + 1] - 1 if end - p >= 3 else -1
            if size >= 0:
                count = data[p + 2]
            p += 3
        elif constructor == LIST32:
            size = read_i32_be(data, p + 1) - 4 if end - p >= 9 else -1
            if size >= 0:
                count = read_i32_be(data, p + 5)
            p += 9
        elif constructor == LIST0:
            p += 1
        else:
            raise undefined_error(data[p], what)
        if size < 0 or p + size > end:
            raise truncated_error(what)
        if count < 0 or count > fields_max:
            raise DecodeError(f"{what} has more than {fields_max} fields")
        self.p = p
        self.end = p + size
        self.left = count

    def close(self) -> i64:
        """End after the last defined field, and return the offset after the composite."""
        if self.p != self.end:
            raise DecodeError(f"{self.what}: bytes follow the last field")
        return self.end

    def constructor(self, name: str) -> i64:
        """Return the constructor of the next field, NULL if the field is left out, and move after it."""
        if self.left == 0:
            return NULL
        self.left -= 1
        p = self.p
        if p >= self.end:
            raise truncated_error(self.what, name)
        self.p = p + 1
        return self.data[p]

    def raw(self, name: str) -> i64:
        """Skip the next field, and return its offset, NONE if it is null. `self.p` is then its end."""
        constructor = self.constructor(name)
        if constructor == NULL:
            return NONE
        start = self.p - 1
        self.p = value_end(self.data, start, self.end, self.what, name)
        return start

    def raw_map(self, name: str) -> bytes | None:
        """Return the next field, a map, encoded."""
        start = self.raw(name)
        if start == NONE:
            return None
        constructor: i64 = self.data[start]
        if constructor not in (MAP8, MAP32):
            raise undefined_error(self.data[start], self.what, name)
        return self.data[start : self.p]

    def uint(self, name: str) -> i64:
        """Return the next field, a uint, or NONE."""
        constructor = self.constructor(name)
        p = self.p
        if constructor == UINT0:
            return 0
        if constructor == SMALL_UINT:
            if p >= self.end:
                raise truncated_error(self.what, name)
            self.p = p + 1
            return self.data[p]
        if constructor == UINT:
            if self.end - p < 4:
                raise truncated_error(self.what, name)
            self.p = p + 4
            number: int = read_i32_be(self.data, p)
            return number & 0xFFFFFFFF
        if constructor != NULL:
            raise undefined_error(self.data[p - 1], self.what, name)
        return NONE

    def required_uint(self, name: str) -> i64:
        """Return the next field, a mandatory uint."""
        value = self.uint(name)
        if value == NONE:
            raise self.missing(name)
        return value

    def ulong(self, name: str) -> int | None:
        """Return the next field, a ulong."""
        constructor = self.constructor(name)
        if constructor == NULL:
            return None
        start = self.p
        self.p = value_end(self.data, start - 1, self.end, self.what, name)
        if constructor not in (ULONG, SMALL_ULONG, ULONG0):
            raise undefined_error(self.data[start - 1], self.what, name)
        return int.from_bytes(self.data[start : self.p], "big")

    def ubyte(self, name: str) -> i64:
        """Return the next field, a ubyte, or NONE."""
        constructor = self.constructor(name)
        p = self.p
        if constructor == NULL:
            return NONE
        if constructor != UBYTE:
            raise undefined_error(self.data[p - 1], self.what, name)
        if p >= self.end:
            raise truncated_error(self.what, name)
        self.p = p + 1
        return self.data[p]

    def boolean(self, name: str) -> bool:
        """Return the next field, a boolean; False if it is null."""
        constructor = self.constructor(name)
        if constructor in (FALSE, NULL):
            return False
        return self._true(constructor, name)

    def required_boolean(self, name: str) -> bool:
        """Return the next field, a mandatory boolean."""
        constructor = self.constructor(name)
        if constructor == NULL:
            raise self.missing(name)
        return constructor != FALSE and self._true(constructor, name)

    def _true(self, constructor: i64, name: str) -> bool:
        p = self.p
        if constructor == TRUE:
            return True
        if constructor != BOOLEAN:
            raise undefined_error(self.data[p - 1], self.what, name)
        if p >= self.end:
            raise truncated_error(self.what, name)
        if self.data[p] > 1:
            raise DecodeError(f"{self.what}.{name}: boolean of value {self.data[p]}")
        self.p = p + 1
        return self.data[p] == 1

    def content(self, name: str, short: i64, long: i64) -> bytes | None:
        """Return the bytes of the next field, whose constructor is `short` or `long`, without its size."""
        start = self.raw(name)
        if start == NONE:
            return None
        constructor: i64 = self.data[start]
        if constructor == short:
            return self.data[start + 2 : self.p]
        if constructor == long:
            return self.data[start + 5 : self.p]
        raise undefined_error(self.data[start], self.what, name)

    def missing(self, name: str) -> DecodeError:
        """Return the error for the absence of a mandatory field."""
        return DecodeError(f"{self.what}.{name} is missing")
