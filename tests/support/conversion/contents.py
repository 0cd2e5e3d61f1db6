"""Contents of both protocols, made by hand and taken apart."""

import struct
from typing import Any

from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body, body_size, scan
from protocol.amqp091.properties import HEADERS, Properties
from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Described, Map, Symbol
from protocol.conversion.to091 import content091
from protocol.conversion.to10 import content10
from tests.support.amqp091.field_bytes import long_string
from tests.support.amqp10.reference_codec import described

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = (
    0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
)  # fmt: skip
OURS = {"x-exchange": "ex", "x-routing-key": "key"}
EMPTY_HEADER = described(HEADER, b"\x45")
HELLO = described(DATA, b"\xa0\x05hello")


def short_string(text: bytes) -> bytes:
    """A short string."""
    return bytes([len(text)]) + text


def content(values: dict[int, bytes], table: bytes | None = None, payload: bytes = b"hello") -> bytes:
    """A content of AMQP 0-9-1: encoded properties by their places, the inside of the headers, a body."""
    if table is not None:
        values = values | {HEADERS: struct.pack(">I", len(table)) + table}
    flags = sum(1 << (15 - index) for index in values)
    head = struct.pack(">HHQH", 60, 0, len(payload), flags) + b"".join(values[i] for i in sorted(values))
    made = b"\x02\x00\x00" + struct.pack(">I", len(head)) + head + b"\xce"
    return made + b"\x03\x00\x00" + struct.pack(">I", len(payload)) + payload + b"\xce" if payload else made


def decoded_content(made: bytes) -> tuple[Properties, dict[bytes, bytes], bytes]:
    """Properties, headers and body of a content that is whole: its frames, its sizes, each header once."""
    size = struct.unpack_from(">I", made, 3)[0]
    scan(made, 0, size)
    properties = Properties(made)
    fields = properties.fields()
    payload = body(made)
    head = made[: size + 8]
    frame = b"\x03\x00\x00" + struct.pack(">I", len(payload)) + payload + b"\xce" if payload else b""
    assert made == head + frame
    assert head[:3] == b"\x02\x00\x00"
    assert head[-1] == 0xCE
    assert body_size(made, 0, size) == len(payload)
    assert len(dict(fields)) == len(fields)
    return properties, dict(fields), payload


def annotations(pairs: dict[str, object]) -> bytes:
    """A section of message annotations."""
    return described(ANNOTATIONS, encode({Symbol(name): value for name, value in pairs.items()}))


def application(pairs: dict[str, object]) -> bytes:
    """A section of application properties."""
    return described(APPLICATION, encode(dict(pairs)))


def properties_section(**fields: object) -> bytes:
    """A section of properties, which have underscores in their names."""
    names = (
        "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
        "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
        "reply_to_group_id",
    )  # fmt: skip
    assert set(fields) <= set(names)
    return described(PROPERTIES, encode([fields.get(name) for name in names]))


def sections(made: bytes) -> dict[int, object]:
    """The values of sections by their descriptors, which are in order; maps are dicts with typed values."""
    found: dict[int, object] = {}
    p = 0
    while p < len(made):
        value, p = decode_typed(made, p)
        assert isinstance(value, Described)
        code = value.descriptor
        assert isinstance(code, int)
        assert code > max(found, default=0)
        content_of = value.value
        if isinstance(content_of, Map):
            assert len(dict(content_of.pairs)) == len(content_of.pairs)
            content_of = dict(content_of.pairs)
        found[int(code)] = content_of
    return found


def converted091(*sections: bytes) -> tuple[Properties, dict[bytes, bytes], bytes]:
    """A message with these sections behind an empty header, converted and opened."""
    return decoded_content(content091(EMPTY_HEADER + b"".join(sections)))


def long_string_value(value: str) -> bytes:
    """A long string as a field value."""
    return b"S" + long_string(value.encode())


def other_properties(properties: Properties) -> dict[int, bytes | int | None]:
    """The properties that are there, but the headers and the delivery mode."""
    numbers = (basic.PRIORITY, basic.TIMESTAMP)
    values = {
        i: properties.number(i) if i in numbers else properties.octets(i) for i in range(14) if i > 3 or i < 2
    }
    return {index: value for index, value in values.items() if value is not None}


def converted10(values: dict[int, bytes], table: bytes | None = None, payload: bytes = b"hello") -> Any:
    """A content with these properties, converted and taken apart."""
    return sections(content10(content(values, table, payload), "ex", "key"))
