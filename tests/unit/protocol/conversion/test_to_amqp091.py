"""Messages of AMQP 1.0 converted to AMQP 0-9-1, section by section."""

from uuid import UUID

import pytest

from protocol.amqp091 import properties as basic
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import (
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
)
from protocol.conversion.to091 import content091
from tests.support.amqp091.field_bytes import long_string
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import (
    DATA,
    EMPTY_HEADER,
    FOOTER,
    HEADER,
    HELLO,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    annotations,
    application,
    converted091,
    decoded_content,
    long_string_value,
    other_properties,
    properties_section,
)

X = "x" * 255
FOOT = described(FOOTER, b"\xc1\x01\x00")


def test_a_message_of_a_body_alone_is_transient_and_has_no_other_property() -> None:
    properties, headers, body = converted091(HELLO)
    assert body == b"hello"
    assert headers == {}
    assert other_properties(properties) == {}
    assert properties.number(basic.DELIVERY_MODE) == 1


@pytest.mark.parametrize(
    ("fields", "mode", "priority", "expiration"),
    [
        ([True], 2, None, None),
        ([False], 1, None, None),
        ([None], 1, None, None),
        ([None, Ubyte(4)], 1, 4, None),
        ([True, Ubyte(0)], 2, 0, None),
        ([True, Ubyte(255), Uint(0)], 2, 255, b"0"),
        ([None, None, Uint(2**32 - 1), True, Uint(5)], 1, None, b"4294967295"),
        ([True, "no priority", Uint(1)], 2, None, None),
    ],
)
def test_the_header_is_mode_priority_and_expiration(
    fields: list[object], mode: int, priority: int | None, expiration: bytes | None
) -> None:
    properties, _, _ = decoded_content(content091(described(HEADER, encode(fields)) + HELLO))
    assert properties.number(basic.DELIVERY_MODE) == mode
    assert properties.number(basic.PRIORITY) == priority
    assert properties.octets(basic.EXPIRATION) == expiration


@pytest.mark.parametrize(
    ("name", "value", "index", "expected"),
    [
        ("message_id", "id", basic.MESSAGE_ID, b"id"),
        ("message_id", X, basic.MESSAGE_ID, X.encode()),
        ("message_id", "", basic.MESSAGE_ID, b""),
        ("message_id", UUID(int=7), basic.MESSAGE_ID, b"urn:uuid:00000000-0000-0000-0000-000000000007"),
        ("message_id", Ulong(0), basic.MESSAGE_ID, b"0"),
        ("message_id", Ulong(255), basic.MESSAGE_ID, b"255"),
        ("message_id", Ulong(2**64 - 1), basic.MESSAGE_ID, b"18446744073709551615"),
        ("correlation_id", "id", basic.CORRELATION_ID, b"id"),
        ("correlation_id", UUID(int=7), basic.CORRELATION_ID, b"urn:uuid:" + str(UUID(int=7)).encode()),
        ("correlation_id", Ulong(7), basic.CORRELATION_ID, b"7"),
        ("user_id", b"me", basic.USER_ID, b"me"),
        ("user_id", X.encode(), basic.USER_ID, X.encode()),
        ("reply_to", "/queues/q", basic.REPLY_TO, b"q"),
        ("reply_to", "/queues/a%2Fb%20%C3%A9", basic.REPLY_TO, "a/b \u00e9".encode()),
        ("reply_to", "/queues/" + X, basic.REPLY_TO, X.encode()),
        ("reply_to", "/queues/a%", basic.REPLY_TO, b"/queues/a%"),
        ("reply_to", "/queues/a/b", basic.REPLY_TO, b"/queues/a/b"),
        ("reply_to", "/queues/", basic.REPLY_TO, b"/queues/"),
        ("reply_to", "/exchanges/e/k", basic.REPLY_TO, b"/exchanges/e/k"),
        ("reply_to", "plain", basic.REPLY_TO, b"plain"),
        ("content_type", Symbol("text/plain"), basic.CONTENT_TYPE, b"text/plain"),
        ("content_encoding", Symbol("gzip"), basic.CONTENT_ENCODING, b"gzip"),
        ("creation_time", Timestamp(0), basic.TIMESTAMP, 0),
        ("creation_time", Timestamp(1_700_000_000_999), basic.TIMESTAMP, 1_700_000_000),
        ("creation_time", Timestamp(253402300799_999), basic.TIMESTAMP, 253402300799),
        ("group_id", "\u00e9", basic.APP_ID, "\u00e9".encode()),
    ],
)
def test_properties_have_their_counterparts(name: str, value: object, index: int, expected: object) -> None:
    properties, headers, body = converted091(properties_section(**{name: value}), HELLO)
    assert other_properties(properties) == {index: expected}
    assert headers == {}
    assert body == b"hello"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("to", "/queues/q"),
        ("subject", "s"),
        ("absolute_expiry_time", Timestamp(1)),
        ("group_sequence", Uint(1)),
        ("reply_to_group_id", "g"),
        ("user_id", b"\xff"),
        ("user_id", b"x" * 256),
        ("user_id", "not binary"),
        ("reply_to", "/exchanges/" + X),
        ("reply_to", "/queues/" + "x" * 256),
        ("content_type", Symbol("x" * 256)),
        ("content_encoding", Symbol("x" * 256)),
        ("creation_time", Timestamp(-1)),
        ("creation_time", Timestamp(253402300800_000)),
        ("creation_time", Ulong(5)),
        ("group_id", "x" * 256),
        ("message_id", Timestamp(5)),
        ("content_type", 5),
    ],
)
def test_a_value_without_a_property_is_left_out_and_the_next_one_is_not(name: str, value: object) -> None:
    others = {"correlation_id": "c"} if name != "correlation_id" else {}
    properties, headers, body = converted091(properties_section(**others, **{name: value}), HELLO)
    assert other_properties(properties) == {basic.CORRELATION_ID: b"c"}
    assert headers == {}
    assert body == b"hello"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"binary", b"x" + long_string(b"binary")),
        (b"b" * 300, b"x" + long_string(b"b" * 300)),
        ("x" * 256, long_string_value("x" * 256)),
        ("\u00e9" * 128, long_string_value("\u00e9" * 128)),
    ],
)
def test_ids_that_are_no_short_strings_are_headers(value: object, expected: bytes) -> None:
    section = properties_section(message_id=value, correlation_id=value)
    properties, headers, _ = converted091(section, HELLO)
    assert other_properties(properties) == {}
    assert headers == {b"x-message-id": expected, b"x-correlation-id": expected}


