"""The scanner that finds the valid batches of a segment."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.store.disk import Disk
from broker.store.errors import LogDamaged, LogVersionUnknown
from broker.store.format import (
    BLANK,
    FORMAT_VERSION,
    HEADER_BYTES,
    MAGIC,
    Header,
    checksum,
    search_offset,
    search_pattern,
)

WINDOW: Final = 4 * 1024 * 1024
_ZEROS: Final = bytes(WINDOW)


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchScanner:
    """Walks over a segment, batch by batch; `path`: the segment's name for error messages.

    After `next` has returned true, `data[start:end]` are the records of batch `number`; an index into `data`
    plus `shift` is an offset in the segment. After `next` has returned false, no valid batch begins at
    `position`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.position: i64 = 0
        self.data = b""
        self.shift: i64 = 0
        self.number: i64 = 0
        self.first_sequence: i64 = 0
        self.count: i64 = 0
        self.batch_at: i64 = 0  # offset of the batch in the segment
        self.start: i64 = 0
        self.end: i64 = 0

    def next(self) -> bool:
        """Step to the next batch. Raises LogVersionUnknown, OSError."""
        raise NotImplementedError


@final
class SegmentScanner(BatchScanner):
    """Walks over a segment file."""

    def __init__(self, disk: Disk, fd: int, path: str, segment: i64, identity: int) -> None:
        super().__init__(path)
        self.disk = disk
        self.fd = fd
        self.segment = segment
        self.identity = identity  # 0: taken from the first valid batch
        self.size: i64 = disk.size(fd)

    def next(self) -> bool:
        """Step to the next batch. Raises LogVersionUnknown, OSError."""
        at = self.position
        header = self._header(at)
        if header is None:
            return False
        self.identity = header.identity
        self.number = header.number
        self.first_sequence = header.first_sequence
        self.count = header.count
        self.batch_at = at
        self.start = at - self.shift + HEADER_BYTES
        self.end = self.start + header.length
        self.position = at + HEADER_BYTES + header.length
        return True

    def next_valid(self) -> bool:
        """Step to the next valid batch, over damage if need be."""
        return self.next() or (self.skip_damage() and self.next())

    def _header(self, at: i64) -> Header | None:
        """Return the header of the valid batch at this offset, if there is one.

        The batch's bytes are in `data` then.
        """
        if self.size - at < HEADER_BYTES:
            return None
        index = self._window(at, HEADER_BYTES)
        if index < 0 or self.data[index : index + 4] != MAGIC:
            return None
        header = Header(self.data, index)
        if header.length > self.size - at - HEADER_BYTES or header.number <= self.number:
            return None
        if self.identity and header.identity != self.identity:
            return None
        index = self._window(at, HEADER_BYTES + header.length)
        if index < 0:
            return None
        start = index + HEADER_BYTES
        with memoryview(self.data) as view:
            if checksum(header.head, self.segment, at, view[start : start + header.length]) != header.crc:
                return None
        if not 0 < header.version <= FORMAT_VERSION:
            raise LogVersionUnknown(
                f"{self.path}: format version {header.version}, this program reads 1 to {FORMAT_VERSION}"
            )
        return header

    def _window(self, at: i64, length: i64) -> i64:
        """Read `length` bytes from offset `at` into `data`. Return their index, -1 if the file ends."""
        index = at - self.shift
        if index < 0 or index + length > len(self.data):
            wanted = min(max(i64(WINDOW), length), self.size - at)
            self.data = self.disk.read(self.fd, wanted, at)
            self.shift = at
            index = 0
            if len(self.data) < length:
                return -1
        return index

    def at_blank(self) -> bool:
        """Whether the log ends properly at `position`: no batch has been begun there."""
        length = min(i64(HEADER_BYTES), self.size - self.position)
        if length <= 0:
            return True
        index = self._window(self.position, length)
        return self.data[index : index + length] == BLANK[:length]

    def rest_is_empty(self) -> bool:
        """Whether only zeros follow from `position` on."""
        at = self.position
        while at < self.size:
            index = self._window(at, min(i64(WINDOW), self.size - at))
            if index < 0:
                return not self.data.strip(b"\0")
            rest = self.data[index:] if index else self.data
            if rest != (_ZEROS if len(rest) == WINDOW else bytes(len(rest))):
                return False
            at += len(rest)
        return True

    def refuse_damage(self) -> None:
        """Raise LogDamaged if valid batches follow behind `position`, where none begins."""
        position = self.position
        if not self.rest_is_empty() and self.skip_damage():
            raise LogDamaged(self.path, position, "valid batches follow")
        self.position = position

    def skip_damage(self) -> bool:
        """Move `position` to the next valid batch; false if there is none."""
        pattern = search_pattern(self.identity)
        offset: i64 = search_offset(self.identity)
        at = self.position + 1
        while self.size - at >= HEADER_BYTES:
            index = self._window(at, HEADER_BYTES)  # reads only when the window is used up
            if index < 0:
                return False
            match_at: i64 = self.data.find(pattern, index + offset)
            if match_at < 0:
                at = self.shift + len(self.data) - offset - len(pattern) + 1
                continue
            at = self.shift + match_at - offset
            if self._header(at) is not None:
                self.position = at
                return True
            at += 1
        return False
