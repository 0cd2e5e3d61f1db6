"""Journal files as they are written: one after the other, each for a while or up to a size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from mypy_extensions import i64

from broker.journal.files import Found, find
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
    """Writes what `encoder` holds into the journal of `node` in `folder`, which is made when it is needed.

    `clock`: microseconds since 1970. A file is closed at `bytes_max` bytes, or when it is `seconds_max` old.
    With less than `free_min` bytes of free space the `limit` goes down: no deliveries, with less than half
    of that nothing. Nothing here raises for what the disk does: what is not written is counted in `lost`,
    `failure` says why, and what is written next begins with a gap.

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
        found: Found = find(folder, node)
        self.encoder = Encoder(node, found.next_seq)
        self.crashed = found.crashed
        self.failure = ""
        self.limit: i64 = FULL
        self.lost: i64 = 0
        self.written: i64 = 0  # bytes
        self._first: i64 = found.next_seq
        self._clock = clock
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._free_min = free_min
        self._write = write
        self._fd = -1
        self._path = ""
        self._size: i64 = 0
        self._begins: i64 = 0  # the seq of its first event
        self._began: i64 = 0
        self._missing_from: i64 = 0  # the first seq of those that could not be written, until some can
        if found.crashed:
            self._tell_gap(CRASHED)

    @property
    def behind(self) -> int:
        """The seq behind the last event that a reader of the files finds, or never will."""
        return int(self.encoder.seq - self.encoder.count)

    @property
    def begins(self) -> int:
        """The seq with which the file begins that is open, or would begin."""
        return int(self._begins) if self._fd >= 0 else self.behind

    def whole_bytes(self, name: str) -> int | None:
        """How much of the file with this name has been written, in whole blocks; None: it is not open."""
        if self._fd < 0 or os.path.basename(self._path) != name + OPEN:
            return None
        return int(self._size)

    def flush(self) -> None:
        """Write what waits."""
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
        """Look after it, once a second or so; `free`: bytes of free space, negative: nobody knows."""
        self._guard(free)
        self.flush()
        if self._fd >= 0 and self._clock() - self._began >= self._seconds_max * MICROSECONDS:
            self._finish()

    def free_bytes(self) -> int:
        """Free space where the journal is, or is to be; -1: the system does not tell."""
        folder = self._live
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            found = os.statvfs(folder)
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize

    def to_sync(self) -> int:
        """The file that is written, to be synced by the caller; -1: there is none."""
        return self._fd

    def close(self, ended: bool = True) -> None:
        """Write what waits, say that this is the end if it is as it should be, and end the file."""
        if ended and self.encoder.seq > self._first:
            self._say(r.END, 0, b"")
        self.flush()
        if self._fd >= 0:
            self._finish()

    def stay_away(self) -> None:
        """The broker has started and journals nothing: if there is a journal from before it says so."""
        if self.encoder.seq > 1:
            self._say(r.LEVEL, r.reason_number("off"), b"")
            self.close()

    def _begin(self, first: i64) -> None:
        """Begin a new file, which appears under its name once it has a header."""
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
        done = 0
        while done < len(data):
            done += self._write(self._fd, view[done:])  # type: ignore[arg-type]
        self._size += len(data)
        self.written += len(data)

    def _finish(self) -> None:
        """The file is whole: it has its name from now on."""
        fd, self._fd = self._fd, -1
        self.encoder.end_file()
        try:
            os.close(fd)
            os.rename(self._path, self._path.removesuffix(OPEN))
        except OSError as error:
            self._break_off(error)

    def _failed(self, first: i64, count: i64, error: OSError) -> None:
        """Count records as lost, and cut off the part of them that was written: readers would find a hole."""
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
        """Records may be missing up to here: a gap is the first that waits, so that it is directly behind."""
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
        """Set the limit by the free space."""
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
        """Record a gap, and which seqs may be missing: those since the first that could not be written.

        A crash takes no seqs: the next start goes on behind the last event that it finds.
        """
        seq = self.encoder.seq
        first = seq if self._missing_from == 0 else self._missing_from
        self.encoder.record(self._clock(), r.GAP, 0, -1, first, None, None, None, seq - first, 0, 0, 0, why)

    def _say(self, op: i64, reason: i64, text: bytes) -> None:
        """Record a fact about the journal itself."""
        self.encoder.record(self._clock(), op, 0, -1, 0, None, None, None, 0, 0, reason, 0, text)
