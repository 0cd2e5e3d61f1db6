"""What bodies hold: named fields, and the arguments among them, which are kept as 0-9-1 has them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from broker.adapters.amqp10.header_values import NOTHING, simple_value
from broker.adapters.amqp10.management.refusal import BAD_REQUEST, Refused
from broker.core.names import is_short
from protocol.amqp10 import types

_I64_MAX: Final = 2**63 - 1
_DECIMAL128: Final = 0x94
_DECIMAL128_BIAS: Final = 6176
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

Fields = dict[str, object]


def fields_of(body: object, what: str, known: Collection[str]) -> Fields:
    """The fields of a body, which must be a map of `known` ones; `what` says whose. Raises Refused."""
    if not isinstance(body, dict):
        raise Refused(BAD_REQUEST, f"the body is not a map of the properties of the {what}, each once")
    fields: Fields = {}
    for name, value in body.items():
        if not isinstance(name, str) or name not in known:
            raise Refused(BAD_REQUEST, f"bad {what} property '{name}', known are {', '.join(known)}")
        fields[str(name)] = value
    return fields


def flag(fields: Fields, name: str, default: bool) -> bool:
    """A boolean out of a body. Raises Refused."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise Refused(BAD_REQUEST, f"property '{name}' is not a boolean")
    return value


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A string out of a body. Raises Refused, also if it is missing and there is no `default`."""
    value = fields.get(name, default)
    if value is None and name not in fields:
        raise Refused(BAD_REQUEST, f"property '{name}' is missing")
    if not isinstance(value, str):
        raise Refused(BAD_REQUEST, f"property '{name}' is not a string")
    return str(value)


def arguments(fields: Fields) -> Fields:
    """The arguments in a body as a field table. Raises Refused for what no field table can hold."""
    given = fields.get("arguments", {})
    if not isinstance(given, dict):
        raise Refused(BAD_REQUEST, "property 'arguments' is not a map with each name once")
    return {_name(name): _field(str(name), value) for name, value in given.items()}


def shown_arguments(table: Fields) -> dict[object, object]:
    """A field table as a map of AMQP 1.0."""
    return {name: _shown(value) for name, value in table.items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_short(name):
        raise Refused(BAD_REQUEST, f"argument '{name}' has no name that is a string of at most 255 bytes")
    return str(name)


def _field(argument: str, value: object) -> object:
    """A value as field tables have it; `argument` is where it stands."""
    if isinstance(value, list):
        return [_field(argument, item) for item in value]
    if isinstance(value, types.Array) and not value.descriptors and value.count == len(value.items):
        return [_field(argument, item) for item in value.items]
    if isinstance(value, dict):
        return {_name(name): _field(argument, item) for name, item in value.items()}
    simple = simple_value(value)
    if simple is NOTHING or (isinstance(simple, int) and simple > _I64_MAX):
        raise Refused(BAD_REQUEST, f"argument '{argument}' has a value that no argument can have")
    return simple


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, datetime):
        return types.Timestamp((value - _EPOCH) // _MILLISECOND)
    if isinstance(value, Decimal):
        return _decimal128(value)
    return value


def _decimal128(value: Decimal) -> types.Decimal:
    """A decimal of a field table, which has neither a sign nor more than 32 bits of digits. [IEEE 754]"""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "field tables have no decimals that are none"
    significand = int("".join(map(str, digits)))
    raw = (_DECIMAL128_BIAS + exponent << 113 | significand).to_bytes(16, "big")
    return types.Decimal(_DECIMAL128, raw)
