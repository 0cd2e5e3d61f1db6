"""AMQP 1.0 values that Python has no type of its own for. [amqp-1.0 types 1.6]

The others are None, bool, int, float, str, bytes, uuid.UUID, list and dict.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final


class Symbol(str):
    """A word of ASCII characters out of a constrained domain."""

    __slots__ = ()


class Char(str):
    """A Unicode character."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 (UTC), negative before that; may be one that no datetime can hold."""

    __slots__ = ()


class Ubyte(int):
    """An integer of 0 to 2**8 - 1, that is written as such."""

    __slots__ = ()


class Ushort(int):
    """An integer of 0 to 2**16 - 1, that is written as such."""

    __slots__ = ()


class Uint(int):
    """An integer of 0 to 2**32 - 1, that is written as such."""

    __slots__ = ()


class Ulong(int):
    """An integer of 0 to 2**64 - 1, that is written as such."""

    __slots__ = ()


class Byte(int):
    """An integer of -2**7 to 2**7 - 1, that is written as such."""

    __slots__ = ()


class Short(int):
    """An integer of -2**15 to 2**15 - 1, that is written as such."""

    __slots__ = ()


class Int(int):
    """An integer of -2**31 to 2**31 - 1, that is written as such."""

    __slots__ = ()


class Long(int):
    """An integer of -2**63 to 2**63 - 1, that is written as such."""

    __slots__ = ()


class Float(float):
    """A binary32 number, that is written as such; a plain float is a double."""

    __slots__ = ()


@final
@dataclass(slots=True)
class Decimal:
    """A decimal number as it came, never calculated with; `code` is its constructor, which has its width."""

    code: int
    raw: bytes


@final
@dataclass(slots=True)
class Described:
    """A value with a descriptor, which says what it means: a number, a symbol, or any other value."""

    descriptor: object
    value: object


@final
@dataclass(slots=True)
class Map:
    """A map as its pairs in their order, because a dict might not hold them all, or hold them too slowly."""

    pairs: list[tuple[object, object]]


@final
@dataclass(slots=True)
class Array:
    """Values with one constructor: `code`, behind the `descriptors` that each has, the outermost first.

    Values without width (null, true, an empty list, ...) are not in `items`, as a few bytes would become many
    objects. `count` is how many values the array has, whether they are in `items` or not.
    """

    code: int
    items: list[object]
    descriptors: tuple[object, ...] = ()
    count: int = -1

    def __post_init__(self) -> None:
        if self.count < 0:
            self.count = len(self.items)


class Composite:
    """A value whose fields have names, behind a numeric descriptor. [amqp-1.0 types 1.4]"""

    __slots__ = ()
    DESCRIPTOR: ClassVar[int]


def symbols(words: Iterable[str]) -> Array:
    """An array of symbols of at most 255 characters each."""
    return Array(0xA3, [Symbol(word) for word in words])
