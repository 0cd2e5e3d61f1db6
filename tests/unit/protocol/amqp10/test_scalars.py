"""Headers and properties of messages: single values, read in place."""

import pytest

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.headers import Header, header_section
from protocol.amqp10.properties import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    SUBJECT,
    TO,
    check_properties,
    read_property,
    read_text,
    read_user_id,
)
from protocol.amqp10.sections import Sections
from tests.support.amqp10.reference_codec import compound, sized, uint

NULL = b"\x40"


def codes(data: bytes) -> list[int]:
    sections = Sections(data, 0, len(data))
    found = []
    while sections.advance():
        found.append(sections.code)
    return found


def read_header(value: bytes) -> tuple[bool, int, int, bool, int]:
    header = Header()
    header.read(b"\x41" * 5 + value, 5, 5 + len(value))
    return header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count


def test_a_header_has_defaults() -> None:
    assert read_header(b"\x45") == (False, 4, NONE, False, 0)
    assert read_header(compound(0xD0, [NULL] * 5)) == (False, 4, NONE, False, 0)
    assert read_header(compound(0xC0, [b"\x41", b"\x50\xff", uint(7), b"\x56\x01", uint(2**32 - 1)])) == (
        *(True, 255, 7, True),
        2**32 - 1,
    )


@pytest.mark.parametrize("fields", [[b"\x43"], [NULL, b"\x52\x04"], [NULL] * 6, [NULL, NULL, b"\x53\x01"]])
def test_a_header_with_fields_of_wrong_types_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(DecodeError, match="header"):
        read_header(compound(0xC0, fields))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("priority", [0, 9, 255])
@pytest.mark.parametrize("ttl", [NONE, 0, 255, 256, 2**31, 2**32 - 1])
def test_a_header_that_is_made_reads_as_it_was_meant(durable: bool, priority: int, ttl: int) -> None:
    made = header_section(durable, priority, ttl, not durable, ttl + 1 if ttl < 2**32 - 1 else 0)

    assert codes(made) == [0x70]
    assert made[5] == 5
    count = ttl + 1 if ttl < 2**32 - 1 else 0
    assert read_header(made[3:]) == (durable, priority, ttl, not durable, count)
    assert header_section(durable, NONE, ttl, False, 0)[7] == 0x40


@pytest.mark.parametrize(("ttl", "length"), [(NONE, 1), (0, 1), (1, 2), (255, 2), (256, 5), (2**32 - 1, 5)])
def test_a_number_takes_as_few_bytes_as_it_can(ttl: int, length: int) -> None:
    assert len(header_section(True, NONE, ttl, True, 0)) == 6 + 1 + 1 + length + 1 + 1


PROPERTIES = compound(
    0xC0,
    [
        *(
            b"\x98" + b"u" * 16,
            sized(0xB0, b"guest"),
            sized(0xA1, b"/queues/q"),
            sized(0xB1, "\u00fc".encode()),
        ),
        *(
            NULL,
            b"\x53\x07",
            sized(0xA3, b"text/plain"),
            NULL,
            b"\x83" + bytes(8),
            NULL,
            sized(0xA1, b"g"),
            b"\x43",
        ),
    ],
)


def test_properties_are_found_by_their_places() -> None:
    end = len(PROPERTIES)
    check_properties(PROPERTIES, 0, end)

    assert read_property(PROPERTIES, 0, end, MESSAGE_ID) == b"\x98" + b"u" * 16
    assert read_property(PROPERTIES, 0, end, CORRELATION_ID) == b"\x53\x07"
    assert read_property(PROPERTIES, 0, end, REPLY_TO) is None
    assert read_property(PROPERTIES, 0, end, 12) is None
    assert read_user_id(PROPERTIES, 0, end) == b"guest"
    assert read_text(PROPERTIES, 0, end, TO) == "/queues/q"
    assert read_text(PROPERTIES, 0, end, SUBJECT) == "\u00fc"
    assert read_text(PROPERTIES, 0, end, CONTENT_TYPE) == "text/plain"
    assert read_text(PROPERTIES, 0, end, GROUP_ID) == "g"
    assert read_text(PROPERTIES, 0, end, 12) is None
    assert read_user_id(b"\x45", 0, 1) is None


def test_bytes_behind_a_property_are_not_read() -> None:
    value = compound(0xC0, [NULL, NULL, sized(0xA1, b"to"), b"\x57"])

    assert read_text(value, 0, len(value), TO) == "to"
    with pytest.raises(DecodeError, match=r"properties.subject: constructor 0x57"):
        check_properties(value, 0, len(value))


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, b"\x43", "message-id: constructor 0x43"),
        (0, sized(0xA3, b"x"), "message-id: constructor 0xa3"),
        (1, sized(0xA1, b"x"), "user-id: constructor"),
        (2, sized(0xA3, b"x"), "to: constructor"),
        (6, sized(0xA1, b"x"), "content-type: constructor"),
        (8, b"\x80" + bytes(8), "absolute-expiry-time: constructor"),
        (11, b"\x53\x01", "group-sequence: constructor"),
        (12, b"\xa1\x05x", "reply-to-group-id is truncated"),
    ],
)
def test_properties_of_other_types_are_refused_by_name(place: int, value: bytes, reason: str) -> None:
    data = compound(0xC0, [NULL] * place + [value])
    with pytest.raises(DecodeError, match=f"properties.{reason}"):
        check_properties(data, 0, len(data))


def test_text_that_is_no_text_is_refused() -> None:
    data = compound(0xC0, [b"\x53\x01", NULL, b"\xa1\x01\xff"])
    with pytest.raises(DecodeError, match=r"properties.to is not valid UTF-8"):
        read_text(data, 0, len(data), TO)
    with pytest.raises(DecodeError, match=r"properties.message-id"):
        read_text(data, 0, len(data), MESSAGE_ID)
