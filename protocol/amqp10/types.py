"""Python types for AMQP 1.0 values that have no built-in type in Python. [amqp-1.0 types 1.6]

All other values are None, bool, int, float, str, bytes, uuid.UUID, list and dict.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final


class Symbol(str):
    """A symbolic value of ASCII characters from a constrained domain."""

    __slots__ = ()


class Char(str):
    """A Unicode character."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 (UTC), negative for earlier times; may be out of the range of datetime."""

    __slots__ = ()


class Ubyte(int):
    """An integer of 0 to 2**8 - 1, which is encoded as ubyte."""

    __slots__ = ()


class Ushort(int):
    """An integer of 0 to 2**16 - 1, which is encoded as ushort."""

    __slots__ = ()


class Uint(int):
    """An integer of 0 to 2**32 - 1, which is encoded as uint."""

    __slots__ = ()


class Ulong(int):
    """An integer of 0 to 2**64 - 1, which is encoded as ulong."""

    __slots__ = ()


class Byte(int):
    """An integer of -2**7 to 2**7 - 1, which is encoded as byte."""

    __slots__ = ()


class Short(int):
    """An integer of -2**15 to 2**15 - 1, which is encoded as short."""

    __slots__ = ()


class Int(int):
    """An integer of -2**31 to 2**31 - 1, which is encoded as int."""

    __slots__ = ()


class Long(int):
    """An integer of -2**63 to 2**63 - 1, which is encoded as long."""

    __slots__ = ()


class Float(float):
    """A number of binary32, which is encoded as float; a plain Python float is encoded as double."""

    __slots__ = ()


@final
@dataclass(slots=True)
class Decimal:
    """A decimal number with its undecoded bytes; `code`: its constructor, which gives the width."""

    code: int
    raw: bytes


@final
@dataclass(slots=True)
class Described:
    """A value with its descriptor, a number, a symbol, or any other value."""

    descriptor: object
    value: object


@final
@dataclass(slots=True)
class Map:
    """A map as a list of pairs in their order. A dict may lack some of the entries, or be too slow."""

    pairs: list[tuple[object, object]]


@final
@dataclass(slots=True)
class Array:
    """Values that share the constructor `code`, and the `descriptors` before it, the outermost first.

    Values without width (null, true, list0, ...) are not in `items`, because a few bytes would become many
    objects. `count`: the number of values, whether `items` has them or not.
    """

    code: int
    items: list[object]
    descriptors: tuple[object, ...] = ()
    count: int = -1

    def __post_init__(self) -> None:
        if self.count < 0:
            self.count = len(self.items)


class Composite:
    """A composite value: named fields with a numeric descriptor. [amqp-1.0 types 1.4]"""

    __slots__ = ()
    DESCRIPTOR: ClassVar[int]


def symbols(words: Iterable[str]) -> Array:
    """Return an array of symbols of at most 255 characters each."""
    return Array(0xA3, [Symbol(word) for word in words])
