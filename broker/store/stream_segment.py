"""One file of a stream: chunks, one behind the other, and where some of them are."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final, final

from mypy_extensions import i64

from protocol.streams.chunk import Header

SUFFIX: Final = ".chunks"


def stream_segment_name(number: int, first: int) -> str:
    """The file of the stream with this number whose first row has this offset: sorts by that."""
    return f"stream-{number}-{first:020d}{SUFFIX}"


def parse_stream_name(name: str) -> tuple[int, int] | None:
    """The number of the stream and the first offset of a segment's file; None for any other name."""
    parts = name.removesuffix(SUFFIX).split("-")
    if not name.endswith(SUFFIX) or len(parts) != 3 or parts[0] != "stream":
        return None
    if not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return int(parts[1]), int(parts[2])


@final
class StreamSegment:
    """A segment file. `end`: bytes of whole chunks in it. `next`: the offset behind its last row.

    Of the marked chunks, which are `mark_bytes` from each other at least and the first of which is the file's
    first, `offsets` has the first offsets, `times` the times of the first rows, in microseconds since 1970,
    and `positions` where they begin. `lost`: where those chunks begin that say that rows are lost.
    """

    def __init__(self, name: str, first: i64, mark_bytes: i64) -> None:
        self.name = name
        self.mark_bytes = mark_bytes
        self.first = first
        self.next = first
        self.end: i64 = 0
        self.fd: int = -1
        self.entry_synced = False  # the directory entry is durable
        self.unsynced = False  # there are chunks that are not, perhaps
        self.last_time: i64 = 0
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.positions: list[int] = []
        self.lost: list[int] = []
        # where nothing reads back: which rows, and where the next whole chunk begins, -1: nowhere
        self.damaged: dict[int, tuple[int, int, int]] = {}

    def add(self, header: Header) -> None:
        """A chunk has been written at the end."""
        if not self.positions or self.end - self.positions[-1] >= self.mark_bytes:
            self.offsets.append(header.first)
            self.times.append(header.first_time)
            self.positions.append(self.end)
        if header.lost:
            self.lost.append(self.end)
        self.end += header.size
        self.next = header.behind
        self.last_time = header.last_time

    def cut(self, end: i64, behind: i64, last_time: i64) -> None:
        """The chunks from the position `end` on are gone; `behind` and `last_time` are as before them."""
        while self.positions and self.positions[-1] >= end:
            self.positions.pop()
            self.offsets.pop()
            self.times.pop()
        while self.lost and self.lost[-1] >= end:
            self.damaged.pop(self.lost.pop(), None)
        self.end = end
        self.next = behind
        self.last_time = last_time

    def before_offset(self, offset: i64) -> i64:
        """The position of a marked chunk from which on to look for the one with this offset."""
        found: i64 = bisect_right(self.offsets, offset)
        return self.positions[max(found - 1, 0)] if self.positions else 0

    def before_time(self, time: i64) -> i64:
        """The position of a marked chunk before which all rows are earlier than this."""
        found: i64 = bisect_right(self.times, time - 1)
        return self.positions[max(found - 1, 0)] if self.positions else 0

    def add_damage(self, position: i64, first: i64, behind: i64, following: i64) -> None:
        """From a position up to the `following` chunk nothing reads back: rows `first` to `behind`."""
        at: int = position
        self.damaged[at] = (int(first), int(behind), int(following))
        insort(self.lost, at)

    def offset_at(self, position: i64) -> i64:
        """The first offset of the marked chunk at a position."""
        found: i64 = bisect_right(self.positions, position)
        return self.offsets[max(found - 1, 0)] if self.offsets else self.first

    def mark_behind(self, position: i64) -> i64:
        """The next marked chunk behind a position; -1: there is none."""
        found: i64 = bisect_right(self.positions, position)
        return self.positions[found] if found < len(self.positions) else -1

    def lost_behind(self, position: i64) -> i64:
        """Where behind a position the first chunk is that says that rows are lost; -1: there is none."""
        found: i64 = bisect_right(self.lost, position)
        return self.lost[found] if found < len(self.lost) else -1
