"""The values of field tables: type names, and their forms in refusals, in JSON and in definitions."""

from __future__ import annotations

import json
import math
from datetime import datetime
from decimal import Decimal
from typing import Final

_LONG_STRING: Final = "longstr"
_I32_MIN: Final = -(2**31)
_I32_MAX: Final = 2**31 - 1


def type_name(value: object) -> str:
    """Return the AMQP type of a value, in RabbitMQ's words.

    Integers are named by the width that they need.
    """
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if _I32_MIN <= value <= _I32_MAX else "long"
    if isinstance(value, (str, bytes)):
        return _LONG_STRING  # bytes: a string that is not UTF-8
    if isinstance(value, float):
        return "double"
    if isinstance(value, dict):
        return "table"
    if isinstance(value, (list, tuple)):
        return "array"
    return _rare_type_name(value)


def _rare_type_name(value: object) -> str:
    if isinstance(value, bytearray):
        return "binary"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, Decimal):
        return "decimal"
    return type(value).__name__


def show(value: object) -> str:
    """Return a value as refusals show it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    if value is None:
        return "undefined"
    return str(value)


def to_json(value: object) -> object:
    """Return a field value as JSON. Times are seconds since 1970.

    Octets that are not UTF-8 become escapes with backslashes.
    """
    if isinstance(value, dict):
        return {_to_text(str(name)): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return _to_text(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, int | float) else str(value)


def _to_text(value: str) -> str:
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a half of a surrogate pair that encodes no octet
        return value.encode("utf-8", "backslashreplace").decode()


def encode(value: object) -> object:
    """Return a value in a JSON form that keeps its type.

    A value without a JSON form becomes an object with one key, which names the type. A table becomes such an
    object too, so that no table can be confused with one.

    Raises:
        TypeError: field tables have no such values.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"double": str(value)}
    if isinstance(value, dict):
        return {"table": {str(name): encode(item) for name, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, bytearray):
        return {"binary": value.hex()}
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    raise TypeError(f"a field table cannot hold a {type(value).__name__}")


def decode(value: object) -> object:
    """Return the value that `encode` was given.

    Raises:
        ValueError: no output of `encode`.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"an encoded field value has one type, not {sorted(value)}")
    kind, content = next(iter(value.items()))
    if kind == "table" and isinstance(content, dict):
        return {name: decode(item) for name, item in content.items()}
    if not isinstance(content, str):
        raise ValueError(f"an encoded {kind!r} is a string")
    return _decode_scalar(kind, content)


def _decode_scalar(kind: str, content: str) -> object:
    if kind == "double":
        return float(content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "binary":
        return bytearray.fromhex(content)
    if kind == "timestamp":
        return datetime.fromisoformat(content)
    if kind == "decimal":
        return Decimal(content)
    raise ValueError(f"field values have no type {kind!r}")


def encode_table(table: dict[str, object]) -> dict[str, object]:
    """Return the table with its values in the form of `encode`."""
    return {name: encode(value) for name, value in table.items()}


def decode_table(table: object) -> dict[str, object]:
    """Return the table that `encode_table` was given.

    Raises:
        ValueError: no output of `encode_table`.
    """
    if not isinstance(table, dict):
        raise ValueError(f"an encoded table is an object, not {type(table).__name__}")
    return {str(name): decode(value) for name, value in table.items()}


def fingerprint(table: dict[str, object]) -> str:
    """Return a text that is equal for equal tables, in any order of their fields, and for no others."""
    if not table:
        return ""
    return json.dumps(encode_table(table), sort_keys=True)
