"""Recognise a peer's protocol by its first bytes. [amqp-0-9-1 4.2.2, amqp-1.0 2.2]"""

from typing import Final

HEADER_BYTES: Final = 8
AMQP_0_9_1: Final = b"AMQP\x00\x00\x09\x01"
AMQP_1_0: Final = b"AMQP\x00\x01\x00\x00"
AMQP_1_0_SASL: Final = b"AMQP\x03\x01\x00\x00"

_PREFIX: Final = b"AMQP"
_KINDS: Final = {
    AMQP_0_9_1: "amqp-0-9-1",
    b"AMQP\x01\x01\x00\x09": "amqp-0-9-1",  # the header of clients of 0-9
    AMQP_1_0: "amqp-1.0",
    AMQP_1_0_SASL: "amqp-1.0-sasl",
}


def sniff(start: bytes) -> str:
    """Name the protocol of a connection's first bytes.

    Returns "amqp-0-9-1", "amqp-1.0" or "amqp-1.0-sasl"; "more" while fewer than 8 bytes do not decide. Other
    results are "amqp" (a version that is not supported), "tls", "http" and "unknown".
    """
    head = start[:HEADER_BYTES]
    if head in _KINDS:
        return _KINDS[head]
    if len(head) < HEADER_BYTES and (_PREFIX.startswith(head) or head.startswith(_PREFIX)):
        return "more"
    if head.startswith(_PREFIX):
        return "amqp"
    if head[:2] == b"\x16\x03":
        return "tls"
    if head[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD"):
        return "http"
    return "unknown"
