"""The origin of a forwarded message, as its content shows it."""

import pytest
from pamqp import frame, header
from pamqp.commands import Basic

from broker.adapters.formats.amqp091 import READER, ContentView
from broker.core.message_view import Origin
from broker.forwarding.staged import NONE, encoded_origin, marked, origin_fields
from protocol.amqp091.content import with_fields
from protocol.amqp091.table import encode_table


def plain(headers: dict[str, object] | None = None) -> bytes:
    properties = Basic.Properties(delivery_mode=2, correlation_id="c", headers=headers)  # type: ignore[arg-type]
    return frame.marshal(header.ContentHeader(0, 0, properties), 1)


def numbered(content: bytes, origin: str, position: int, preceding: int = NONE) -> bytes:
    """A content as a forwarding broker sends it."""
    return marked(content, origin_fields(encoded_origin(origin)), position, preceding)


def origin_of(content: bytes, origin: Origin | None = None) -> tuple[str, int, int] | None:
    origin = origin or Origin()
    found = READER.read_origin(content, origin)
    return (origin.producer, origin.position, origin.preceding) if found else None


@pytest.mark.parametrize("headers", [None, {"a": "b", "n": 1, "x-origin": "forged"}])
@pytest.mark.parametrize("preceding", [NONE, 0, 2**40])
def test_the_headers_of_a_forwarding_broker_are_found(
    headers: dict[str, object] | None, preceding: int
) -> None:
    content = numbered(plain(headers), "here/1", 2**40 + 1, preceding)
    assert origin_of(content) == ("here/1", 2**40 + 1, preceding)
    assert ContentView(content).header_named("x-origin") == "here/1"


@pytest.mark.parametrize(
    "content",
    [
        plain(),
        plain({"a": 1}),
        plain({"x-origin": 5, "x-origin-position": 6}),
        plain({"x-origin": "o", "x-origin-position": 6}),  # a number of 32 bits: no broker writes it
        with_fields(numbered(plain(), "o", 1), encode_table({"later": "s"})[4:]),
        plain({"a": numbered(plain(), "o", 1)[20:].decode("latin-1")}),  # the octets are in another value
        numbered(plain(), "o" * 256, 1),
        numbered(plain(), "ö", 1),
        numbered(plain(), "", 1),
        numbered(plain(), "o", 2**63 - 1, -5 % 2**63 - 2**63),
    ],
)
def test_other_headers_are_left_to_the_slow_search(content: bytes) -> None:
    assert origin_of(content) is None


def test_an_origin_is_read_again_for_another_message() -> None:
    origin = Origin()
    for name, position, preceding in (("a", 1, NONE), ("a", 2, 1), ("b", 7, 6), ("a", 3, NONE)):
        assert origin_of(numbered(plain(), name, position, preceding), origin) == (name, position, preceding)
    assert origin_of(plain({"x-origin": "c"}), origin) is None
    assert origin_of(numbered(plain(), "a", 4, 3), origin) == ("a", 4, 3)
