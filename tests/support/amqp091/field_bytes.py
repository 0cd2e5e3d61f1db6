"""Field tables as bytes: every type that clients send."""

import struct


def field(name: bytes, value: bytes) -> bytes:
    """An entry of a field table."""
    return bytes([len(name)]) + name + value


def long_string(value: bytes) -> bytes:
    """A length and bytes."""
    return struct.pack(">I", len(value)) + value


FIELDS = {
    "t": b"t\x01",
    "f": b"t\x00",
    "b": b"b\x80",
    "B": b"B\xff",
    "s": b"s\x80\x00",
    "u": b"u\xff\xff",
    "I": b"I\x80\x00\x00\x00",
    "i": b"i\xff\xff\xff\xff",
    "l": b"l\x80" + bytes(7),
    "L": b"L\x7f" + b"\xff" * 7,
    "f32": b"f" + struct.pack(">f", 0.1),
    "f64": b"d" + struct.pack(">d", 0.1),
    "D": b"D\x02" + struct.pack(">i", -12345),
    "S": b"S" + long_string("héllo".encode()),
    "S-empty": b"S" + long_string(b""),
    "S-long": b"S" + long_string(b"x" * 50_000),
    "S-binary": b"S" + long_string(bytes(range(256))),
    "A": b"A" + long_string(b"I\x00\x00\x00\x01" + b"S" + long_string(b"x") + b"A" + long_string(b"")),
    "T": b"T" + struct.pack(">Q", 1_700_000_000),
    "F": b"F" + long_string(field(b"inner", b"F" + long_string(field(b"x", b"V")))),
    "V": b"V",
    "x": b"x" + long_string(b"\x00\xff"),
}
"""Every type that clients send, with values at the ends of their ranges. [amqp-0-9-1 4.2.5.5]"""
