"""Field tables and method arguments, decoded in place: one pass, bounded depth. [amqp-0-9-1 4.2.5]

pamqp copies the rest of the frame for every value that it decodes. A single frame of small values, sent
before any login, would stop the broker for seconds. pamqp also accepts values that are cut short.
"""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from pamqp import base

TABLE_DEPTH_MAX: Final = 100  # nested tables and arrays; a deeper value would overflow the stack

_FIXED: Final = {
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): struct.Struct(">q"),
    ord("L"): struct.Struct(">q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}
_NUMBERS: Final = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">q"),
}
_LENGTH: Final = struct.Struct(">I")
_DECIMAL: Final = struct.Struct(">BI")
_TIME: Final = struct.Struct(">Q")
_OTHER_BYTES: Final = {ord("t"): 1, ord("T"): 8, ord("D"): 5, ord("V"): 0, 0: 0}
_SECONDS_MAX: Final = 0xFFFFFFFF  # in 2106; a larger timestamp is taken to be in milliseconds


class Reader:
    """A reader of consecutive values. Every method raises ValueError for malformed or incomplete values.

    `end` limits reading: the end of the input, or of the table that is being read. Names in tables of
    messages may be any bytes, and become surrogates where they are not UTF-8. Names in arguments are UTF-8.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self._depth = 0
        self._names = "surrogateescape"  # how names in tables are decoded

    def arguments(self, frame: base.Frame) -> None:
        """Read a method's arguments, which must be all the remaining bytes. [amqp-0-9-1 4.2.4]"""
        self._names = "strict"
        octet = bits = 0
        for name in frame.__slots__:
            kind = frame.amqp_type(name)
            if kind != "bit":
                bits = 0
                setattr(frame, name, self._argument(kind))
                continue
            if bits % 8 == 0:
                octet = self.take(1)[0]
            setattr(frame, name, octet >> bits % 8 & 1 != 0)
            bits += 1
        if self.position != self.end:
            raise ValueError(f"{self.end - self.position} bytes follow the last argument")

    def table(self) -> dict[str, object]:
        """Read a field table with its length."""
        end, outer = self._enter()
        table: dict[str, object] = {}
        while self.position < end:
            raw = self.take(self.take(1)[0])
            try:
                name = raw.decode(errors=self._names)
            except UnicodeDecodeError as e:
                raise ValueError(f"a field name is not valid UTF-8 at byte {e.start}") from e
            table[name] = self.value()
        self._leave(outer)
        return table

    def short_string(self) -> str:
        """Read a short string."""
        raw = self.take(self.take(1)[0])
        try:
            return raw.decode()
        except UnicodeDecodeError as e:
            raise ValueError(f"a short string is not valid UTF-8 at byte {e.start}") from e

    def long_string(self) -> str | bytes:
        """Read a long string; bytes if not UTF-8."""
        raw = self.take(self._number(_LENGTH))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        start = self.position
        if start + size > self.end:
            raise ValueError(f"{size} bytes are announced, {self.end - start} bytes are left")
        self.position = start + size
        return self.data[start : start + size]

    def _argument(self, kind: str) -> object:
        if kind == "shortstr":
            return self.short_string()
        if kind == "longstr":
            return self.long_string()
        if kind == "table":
            return self.table()
        return self._number(_NUMBERS[kind])

    def value(self) -> object:
        """Read a field value, which begins with its type's octet. [amqp-0-9-1 4.2.1, RabbitMQ's types]"""
        kind = self.take(1)[0]
        fixed = _FIXED.get(kind)
        if fixed is not None:
            value: object = fixed.unpack(self.take(fixed.size))[0]
            return value
        match chr(kind):
            case "S":
                return self.long_string()
            case "F":
                return self.table()
            case "A":
                return self._array()
            case "t":
                return self.take(1) != b"\0"
            case "T":
                return self._time()
            case "D":
                scale, raw = _DECIMAL.unpack(self.take(_DECIMAL.size))
                return Decimal(raw).scaleb(-scale)
            case "x":
                return bytearray(self.take(self._number(_LENGTH)))
            case "V" | "\0":
                return None
        raise ValueError(f"unknown type of field value {bytes([kind])!r}")

    def skip_value(self) -> None:
        """Skip a field value without decoding its content."""
        kind = self.take(1)[0]
        fixed = _FIXED.get(kind)
        if fixed is not None:
            self.take(fixed.size)
        elif kind in b"SFAx":
            self.take(self._number(_LENGTH))
        elif kind in _OTHER_BYTES:
            self.take(_OTHER_BYTES[kind])
        else:
            raise ValueError(f"unknown type of field value {bytes([kind])!r}")

    def _array(self) -> list[object]:
        end, outer = self._enter()
        values: list[object] = []
        while self.position < end:
            values.append(self.value())
        self._leave(outer)
        return values

    def _time(self) -> datetime:
        seconds: float = self._number(_TIME)
        if seconds > _SECONDS_MAX:
            seconds /= 1000
        try:
            return datetime.fromtimestamp(seconds, tz=UTC)
        except (OverflowError, OSError) as e:
            raise ValueError(f"a timestamp of {seconds} seconds is out of range") from e

    def _number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self.take(kind.size))[0]
        return number

    def _enter(self) -> tuple[int, int]:
        """Begin a table or an array; return its end, and the end of the enclosing value."""
        self._depth += 1
        if self._depth > TABLE_DEPTH_MAX:
            raise ValueError(f"more than {TABLE_DEPTH_MAX} nested tables")
        size = self._number(_LENGTH)
        outer = self.end
        if self.position + size > outer:
            raise ValueError(f"{size} bytes are announced, {outer - self.position} bytes are left")
        self.end = self.position + size
        return self.end, outer

    def _leave(self, outer: int) -> None:
        self._depth -= 1
        self.end = outer
