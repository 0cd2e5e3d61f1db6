"""The properties of a content header, read and changed value by value. [amqp-0-9-1 4.2.6.1]

Values are kept as they were sent. Unchanged values are written byte for byte, including duplicate keys and
types of integers.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.amqp091.content import HEADER_PREFIX_BYTES, header_frame_bytes
from protocol.amqp091.fields import Reader
from protocol.errors import SYNTAX_ERROR, ProtocolError

CONTENT_TYPE: Final = 0
CONTENT_ENCODING: Final = 1
HEADERS: Final = 2
DELIVERY_MODE: Final = 3
PRIORITY: Final = 4
CORRELATION_ID: Final = 5
REPLY_TO: Final = 6
EXPIRATION: Final = 7
MESSAGE_ID: Final = 8
TIMESTAMP: Final = 9
TYPE: Final = 10
USER_ID: Final = 11
APP_ID: Final = 12
CLUSTER_ID: Final = 13
_COUNT: Final = 14

TEXTS: Final = {
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "type": TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "cluster_id": CLUSTER_ID,
}
"""The properties that are short strings, by name."""

NUMBERS: Final = {"delivery_mode": DELIVERY_MODE, "priority": PRIORITY, "timestamp": TIMESTAMP}
"""The properties that are numbers, by name."""

NUMBER_BYTES: Final = {DELIVERY_MODE: 1, PRIORITY: 1, TIMESTAMP: 8}

_FRAME: Final = struct.Struct(">BHI")

Field = tuple[bytes, bytes]
"""The encoded name and value of a header: the value begins with the octet of its type."""


class Properties:
    """The property list of a content, made from its header frame. `original` is the content.

    Raises ProtocolError(SYNTAX_ERROR) where a value does not decode; `content.scan` has checked the list.
    """

    def __init__(self, content: bytes) -> None:
        self.original = content
        self._values: list[bytes | None] = [None] * _COUNT
        reader = Reader(content, HEADER_PREFIX_BYTES)
        try:
            flags = int.from_bytes(reader.take(2), "big")
            for index in range(_COUNT):
                if flags & 1 << (15 - index):
                    self._values[index] = self._take(reader, index)
        except ValueError as e:
            raise ProtocolError(SYNTAX_ERROR, f"malformed content header: {e}") from e

    def _take(self, reader: Reader, index: int) -> bytes:
        start = reader.position
        if index == HEADERS:
            size = 4 + int.from_bytes(reader.take(4), "big")
        elif index in NUMBER_BYTES:
            size = NUMBER_BYTES[index]
        else:
            size = 1 + reader.take(1)[0]
        reader.position = start
        return reader.take(size)

    def text(self, index: int) -> str:
        """Return a property that is a short string, "" if absent. Raises ProtocolError if it is not UTF-8."""
        value = self._values[index]
        if value is None:
            return ""
        try:
            return value[1:].decode()
        except UnicodeDecodeError as e:
            raise ProtocolError(
                SYNTAX_ERROR, f"a property of the content header is not valid UTF-8 at byte {e.start}"
            ) from e

    def octets(self, index: int) -> bytes | None:
        """Return the bytes of a property that is a short string, None if absent."""
        value = self._values[index]
        return None if value is None else value[1:]

    def number(self, index: int) -> int | None:
        """Return the delivery mode, the priority or the timestamp in seconds; None if absent."""
        value = self._values[index]
        return None if value is None else int.from_bytes(value, "big")

    def drop(self, index: int) -> None:
        """Remove a property."""
        self._values[index] = None

    def put(self, index: int, value: bytes) -> None:
        """Set a property to an encoded value."""
        self._values[index] = value

    def adopt(self, other: Properties, index: int) -> None:
        """Copy a property from another list, or remove the property if the other list lacks it."""
        self._values[index] = other._values[index]

    def headers(self) -> dict[str, object]:
        """Return the decoded headers; the last of several with the same name counts. Raises ProtocolError."""
        value = self._values[HEADERS]
        if value is None:
            return {}
        try:
            return Reader(value).table()
        except ValueError as e:
            raise ProtocolError(SYNTAX_ERROR, f"malformed headers: {e}") from e

    def fields(self) -> list[Field]:
        """Return the encoded headers in the order of the table. Raises ProtocolError."""
        value = self._values[HEADERS]
        fields: list[Field] = []
        if value is None:
            return fields
        reader = Reader(value, 4)
        try:
            while reader.position < reader.end:
                name = reader.take(reader.take(1)[0])
                start = reader.position
                reader.skip_value()
                fields.append((name, value[start : reader.position]))
        except ValueError as e:
            raise ProtocolError(SYNTAX_ERROR, f"malformed headers: {e}") from e
        return fields

    def set_table(self, table: bytes) -> None:
        """Replace the headers by an encoded table with its length."""
        self._values[HEADERS] = table

    def set_fields(self, fields: list[Field]) -> None:
        """Replace the headers. An empty list removes the property."""
        if not fields:
            self._values[HEADERS] = None
            return
        table = b"".join([bytes([len(name)]) + name + value for name, value in fields])
        self._values[HEADERS] = len(table).to_bytes(4, "big") + table

    def content(self) -> bytes:
        """Return the content with these properties and the original body frames."""
        flags = 0
        for index, value in enumerate(self._values):
            if value is not None:
                flags |= 1 << (15 - index)
        content = self.original
        values = b"".join([value for value in self._values if value is not None])
        kind, channel, _ = _FRAME.unpack_from(content)
        head = _FRAME.pack(kind, channel, HEADER_PREFIX_BYTES - _FRAME.size + 2 + len(values))
        rest = content[header_frame_bytes(content) - 1 :]  # the frame end octet and the body
        return b"".join(
            (head, content[_FRAME.size : HEADER_PREFIX_BYTES], flags.to_bytes(2, "big"), values, rest)
        )
