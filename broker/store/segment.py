"""Segment files of the log, and the messages in them that queues still hold."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message
from broker.store.disk import NO_DESCRIPTORS, Disk
from broker.store.sync import Syncer

SUFFIX: Final = ".log"
RECORD_OVERHEAD: Final = (
    64  # bytes that a message record has beside its content, roughly: for the account of space
)


def segment_name(number: int) -> str:
    """Return the file name of a segment, which sorts by number."""
    return f"{number:010d}{SUFFIX}"


def segment_number(name: str) -> int:
    """Return the number in a segment's file name; 0 for another file."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and len(stem) == 10 and stem.isdecimal() else 0


def is_stranger(name: str) -> bool:
    """Whether a file has the ending of segments and a name that no segment has."""
    return name.endswith(SUFFIX) and segment_number(name) == 0


@final
class Segment:
    """A segment file.

    Its live messages (held by at least one queue) are linked in file order, so that copying them forward can
    walk the file and the list side by side. `needs` are older segments with an earlier record of a message
    about which this segment has a later record (a settle, a count or a copy). Without this segment, recovery
    would restore these messages, or restore them as new. So this segment may be removed only after those, or
    after its settles and counts have been appended again.
    """

    def __init__(self, number: i64, limit: i64) -> None:
        self.number = number
        self.name = segment_name(number)
        self.limit = limit  # the segment is full when it is this long
        self.fd: int = -1
        self.room: i64 = 0  # length of the recycled file from which it was made; 0: a new file
        self.end: i64 = 0  # where the next batch begins
        self.good: i64 = 0  # everything before this has been written
        self.entry_synced = False  # the directory entry is durable
        self.live: i64 = 0
        self.live_bytes: i64 = 0
        self.first: Message | None = None
        self.last: Message | None = None
        self.lowest: i64 = 0  # sequences of its message records, dead ones included; 0: it has none
        self.highest: i64 = 0
        self.settles: i64 = 0  # settle records about messages of other segments
        self.count_bytes: i64 = 0  # of count records that are not void
        self.needs: set[int] = set()
        self.emptied: i64 = 0  # number of the batch with the last copy of its needed records
        self.removal: i64 = 0  # number of the batch with the record of its removal

    def link(self, message: Message) -> None:
        """Add a message whose record has just been appended here."""
        sequence = message.sequence
        message.segment = self.number
        last = self.last
        message.log_previous = last
        message.log_next = None
        if last is None:
            self.first = message
        else:
            last.log_next = message
        self.last = message
        self.live += 1
        self.live_bytes += message.length + RECORD_OVERHEAD
        if sequence > self.highest:
            self.highest = sequence
        if self.lowest == 0 or sequence < self.lowest:
            self.lowest = sequence

    def unlink(self, message: Message) -> None:
        """Remove a message that is dead or has been moved to another segment."""
        previous = message.log_previous
        following = message.log_next
        if previous is None:
            self.first = following
        else:
            previous.log_next = following
        if following is None:
            self.last = previous
        else:
            following.log_previous = previous
        message.log_previous = None
        message.log_next = None
        self.live -= 1
        self.live_bytes -= message.length + RECORD_OVERHEAD

    def put_back(self, message: Message, offset: i64) -> None:
        """Undo the move of a message that was copied from here, the last moved one first."""
        message.segment = self.number
        message.offset = offset
        first = self.first
        message.log_next = first
        message.log_previous = None
        if first is None:
            self.last = message
        else:
            first.log_previous = message
        self.first = message
        self.live += 1
        self.live_bytes += message.length + RECORD_OVERHEAD

    def forget_all(self) -> None:
        """Cut every link, because the garbage collector does not track messages."""
        message = self.first
        while message is not None:
            following = message.log_next
            message.log_previous = None
            message.log_next = None
            message = following
        self.first = None
        self.last = None


@final
class SegmentTable:
    """The segments that exist, by number."""

    def __init__(self) -> None:
        self.base: i64 = 0  # the number of the first slot
        self.slots: list[Segment | None] = []
        self.count: i64 = 0

    def add(self, segment: Segment) -> None:
        """Add a segment with a higher number than every other."""
        if not self.slots:
            self.base = segment.number
        while self.base + len(self.slots) < segment.number:
            self.slots.append(None)
        self.slots.append(segment)
        self.count += 1

    def get(self, number: i64) -> Segment | None:
        """Return the segment; None if it has been removed."""
        index = number - self.base
        if index < 0 or index >= len(self.slots):
            return None
        return self.slots[index]

    def holding(self, message: Message) -> Segment:
        """Return the segment of a live message."""
        segment = self.slots[message.segment - self.base]
        assert segment is not None
        return segment

    def remove(self, segment: Segment) -> None:
        """Forget a segment; segments that needed it inherit its needs."""
        self.slots[segment.number - self.base] = None
        while self.slots and self.slots[-1] is None:
            self.slots.pop()
        while self.slots and self.slots[0] is None:
            self.slots.pop(0)
            self.base += 1
        self.count -= 1
        for other in self.all():
            if segment.number in other.needs:
                other.needs.discard(segment.number)
                other.needs |= segment.needs

    def all(self) -> list[Segment]:
        """Return the segments, oldest first."""
        return [segment for segment in self.slots if segment is not None]


LOCK: Final = "lock"
SPARE: Final = "spare"
RESERVE: Final = "reserve"
NEWEST: Final = "newest"  # contains the number of the newest segment with a synced batch
OPEN_FILES_MAX: Final = 64  # old segments that stay open for reading

ABSENT: Final = 0
ASKED: Final = 1
READY: Final = 2


@final
class Files:
    """Opens and closes segment files; prepares the spare and the reserve in the background.

    The spare saves the first writer of a segment the cost of growing a file. Once `recycles` is set, the
    spare is made from a dead segment, if there is one in time: its blocks are written and its pages are in
    memory, so writing and syncing the next segment costs only a fifth to three fifths as much. The reserve is
    room for settles and copies only, while the disk is full: they make room. It begins with a checkpoint,
    like every segment: as `checkpoint_bytes` grow, so does the reserve.
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
        self.asked_length: i64 = 0  # of the reserve that is being made or extended
        self.growing = False
        self.wants_spare = False
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

    def ask(self, spare: bool) -> None:
        """Request the reserve, then the spare if it is wanted, unless they exist or are being prepared."""
        self.wants_spare = spare
        if self.reserve == ASKED or self.spare == ASKED or self.growing:
            return
        if self.reserve == ABSENT:
            self.reserve = ASKED
            self.asked_length = self.checkpoint_bytes + self.reserve_bytes
            self.syncer.prepare(RESERVE, self.asked_length)
        elif self.reserve_length < self.checkpoint_bytes + self.reserve_bytes // 2:
            self.growing = True
            self.asked_length = self.checkpoint_bytes + self.reserve_bytes
            self.syncer.grow(RESERVE, self.asked_length)
        elif self.spare == ABSENT and spare:
            self.spare = ASKED
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
        self.spare = ASKED
        self.spare_bytes = self.next_bytes
        self.syncer.recycle(segment.name, SPARE, self.spare_bytes)
        return True

    def prepared(self, name: str, reason: str) -> None:
        """Note that the syncer has prepared a file, or could not; then `ask` again later."""
        state = ABSENT if reason else READY
        if name == RESERVE:
            if not self.growing:
                self.reserve = state
            if state == READY:
                self.reserve_length = self.asked_length
            self.growing = False  # if the reserve was used meanwhile, there is none now
        else:
            self.spare = state
        if not reason:
            self.ask(self.wants_spare)

    def readable(self, segment: Segment) -> int:
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
