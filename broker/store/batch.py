"""The batch that is being filled: records in one buffer, and where they will lie in which segment."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i64

from broker.core.message import Body, Message
from broker.core.ports import LoggedQueue, StoredStream
from broker.store.definition_text import encode_json
from broker.store.format import (
    ANNOTATED,
    BLANK,
    CHECKPOINT,
    CLOSED,
    COUNT,
    DATED,
    DEFINITION,
    DELIVERED,
    DIED,
    HEADER_BYTES,
    LARGE,
    MANY,
    MARKS,
    MESSAGE,
    REMOVED,
    SETTLE,
    STREAM,
    encode_header,
)
from broker.store.segment import Segment


@final
class Burial:
    """In a batch that is not durable yet: `queue` no longer holds `message`, and others hold `letter`.

    `replaced`: it is `queue` that holds the letter, in the place of the message.
    """

    def __init__(self, letter: Message, message: Message, queue: LoggedQueue, replaced: bool) -> None:
        self.letter = letter
        self.message = message
        self.queue = queue
        self.replaced = replaced
        self.references: i64 = 0  # of the letter, when the batch fails; of this queue if it has replaced

    def count(self, settled: list[int]) -> None:
        """The batch has failed; these queues have let go of the letter, unless all have."""
        self.references = self.letter.references
        if self.replaced and self.references > 0:
            self.references = 0 if self.queue.deleted or self.queue.number in settled else 1


def encode_queues(numbers: list[int]) -> bytes:
    """How many queues and their numbers, as a message record has them. No queues: the message is a piece."""
    count = len(numbers)
    head = MANY.to_bytes(2, "big") + count.to_bytes(4, "big") if count >= MANY else count.to_bytes(2, "big")
    return b"".join([head, *[number.to_bytes(8, "big") for number in numbers]])


class WrittenChunk:
    """The place of a chunk that has been written; `broker.store.streams.files` extends this class."""

    @property
    def fd(self) -> int:
        """The descriptor of the chunk's file."""
        raise NotImplementedError

    @property
    def is_entry_synced(self) -> bool:
        """Whether the name of the file is on disk."""
        raise NotImplementedError


