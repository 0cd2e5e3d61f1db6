"""JSON answers that can hold whatever a client has sent."""

import codecs
import json
from typing import Any, Final

from fastapi.responses import JSONResponse as PlainJSONResponse

ESCAPED: Final = "amqpd.escaped"
"""An error handler of codecs: what UTF-8 cannot spell is written with backslashes, as JSON text."""


class JSONResponse(PlainJSONResponse):
    """An answer in JSON. Half a character, as of a name that is not UTF-8, is shown as its number."""

    def render(self, content: Any) -> bytes:
        """Write `content`."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", ESCAPED)


def _escape(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end]
    return b"".join(_escaped(ord(half)) for half in halves), error.end


def _escaped(half: int) -> bytes:
    """An octet that is not UTF-8 as its number, any other half of a character as the half's."""
    return b"\\\\x%02x" % (half - 0xDC00) if 0xDC80 <= half <= 0xDCFF else b"\\\\u%04x" % half


codecs.register_error(ESCAPED, _escape)
