"""The batch being filled: records in one buffer, with their future places in the segment file."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i64, u8

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
class LetteredRemoval:
    """A removal in a batch that is not durable yet: `queue` no longer holds `message`, but others `letter`.

    `replaced`: `queue` itself holds the letter, in the place of the message.
    """

    def __init__(self, letter: Message, message: Message, queue: LoggedQueue, replaced: bool) -> None:
        self.letter = letter
        self.message = message
        self.queue = queue
        self.replaced = replaced
        self.references: i64 = 0  # the letter's, when the batch fails; this queue's if `replaced`

    def count(self, settled: list[int]) -> None:
        """Note the letter's holders, because the batch has failed.

        `settled`: the queues that have released the letter; empty if all have.
        """
        self.references = self.letter.references
        if self.replaced and self.references > 0:
            self.references = 0 if self.queue.deleted or self.queue.number in settled else 1


def encode_queues(numbers: list[int]) -> bytes:
    """Return a message record's count of queues and their numbers. No queues: the message is a piece."""
    count = len(numbers)
    head = MANY.to_bytes(2, "big") + count.to_bytes(4, "big") if count >= MANY else count.to_bytes(2, "big")
    return b"".join([head, *[number.to_bytes(8, "big") for number in numbers]])


_MARK_TAIL: Final[i64] = 8 + 1 + 10 + 8
"""The octets from the sequence of a mark to its content, without its address. One queue takes 10."""


@final
class StreamChunk:
    """Rows of one stream in a batch, as a chunk; `number`: the stream's."""

    def __init__(self, stream: StoredStream, number: int, data: bytes) -> None:
        self.stream = stream
        self.number = number
        self.data = data


@final
class Batch:
    """Records that become durable together or not at all.

    The place of a batch is known from its first record on, because the batch before it has already been
    sealed. So the future place of a message's content is known at once.
    """

    def __init__(self, number: i64, segment: Segment, first_sequence: i64, writer: BytesWriter) -> None:
        self.number = number
        self.segment = segment
        self.offset: i64 = segment.end  # the place of the header in the segment
        self.first_sequence = first_sequence
        self.writer = writer
        self.count: i64 = 0
        self.moved: list[Move] = []
        # settles that happen only if the rest of the batch becomes durable: message and queue number
        self.conditional_settles: list[tuple[Message, int]] = []
        self.burials: list[LetteredRemoval] = []
        self.streams: list[StoredStream] = []  # the streams with rows for it,
        self.stream_bytes: i64 = 0  # and the approximate length of these rows together
        self.chunks: list[StreamChunk] = []  # once sealed: these rows in chunks
        self.dead_streams: list[int] = []  # the numbers of streams that are removed with it,
        self.dead_files: list[str] = []  # and parts of others
        self.unconditional_bytes: i64 = 0  # once sealed: length of the records before `conditional_settles`
        self.end: i64 = 0  # once sealed: where the next one begins,
        self.header = b""
        self.payload = b""

    def parts(self) -> list[bytes]:
        """Return the sealed batch's bytes to write.

        More than the batch only where the disk surely has room.
        """
        room = self.segment.room - self.end
        return [self.header, self.payload, BLANK[:room]] if room > 0 else [self.header, self.payload]

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.count == 0 and not self.conditional_settles and not self.streams

    def add_conditional_settles(self) -> None:
        """Append the settles of transactions and dead letters.

        These settles are the last records. Until the batch is durable, their messages are copied forward as
        if they were not settled, and a copy voids all earlier settles.
        """
        self.unconditional_bytes = len(self.writer)
        segment = self.segment
        for message, queue in self.conditional_settles:
            if message.sequence == 0:
                continue
            self.add_settle(message.sequence, queue)
            if message.segment != segment.number:
                segment.settles += 1
                segment.needs.add(message.segment)
        self.conditional_settles = []

    def seal(self, identity: int) -> None:
        """Fix the appended records as `header` and `payload`."""
        self.add_conditional_settles()
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
        """Append an enqueue, or a copy; the message already has its sequence.

        `destination`: the queues (`encode_queues`) and the encoded address.
        """
        writer = self.writer
        self.count += 1
        if message.body is not None:
            self._add_piece_numbers(message.body)
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

    def set_expiration(self, mark: Message, expiration: i64) -> bool:
        """Write another expiration into the record of a mark; false: the record has several queues.

        A record for several queues is longer, and stays so when all but one of them have dropped the mark.
        """
        writer = self.writer
        end = mark.offset - self.offset - HEADER_BYTES
        place = end - _MARK_TAIL - len(mark.address.encoded)
        for octet in range(8):
            if writer[place + octet] != mark.sequence >> (56 - 8 * octet) & 255:
                return False
        place -= 9  # the expiration and the octet with the marks come before the sequence
        for octet in range(8):
            writer[place + octet] = u8(expiration >> (56 - 8 * octet) & 255)
        return True

    def _add_piece_numbers(self, body: Body) -> None:
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
        """Append that the queue has delivered the message `count` times, and the message's annotations."""
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
        """Append which rows a stream has.

        The last `rows` of them are appended with this batch, in chunks with this checksum.
        """
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
        self._add_text(DEFINITION, [change])

    def add_checkpoint(self, segments: list[list[int]], definitions: bytes) -> None:
        """Append the checkpoint of a segment; `definitions`: the elements of a list in JSON."""
        start = b'{"segments":%s,"definitions":[' % encode_json(segments)
        self._add_text(CHECKPOINT, [start, definitions, b"]}"])

    def _add_text(self, kind: i64, parts: list[bytes]) -> None:
        writer = self.writer
        self.count += 1
        writer.append(kind)
        write_i32_be(writer, sum([len(part) for part in parts]))
        for part in parts:
            writer.write(part)

    def add_removed(self, segment: i64) -> None:
        """Append that a segment's file must be ignored."""
        self.count += 1
        self.writer.append(REMOVED)
        write_i64_be(self.writer, segment)

    def add_closed(self) -> None:
        """Append the mark of a clean stop."""
        self.count += 1
        self.writer.append(CLOSED)


@final
class Move:
    """A message that was copied forward in a batch that is not durable yet, and its former place."""

    def __init__(self, message: Message, segment: Segment, offset: i64) -> None:
        self.message = message
        self.segment = segment
        self.offset = offset
