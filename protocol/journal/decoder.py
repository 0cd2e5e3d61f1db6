"""The decoder of journal files: reads block after block and skips damaged parts."""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error
from struct import iter_unpack
from typing import Final, NamedTuple

from protocol.journal.encoder import (
    BLOCK_HEADER,
    FILE_HEADER,
    FILE_MAGIC,
    NAME_HEADER,
    NAMES_MAGIC,
    RECORDS_MAGIC,
    VERSION,
    VERSIONS,
    with_checksum,
)
from protocol.journal.names import FIELDS
from protocol.journal.records import FORMAT, RECORD_BYTES


class JournalDamagedError(ValueError):
    """The bytes are no journal file."""


class FileHeader(NamedTuple):
    """The header of a file.

    `first`: the seq of its first record; `created`: microseconds since 1970; `size`: bytes of the header.
    """

    node: str
    first: int
    created: int
    size: int


class Record(NamedTuple):
    """A record as stored; see `records`. Names are given by number."""

    seq: int
    ts: int
    uid: int
    qpos: int
    other: int
    queue: int
    place: int
    actor: int
    size: int
    op: int
    flags: int
    reason: int
    zero: int
    deliveries: int
    heap: int


class Block:
    """Records that were written together: `records` is 64 bytes for each, `heap` their texts in a row.

    Their seqs are dense.
    """

    def __init__(self, records: bytes, heap: bytes) -> None:
        self.records = records
        self.heap = heap

    def __iter__(self) -> Iterator[Record]:
        return map(Record._make, iter_unpack(FORMAT, self.records))

    def texts(self) -> Iterator[bytes]:
        """Iterate over the texts of the records."""
        at = 0
        for record in self:
            yield self.heap[at : at + record.heap]
            at += record.heap

    def __len__(self) -> int:
        return len(self.records) // RECORD_BYTES

    @property
    def first(self) -> int:
        """The seq of the first record."""
        return int.from_bytes(self.records[:8], "little", signed=True)

    @property
    def size(self) -> int:
        """The bytes of the block in the file."""
        return _HEADER_BYTES + len(self.records) + len(self.heap)


class Hole(NamedTuple):
    """The bytes of a file from `start` up to `end`, which are no blocks."""

    start: int
    end: int


Names = dict[int, tuple[int, tuple[str, ...]]]
"""The kind and the fields of each name, by number."""

_HEADER_BYTES: Final = BLOCK_HEADER.size


def read_header(data: bytes) -> FileHeader:
    """Return the header in the first bytes of a file. Raises JournalDamagedError for bytes of no journal."""
    if len(data) < FILE_HEADER.size or data[:4] != FILE_MAGIC:
        raise JournalDamagedError(f"the file does not begin with '{FILE_MAGIC.decode()}'")
    _, version, length, first, created, _ = FILE_HEADER.unpack_from(data)
    if version not in VERSIONS:
        raise JournalDamagedError(f"the file has version {version}, this program reads 1 to {VERSION}")
    size = FILE_HEADER.size + length
    name = data[FILE_HEADER.size : size]
    if len(name) < length or with_checksum(data[: FILE_HEADER.size], name) != data[:size]:
        raise JournalDamagedError("the header is damaged")
    return FileHeader(name.decode(), first, created, size)


class Decoder:
    """The reader of a file's blocks. `names`: the names of the read blocks. `holes`: the damaged parts.

    `end`: the offset after the last complete block that was read. Raises JournalDamagedError for a damaged
    header.
    """

    def __init__(self, data: bytes) -> None:
        self.header = read_header(data)
        self.names: Names = {}
        self.holes: list[Hole] = []
        self.end = self.header.size
        self._data = data
        self._start = 0  # the offset of these bytes in the file

    def replace_data(self, data: bytes, start: int) -> None:
        """Continue with other bytes of the file, a block at `start`; their names must be known."""
        self._data = data
        self._start = self.end = start

    def blocks(self) -> Iterator[Block]:
        """Iterate over the blocks of records, in order."""
        offset = self._start
        at = self.end - offset
        while at < len(self._data):
            end = self._block_end(at)
            if end == 0:
                following = self._next_block(at + 1)
                self.holes.append(Hole(offset + at, offset + following))
                at = following
                continue
            self.end = offset + end
            if self._data[at : at + 4] == NAMES_MAGIC:
                self._read_names(at)
            else:
                _, heap, count, _ = BLOCK_HEADER.unpack_from(self._data, at)
                start = at + _HEADER_BYTES
                middle = start + count * RECORD_BYTES
                yield Block(self._data[start:middle], self._data[middle : middle + heap])
            at = end

    def _block_end(self, at: int) -> int:
        """Return the end of the block at `at`; 0 if there is no block, or an incomplete one."""
        data = self._data
        magic = data[at : at + 4]
        if at + _HEADER_BYTES > len(data) or magic not in (NAMES_MAGIC, RECORDS_MAGIC):
            return 0
        _, size, count, _ = BLOCK_HEADER.unpack_from(data, at)
        end = int(at + _HEADER_BYTES + size + (count * RECORD_BYTES if magic == RECORDS_MAGIC else 0))
        if end > len(data):
            return 0
        start = at + _HEADER_BYTES
        return end if with_checksum(data[at:start], data[start:end])[:_HEADER_BYTES] == data[at:start] else 0

    def _next_block(self, at: int) -> int:
        """Return the offset of the next complete block from `at` on, or the end of the file."""
        places = [self._data.find(magic, at) for magic in (NAMES_MAGIC, RECORDS_MAGIC)]
        while any(place >= 0 for place in places):
            place = min(place for place in places if place >= 0)
            if self._block_end(place):
                return place
            places = [self._data.find(magic, place + 1) for magic in (NAMES_MAGIC, RECORDS_MAGIC)]
        return len(self._data)

    def _read_names(self, at: int) -> None:
        data = self._data
        _, _, count, _ = BLOCK_HEADER.unpack_from(data, at)
        at += _HEADER_BYTES
        try:
            for _ in range(count):
                number, kind = NAME_HEADER.unpack_from(data, at)
                at += NAME_HEADER.size
                fields = []
                for _ in range(FIELDS[kind]):
                    length = int.from_bytes(data[at : at + 2], "little")
                    fields.append(data[at + 2 : at + 2 + length].decode())
                    at += 2 + length
                self.names[number] = (kind, tuple(fields))
        except (KeyError, UnicodeDecodeError, struct_error) as error:
            raise JournalDamagedError(f"a block of names is malformed: {error}") from error