@final
class Batch:
    """Records that become durable together or not at all.

    A batch's place is known from its first record on, because the one before it has already been sealed:
    that is how a message knows at once where its content will be.
    """

    def __init__(self, number: i64, segment: Segment, first_sequence: i64, writer: BytesWriter) -> None:
        self.number = number
        self.segment = segment
        self.offset: i64 = segment.end  # of the header in the file
        self.first_sequence = first_sequence
        self.writer = writer
        self.count: i64 = 0
        self.moved: list[Move] = []
        # what is settled if the rest of the batch becomes durable, and only then; and on which queue
        self.last_words: list[tuple[Message, int]] = []
        self.burials: list[Burial] = []
        self.streams: list[StoredStream] = []  # that have rows for it,
        self.stream_bytes: i64 = 0  # and about how long these are together
        self.chunks: list[tuple[StoredStream, bytes]] = []  # once sealed: what they are
        self.appended: list[tuple[StoredStream, WrittenChunk]] = []  # and where they have been written
        self.dead_streams: list[StoredStream] = []  # that go with it,
        self.dead_files: list[str] = []  # and files of others
        self.spoken: i64 = 0  # once sealed: length of the records before these
        self.end: i64 = 0  # once sealed: where the next one begins,
        self.header = b""
        self.payload = b""

    def parts(self) -> list[bytes]:
        """What to write, once sealed: never more than the batch needs where room on the disk is not sure."""
        room = self.segment.room - self.end
        return [self.header, self.payload, BLANK[:room]] if room > 0 else [self.header, self.payload]

    def chunk_files(self) -> list[int]:
        """The files that chunks have been written to."""
        return [appended.fd for _, appended in self.appended]

    def has_new_files(self) -> bool:
        """Whether one of them has a name that is not on disk yet."""
        return any(not appended.is_entry_synced for _, appended in self.appended)

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.count == 0 and not self.last_words and not self.streams

    def add_last_words(self) -> None:
        """Append what transactions settle, and what has been dead-lettered.

        It comes last: until the batch is durable these messages are copied forward as if they were not
        settled, and a copy is to be believed more than a settle before it.
        """
        self.spoken = len(self.writer)
        segment = self.segment
        for message, queue in self.last_words:
            if message.sequence == 0:
                continue
            self.add_settle(message.sequence, queue)
            if message.segment != segment.number:
                segment.settles += 1
                segment.needs.add(message.segment)
        self.last_words = []

    def seal(self, identity: int) -> None:
        """Fix what has been appended as `header` and `payload`."""
        self.add_last_words()
        self.payload = self.writer.getvalue()
        self.end = self.offset + HEADER_BYTES + len(self.payload)
        self.header = encode_header(
            identity,
            self.number,
            self.first_sequence,
            self.count,
            self.payload,
            self.segment.number,
            self.offset,
        )

    def add_message(self, message: Message, content: bytes, destination: bytes) -> None:
        """Append an enqueue, or a copy; the message has its sequence.

        `destination`: the queues (`encode_queues`) and the encoded address.
        """
        writer = self.writer
        self.count += 1
        if message.body is not None:
            self._name_pieces(message.body)
        if message.date == 0:
            writer.append(MESSAGE)
        else:
            writer.append(DATED)
            write_i64_be(writer, message.date)
            write_i64_be(writer, message.expiration)
            writer.append(message.marks & MARKS | (DIED if message.died else 0))
        write_i64_be(writer, message.sequence)
        writer.append(message.priority)
        writer.write(destination)
        length = len(content)
        write_i64_be(writer, message.size << 32 | length)
        message.offset = self.offset + HEADER_BYTES + len(writer)
        message.length = length
        writer.write(content)

    def _name_pieces(self, body: Body) -> None:
        writer = self.writer
        writer.append(LARGE)
        write_i32_be(writer, len(body.pieces))
        for piece in body.pieces:
            write_i64_be(writer, piece.sequence)

    def add_settle(self, sequence: i64, queue: i64) -> None:
        """Append that the queue no longer holds the message."""
        writer = self.writer
        self.count += 1
        writer.append(SETTLE)
        write_i64_be(writer, sequence)
        write_i64_be(writer, queue)

    def add_delivered(self, sequence: i64, queue: i64) -> None:
        """Append that a consumer has seen the message."""
        writer = self.writer
        self.count += 1
        writer.append(DELIVERED)
        write_i64_be(writer, sequence)
        write_i64_be(writer, queue)

    def add_count(self, sequence: i64, queue: i64, count: i64, annotations: bytes) -> None:
        """Append that the queue has given out the message `count` times, and what has been added to it."""
        writer = self.writer
        self.count += 1
        writer.append(ANNOTATED if annotations else COUNT)
        write_i64_be(writer, sequence)
        write_i64_be(writer, queue)
        write_i64_be(writer, count)
        if annotations:
            write_i32_be(writer, len(annotations))
            writer.write(annotations)

    def add_stream(self, queue: i64, first: i64, behind: i64, rows: i64, checksum: int) -> None:
        """Append which rows a stream has, the last `rows` of them with this batch in chunks with this sum."""
        writer = self.writer
        self.count += 1
        writer.append(STREAM)
        write_i64_be(writer, queue)
        write_i64_be(writer, first)
        write_i64_be(writer, behind)
        write_i64_be(writer, rows)
        writer.write(checksum.to_bytes(4, "big"))

    def add_definition(self, change: bytes) -> None:
        """Append a change of the topology, in JSON."""
        self._text(DEFINITION, [change])

    def add_checkpoint(self, segments: list[list[int]], definitions: bytes) -> None:
        """Append what a segment begins with; `definitions`: the elements of a list in JSON."""
        start = b'{"segments":%s,"definitions":[' % encode_json(segments)
        self._text(CHECKPOINT, [start, definitions, b"]}"])

    def _text(self, kind: i64, parts: list[bytes]) -> None:
        writer = self.writer
        self.count += 1
        writer.append(kind)
        write_i32_be(writer, sum([len(part) for part in parts]))
        for part in parts:
            writer.write(part)

    def add_removed(self, segment: i64) -> None:
        """Append that a segment's file is to be ignored."""
        self.count += 1
        self.writer.append(REMOVED)
        write_i64_be(self.writer, segment)

    def add_closed(self) -> None:
        """Append the mark of a clean stop."""
        self.count += 1
        self.writer.append(CLOSED)


@final
class Move:
    """A message that was copied forward in a batch that is not durable yet, and where it was."""

    def __init__(self, message: Message, segment: Segment, offset: i64) -> None:
        self.message = message
        self.segment = segment
        self.offset = offset
