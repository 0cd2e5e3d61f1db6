"""Segments of the log, and the messages in them that queues still hold."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message

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
    """A segment: a row of batches that is removed as a whole.

    The live messages (held by at least one queue) are linked in file order, so that copying them forward can
    walk the file and the list side by side. `needs` are older segments with an earlier record of a message
    about which this segment has a later record (a settle, a count or a copy). Without this segment, recovery
    would restore these messages, or restore them as new. So this segment may be removed only after its
    `needs`, or after its settles and counts have been appended again.
    """

    def __init__(self, number: i64, limit: i64) -> None:
        self.number = number
        self.name = segment_name(number)
        self.limit = limit  # the segment is full when it is this long
        self.fd: int = -1
        self.room: i64 = 0  # length of the recycled file from which it was made; 0: a new file
        self.end: i64 = 0  # where the next batch begins
        self.written: i64 = 0  # everything before this has been written
        self.entry_synced = False  # the directory entry is durable
        self.live: i64 = 0
        self.live_bytes: i64 = 0
        self.first: Message | None = None
        self.last: Message | None = None
        self.lowest: i64 = 0  # sequences of its message records, dead ones included; 0: none
        self.highest: i64 = 0
        self.settles: i64 = 0  # settle records about messages of other segments
        self.count_bytes: i64 = 0  # the length of all count records that are not void
        self.needs: set[int] = set()
        self.emptied_in: i64 = 0  # number of the batch with the last copy of its needed records
        self.removed_in: i64 = 0  # number of the batch with the record of its removal

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

    def drop_contents(self, start: i64, end: i64) -> i64:
        """Drop from memory the contents in these bytes at the end. Return how many bytes that frees."""
        freed: i64 = 0
        message = self.last
        while message is not None and message.offset >= start:
            if message.offset < end and message.content is not None:
                message.content = None
                freed += message.length
            message = message.log_previous
        return freed

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
