"""A chunk: messages of a stream that were appended together, in columns. Version 1, little-endian.

    header, 64 bytes
        magic "AMQK" | version 2 | flags 2 | rows 4 | bytes of the chunk 4 | first offset 8 | incarnation 8
        | first time 8 | last time 8 | CRC-32 4 | zero 12
    times       8 bytes each: microseconds since 1970, never decreasing
    kinds       1 byte each, with flag 1 only; without it all are BASIC
    exchange, routing key, properties, body, and with flag 2 the filter
                for each column: 4 bytes for each row and 4 more, the offsets of the values; the values

Every part begins at a multiple of 8 from the chunk's start, with zeros before it, so that Arrow arrays need
no copies. The CRC is computed with zeros in its own place.

`properties` of a BASIC message: the payload of the content header frame after the body size. `properties` of
SECTIONS: the whole sections before the body. `body`: the payloads of all body frames, or the sections from
the first body section on. `filter`: the message's x-stream-filter-value, or empty. The incarnation differs
from the incarnation of an earlier stream with the same name.

With flag 4 the chunk is a header only: the rows are lost, and a repair has written the header in their place.
So all other rows keep their offsets. Both times are the time of the row before, if known.
"""

from struct import Struct
from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

try:  # the same CRC-32, five times as fast
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32

VERSION: Final = 1
MAGIC: Final = b"AMQK"
HEADER_BYTES: Final = 64

BASIC: Final = 0  # the kinds of messages
SECTIONS: Final = 1

HAS_KINDS: Final = 1  # flags
HAS_FILTERS: Final = 2
LOST: Final = 4

EXCHANGE: Final = 0  # the columns that have bytes of any length
ROUTING_KEY: Final = 1
PROPERTIES: Final = 2
BODY: Final = 3
FILTER: Final = 4

_HEADER: Final = Struct("<4sHHIIQQqqI12x")
_CRC_AT: Final = 48
_NO_CRC: Final = bytes(4)
_I32: Final = Struct("<i")


class ChunkDamagedError(ValueError):
    """The bytes are no chunk, or an incomplete chunk."""


@final
class Column:
    """The positions of a column: its offsets begin at `offsets`, its values are from `start` to `end`."""

    def __init__(self, offsets: i64, start: i64, end: i64) -> None:
        self.offsets = offsets
        self.start = start
        self.end = end


@final
class Header:
    """The header of the chunk at `at` in `data`; the checksum is not compared.

    `size`: bytes of the chunk. `first` and `behind`: the offsets in the stream of the chunk's first row and
    of the row that follows the chunk.

    Raises ChunkDamagedError.
    """

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        if len(data) - at < HEADER_BYTES:
            raise ChunkDamagedError(f"chunk at {at} is cut off in its header")
        (magic, version, flags, rows, size, first, incarnation, first_time, last_time, crc) = (
            _HEADER.unpack_from(data, at)
        )
        if magic != MAGIC:
            raise ChunkDamagedError(f"no chunk begins at {at}")
        if version != VERSION:
            raise ChunkDamagedError(f"chunk at {at} has version {version}, this program reads {VERSION}")
        self.flags: int = flags
        self.rows: int = rows
        self.size: int = size
        self.first: int = first
        self.incarnation: int = incarnation
        self.first_time: int = first_time
        self.last_time: int = last_time
        self.crc: int = crc
        self.behind = self.first + self.rows
        self.lost = flags & LOST != 0
        if not rows or size % 8 or size < HEADER_BYTES + (0 if self.lost else 8 * rows):
            raise ChunkDamagedError(f"chunk at {at} has an impossible size: {size} bytes for {rows} rows")


