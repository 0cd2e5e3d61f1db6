"""Messages of AMQP 0-9-1 converted to AMQP 1.0, property by property."""

import struct
from uuid import UUID

import pytest

from protocol.amqp091 import properties as basic
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import (
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
)
from protocol.conversion.to10 import content10
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import (
    ANNOTATIONS,
    APPLICATION,
    DATA,
    HEADER,
    OURS,
    PROPERTIES,
    VALUE,
    content,
    converted10,
    sections,
    short_string,
)

X = "x" * 255
MESSAGE_ID, USER_ID, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING = 0, 1, 4, 5, 6, 7
CREATION_TIME, GROUP_ID = 9, 10


def test_a_message_without_properties_has_a_header_annotations_and_body() -> None:
    assert converted10({}) == {
        HEADER: [False, None, None, True, 0],
        ANNOTATIONS: OURS,
        DATA: b"hello",
    }


@pytest.mark.parametrize(
    ("index", "value", "place", "expected"),
    [
        (basic.DELIVERY_MODE, b"\x02", 0, True),
        (basic.DELIVERY_MODE, b"\x01", 0, False),
        (basic.DELIVERY_MODE, b"\x03", 0, False),
        (basic.PRIORITY, b"\x00", 1, Ubyte(0)),
        (basic.PRIORITY, b"\xff", 1, Ubyte(255)),
        (basic.EXPIRATION, short_string(b"0"), 2, Uint(0)),
        (basic.EXPIRATION, short_string(b"60000"), 2, Uint(60000)),
        (basic.EXPIRATION, short_string(b"4294967295"), 2, Uint(4294967295)),
        (basic.EXPIRATION, short_string(b"4294967296"), 2, None),
        (basic.EXPIRATION, short_string(b"9" * 255), 2, None),
        (basic.EXPIRATION, short_string(b"-1"), 2, None),
        (basic.EXPIRATION, short_string("\u0661".encode()), 2, None),
        (basic.EXPIRATION, short_string(b""), 2, None),
    ],
)
def test_the_header_says_how_it_is_kept(index: int, value: bytes, place: int, expected: object) -> None:
    header = converted10({index: value})[HEADER]
    assert header[place] == expected
    assert type(header[place]) is type(expected)
    assert len(header) == 5


@pytest.mark.parametrize(
    ("index", "value", "place", "expected"),
    [
        (basic.MESSAGE_ID, b"id", MESSAGE_ID, "id"),
        (basic.MESSAGE_ID, X.encode(), MESSAGE_ID, X),
        (basic.MESSAGE_ID, b"", MESSAGE_ID, ""),
        (basic.MESSAGE_ID, b"a\0b", MESSAGE_ID, "a\0b"),
        (basic.MESSAGE_ID, b"urn:uuid:" + "\u00e9".encode() * 18, MESSAGE_ID, "urn:uuid:" + "\u00e9" * 18),
        (basic.MESSAGE_ID, b"\xff\xfe", MESSAGE_ID, b"\xff\xfe"),
        (basic.MESSAGE_ID, b"urn:uuid:" + str(UUID(int=7)).encode(), MESSAGE_ID, UUID(int=7)),
        (basic.MESSAGE_ID, b"urn:uuid:" + b"x" * 36, MESSAGE_ID, "urn:uuid:" + "x" * 36),
        (basic.MESSAGE_ID, b"urn:uuid:" + b"A" * 32 + b"----", MESSAGE_ID, "urn:uuid:" + "A" * 32 + "----"),
        (basic.CORRELATION_ID, b"id", CORRELATION_ID, "id"),
        (basic.CORRELATION_ID, b"urn:uuid:" + str(UUID(int=7)).encode(), CORRELATION_ID, UUID(int=7)),
        (basic.USER_ID, b"me", USER_ID, b"me"),
        (basic.REPLY_TO, b"q", REPLY_TO, "/queues/q"),
        (basic.REPLY_TO, "a/b \u00e9".encode(), REPLY_TO, "/queues/a%2Fb%20%C3%A9"),
        (basic.CONTENT_TYPE, b"text/plain", CONTENT_TYPE, Symbol("text/plain")),
        (basic.CONTENT_ENCODING, b"gzip", CONTENT_ENCODING, Symbol("gzip")),
        (basic.APP_ID, "\u00e9".encode(), GROUP_ID, "\u00e9"),
    ],
)
def test_short_strings_are_properties(index: int, value: bytes, place: int, expected: object) -> None:
    found = converted10({index: short_string(value)})[PROPERTIES]
    assert found == [expected if at == place else None for at in range(11)]
    assert type(found[place]) is type(expected)


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (basic.REPLY_TO, short_string(b"\xff")),
        (basic.CONTENT_TYPE, short_string("\u00e9".encode())),
        (basic.CONTENT_ENCODING, short_string(b"\xff")),
        (basic.APP_ID, short_string(b"\xff")),
        (basic.TYPE, short_string(b"\xff")),
        (basic.CLUSTER_ID, short_string(b"c")),
        (basic.TIMESTAMP, struct.pack(">Q", 2**63 // 1000 + 1)),
    ],
)
def test_values_without_a_property_are_left_out(index: int, value: bytes) -> None:
    assert converted10({index: value, basic.DELIVERY_MODE: b"\x02"}) == {
        HEADER: [True, None, None, True, 0],
        ANNOTATIONS: OURS,
        DATA: b"hello",
    }


