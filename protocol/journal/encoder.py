"""The bytes of journal files: a header, then blocks. Version 2, little-endian.

    header    "AJL1" | version 2 | bytes of the node's name 2 | first seq 8 | created 8 | CRC-32 4 | name
    names     "DEF1" | bytes behind this header 4 | how many 4 | CRC-32 4 | for each: number 4 | kind 1 |
              for each field: length 2 | UTF-8
    records   "BLK1" | bytes of the heap 4 | how many 4 | CRC-32 4 | 64 bytes each | heap

`created` is in microseconds since 1970. Checksums are of all bytes of the header before them, and of what
follows. A name is written into every file that uses it, so that a file stands alone.
"""

from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from protocol.journal.names import Name
from protocol.journal.records import (
    CHANGE,
    CHANGE_MAX,
    DELIVERIES_MAX,
    FORWARD,
    RECORD_BYTES,
    SIZE_MAX,
    TEXT_MAX,
)

try:  # the same CRC-32, five times as fast
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32

VERSION: Final = 2
VERSIONS: Final = (1, 2)  # the versions that can be read
FILE_MAGIC: Final = b"AJL1"
NAMES_MAGIC: Final = b"DEF1"
RECORDS_MAGIC: Final = b"BLK1"
FILE_HEADER: Final = Struct("<4sHHqqI")
BLOCK_HEADER: Final = Struct("<4sIII")
NAME_HEADER: Final = Struct("<IB")
NAME_MAX: Final = 0xFFFF  # bytes of a field
_LENGTH: Final = Struct("<H")
_CRC: Final = Struct("<I")
_WORDS: Final = Struct("<qqqqqQQQ")
COMPILED: Final = not __file__.endswith(".py")  # interpreted, a single call writes the words faster


def with_checksum(header: bytes, *rest: bytes) -> bytes:
    """Return a block: the header, whose last 4 bytes become the checksum of the block, and the rest."""
    bare = header[:-4]
    checksum = crc32(bare)
    for part in rest:
        checksum = crc32(part, checksum)
    return b"".join([bare, _CRC.pack(checksum), *rest])


@final
class Encoder:
    """The writer of a journal's bytes. `node`: the node of the journal. `seq`: the seq of the next record."""

    def __init__(self, node: str, seq: i64) -> None:
        self.node = node
        self.seq = seq
        self.count: i64 = 0  # the records that wait for `take`
        self._file: i64 = 1
        self._time: i64 = 0
        self._records = BytesWriter()
        self._heap = BytesWriter()
        self._names: list[Name] = []

    def header(self, created: i64) -> bytes:
        """Return the header of a file that begins with the first waiting record."""
        name = self.node.encode()
        first: int = self.seq - self.count
        return with_checksum(FILE_HEADER.pack(FILE_MAGIC, VERSION, len(name), first, int(created), 0), name)

    def end_file(self) -> None:
        """End the file: later records belong to another file, which defines its names anew."""
        assert self.count == 0, "the waiting records use names of the file before"
        self._file += 1

    def record(
        self,
        time: i64,
        op: i64,
        uid: i64,
        qpos: i64,
        other: i64,
        queue: Name | None,
        place: Name | None,
        actor: Name | None,
        size: i64,
        flags: i64,
        reason: i64,
        deliveries: i64,
        text: bytes,
    ) -> None:
        """Add a record (`records`). `time`: microseconds since 1970; no earlier than the record before."""
        if time > self._time:
            self._time = time
        length: i64 = len(text)
        if length > 0:
            most = CHANGE_MAX if op in (CHANGE, FORWARD) else TEXT_MAX
            if length > most:
                text = text[:most].decode(errors="ignore").encode()
                length = len(text)
            self._heap.write(text)
        if size > SIZE_MAX:
            size = SIZE_MAX
        if deliveries > DELIVERIES_MAX:
            deliveries = DELIVERIES_MAX
        names = self._number(queue) | self._number(place) << 32
        sizes = self._number(actor) | size << 32
        rest = op | flags << 8 | reason << 16 | deliveries << 32 | length << 48
        out = self._records
        if COMPILED:
            write_i64_le(out, self.seq)
            write_i64_le(out, self._time)
            write_i64_le(out, uid)
            write_i64_le(out, qpos)
            write_i64_le(out, other)
            write_i64_le(out, names)
            write_i64_le(out, sizes)
            write_i64_le(out, rest)
        else:
            out.write(_WORDS.pack(self.seq, self._time, uid, qpos, other, names, sizes, rest))
        self.seq += 1
        self.count += 1

    def take(self) -> bytes:
        """Remove and return the waiting records as blocks; empty without any."""
        if self.count == 0:
            return b""
        records = self._records.getvalue()
        heap = self._heap.getvalue()
        header = BLOCK_HEADER.pack(RECORDS_MAGIC, len(heap), len(records) // RECORD_BYTES, 0)
        block = with_checksum(header, records, heap)
        if self._names:
            block = _names_block(self._names) + block
            self._names = []
        self._records.truncate(0)  # the memory is used again
        self._heap.truncate(0)
        self.count = 0
        return block

    def _number(self, name: Name | None) -> i64:
        """Return the number of a name, 0 for None. The file defines the name before the waiting records."""
        if name is None:
            return 0
        if name.file != self._file:
            name.file = self._file
            self._names.append(name)
        return name.number


def _names_block(names: list[Name]) -> bytes:
    parts: list[bytes] = []
    for name in names:
        parts.append(NAME_HEADER.pack(int(name.number), name.kind))
        for field in name.fields:
            text = field.encode()
            if len(text) > NAME_MAX:
                text = text[:NAME_MAX].decode(errors="ignore").encode()
            parts.append(_LENGTH.pack(len(text)))
            parts.append(text)
    rest = b"".join(parts)
    return with_checksum(BLOCK_HEADER.pack(NAMES_MAGIC, len(rest), len(names), 0), rest)