def test_an_id_that_is_no_short_string_is_not_hidden_by_an_annotation_or_application_property() -> None:
    forged: dict[str, object] = {"x-message-id": "forged"}
    _, headers, _ = converted091(
        annotations(forged), properties_section(message_id=b"id"), application(forged), HELLO
    )
    assert headers == {b"x-message-id": b"x" + long_string(b"id")}


def test_an_annotation_stands_in_place_of_an_application_property_of_its_name() -> None:
    _, headers, _ = converted091(annotations({"x-a": "a"}), application({"x-a": "p", "b": "p"}), HELLO)
    assert headers == {b"x-a": long_string_value("a"), b"b": long_string_value("p")}


@pytest.mark.parametrize("size", [255, 256])
def test_names_have_up_to_255_bytes(size: int) -> None:
    name = "x-" + "n" * (size - 2)
    _, headers, _ = converted091(annotations({name: None}), application({"p" * size: None, "": None}), HELLO)
    named: dict[bytes, bytes] = {name.encode(): b"V", b"p" * size: b"V"} if size == 255 else {}
    assert headers == named | {b"": b"V"}


def test_annotations_about_the_route_are_no_headers() -> None:
    names = ("x-exchange", "x-routing-key", "x-basic-other", "x-death", "x-message-id", "x-correlation-id")
    _, headers, _ = converted091(annotations(dict.fromkeys(names, "said")), HELLO)
    assert headers == {}


def test_the_type_comes_from_an_annotation() -> None:
    properties, headers, _ = converted091(annotations({"x-basic-type": "t"}), HELLO)
    assert properties.octets(basic.TYPE) == b"t"
    assert headers == {}
    for wrong in (5, "t" * 256, Symbol("t"), b"t"):
        assert other_properties(converted091(annotations({"x-basic-type": wrong}), HELLO)[0]) == {}


def test_x_cc_is_the_header_cc_if_it_is_a_list() -> None:
    keys = b"A" + long_string(long_string_value("k1") + long_string_value("k2"))
    assert converted091(annotations({"x-cc": ["k1", "k2"]}), HELLO)[1] == {b"CC": keys}
    assert converted091(annotations({"x-cc": "k"}), HELLO)[1] == {b"x-cc": long_string_value("k")}


@pytest.mark.parametrize(
    ("sections", "body"),
    [
        ([], b""),
        ([described(DATA, b"\xa0\x00")], b""),
        ([described(DATA, b"\xb0\x00\x00\x00\x05hello")], b"hello"),
        ([b"\x00\xa3\x10amqp:data:binary\xa0\x05hello"], b"hello"),
        ([HELLO, described(DATA, b"\xb0\x00\x00\x00\x01!"), HELLO], b"hello!hello"),
        ([described(DATA, encode(b"b" * 256)), FOOT], b"b" * 256),
    ],
)
def test_data_sections_are_the_body(sections: list[bytes], body: bytes) -> None:
    properties, _, found = converted091(*sections)
    assert found == body
    assert other_properties(properties) == {}