@final
class Chunk:
    """The chunk at `at` in `data`. Positions are indexes of `data`.

    The constructor finds the columns and compares the checksum, so that readers need no checks.

    Raises ChunkDamagedError.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        header = Header(data, at)
        self.data = data
        self.at = at
        self.header = header
        self.rows = header.rows
        self.flags = header.flags
        if len(data) - at < header.size:
            raise ChunkDamagedError(f"chunk at {at} is cut off: {len(data) - at} of {header.size} bytes")
        if _checksum(data, at, header.size) != header.crc:
            raise ChunkDamagedError(f"chunk at {at} has a wrong checksum")
        self.times: i64 = at + HEADER_BYTES
        self._end = at + header.size
        self.kinds: i64 = 0  # the position of the kinds, 0: all are BASIC
        self.columns = [] if header.lost else self._find()

    def _find(self) -> list[Column]:
        position = self.times + 8 * self.rows
        if self.flags & HAS_KINDS:
            self.kinds = position
            position = self._aligned(position + self.rows)
        columns: list[Column] = []
        for _ in range(FILTER + 1 if self.flags & HAS_FILTERS else FILTER):
            start = self._aligned(position + 4 * (self.rows + 1))
            if start > self._end:
                raise ChunkDamagedError(f"chunk at {self.at} has columns behind its end")
            end = start + int(_I32.unpack_from(self.data, position + 4 * self.rows)[0])
            if not start <= end <= self._end:
                raise ChunkDamagedError(f"chunk at {self.at} has a column that ends at {end}")
            columns.append(Column(position, start, end))
            position = self._aligned(end)
        if position != self._end:
            raise ChunkDamagedError(f"chunk at {self.at} is longer than its columns")
        return columns

    def check(self) -> None:
        """Check that each value begins at the end of the value before, and is within its column.

        Chunks of the broker always pass. Chunks of other programs may have values that overlap, or that are
        outside their column.

        Raises ChunkDamagedError.
        """
        data = self.data
        for column in self.columns:
            length: i64 = column.end - column.start
            at: i64 = column.offsets
            before: i64 = 0
            if i64(read_i32_le(data, at)) != 0:
                raise ChunkDamagedError(f"chunk at {self.at} has a column whose first offset is not 0")
            for row in range(1, self.rows + 1):
                end = i64(read_i32_le(data, at + 4 * row))
                if not before <= end <= length:
                    raise ChunkDamagedError(
                        f"chunk at {self.at} has a value from {before} to {end} of {length} bytes"
                    )
                before = end

    def _aligned(self, position: int) -> int:
        return position + (self.at - position) % 8

    def time(self, row: i64) -> int:
        """Return the time at which a row was appended, in microseconds since 1970."""
        if self.header.lost:
            return self.header.first_time
        return int(read_i64_le(self.data, self.times + 8 * row))

    def kind(self, row: i64) -> int:
        """Return the kind of a row: BASIC or SECTIONS."""
        return self.data[self.kinds + row] if self.kinds else BASIC

    def value(self, column: i64, row: i64) -> bytes:
        """Return the bytes of a row in a column; b"" if the column is absent."""
        if column >= len(self.columns):
            return b""
        column_values = self.columns[column]
        data = self.data
        at: i64 = column_values.offsets + 4 * row
        start: i64 = column_values.start
        return data[start + i64(read_i32_le(data, at)) : start + i64(read_i32_le(data, at + 4))]


@final
class ChunkWriter:
    """The rows of the next chunk. `rows`: their number. `size`: the approximate bytes of the chunk."""

    def __init__(self) -> None:
        self.rows: i64 = 0
        self.size: i64 = HEADER_BYTES
        self._times: list[int] = []
        self._kinds = bytearray()
        self._columns: list[list[bytes]] = [[] for _ in range(FILTER + 1)]
        self._flags = 0

    def add(
        self,
        time: int,
        kind: int,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        filter_value: bytes = b"",
    ) -> None:
        """Add a row. A time before the time of the last row is replaced by that time."""
        if self.rows:
            time = max(time, self._times[-1])
        self._times.append(time)
        self._kinds.append(kind)
        columns = self._columns
        columns[EXCHANGE].append(exchange)
        columns[ROUTING_KEY].append(routing_key)
        columns[PROPERTIES].append(properties)
        columns[BODY].append(body)
        columns[FILTER].append(filter_value)
        if kind != BASIC:
            self._flags |= HAS_KINDS
        if filter_value:
            self._flags |= HAS_FILTERS
        self.rows += 1
        lengths: i64 = len(exchange) + len(routing_key) + len(properties) + len(body) + len(filter_value)
        self.size += 29 + lengths  # a time, a kind, and the offsets of five values

    def take(self, first: int, incarnation: int) -> bytes:
        """Remove all rows, at least one, and return their chunk."""
        assert self.rows, "an empty chunk has no time"
        times = self._times
        parts = [bytes(HEADER_BYTES), Struct(f"<{self.rows}q").pack(*times)]
        if self._flags & HAS_KINDS:
            parts += _padded(bytes(self._kinds))
        for values in self._columns[: FILTER + 1 if self._flags & HAS_FILTERS else FILTER]:
            ends = [0]
            end = 0
            for value in values:
                end += len(value)
                ends.append(end)
            parts += _padded(Struct(f"<{self.rows + 1}i").pack(*ends))
            parts += _padded(b"".join(values))
        data = bytearray(b"".join(parts))
        _set_header(data, self._flags, self.rows, first, incarnation, times[0], times[-1])
        self.clear()
        return bytes(data)

    def clear(self) -> None:
        """Forget all rows."""
        self.rows = 0
        self.size = HEADER_BYTES
        self._times = []
        self._kinds = bytearray()
        self._columns = [[] for _ in range(FILTER + 1)]
        self._flags = 0


def lost_rows(first: int, rows: int, incarnation: int, time: int) -> bytes:
    """Return a chunk for lost rows. `time`: the time of the row before, 0 if unknown."""
    data = bytearray(HEADER_BYTES)
    _set_header(data, LOST, rows, first, incarnation, time, time)
    return bytes(data)


def _set_header(
    data: bytearray, flags: int, rows: int, first: int, incarnation: int, first_time: int, last_time: int
) -> None:
    size = len(data)
    _HEADER.pack_into(
        data, 0, MAGIC, VERSION, flags, rows, size, first, incarnation, first_time, last_time, 0
    )
    data[_CRC_AT : _CRC_AT + 4] = _checksum(data, 0, size).to_bytes(4, "little")


def chain_checksum(before: int, crc: int) -> int:
    """Return the checksum of consecutive chunks.

    `before`: the checksum of the earlier chunks, 0 for none. `crc`: the checksum of the last chunk.
    """
    return crc32(crc.to_bytes(4, "little"), before)


def _padded(part: bytes) -> list[bytes]:
    """Return a part of a chunk, with zeros up to the next part."""
    return [part, bytes(-len(part) % 8)]


def _checksum(data: bytes | bytearray | memoryview, at: int, size: int) -> int:
    view = memoryview(data)
    head = crc32(view[at : at + _CRC_AT])
    return crc32(view[at + _CRC_AT + 4 : at + size], crc32(_NO_CRC, head))
