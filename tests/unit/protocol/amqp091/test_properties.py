"""Properties that are read and changed leave everything else as it was."""

import pytest
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from protocol.amqp091 import content
from protocol.amqp091.properties import EXPIRATION, PRIORITY, TIMESTAMP, USER_ID, Properties
from protocol.errors import ProtocolError

BODY = b"\x03\x00\x01\x00\x00\x00\x02hi\xce"
ODD = b"\x01ab\x07" + b"\x01ls\xff\xfe" + b"\x01ad\x3f\xf0\0\0\0\0\0\0" + b"\x01vV" + b"\x01eA\0\0\0\x02t\x01"


def message(flags: int, values: bytes) -> bytes:
    payload = b"\x00\x3c\x00\x00" + (2).to_bytes(8, "big") + flags.to_bytes(2, "big") + values
    return b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce" + BODY


def with_headers(table: bytes) -> bytes:
    return message(1 << 13, len(table).to_bytes(4, "big") + table)


def test_unchanged_properties_are_sent_as_received() -> None:
    given = with_headers(ODD)
    properties = Properties(given)
    assert properties.content() == given
    assert properties.fields() == [
        (b"a", b"b\x07"),
        (b"l", b"s\xff\xfe"),
        (b"a", b"d\x3f\xf0\0\0\0\0\0\0"),
        (b"v", b"V"),
        (b"e", b"A\0\0\0\x02t\x01"),
    ]
    properties.set_fields(properties.fields())
    assert properties.content() == given
    assert properties.headers() == {"a": 1.0, "l": -2, "v": None, "e": [True]}


def test_values_are_changed_and_dropped() -> None:
    sent = commands.Basic.Properties(
        content_type="text/plain",
        headers={"x": 1},
        priority=7,
        reply_to="here",
        expiration="10",
        user_id="me",
    )
    given = pamqp_frame.marshal(header.ContentHeader(0, 2, sent), 1) + BODY
    properties = Properties(given)
    assert (properties.text(EXPIRATION), properties.text(USER_ID)) == ("10", "me")
    assert (properties.number(PRIORITY), properties.number(TIMESTAMP)) == (7, None)
    properties.drop(EXPIRATION)
    properties.set_fields([])
    changed = properties.content()
    size, _, decoded = pamqp_frame.unmarshal(changed)
    assert isinstance(decoded, header.ContentHeader)
    assert dict(decoded.properties) == dict(sent) | {"expiration": None, "headers": None}
    assert changed[size:] == BODY
    assert content.body(changed) == b"hi"


@pytest.mark.parametrize(
    "table", [b"\x05ab", b"\x01aS\0\0\0\x09abc", b"\x01aZ", b"\x01aA\0\0\0\x09", b"\x01"]
)
def test_a_malformed_table_is_refused(table: bytes) -> None:
    properties = Properties(with_headers(table))
    with pytest.raises(ProtocolError):
        properties.fields()
    with pytest.raises(ProtocolError):
        properties.headers()


def test_a_property_that_is_not_utf_8_is_refused_when_it_is_read() -> None:
    properties = Properties(message(1 << 4, b"\x02\xff\xfe"))
    with pytest.raises(ProtocolError):
        properties.text(USER_ID)


def with_properties(given: commands.Basic.Properties) -> bytes:
    payload = b"\x00\x3c\x00\x00" + (2).to_bytes(8, "big") + given.marshal()
    return b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce" + BODY


@pytest.mark.parametrize("flags", range(64))
def test_a_reply_to_is_replaced_wherever_it_stands(flags: int) -> None:
    given = commands.Basic.Properties(reply_to="amq.rabbitmq.reply-to", user_id="u", timestamp=None)
    if flags & 1:
        given.content_type = "amq.rabbitmq.reply-to"
    if flags & 2:
        given.content_encoding = ""
    if flags & 4:
        given.headers = {"x": "amq.rabbitmq.reply-to", "y": {"amq.rabbitmq.reply-to": 1}}
    if flags & 8:
        given.delivery_mode = 2
    if flags & 16:
        given.priority = 9
    if flags & 32:
        given.correlation_id = "c" * 255
    before = with_properties(given)
    given.reply_to = "amq.rabbitmq.reply-to.name"
    name = b"\x1aamq.rabbitmq.reply-to.name"
    assert content.with_reply_to(before, name) == with_properties(given)


@pytest.mark.parametrize("flags", range(16))
def test_further_headers_follow_the_headers_wherever_they_stand(flags: int) -> None:
    given = commands.Basic.Properties(delivery_mode=2, app_id="a")
    if flags & 1:
        given.content_type = "text/plain"
    if flags & 2:
        given.content_encoding = ""
    if flags & 4:
        given.headers = {"a": "y" * 300, "b": {"x": 1}}
    if flags & 8:
        given.priority = 9
    before = with_properties(given)
    given.headers = {**(given.headers or {}), "n": True, "o": "origin"}
    fields = b"\x01nt\x01" + b"\x01oS\0\0\0\x06origin"
    assert content.with_fields(before, fields) == with_properties(given)
