"""Contents converted there and back, and any bytes converted at all."""

import struct
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.amqp091 import properties as basic
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.sections import scan
from protocol.conversion.editing import Edition
from protocol.conversion.to091 import content091
from protocol.conversion.to10 import content10
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import DATA, content, decoded_content, sections, short_string

NO_URN = st.text(max_size=60).filter(lambda text: not text.startswith("urn:"))
TEXTS = NO_URN.map(str.encode)
ASCII = st.text(st.characters(max_codepoint=127), max_size=255).map(str.encode)
SECONDS = st.integers(0, 253402300799).map(lambda number: struct.pack(">Q", number))
SAYABLE: dict[int, st.SearchStrategy[bytes]] = {
    basic.CONTENT_TYPE: ASCII.map(short_string),
    basic.CONTENT_ENCODING: ASCII.map(short_string),
    basic.DELIVERY_MODE: st.sampled_from([b"\x01", b"\x02"]),
    basic.PRIORITY: st.binary(min_size=1, max_size=1),
    basic.CORRELATION_ID: TEXTS.map(short_string),
    basic.REPLY_TO: TEXTS.filter(bool).map(short_string),
    basic.EXPIRATION: st.integers(0, 2**32 - 1).map(lambda number: short_string(str(number).encode())),
    basic.MESSAGE_ID: TEXTS.map(short_string)
    | st.uuids().map(lambda uuid: short_string(f"urn:uuid:{uuid}".encode())),
    basic.TIMESTAMP: SECONDS,
    basic.TYPE: TEXTS.filter(lambda text: text != b"amqp-1.0").map(short_string),
    basic.USER_ID: TEXTS.map(short_string),
    basic.APP_ID: TEXTS.map(short_string),
}


def fixed(kind: bytes, width: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=width, max_size=width).map(lambda raw: kind + raw)


SIMPLE = st.one_of(
    st.sampled_from([b"t\x00", b"t\x01", b"V"]),
    *[fixed(kind, 1) for kind in (b"b", b"B")],
    *[fixed(kind, 2) for kind in (b"s", b"u")],
    *[fixed(kind, 4) for kind in (b"I", b"i")],
    fixed(b"l", 8),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: b"f" + struct.pack(">f", x)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: b"d" + struct.pack(">d", x)),
    SECONDS.map(lambda raw: b"T" + raw),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(
        lambda text: b"S" + long_string(text.encode())
    ),
    st.binary(max_size=300).map(lambda raw: b"x" + long_string(raw)),
)
NAMES = st.text(max_size=60).map(str.encode)


def tables(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.dictionaries(NAMES, values, max_size=4).map(
        lambda fields: long_string(b"".join(field(name, value) for name, value in fields.items()))
    )


VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: b"A" + long_string(b"".join(items)))
        | tables(inner).map(lambda table: b"F" + table)
    ),
    max_leaves=8,
)
HEADERS = st.dictionaries(NAMES.filter(lambda name: not name.startswith(b"x-")), SIMPLE, max_size=6)
X_HEADERS = st.dictionaries(ASCII.map(lambda name: b"x-own-" + name[:249]), VALUES, max_size=4)


@given(st.fixed_dictionaries({}, optional=SAYABLE), HEADERS, X_HEADERS, st.binary(max_size=300))
def test_values_of_both_protocols_return_unchanged(
    values: dict[int, bytes], headers: dict[bytes, bytes], x_headers: dict[bytes, bytes], payload: bytes
) -> None:
    values.setdefault(basic.DELIVERY_MODE, b"\x01")
    headers = headers | x_headers
    table = b"".join(field(name, value) for name, value in headers.items()) if headers else None
    given_content = content(values, table, payload)
    converted = content10(given_content, "ex", "key")
    layout = scan(converted, 0, len(converted))
    assert layout.header_start == 0
    back = content091(converted)

    properties, decoded_headers, body = decoded_content(back)
    assert decoded_headers == headers
    assert body == payload
    expected = basic.Properties(given_content)
    assert properties.fields() == expected.fields()
    assert back == given_content


@given(st.fixed_dictionaries({}, optional=SAYABLE), HEADERS, X_HEADERS, st.binary(max_size=300))
def test_sections_that_were_converted_once_come_back_as_they_were(
    values: dict[int, bytes], headers: dict[bytes, bytes], x_headers: dict[bytes, bytes], payload: bytes
) -> None:
    table = b"".join(field(name, value) for name, value in (headers | x_headers).items())
    once = content10(content(values, table, payload), "ex", "key")
    assert content10(content091(once), "ex", "key") == once


CODES = st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78])
ENCODED = st.sampled_from(
    ["40", "45", "c10100", "a0026869", "a1026869", "a378", "53", "c0030140", "c103024041", "d1", "e0", "00"]
).map(bytes.fromhex)
JUNK = st.one_of(st.binary(max_size=60), st.lists(st.binary(max_size=8) | ENCODED, max_size=8).map(b"".join))


