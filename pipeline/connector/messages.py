"""Single messages: properties, headers, and the bodies of AMQP 1.0."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from pipeline.connector.schema import OCTETS, PLACES, TEXTS, TIMESTAMP
from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body as body_of
from protocol.amqp091.properties import Properties
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.decoding import decode
from protocol.amqp10.descriptors import AMQP_VALUE, PROPERTIES
from protocol.amqp10.properties import SUBJECT, read_text
from protocol.amqp10.sections import Sections
from protocol.amqp10.types import Array, Described, Map
from protocol.amqp10.types import Decimal as OpaqueDecimal
from protocol.conversion.names import ENCODED_BODY
from protocol.conversion.to091 import content091
from protocol.errors import ProtocolError
from protocol.streams.chunk import SECTIONS
from protocol.streams.rows import content_of

JSON: Final = "application/json"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = (
    253402300799  # the end of the year 9999 in seconds; larger numbers are ms, as some clients write
)


def header_text(value: object) -> str | None:
    """Return a value of a header as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return _octets(bytes(value))
    if isinstance(value, int | float | Decimal | UUID):
        return str(value)
    if isinstance(value, OpaqueDecimal):
        return value.raw.hex()
    return json_text(value)


def json_text(value: object) -> str:
    """Return any value as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """Return the value in the types of JSON; other scalars become text, a described value its content."""
    if isinstance(value, dict):
        return {header_text(key) or "null": _plain(each) for key, each in value.items()}
    if isinstance(value, Map):
        return {header_text(key) or "null": _plain(each) for key, each in value.pairs}
    if isinstance(value, Array):
        return [_plain(each) for each in value.items]
    if isinstance(value, Described):
        return _plain(value.value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return header_text(value)


def _octets(value: bytes) -> str:
    """Return octets as text if they are UTF-8, otherwise in Base64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


class Message(NamedTuple):
    """A message; `properties` and `headers` are None if the query does not read them."""

    body: bytes
    properties: dict[str, Any] | None
    headers: dict[str, str | None] | None
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False


class Details(NamedTuple):
    """The parts of messages that a query reads beside the bodies."""

    properties: bool
    headers: bool

    def read(self, kind: int, properties: bytes, body: bytes) -> Message:
        """Return the message in a row of a chunk."""
        if kind == SECTIONS:
            content = content091(content_of(kind, properties, body), value_as_text=True)
            message = Properties(content)
            payload = body_of(content)
            is_encoded = message.octets(basic.TYPE) == ENCODED_BODY
            if is_encoded:
                payload = _as_json(payload)
            columns = None
            if self.properties:
                columns = _properties(message) | {"type": _subject(properties)}
                if is_encoded:
                    columns["content_type"] = JSON
            return Message(payload, columns, _headers(message) if self.headers else None)
        columns, headers = _decode_properties(properties, self.properties, self.headers)
        return Message(body, columns, headers)


@lru_cache(maxsize=256)
def _decode_properties(
    properties: bytes, wants_properties: bool, wants_headers: bool
) -> tuple[dict[str, Any] | None, dict[str, str | None] | None]:
    """Return the columns `properties` and `headers` of a property list; many messages share a list."""
    message = Properties(content_of(0, properties, b""))
    return _properties(message) if wants_properties else None, _headers(message) if wants_headers else None


def _properties(found: Properties) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, index in TEXTS.items():
        octets = found.octets(index)
        columns[name] = None if octets is None else octets.decode(errors="replace")
    for name, index in OCTETS.items():
        columns[name] = found.number(index)
    seconds = found.number(PLACES[TIMESTAMP])
    columns[TIMESTAMP] = None if seconds is None else parse_timestamp(seconds)
    return columns


def parse_timestamp(number: int) -> datetime | None:
    """Return the time of a timestamp in seconds or milliseconds; None: out of range.

    Some clients write milliseconds.
    """
    milliseconds = number if number > LAST else number * 1000
    return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds <= LAST * 1000 else None


def _headers(found: Properties) -> dict[str, str | None] | None:
    try:
        headers = found.headers()
    except ProtocolError:  # the broker has accepted the message, and no publisher can be notified here
        return None
    return {name: header_text(value) for name, value in headers.items()}


def _subject(sections: bytes) -> str | None:
    """Return the subject of a message of AMQP 1.0, the counterpart of `type` in AMQP 0-9-1."""
    parts = Sections(sections, 0, len(sections))
    try:
        while parts.advance():
            if parts.code == PROPERTIES:
                return read_text(sections, parts.value, parts.end, SUBJECT)
    except DecodeError:  # the broker has accepted the message, and no publisher can be notified here
        return None
    return None


def _as_json(sections: bytes) -> bytes:
    """Return amqp-value or amqp-sequence sections as JSON: a value or a list. [amqp-1.0 3.2.7]"""
    parts = Sections(sections, 0, len(sections))
    elements: list[object] = []
    try:
        while parts.advance():
            value, _ = decode(sections, parts.value, parts.end)
            if parts.code == AMQP_VALUE:
                return json_text(value).encode()
            if isinstance(value, list):
                elements += value
    except DecodeError:
        return sections
    return json_text(elements).encode()
