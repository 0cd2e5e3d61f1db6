"""How often queues have given out messages, as far as the log has to remember it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.store.segment import Segment, SegmentTable

COUNT_BYTES: Final = 25  # of a count record


@final
@mypyc_attr(acyclic=True)
class Count:
    """`queue` has given out the message `value` times that count; the record that says so is in `segment`."""

    def __init__(self, queue: i64, value: i64, segment: i64, following: Count | None) -> None:
        self.queue = queue
        self.value = value
        self.segment = segment
        self.following = following  # of another queue that holds the same message


@final
class Counts:
    """The newest count of every message that is alive and has one.

    Each stands in one record, which must be copied forward before its segment goes; all other count records
    are void. `Segment.counts` is how many records of a segment are not.
    """

    def __init__(self, segments: SegmentTable) -> None:
        self.segments = segments
        self.first: dict[int, Count] = {}  # by sequence; the others follow

    def of(self, sequence: i64, queue: i64) -> Count | None:
        """The count of a message in a queue."""
        count = self.first.get(sequence)
        while count is not None and count.queue != queue:
            count = count.following
        return count

    def note(self, sequence: i64, queue: i64, value: i64, segment: Segment) -> None:
        """A record in `segment` says that `queue` has given out the message `value` times.

        The last of a message's records is the one that is not void: what did not count is taken back.
        """
        count = self.of(sequence, queue)
        if count is None:
            self.first[sequence] = Count(queue, value, segment.number, self.first.get(sequence))
        else:
            self._void(count)
            count.value = value
            count.segment = segment.number
        segment.counts += 1

    def settle(self, sequence: i64, queue: i64) -> None:
        """The queue no longer holds the message."""
        before: Count | None = None
        count = self.first.get(sequence)
        while count is not None and count.queue != queue:
            before = count
            count = count.following
        if count is None:
            return
        self._void(count)
        if before is not None:
            before.following = count.following
        elif count.following is not None:
            self.first[sequence] = count.following
        else:
            del self.first[sequence]

    def drop(self, sequence: i64) -> None:
        """No queue holds the message."""
        count = self.first.pop(sequence, None)
        while count is not None:
            self._void(count)
            count = count.following

    def by_queue(self, sequence: i64) -> dict[int, int]:
        """The counts of a message by queue number."""
        found: dict[int, int] = {}
        count = self.first.get(sequence)
        while count is not None:
            found[count.queue] = count.value
            count = count.following
        return found

    def _void(self, count: Count) -> None:
        segment = self.segments.get(count.segment)
        if segment is not None:
            segment.counts -= 1
