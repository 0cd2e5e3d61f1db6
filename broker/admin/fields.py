"""The fields of JSON objects that others wrote: held to their types, and named if they are of another one.

Each function raises PreconditionFailed. A field that is null is absent.
"""

import json
from collections.abc import Mapping
from typing import Any

from broker.core.errors import PreconditionFailed

Fields = Mapping[str, Any]


def required(fields: Fields, name: str) -> Any:
    """A field that has to be there; it may be null."""
    if name not in fields:
        raise PreconditionFailed(f"'{name}' is missing")
    return fields[name]


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A string; without a default it has to be there."""
    value = _value(fields, name, default)
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    return value


def flag(fields: Fields, name: str, default: bool = False) -> bool:
    """A boolean, also written as a string."""
    value = _value(fields, name, default)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise _wrong(name, "a boolean", value)
    return value


def number(fields: Fields, name: str) -> int:
    """A whole number, also written as a string; it has to be there."""
    value = _value(fields, name, None)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "a whole number", value)
    return value


def table(fields: Fields, name: str) -> dict[str, Any]:
    """An object, by default empty; an empty list stands for one too. [RabbitMQ]"""
    value = fields.get(name)
    if value is None or value == []:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(name, "an object", value)
    return dict(value)


def tags_of(fields: Fields) -> tuple[str, ...]:
    """The tags: a list or, as RabbitMQ had them before 3.9, a string with commas between them."""
    value = _value(fields, "tags", "")
    if isinstance(value, str):
        return tuple(tag.strip() for tag in value.split(",") if tag.strip())
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise _wrong("tags", "a list of strings", value)
    return tuple(value)


def _value(fields: Fields, name: str, default: Any) -> Any:
    value = fields.get(name)
    if value is None and default is None:
        raise PreconditionFailed(f"'{name}' is missing")
    return default if value is None else value


def _wrong(name: str, wanted: str, value: Any) -> PreconditionFailed:
    return PreconditionFailed(f"'{name}' is not {wanted}: {json.dumps(value)}")
