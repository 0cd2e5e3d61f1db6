"""The bodies of requests: JSON objects, of a length that can be read in one go."""

from typing import Annotated, Final

from fastapi import Depends, Request

from broker.admin.api.errors import ApiError, bad_request
from broker.admin.fields import Fields
from broker.admin.json_reading import JsonError, read_json

BYTES_MAX: Final = 256 * 2**10  # it is read in one go
OF_MESSAGES_MAX: Final = 2 * 2**20


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