@pytest.mark.parametrize("seconds", [0, 1_700_000_000, 253402300799])
def test_a_timestamp_is_the_creation_time_in_milliseconds(seconds: int) -> None:
    found = converted10({basic.TIMESTAMP: struct.pack(">Q", seconds)})[PROPERTIES][CREATION_TIME]
    assert found == seconds * 1000
    assert isinstance(found, Timestamp)


def test_the_type_is_an_annotation() -> None:
    assert converted10({basic.TYPE: short_string(b"t")})[ANNOTATIONS] == OURS | {"x-basic-type": "t"}


def test_annotations_of_the_broker_are_not_taken_from_headers() -> None:
    names = (b"x-exchange", b"x-routing-key", b"x-basic-type", b"x-basic-other", b"x-death")
    table = b"".join(field(name, b"S" + long_string(b"forged")) for name in names)
    assert converted10({}, table) == converted10({})


def test_cc_is_an_annotation_if_it_is_a_list() -> None:
    keys = b"A" + long_string(b"S" + long_string(b"k1") + b"S" + long_string(b"k2"))
    assert converted10({}, field(b"CC", keys))[ANNOTATIONS] == OURS | {"x-cc": ["k1", "k2"]}
    assert converted10({}, field(b"CC", b"S" + long_string(b"k")))[APPLICATION] == {"CC": "k"}


def test_ids_that_are_no_short_strings_come_from_headers() -> None:
    table = field(b"x-message-id", FIELDS["x"]) + field(b"x-correlation-id", FIELDS["S-long"])
    sections = converted10({}, table)
    assert sections[PROPERTIES][MESSAGE_ID] == b"\x00\xff"
    assert sections[PROPERTIES][CORRELATION_ID] == "x" * 50_000
    assert sections[ANNOTATIONS] == OURS
    assert converted10({basic.MESSAGE_ID: short_string(b"id")}, table)[PROPERTIES][MESSAGE_ID] == "id"
    assert PROPERTIES not in converted10({}, field(b"x-message-id", b"I\0\0\0\1"))


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_the_body_is_one_data_section(size: int) -> None:
    assert converted10({}, None, b"b" * size)[DATA] == b"b" * size


def test_a_body_of_several_frames_is_joined() -> None:
    frames = b"\x03\x00\x07\x00\x00\x00\x02he\xce\x03\x00\x07\x00\x00\x00\x03llo\xce"
    head = content({}, None, b"")
    assert sections(content10(head + frames, "", ""))[DATA] == b"hello"


@pytest.mark.parametrize(
    "body", [described(VALUE, b"\xa1\x01v"), described(VALUE, b"\x40") + described(0x78, b"\xc1\x01\x00")]
)
def test_a_body_of_sections_is_these_sections_again(body: bytes) -> None:
    made = content10(content({basic.TYPE: short_string(b"amqp-1.0")}, None, body), "ex", "key")
    assert made.endswith(body)
    assert sections(made) == {HEADER: [False, None, None, True, 0], ANNOTATIONS: OURS} | {
        int(code): value for code, value in sections(body).items()
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        described(VALUE, b"\xa1\x02v"),
        described(PROPERTIES, b"\x45") + described(DATA, b"\xa0\x00"),
        described(0x78, b"\xc1\x01\x00"),
    ],
)
def test_a_body_that_only_claims_to_be_sections_is_data(body: bytes) -> None:
    sections = converted10({basic.TYPE: short_string(b"amqp-1.0")}, None, body)
    assert sections[DATA] == body
    assert sections[ANNOTATIONS] == OURS | {"x-basic-type": "amqp-1.0"}


@pytest.mark.parametrize(
    "broken",
    [
        b"\x01zQ\0",
        b"\x01zS\0\0\0\x09short",
        b"\x09z",
        b"\x01z",
        field(b"\xff", b"B\1"),
        field(b"x-\xff", b"B\1"),
        field(b"x-a", b"A" + long_string(b"Q")),
        field(b"x-a", b"F" + long_string(b"\x05a")),
        field(b"x-t", b"T" + b"\xff" * 8),
    ],
)
def test_headers_that_do_not_decode_are_left_out_and_those_before_are_not(broken: bytes) -> None:
    sections = converted10({basic.DELIVERY_MODE: b"\x02"}, field(b"n", b"B\1") + broken)
    assert sections == {
        HEADER: [True, None, None, True, 0],
        ANNOTATIONS: OURS,
        APPLICATION: {"n": 1},
        DATA: b"hello",
    }


def test_properties_behind_one_that_overruns_the_frame_are_absent() -> None:
    made = content({basic.CONTENT_TYPE: short_string(b"t"), basic.MESSAGE_ID: b"\x09id"})
    assert sections(content10(made, "ex", "key")) == {
        HEADER: [False, None, None, True, 0],
        ANNOTATIONS: OURS,
        PROPERTIES: [Symbol("t") if place == CONTENT_TYPE else None for place in range(11)],
        DATA: b"hello",
    }


def test_the_annotations_need_a_larger_map_for_long_names() -> None:
    content_sections = sections(content10(content({}), "\u00e9" * 127, "k" * 255))
    assert content_sections[ANNOTATIONS] == {"x-exchange": "\u00e9" * 127, "x-routing-key": "k" * 255}
    assert encode(content_sections[ANNOTATIONS])[0] == 0xD1
