"""Reads the records of a batch, one after the other; `format` says what they are."""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, u8

from broker.core.message import NEVER
from broker.store.format import (
    ANNOTATED,
    CHECKPOINT,
    CLOSED,
    COUNT,
    DATED,
    DEFINITION,
    DELIVERED,
    DIED,
    LARGE,
    MANY,
    MARKS,
    MESSAGE,
    REMOVED,
    SETTLE,
    STREAM,
)

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
        self.pieces: i64 = 0  # how many numbers of pieces stand
        self.pieces_at: i64 = 0  # from here
        self.queue: i64 = 0  # of a settle, delivered or count record
        self.count: i64 = 0  # of a count record
        self.queues: i64 = 0  # how many queue numbers stand
        self.queues_at: i64 = 0  # from here
        self.address_at: i64 = 0
        self.address_end: i64 = 0
        self.size: i64 = 0
        self.content_at: i64 = 0
        self.length: i64 = 0  # of the content, of the JSON text, or of the annotations of a count
        self.segment: i64 = 0  # of a removed record
        self.first: i64 = 0  # of a stream record, and `behind` the next offset,
        self.behind: i64 = 0
        self.rows: i64 = 0
        self.checksum: i64 = 0

    def open(self, data: bytes, start: i64, end: i64) -> None:
        """Stand before the first record of data[start:end]."""
        self.data = data
        self.position = start
        self.end = end

    def next(self) -> i64:
        """Step to the next record: its kind, END after the last, MALFORMED if the bytes make no sense.

        The kind of a dated message is MESSAGE too; `date` is 0 for one without. `expiration`, `died` and
        `marks` are void without a date. So is that of a large one; `pieces` is 0 for all others. The kind of
        an annotated count is COUNT.
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
        """A message record but for the octet of its kind, which is at `at`, or would be."""
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
        """Those of a count; empty if it has none."""
        return self.data[self.content_at : self.content_at + self.length] if self.length > 0 else b""

    def queue_numbers(self) -> list[int]:
        """The queues of a message record."""
        return self._numbers(self.queues_at, self.queues)

    def piece_numbers(self) -> list[int]:
        """The sequences of the pieces that a message record names."""
        return self._numbers(self.pieces_at, self.pieces)

    def _numbers(self, at: i64, count: i64) -> list[int]:
        numbers: list[int] = []
        for _ in range(count):
            numbers.append(read_i64_be(self.data, at))
            at += 8
        return numbers
