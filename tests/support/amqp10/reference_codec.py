"""AMQP 1.0 values, encoded and decoded slowly and independently of the broker's own code. [amqp-1.0 1.6]"""

import struct
from typing import Any


class WrongError(Exception):
    """The bytes are no valid value."""


FIXED = {
    0x43: 0, 0x44: 0, 0x50: 1, 0x52: 1, 0x53: 1, 0x60: 2, 0x70: 4, 0x80: 8, 0x51: 1, 0x54: 1, 0x55: 1,
    0x61: 2, 0x71: 4, 0x81: 8, 0x72: 4, 0x82: 8, 0x74: 4, 0x84: 8, 0x94: 16, 0x73: 4, 0x83: 8, 0x98: 16,
}  # fmt: skip


def take(data: bytes, p: int, count: int) -> tuple[bytes, int]:
    if p + count > len(data):
        raise WrongError
    return data[p : p + count], p + count


def decode(data: bytes, p: int = 0) -> tuple[Any, int]:
    """(kind, constructor, content) of the value at `p`, and the offset behind it.

    The content of a list or map is that of its items, of a described value its two, of others bytes or bool.
    """
    head, p = take(data, p, 1)
    code = head[0]
    if code == 0:
        descriptor, p = decode(data, p)
        value, p = decode(data, p)
        return ("described", code, (descriptor, value)), p
    if code == 0x40:
        return ("null", code, None), p
    if code in (0x41, 0x42):
        return ("boolean", code, code == 0x41), p
    if code == 0x56:
        octet, p = take(data, p, 1)
        if octet not in (b"\x00", b"\x01"):
            raise WrongError
        return ("boolean", code, octet == b"\x01"), p
    if code == 0x45:
        return ("list", code, []), p
    if code in FIXED:
        content, p = take(data, p, FIXED[code])
        return ("fixed", code, content), p
    if code >> 4 not in range(0xA, 0x10) or code & 15 not in ((0, 1, 3) if code < 0xC0 else (0, 1)):
        raise WrongError
    width = 4 if code >> 4 & 1 else 1
    size, p = take(data, p, width)
    content, end = take(data, p, int.from_bytes(size, "big"))
    if code < 0xC0:
        return ("content", code, content), end
    count, q = take(content, 0, width)
    if code >= 0xE0:
        return ("array", code, content), end
    items = []
    for _ in range(int.from_bytes(count, "big")):
        item, q = decode(content, q)
        items.append(item)
    if q != len(content):
        raise WrongError
    return ("map" if code & 1 else "list", code, items), end


def uint(number: int, width: int = 4) -> bytes:
    return {0: b"\x43", 1: b"\x52" + bytes((number & 255,)), 4: b"\x70" + struct.pack(">I", number)}[width]


def sized(code: int, content: bytes) -> bytes:
    """A value whose constructor says the width of its size."""
    return bytes((code,)) + len(content).to_bytes(4 if code >> 4 & 1 else 1, "big") + content


def compound(code: int, items: list[bytes]) -> bytes:
    """A list or map; `code` says the width of size and count."""
    if code == 0x45:
        assert items == []
        return b"\x45"
    width = 4 if code >> 4 & 1 else 1
    content = b"".join(items)
    return (
        bytes((code,))
        + (len(content) + width).to_bytes(width, "big")
        + len(items).to_bytes(width, "big")
        + content
    )


def described(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def message(*sections: tuple[int, bytes]) -> bytes:
    return b"".join(described(code, value) for code, value in sections)
