"""Convert single properties of AMQP 0-9-1 to properties of AMQP 1.0. [amqp-0-9-1 1.8, amqp-1.0 3.2.4]"""

from typing import Final
from uuid import UUID

from mypy_extensions import i64

from protocol.amqp091 import properties as basic
from protocol.amqp10 import properties as p
from protocol.amqp10.addresses import queue_address
from protocol.amqp10.constructors import BINARY8, BINARY32, STRING8, STRING32, SYMBOL8, SYMBOL32
from protocol.amqp10.writing import sized
from protocol.conversion.octets import is_text
from protocol.conversion.values import milliseconds

ABSENT: Final = -1
_URN: Final = b"urn:uuid:"
_URN_BYTES: Final = 45
_BASIC: Final[dict[int, int]] = {
    p.MESSAGE_ID: basic.MESSAGE_ID,
    p.USER_ID: basic.USER_ID,
    p.REPLY_TO: basic.REPLY_TO,
    p.CORRELATION_ID: basic.CORRELATION_ID,
    p.CONTENT_TYPE: basic.CONTENT_TYPE,
    p.CONTENT_ENCODING: basic.CONTENT_ENCODING,
    p.CREATION_TIME: basic.TIMESTAMP,
    p.GROUP_ID: basic.APP_ID,
}


def _sources() -> list[int]:
    return [_BASIC.get(place, ABSENT) for place in range(len(p.NAMES))]


SOURCES: Final[list[int]] = _sources()
"""The places of the properties of AMQP 0-9-1 that become the properties of AMQP 1.0; NOT_THERE for none."""


def property10(place: i64, raw: bytes) -> bytes | None:
    """Return the encoded property of AMQP 1.0 at `place` for a property of AMQP 0-9-1; None if there is none.

    `raw`: the content of the short string, or the eight octets of the timestamp.
    """
    if place == p.MESSAGE_ID or place == p.CORRELATION_ID:
        return _id(raw)
    if place == p.USER_ID:
        return sized(raw, BINARY8, BINARY32)
    if place == p.CREATION_TIME:
        return milliseconds(raw)
    if place == p.CONTENT_TYPE or place == p.CONTENT_ENCODING:
        return sized(raw, SYMBOL8, SYMBOL32) if raw.isascii() else None
    if not is_text(raw):
        return None
    if place == p.REPLY_TO:
        raw = queue_address(raw.decode()).encode()
    return sized(raw, STRING8, STRING32)


def _id(raw: bytes) -> bytes:
    if not is_text(raw):
        return sized(raw, BINARY8, BINARY32)
    if len(raw) == _URN_BYTES and raw.startswith(_URN):
        text = raw[len(_URN) :].decode()
        try:
            uuid = UUID(text)
        except ValueError:
            return sized(raw, STRING8, STRING32)
        if str(uuid) == text:  # else the conversion back to AMQP 0-9-1 would change the text
            return b"\x98" + uuid.bytes
    return sized(raw, STRING8, STRING32)
