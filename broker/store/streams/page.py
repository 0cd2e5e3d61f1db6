"""The messages of a stream, as they are read from chunks and written to chunks."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.message import Address, Message
from broker.core.ports import MessageStore, StreamPage
from protocol.streams.chunk import BODY, EXCHANGE, FILTER, PROPERTIES, ROUTING_KEY, Chunk
from protocol.streams.offsets import content_at


@final
class ChunkPage(StreamPage):
    """The rows of one chunk, of a partition; NO_PARTITION: consumers get no partition number."""

    def __init__(self, chunk: Chunk, partition: i64) -> None:
        self.chunk = chunk
        self.partition = partition
        self.first = chunk.header.first
        self.behind = chunk.header.behind
        self._address = Address("", "")
        self._named = (b"", b"")

    @property
    def size(self) -> i64:
        """The bytes of the chunk."""
        return self.chunk.header.size

    def message(self, offset: i64) -> Message:
        """Return the message with an offset."""
        chunk = self.chunk
        row = offset - self.first
        named = (chunk.value(EXCHANGE, row), chunk.value(ROUTING_KEY, row))
        if named != self._named:  # most rows have the same names as the one before
            self._address = Address(named[0].decode(), named[1].decode())
            self._named = named
        body = chunk.value(BODY, row)
        content = content_at(
            int(offset), int(self.partition), chunk.kind(row), chunk.value(PROPERTIES, row), body
        )
        return Message(self._address, content, len(body), True, 0)

    def time(self, offset: i64) -> i64:
        """Return when the row was appended."""
        return self.chunk.time(offset - self.first)

    def filter_value(self, offset: i64) -> bytes:
        """Return the row's value for stream filters."""
        return self.chunk.value(FILTER, offset - self.first)


def whole_content(message: Message, store: MessageStore) -> bytes:
    """Return the content of a message, with all pieces of a large body. Raises the errors of load."""
    content = store.load(message) if message.content is None else message.content
    if message.body is None:
        return content
    pieces = message.body.pieces
    return content + b"".join([store.load(p) if p.content is None else p.content for p in pieces])
