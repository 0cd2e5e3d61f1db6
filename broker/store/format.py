"""The bytes of the log, format version 7. All integers are unsigned and big-endian.

A segment file is a row of batches. Behind the last batch the file ends, or a header's length of zeros follows
(less if the file ends earlier). The file may be longer: preallocated, or with old batches of the dead segment
from which the file was made.

    batch    magic "AMQL" 4 | format version 2 | zero 2 | log identity 8 | batch number 8 | first sequence 8
             | number of records 4 | bytes of records 4 | CRC-32 4 | records

The CRC covers the header before it, the segment's number and the batch's offset in the file (8 bytes each,
not stored), and the records. A batch is valid only in its own place, so a copy of a log inside a message's
body can never pass for a batch. For the same reason the identity is random, one per log, and unknown to
clients. Batch numbers grow. The first sequence is the lowest possible one of a message that is first appended
in this batch or a later one.

    1 message     sequence 8 | priority 1 | number of queues 2 | queue 8 ... | exchange and routing key,
                  two short strings | body size 4 | content length 4 | content (header and body frames)
    2 settle      sequence 8 | queue 8    the queue no longer holds the message
    3 delivered   sequence 8 | queue 8    a consumer has seen the message: redelivered after a clean stop
    4 definition  length 4 | JSON         a change of the durable topology
    5 checkpoint  length 4 | JSON         {"segments": [[number, bytes] of older], "definitions": [changes]}
    6 removed     segment 8               the segment's file must be ignored, and deleted
    7 closed                              the last record of a clean stop
    8 dated       date 8 | expiration 8 | marks 1 | from the sequence on as a message record:
                  a message with a date, ms since 1970; expiration in ms, all bits 1: none;
                  mark 1: the message has been dead-lettered; mark 2: no message, but an identity that the
                  queues remember: the routing key is an id or, with an expiration, a producer whose
                  sequence the expiration is; mark 4: a receipt for the arrival is wanted; mark 8: a receipt
                  for the consumption is wanted; mark 32: the queues hold the message until the date;
                  mark 128: the date is the end of a delay
    9 count       sequence 8 | queue 8 | count 8    how many deliveries of the message by the queue count;
                  the first octet of the count is why the message waits to be dead-lettered: 0 no waiting,
                  1 rejected, 2 expired, 3 above the length limit, 4 returned too often, 5 the queue
                  expired, 6 the queue was deleted; and 16 more if the message was held for a retry then
    10 large      number of pieces 4 | sequence 8 ... | a message or dated record, with its kind: the content
                  is the header frame alone, the body frames are the content of the pieces
    11 annotated  sequence 8 | queue 8 | count 8 | length 4 | annotations    a count, with the annotations of
                  consumers on the message in the queue, in the encoding of AMQP 1.0
    12 stream     queue 8 | first 8 | next 8 | rows 8 | CRC-32 4    a stream has the rows from the first
                  offset up to the next one, exclusively; the last `rows` of them were appended with the
                  batch, in chunks of separate files, without which the batch is not whole. The CRC is
                  that of these chunks' CRCs in a row, because older chunks with such rows may exist

For 65,535 queues or more the number field is 65,535, and the number follows in 4 octets.

A message record without queues is a piece of a large body. The piece means nothing until a record names the
piece, in the same batch or a later one. Copies of a piece and of the record that names the piece are
independent of each other.

A later message record with the same sequence is a copy and replaces the earlier record. The message's counts
stay valid. The last of several counts is valid, annotated or not. Every segment begins with a checkpoint. The
newest checkpoint decides which older segments exist.

This format stays readable: a change adds a version, and tests/golden has a log of every version. Version 1
has no kinds 8 and 9, version 2 no kind 10, no pieces, and no 65,535 queues, version 3 no marks but the first,
version 4 no kind 11, version 5 no kind 12, version 6 nothing in the first octet of a count. Every segment is
of one version, a log may have segments of several.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, u8

from broker.core.message import BY_CLOCK, DELAYED, NEVER, REMEMBERED, TELLS_ARRIVAL, TELLS_CONSUMED

try:  # the same CRC-32, five times as fast
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32

FORMAT_VERSION: Final = 7
MAGIC: Final = b"AMQL"
HEADER_BYTES: Final = 44
BLANK: Final = bytes(HEADER_BYTES)

MESSAGE: Final = 1
SETTLE: Final = 2
DELIVERED: Final = 3
DEFINITION: Final = 4
CHECKPOINT: Final = 5
REMOVED: Final = 6
CLOSED: Final = 7
DATED: Final = 8
COUNT: Final = 9
LARGE: Final = 10
ANNOTATED: Final = 11
STREAM: Final = 12

DIED: Final = 1  # a mark of a dated message; the others are as in memory
MARKS: Final = REMEMBERED | TELLS_ARRIVAL | TELLS_CONSUMED | DELAYED | BY_CLOCK
MANY: Final = 0xFFFF  # in place of a number of queues, which is in the next 4 octets

_HEAD: Final = Struct(">4sHHQQQII")
_PLACE: Final = Struct(">QQ")
_CRC_AT: Final = 40
_IDENTITY_AT: Final = 8


def checksum(head: bytes, segment: int, offset: int, records: bytes | memoryview) -> int:
    """Return the CRC-32 of the header's first 40 bytes, the batch's place, and its records."""
    return crc32(records, crc32(_PLACE.pack(segment, offset), crc32(head)))


def encode_header(
    identity: int, number: int, first_sequence: int, count: int, records: bytes, segment: int, offset: int
) -> bytes:
    """Return the header of a batch at `offset` of segment number `segment`."""
    head = _HEAD.pack(MAGIC, FORMAT_VERSION, 0, identity, number, first_sequence, count, len(records))
    return head + checksum(head, segment, offset, records).to_bytes(4, "big")


def search_pattern(identity: int) -> bytes:
    """Return bytes that are in every batch of the log, at `search_offset`; the magic for identity 0."""
    return identity.to_bytes(8, "big") if identity else MAGIC


def search_offset(identity: int) -> int:
    """Return the offset in a batch of the bytes of `search_pattern`."""
    return _IDENTITY_AT if identity else 0


@final
class Header:
    """A decoded batch header."""

    def __init__(self, data: bytes, at: int) -> None:
        _, version, _, identity, number, first, count, length = _HEAD.unpack_from(data, at)
        self.version: int = version
        self.identity: int = identity
        self.number: int = number
        self.first_sequence: int = first
        self.count: int = count
        self.length: int = length
        self.head: bytes = data[at : at + _CRC_AT]
        self.crc: int = int.from_bytes(data[at + _CRC_AT : at + HEADER_BYTES], "big")


MALFORMED: Final = -1
END: Final = 0


@final
class Records:
    """Walks over the records of one batch; after `next` the fields of the record's kind are set.

    Positions are indexes into `data`.
    """

    def __init__(self) -> None:
        self.data = b""
        self.position: i64 = 0
        self.end: i64 = 0
        self.sequence: i64 = 0
        self.priority: i64 = 0
        self.date: i64 = 0
        self.expiration: i64 = NEVER
        self.died = False
        self.marks: u8 = 0
        self.pieces: i64 = 0  # the count of piece numbers
        self.pieces_at: i64 = 0  # the position of the first piece number
        self.queue: i64 = 0  # in settle, delivered and count records
        self.count: i64 = 0  # in count records
        self.queues: i64 = 0  # the count of queue numbers
        self.queues_at: i64 = 0  # the position of the first queue number
        self.address_at: i64 = 0
        self.address_end: i64 = 0
        self.size: i64 = 0
        self.content_at: i64 = 0
        self.length: i64 = 0  # the length of the content, the JSON text, or the annotations of a count
        self.segment: i64 = 0  # in removed records
        self.first: i64 = 0  # in stream records, with the next three
        self.behind: i64 = 0
        self.rows: i64 = 0
        self.checksum: i64 = 0

    def open(self, data: bytes, start: i64, end: i64) -> None:
        """Go before the first record of data[start:end]."""
        self.data = data
        self.position = start
        self.end = end

    def next(self) -> i64:
        """Step to the next record. Return its kind, END after the last, MALFORMED for malformed bytes.

        The kind of a dated message is MESSAGE too; `date` is 0 for a message without one. `expiration`,
        `died` and `marks` are void without a date. The kind of a large message is MESSAGE too; `pieces` is 0
        for all others. The kind of an annotated count is COUNT.
        """
        self.pieces = 0
        return self._next(self.position)

    def _next(self, at: i64) -> i64:
        room = self.end - at
        if room <= 0:
            return END
        kind: i64 = self.data[at]
        if kind == MESSAGE:
            self.date = 0
            return self._message(at)
        if kind == SETTLE or kind == DELIVERED:  # noqa: SIM109  compiled, comparing is faster
            if room < 17:
                return MALFORMED
            self.sequence = read_i64_be(self.data, at + 1)
            self.queue = read_i64_be(self.data, at + 9)
            self.position = at + 17
            return kind
        if kind == DEFINITION or kind == CHECKPOINT:  # noqa: SIM109
            if room < 5:
                return MALFORMED
            self.length = i64(read_i32_be(self.data, at + 1)) & 0xFFFFFFFF
            self.content_at = at + 5
            self.position = at + 5 + self.length
            return kind if self.position <= self.end else MALFORMED
        if kind == REMOVED:
            if room < 9:
                return MALFORMED
            self.segment = read_i64_be(self.data, at + 1)
            self.position = at + 9
            return kind
        if kind == CLOSED:
            self.position = at + 1
            return kind
        if (kind == COUNT and room >= 25) or (kind == ANNOTATED and room >= 29):
            return self._count(at, kind == ANNOTATED)
        if kind == STREAM and room >= 37:
            self.queue = read_i64_be(self.data, at + 1)
            self.first = read_i64_be(self.data, at + 9)
            self.behind = read_i64_be(self.data, at + 17)
            self.rows = read_i64_be(self.data, at + 25)
            self.checksum = i64(read_i32_be(self.data, at + 33)) & 0xFFFFFFFF
            self.position = at + 37
            return kind
        if kind == DATED and room >= 18:
            self.date = read_i64_be(self.data, at + 1)
            self.expiration = read_i64_be(self.data, at + 9)
            self.died = self.data[at + 17] & DIED != 0
            self.marks = self.data[at + 17] & MARKS
            return self._message(at + 17)
        if kind == LARGE and room >= 5 and self.pieces == 0:
            self.pieces = i64(read_i32_be(self.data, at + 1)) & 0xFFFFFFFF
            self.pieces_at = at + 5
            if (
                self.pieces > 0
                and self.pieces <= (room - 5) // 8
                and self._next(at + 5 + self.pieces * 8) == MESSAGE
            ):
                return MESSAGE
        return MALFORMED

    def _count(self, at: i64, annotated: bool) -> i64:
        self.sequence = read_i64_be(self.data, at + 1)
        self.queue = read_i64_be(self.data, at + 9)
        self.count = read_i64_be(self.data, at + 17)
        self.content_at = at + 25
        self.length = 0
        if annotated:
            self.content_at = at + 29
            self.length = i64(read_i32_be(self.data, at + 25)) & 0xFFFFFFFF
        self.position = self.content_at + self.length
        return COUNT if self.position <= self.end else MALFORMED

    def _message(self, at: i64) -> i64:
        """Read a message record; the octet of its kind is at `at`, or would be."""
        data = self.data
        end = self.end
        if end - at < 12:
            return MALFORMED
        self.sequence = read_i64_be(data, at + 1)
        self.priority = data[at + 9]
        self.queues = i64(read_i16_be(data, at + 10)) & 0xFFFF
        at += 12
        if self.queues == MANY:
            if end - at < 4:
                return MALFORMED
            self.queues = i64(read_i32_be(data, at)) & 0xFFFFFFFF
            at += 4
        self.queues_at = at
        at += self.queues * 8
        if end - at < 10:
            return MALFORMED
        self.address_at = at
        at += 1 + i64(data[at])
        if end - at < 9:
            return MALFORMED
        at += 1 + i64(data[at])
        if end - at < 8:
            return MALFORMED
        self.address_end = at
        self.size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
        self.length = i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF
        self.content_at = at + 8
        self.position = at + 8 + self.length
        return MESSAGE if self.position <= end else MALFORMED

    def annotations(self) -> bytes:
        """Return the annotations of a count; empty if it has none."""
        return self.data[self.content_at : self.content_at + self.length] if self.length > 0 else b""

    def queue_numbers(self) -> list[int]:
        """Return the queues of a message record."""
        return self._numbers(self.queues_at, self.queues)

    def piece_numbers(self) -> list[int]:
        """Return the sequences of the pieces that a message record names."""
        return self._numbers(self.pieces_at, self.pieces)

    def _numbers(self, at: i64, count: i64) -> list[int]:
        numbers: list[int] = []
        for _ in range(count):
            numbers.append(read_i64_be(self.data, at))
            at += 8
        return numbers
