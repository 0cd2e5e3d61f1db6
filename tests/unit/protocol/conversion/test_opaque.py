"""Payloads of unknown message formats, and the sections that they are kept as."""

import pytest

from protocol.amqp10.sections import scan
from protocol.amqp10.types import Uint
from protocol.conversion.opaque import enclose_payload, format_of, payload_of
from tests.support.amqp10.contents import BODY, content10


@pytest.mark.parametrize("size", [0, 1, 255, 256, 100_000])
@pytest.mark.parametrize("number", [1, 0x80013700, 0xFFFFFFFF])
def test_a_payload_is_restored_with_its_message_format(size: int, number: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    content = enclose_payload(payload, number)
    layout = scan(content, 0, len(content))
    assert format_of(content, layout) == number
    assert payload_of(content, layout) == payload


@pytest.mark.parametrize(
    ("annotations", "body"),
    [
        ({"other": Uint(1)}, BODY),
        ({"other": "x-basic-format"}, BODY),
        ({"x-basic-format": "1"}, BODY),
        ({"x-basic-format": Uint(2**31)}, BODY + BODY),
        ({"x-basic-format": Uint(2**31)}, b"\0Sw\x40"),
        ({"x-basic-format": Uint(2**31)}, b""),
    ],
)
def test_messages_of_other_annotations_or_bodies_are_not_opaque(
    annotations: dict[str, object], body: bytes
) -> None:
    content = content10(annotations, body=body)
    assert format_of(content, scan(content, 0, len(content))) == 0
