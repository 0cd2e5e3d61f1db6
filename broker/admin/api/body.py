"""The JSON objects that requests carry, and what must be in them."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from broker.admin.api.errors import ApiError, bad_request

BYTES_MAX: Final = 64 * 2**20

Fields = Mapping[str, Any]


async def read_json(request: Request) -> Any:
    """The body; None if there is none. Raises ApiError if it is too large or no JSON."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BYTES_MAX:
            raise ApiError(413, "payload_too_large", f"a body has at most {BYTES_MAX} bytes")
        pieces.append(piece)
    content = b"".join(pieces)
    if not content.strip():
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise bad_request("not_json") from error


async def _object(request: Request) -> Fields:
    found = await read_json(request)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object")
    return found


Body = Annotated[Fields, Depends(_object)]
"""The body as a JSON object; an empty one if there is no body."""


def required(fields: Fields, name: str) -> Any:
    """A field that has to be there. Raises ApiError."""
    if name not in fields:
        raise bad_request(f"key_missing: {name}")
    return fields[name]


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A string; without a default it has to be there. Raises ApiError."""
    value = required(fields, name) if default is None else fields.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{name} is not a string: {json.dumps(value)}")
    return value


def flag(fields: Fields, name: str, default: bool = False) -> bool:
    """A boolean, also written as a string. Raises ApiError."""
    value = fields.get(name, default)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(f"{name} is not a boolean: {json.dumps(value)}")
    return value


def number(fields: Fields, name: str, default: int | None = None) -> int:
    """A whole number; without a default it has to be there. Raises ApiError."""
    value = required(fields, name) if default is None else fields.get(name, default)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"{name} is not a whole number: {json.dumps(value)}")
    return value


def table(fields: Fields, name: str) -> dict[str, Any]:
    """An object, by default empty; an empty list stands for one too [RabbitMQ]. Raises ApiError."""
    value = fields.get(name)
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} is not an object: {json.dumps(value)}")
    return dict(value)