@given(st.lists(st.tuples(CODES, JUNK), max_size=6), st.binary(max_size=20), st.booleans(), st.booleans())
def test_any_sections_make_a_content(
    parts: list[tuple[int, bytes]], rest: bytes, opaque: bool, value_as_text: bool
) -> None:
    given_bytes = b"".join(described(code, value) for code, value in parts) + rest
    decoded_content(content091(given_bytes, opaque, value_as_text))


@given(JUNK, JUNK, JUNK, JUNK)
def test_sections_of_any_entries_make_a_content(
    header: bytes, annotations: bytes, properties: bytes, application: bytes
) -> None:
    made = b""
    for code, inside in ((0x70, header), (0x72, annotations), (0x73, properties), (0x74, application)):
        start = b"\xc1" if code in (0x72, 0x74) else b"\xc0"
        made += described(code, start + bytes([len(inside) + 1, min(4, len(inside)) & 6]) + inside)
    made += described(DATA, b"\xa0\x02hi")
    _, _, body = decoded_content(content091(made))
    assert body == b"hi"


def check_sections(made: bytes) -> dict[int, Any]:
    layout = scan(made, 0, len(made))
    assert made[0] == 0
    assert layout.header_start == 0
    assert layout.body != -1
    return sections(made) if layout.body_code == DATA else {}


@given(st.binary(max_size=100))
@example(b"")
@example(b"\x02\x00\x00\xff\xff\xff\xff" + bytes(40))
@example(b"\x02\x00\x00\x00\x00\x00\x0e" + bytes(15) + b"\x03\x00\x00\xff\xff\xff\xf8" + bytes(40))
def test_any_bytes_make_sections(data: bytes) -> None:
    check_sections(content10(data, "", ""))


@given(
    st.integers(0, 0xFFFF),
    st.lists(st.sampled_from([*FIELDS.values(), b"F\0\0\0\x03", b"A\0\0\0\x02", b"Q"]), max_size=5),
    st.binary(max_size=40),
    st.binary(max_size=20),
)
def test_any_property_list_makes_sections(
    flags: int, values: list[bytes], junk: bytes, payload: bytes
) -> None:
    table = long_string(
        b"".join(field(b"x-%d" % number, value) for number, value in enumerate(values)) + junk
    )
    for inside in (junk, short_string(b"text") * 2 + table + junk, table + junk):
        whole = bytearray(content({}, None, b""))
        whole[19:-1] = struct.pack(">H", flags) + inside
        whole[3:7] = struct.pack(">I", len(whole) - 8)
        frame = b"\x03\x00\x00" + struct.pack(">I", len(payload)) + payload + b"\xce"
        section_values = check_sections(content10(bytes(whole) + frame, "e", "k"))
        if section_values:
            assert section_values[DATA] == payload


@given(st.lists(st.tuples(CODES, JUNK), max_size=6), st.binary(max_size=20))
def test_any_sections_are_edited_or_refused(parts: list[tuple[int, bytes]], rest: bytes) -> None:
    before = content({basic.APP_ID: short_string(b"me")}, field(b"x-own", b"V") + field(b"own", b"t\1"), b"")
    edition = Edition(before, {"app_id": basic.APP_ID}, [b"x-own", b"own"], False, None)
    given_bytes = b"".join(described(code, value) for code, value in parts) + rest
    try:
        edited = edition.content(given_bytes)
    except DecodeError:
        return
    properties, headers, _ = decoded_content(content091(edited))
    if properties.octets(basic.TYPE) != b"amqp-1.0" or b"own" in headers:
        assert headers[b"x-own"] == b"V"
        assert headers[b"own"] == b"t\1"
        assert properties.octets(basic.APP_ID) == b"me"


@given(st.fixed_dictionaries({}, optional=SAYABLE), HEADERS, X_HEADERS, st.binary(max_size=300))
def test_an_edit_leaves_all_else_as_it_was(
    values: dict[int, bytes], headers: dict[bytes, bytes], x_headers: dict[bytes, bytes], payload: bytes
) -> None:
    table = b"".join(field(name, value) for name, value in (headers | x_headers).items())
    before = content10(content(values, table, payload), "ex", "key")
    changes = content({}, field(b"x-edited", b"V") + field(b"edited", b"t\1"), b"")
    edition = Edition(changes, {}, [b"x-edited", b"edited"], False, None)
    after = edition.content(before)
    edited, expected = sections(after), sections(before)
    assert isinstance(expected.setdefault(0x74, {}), dict)
    expected[0x72] |= {"x-edited": None}  # type: ignore[operator]
    expected[0x74] |= {"edited": True}  # type: ignore[operator]
    assert edited == expected
    assert edition.content(after) == after
    undone = Edition(content({}, None, b""), {}, [b"x-edited", b"edited"], False, None)
    assert undone.content(after) == before