@pytest.mark.parametrize(
    "body",
    [
        described(VALUE, b"\xa1\x05hello"),
        described(VALUE, b"\x40") + FOOT,
        described(SEQUENCE, b"\x45") + described(SEQUENCE, b"\xc0\x02\x01\x40") + FOOT,
    ],
)
def test_other_bodies_stay_sections(body: bytes) -> None:
    properties, _, found = converted091(annotations({"x-basic-type": "other"}), application({}), body)
    assert found == body
    assert other_properties(properties) == {basic.TYPE: b"amqp-1.0"}


@pytest.mark.parametrize(
    ("value", "type_before", "type_after"),
    [
        ("hello", None, b"text/plain"),
        ("h\u00e9llo" * 100, None, b"text/plain"),
        ("hello", b"text/html", b"text/html"),
        (b"\x00\xff", None, None),
        (b"b" * 256, None, None),
        (b"hello", b"text/html", b"text/html"),
    ],
)
@pytest.mark.parametrize("foot", [b"", FOOT])
def test_a_value_may_be_wanted_as_text(
    value: str | bytes, type_before: bytes | None, type_after: bytes | None, foot: bytes
) -> None:
    fields = {} if type_before is None else {"content_type": Symbol(type_before.decode())}
    content = EMPTY_HEADER + properties_section(**fields) + described(VALUE, encode(value)) + foot
    properties, _, body = decoded_content(content091(content, value_as_text=True))
    assert body == (value.encode() if isinstance(value, str) else value)
    assert properties.octets(basic.CONTENT_TYPE) == type_after
    assert properties.octets(basic.TYPE) is None


@pytest.mark.parametrize(
    "body", [described(VALUE, b"\x40"), described(VALUE, b"\xa3\x01s"), described(SEQUENCE, b"\x45")]
)
def test_other_values_wanted_as_text_stay_sections(body: bytes) -> None:
    properties, _, found = decoded_content(content091(EMPTY_HEADER + body, value_as_text=True))
    assert found == body
    assert other_properties(properties) == {basic.TYPE: b"amqp-1.0"}


@pytest.mark.parametrize("opaque", [True, False])
@pytest.mark.parametrize("rest", [b"no sections", b"", HELLO + HELLO[:-1], described(VALUE, b"\x40") + HELLO])
def test_an_opaque_payload_or_invalid_sections_are_the_whole_body(rest: bytes, opaque: bool) -> None:
    whole = described(HEADER, encode([True, Ubyte(3)])) + rest
    properties, headers, body = decoded_content(content091(whole, opaque=opaque))
    if rest == b"" and not opaque:
        assert body == b""
        return
    assert body == whole
    assert headers == {}
    assert other_properties(properties) == {basic.TYPE: b"amqp-1.0", basic.PRIORITY: 3}
    assert properties.number(basic.DELIVERY_MODE) == 2


def test_a_message_that_is_not_to_be_looked_at_may_have_no_header() -> None:
    properties, _, body = decoded_content(content091(b"\x80whatever", opaque=True))
    assert body == b"\x80whatever"
    assert other_properties(properties) == {basic.TYPE: b"amqp-1.0"}
    assert properties.number(basic.DELIVERY_MODE) == 1


@pytest.mark.parametrize("rest", [b"\xa1\x09no", b"\xa1\x01k", b"\xa1\x01k\xff", b"\xff", b"\xa1"])
def test_entries_before_one_that_overruns_the_map_are_kept(rest: bytes) -> None:
    items = encode(Symbol("x-a")) + b"\x40" + rest
    map_of = b"\xc1" + bytes([len(items) + 1, 4]) + items
    properties, headers, body = converted091(described(0x72, map_of), described(0x74, map_of), HELLO)
    assert headers == {b"x-a": b"V"}
    assert other_properties(properties) == {}
    assert body == b"hello"


@pytest.mark.parametrize("rest", [b"\xa1\x09no", b"\xff", b"\xa1", b""])
def test_properties_before_one_that_overruns_the_list_are_kept(rest: bytes) -> None:
    items = encode("id") + encode(b"me") + rest
    section = described(PROPERTIES, b"\xc0" + bytes([len(items) + 1, 3]) + items)
    properties, _, body = converted091(section, HELLO)
    assert other_properties(properties) == {basic.MESSAGE_ID: b"id", basic.USER_ID: b"me"}
    assert body == b"hello"
