"""The files of segments: opened, closed, prepared in the background, and used again."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.store.disk import NO_DESCRIPTORS, Disk
from broker.store.segment import Segment, segment_number
from broker.store.sync import Syncer

LOCK: Final = "lock"
SPARE: Final = "spare"
RESERVE: Final = "reserve"
NEWEST: Final = "newest"  # contains the number of the newest segment with a synced batch
OPEN_FILES_MAX: Final = 64  # old segments that stay open for reading

ABSENT: Final = 0
REQUESTED: Final = 1
READY: Final = 2


@final
class SegmentFiles:
    """Opens and closes segment files; prepares the spare and the reserve in the background.

    The spare saves the first writer of a segment the cost of growing a file. Once `recycles` is set, the
    spare is made from a dead segment, if there is one in time. The blocks of a dead segment are written and
    its pages are in memory: writing and syncing the next segment costs a fifth to three fifths as much. The
    reserve is room for settles and copies while the disk is full, because both free space. The reserve begins
    with a checkpoint, like every segment. The reserve grows with `checkpoint_bytes`.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        syncer: Syncer,
        segment_bytes: i64,
        first_segment_bytes: i64,
        reserve_bytes: i64,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.syncer = syncer
        self.segment_bytes = segment_bytes
        self.next_bytes = min(first_segment_bytes, segment_bytes)
        self.reserve_bytes = reserve_bytes  # beside the checkpoint
        self.checkpoint_bytes: i64 = 0  # the length of a checkpoint, if it were written now
        self.spare: i64 = ABSENT
        self.spare_bytes: i64 = 0
        self.reserve: i64 = ABSENT
        self.reserve_length: i64 = 0
        self.requested_length: i64 = 0  # the length of the reserve that is being made or extended
        self.growing = False
        self.is_spare_wanted = False
        self.recycles = False
        self.lock_fd: int = -1
        self.noted: i64 = 0  # the segment that `note_newest` was called for
        self.opened: list[Segment] = []

    def path(self, name: str) -> str:
        """Return the full path of a file of the folder."""
        return os.path.join(self.directory, name)

    def lock(self) -> None:
        """Create the folder and lock it. Raises LogLocked, OSError."""
        self.disk.make_directory(self.directory)
        self.lock_fd = self.disk.lock(self.path(LOCK))

    def unlock(self) -> None:
        """Release the folder's lock."""
        if self.lock_fd >= 0:
            self.disk.close(self.lock_fd)
            self.lock_fd = -1

    def numbers(self) -> list[int]:
        """Return the numbers of the existing segment files, ascending."""
        return sorted(n for n in map(segment_number, self.disk.names(self.directory)) if n)

    def newest_noted(self) -> int:
        """Return the number that `note_newest` has noted last; 0 if none, or if the note is not readable."""
        if NEWEST not in self.disk.names(self.directory):
            return 0
        fd = self.disk.open(self.path(NEWEST))
        try:
            data = self.disk.read(fd, self.disk.size(fd), 0)
        finally:
            self.disk.close(fd)
        number = data[:20].decode("ascii", "replace")
        return int(number) if number.isdecimal() and data == _noted(int(number)) else 0

    def note_newest(self, number: i64) -> None:
        """Note that a batch of a segment, and the file's name, are on disk, to detect a missing file later.

        The note is written in place and not synced: after a crash it may name an earlier segment.
        """
        self.noted = number
        path = self.path(NEWEST)
        try:
            fd = self.disk.open(path) if NEWEST in self.disk.names(self.directory) else self.disk.create(path)
            try:
                self.disk.write(fd, [_noted(int(number))], 0)
            finally:
                self.disk.close(fd)
        except OSError:  # no descriptor or no room: the earlier note stays
            return

    def new_segment(self, number: i64) -> Segment:
        """Return a segment without a file; each is twice as long as the one before, up to `segment_bytes`."""
        segment = Segment(number, self.next_bytes)
        self.next_bytes = min(self.next_bytes * 2, self.segment_bytes)
        return segment

    def make(self, segment: Segment) -> None:
        """Give a new segment its file. Raises OSError, and then nothing has changed."""
        if self.spare == READY:
            self._rename(SPARE, segment)
            self.spare = ABSENT
            segment.room = self.spare_bytes
        else:
            segment.fd = self._with_descriptor(self.disk.create, self.path(segment.name))

    def make_of_reserve(self, segment: Segment) -> None:
        """Turn the reserve into a segment. Raises OSError, and then nothing has changed."""
        self._rename(RESERVE, segment)
        self.reserve = ABSENT
        segment.limit = self.reserve_length
        segment.room = 0

    def _rename(self, name: str, segment: Segment) -> None:
        path = self.path(name)
        fd = self._with_descriptor(self.disk.open, path)  # before the rename, because opening may fail
        try:
            self.disk.rename(path, self.path(segment.name))
        except OSError:
            self.disk.close(fd)
            raise
        segment.fd = fd

    def _with_descriptor(self, opened: Callable[[str], int], path: str) -> int:
        """Open or create a file; if no descriptor is free, close old segments first."""
        while True:
            try:
                return opened(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self.opened:
                    raise
                self.close(self.opened[0])

    def request(self, spare: bool) -> None:
        """Request the reserve, then the spare if it is wanted, unless they exist or are being prepared."""
        self.is_spare_wanted = spare
        if self.reserve == REQUESTED or self.spare == REQUESTED or self.growing:
            return
        if self.reserve == ABSENT:
            self.reserve = REQUESTED
            self.requested_length = self.checkpoint_bytes + self.reserve_bytes
            self.syncer.prepare(RESERVE, self.requested_length)
        elif self.reserve_length < self.checkpoint_bytes + self.reserve_bytes // 2:
            self.growing = True
            self.requested_length = self.checkpoint_bytes + self.reserve_bytes
            self.syncer.grow(RESERVE, self.requested_length)
        elif self.spare == ABSENT and spare:
            self.spare = REQUESTED
            self.spare_bytes = self.next_bytes
            self.syncer.prepare(SPARE, self.spare_bytes)

    def recycle(self, segment: Segment) -> bool:
        """Make the spare from a dead segment's file, if there is no spare and the file is long enough.

        The segment made from it is full when it is written to the end of the file or past it: `format`
        describes the bytes behind the last batch until then.
        """
        if not self.recycles or self.spare != ABSENT or segment.end < self.next_bytes:
            return False
        self.close(segment)
        self.spare = REQUESTED
        self.spare_bytes = self.next_bytes
        self.syncer.recycle(segment.name, SPARE, self.spare_bytes)
        return True

    def on_prepared(self, name: str, reason: str) -> None:
        """Note that the syncer has prepared a file, or could not; then `request` again later."""
        state = ABSENT if reason else READY
        if name == RESERVE:
            if not self.growing:
                self.reserve = state
            if state == READY:
                self.reserve_length = self.requested_length
            self.growing = False  # if the reserve was used meanwhile, there is none now
        else:
            self.spare = state
        if not reason:
            self.request(self.is_spare_wanted)

    def open_for_reading(self, segment: Segment) -> int:
        """Return a descriptor for reading an old segment. Raises OSError."""
        if segment.fd < 0:
            segment.fd = self._with_descriptor(self.disk.open, self.path(segment.name))
            self.retire(segment)
        return segment.fd

    def retire(self, segment: Segment) -> None:
        """Note that the segment is only read from now on; the least recent one of many is closed."""
        self.opened.append(segment)
        if len(self.opened) > OPEN_FILES_MAX:
            self.close(self.opened[0])

    def close(self, segment: Segment) -> None:
        """Close a segment's file if it is open."""
        if segment in self.opened:
            self.opened.remove(segment)
        if segment.fd >= 0:
            self.disk.close(segment.fd)
            segment.fd = -1


def _noted(number: int) -> bytes:
    digits = b"%020d" % number
    return b"%s %08x\n" % (digits, crc32(digits))
