"""The writer of journal files: one after the other, each up to an age or a size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from mypy_extensions import i64

from broker.journal.files import NextFile, find_next_file
from protocol.journal import records as r
from protocol.journal.encoder import Encoder
from protocol.journal.files import LIVE, OPEN, file_name

MICROSECONDS: Final = 1_000_000
CRASHED: Final = b"the broker ended without a clean stop"
FAILED: Final = b"the journal could not be written: "
RESUMED: Final = b"the disk was too full for a journal"
OFF: Final[i64] = 0
LIFECYCLE: Final[i64] = 1
FULL: Final[i64] = 2


@final
class JournalWriter:
    """Writes the records of `encoder` into the journal of `node` in `folder`, which is created when needed.

    `clock`: microseconds since 1970. A file is completed at `bytes_max` bytes, or at the age of
    `seconds_max`. Below `free_min` bytes of free space `limit` falls to a level without deliveries, and below
    half of that to nothing. Errors of the disk raise nothing: `lost` counts the events that were not written,
    `failure` has the reason, and the next records begin with a gap.

    Raises OSError: the folder cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        node: str,
        clock: Callable[[], int],
        bytes_max: int,
        seconds_max: int,
        free_min: int,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.folder = folder.absolute()
        self.node = node
        self._live = self.folder / LIVE
        following: NextFile = find_next_file(folder, node)
        self.encoder = Encoder(node, following.next_seq)
        self.crashed = following.crashed
        self.failure = ""
        self.limit: i64 = FULL
        self.lost: i64 = 0
        self.written: i64 = 0  # bytes
        self._first: i64 = following.next_seq
        self._clock = clock
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._free_min = free_min
        self._write = write
        self._fd = -1
        self._path = ""
        self._size: i64 = 0
        self._begins: i64 = 0  # the seq of the file's first event
        self._began: i64 = 0
        self._missing_from: i64 = 0  # the first seq that could not be written, until writing works again
        if following.crashed:
            self._tell_gap(CRASHED)

    @property
    def behind(self) -> int:
        """Return the seq behind the last event that readers find in the files or will never find."""
        return int(self.encoder.seq - self.encoder.count)

    @property
    def begins(self) -> int:
        """Return the first seq of the open file, or of the next one."""
        return int(self._begins) if self._fd >= 0 else self.behind

    def whole_bytes(self, name: str) -> int | None:
        """Return the bytes of an open file in complete blocks; None: the file is not open."""
        if self._fd < 0 or os.path.basename(self._path) != name + OPEN:
            return None
        return int(self._size)

    def flush(self) -> None:
        """Write the buffered records."""
        encoder = self.encoder
        if encoder.count == 0:
            return
        count = encoder.count
        first = encoder.seq - count
        try:
            if self._fd < 0:
                self._begin(first)
            data = encoder.take()
            self._write_all(data)
        except OSError as error:
            if encoder.count > 0:
                encoder.take()
            self._failed(first, count, error)
            return
        self._missing_from = 0
        if self.failure:
            self.failure = ""
        if self._size >= self._bytes_max:
            self._finish()

    def tick(self, free: int) -> None:
        """Check the file's age and the free space, once a second; `free`: bytes, negative if unknown."""
        self._guard(free)
        self.flush()
        if self._fd >= 0 and self._clock() - self._began >= self._seconds_max * MICROSECONDS:
            self._finish()

    def free_bytes(self) -> int:
        """Return the free space on the journal's disk; -1 if the system does not report it."""
        folder = self._live
        try:
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            stat = os.statvfs(folder)
        except OSError:
            return -1
        return stat.f_bavail * stat.f_frsize

    def to_sync(self) -> int:
        """Return the descriptor of the open file, which the caller syncs; -1 without one."""
        return self._fd

    def close(self, ended: bool = True) -> None:
        """Write the buffered records, record a clean stop if `ended`, and complete the file."""
        if ended and self.encoder.seq > self._first:
            self._say(r.END, 0, b"")
        self.flush()
        if self._fd >= 0:
            self._finish()

    def stay_away(self) -> None:
        """Record that journaling is off, if the folder has a journal from before."""
        if self.encoder.seq > 1:
            self._say(r.LEVEL, r.reason_number("off"), b"")
            self.close()

    def _begin(self, first: i64) -> None:
        """Begin a new file, which gets its name once it has a header."""
        self._live.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = str(self._live / (file_name(self.node, int(first)) + OPEN))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._fd = fd
        self._path = path
        self._size = 0
        self._begins = first
        self._began = self._clock()
        self._write_all(self.encoder.header(self._began))

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        written = 0
        while written < len(data):
            written += self._write(self._fd, view[written:])  # type: ignore[arg-type]
        self._size += len(data)
        self.written += len(data)

    def _finish(self) -> None:
        """Complete the file, which gets its final name."""
        fd, self._fd = self._fd, -1
        self.encoder.end_file()
        try:
            os.close(fd)
            os.rename(self._path, self._path.removesuffix(OPEN))
        except OSError as error:
            self._break_off(error)

    def _failed(self, first: i64, count: i64, error: OSError) -> None:
        """Count records as lost, and cut the part that was written: readers would find a hole."""
        self.lost += count
        if self._missing_from == 0:
            self._missing_from = first
        if self._fd < 0:
            self.encoder.end_file()
        elif self._size == 0:
            self._abandon()
        else:
            self._cut()
            self._finish()
        self._break_off(error)

    def _break_off(self, error: OSError) -> None:
        """Note that records before this point may be missing: the next record is a gap."""
        self.failure = error.strerror or str(error)
        self._tell_gap(FAILED + self.failure.encode())

    def _cut(self) -> None:
        try:
            os.ftruncate(self._fd, int(self._size))
            os.lseek(self._fd, int(self._size), os.SEEK_SET)
        except OSError:
            pass

    def _abandon(self) -> None:
        fd, self._fd = self._fd, -1
        self.encoder.end_file()
        try:
            os.close(fd)
            os.unlink(self._path)
        except OSError:
            pass

    def _guard(self, free: int) -> None:
        """Set the limit from the free space."""
        limit = FULL
        if 0 <= free < self._free_min:
            limit = LIFECYCLE if free >= self._free_min // 2 else OFF
        if limit == self.limit:
            return
        if self.limit == OFF:
            self._tell_gap(RESUMED)
        self.limit = limit
        self._say(r.LEVEL, r.reason_number(("off", "lifecycle", "full")[limit]), b"")

    def _tell_gap(self, why: bytes) -> None:
        """Record a gap with the seqs that may be missing, since the first one that could not be written.

        A crash loses no seqs: the next start continues behind the last event that it finds.
        """
        seq = self.encoder.seq
        first = seq if self._missing_from == 0 else self._missing_from
        self.encoder.record(self._clock(), r.GAP, 0, -1, first, None, None, None, seq - first, 0, 0, 0, why)

    def _say(self, op: i64, reason: i64, text: bytes) -> None:
        """Record an event of the journal itself."""
        self.encoder.record(self._clock(), op, 0, -1, 0, None, None, None, 0, 0, reason, 0, text)
