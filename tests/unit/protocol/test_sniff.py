"""The protocol and the user of a peer, from its first bytes."""

import pytest
from pamqp import encode

from protocol import sasl
from protocol.errors import SYNTAX_ERROR, ProtocolError
from protocol.sniff import AMQP_0_9_1, sniff


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (AMQP_0_9_1, "amqp-0-9-1"),
        (AMQP_0_9_1 + b"\1\0\0", "amqp-0-9-1"),
        (b"AMQP\x01\x01\x00\x09", "amqp-0-9-1"),
        (b"AMQP\x00\x01\x00\x00", "amqp-1.0"),
        (b"AMQP\x03\x01\x00\x00", "amqp-1.0-sasl"),
        (b"AMQP\x02\x01\x00\x00", "amqp"),
        (b"\x16\x03\x01\x02\x00", "tls"),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"POST /", "http"),
        (b"AMQX", "unknown"),
        (b"\x00", "unknown"),
        (b"amqp\x00\x00\x09\x01", "unknown"),
    ],
)
def test_protocols_of_the_first_bytes(start: bytes, kind: str) -> None:
    assert sniff(start) == kind


@pytest.mark.parametrize("length", range(8))
def test_a_header_that_is_not_whole_yet(length: int) -> None:
    assert sniff(AMQP_0_9_1[:length]) == "more"


READERS = {"PLAIN": sasl.plain, "AMQPLAIN": sasl.amqplain}


def amqplain(table: dict[str, object]) -> bytes:
    return encode.field_table(table)[4:]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0s\xc3\xa9cret"),
        ("PLAIN", b"guest\0guest\0s\xc3\xa9cret"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": "s\u00e9cret"})),
        ("AMQPLAIN", amqplain({"PASSWORD": "s\u00e9cret", "more": 1, "LOGIN": "guest"})),
    ],
)
def test_user_and_password(mechanism: str, response: bytes) -> None:
    assert READERS[mechanism](response) == ("guest", "s\u00e9cret")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"guest\0guest"),
        ("PLAIN", b"\0a\0b\0c"),
        ("PLAIN", b"somebody\0guest\0secret"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\5LOGIN"),
        ("AMQPLAIN", b"\5LOGINS\0\0\0\7guest"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest"})),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": 1})),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": bytearray(b"x")})),
        ("AMQPLAIN", b"\1aF\0\0\0\0" * 10 + b"\1aA\xff\xff\xff\xff"),
    ],
)
def test_malformed_responses(mechanism: str, response: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        READERS[mechanism](response)
    assert refused.value.code == SYNTAX_ERROR
