"""The JSON objects that requests carry, and what must be in them."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from broker.admin.api.errors import ApiError, bad_request
from broker.admin.json_reading import JsonError, read_json

BYTES_MAX: Final = 256 * 2**10  # it is read in one go
OF_MESSAGES_MAX: Final = 2 * 2**20

Fields = Mapping[str, Any]


async def read_body(request: Request, most: int) -> bytes:
    """The body. Raises ApiError if it has more than `most` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise ApiError(413, "payload_too_large", f"a body has at most {most} bytes here")
        pieces.append(piece)
    return b"".join(pieces)


async def _object(request: Request, most: int) -> Fields:
    content = await read_body(request, most)
    if not content or content.isspace():
        return {}
    try:
        found = read_json(content)
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object")
    return found


async def _body(request: Request) -> Fields:
    return await _object(request, BYTES_MAX)


async def _message(request: Request) -> Fields:
    return await _object(request, OF_MESSAGES_MAX)


Body = Annotated[Fields, Depends(_body)]
"""The body as a JSON object; an empty one if there is no body."""

MessageBody = Annotated[Fields, Depends(_message)]
"""The same, and it may be as long as messages are."""


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
