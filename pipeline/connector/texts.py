"""Values of AMQP as text: scalars as they are written, all else as JSON."""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from protocol.amqp10.types import Array, Described, Map
from protocol.amqp10.types import Decimal as OpaqueDecimal


def text_of(value: object) -> str | None:
    """A value of a header."""
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
    """Any value as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """What JSON has: what it has not is text, or what a described value is of, or pairs."""
    if isinstance(value, dict):
        return {text_of(key) or "null": _plain(each) for key, each in value.items()}
    if isinstance(value, Map):
        return {text_of(key) or "null": _plain(each) for key, each in value.pairs}
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
    return text_of(value)


def _octets(value: bytes) -> str:
    """Text if it is UTF-8, else Base64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
