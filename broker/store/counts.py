"""Delivery counts and annotations: how often queues have delivered messages, as far as the log must know."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.store.format import Records
from broker.store.segment import Segment, SegmentTable

COUNT_BYTES: Final = 25  # the length of a count record
_LENGTH_BYTES: Final = 4  # the length field of annotations


@final
@mypyc_attr(acyclic=True)
class Count:
    """The delivery count of a message in `queue`: `value`; the count record is in `segment`.

    `annotations`: the annotations that consumers have added to the message in the queue.
    """

    def __init__(
        self, queue: i64, value: i64, annotations: bytes, segment: i64, following: Count | None
    ) -> None:
        self.queue = queue
        self.value = value
        self.annotations = annotations
        self.segment = segment
        self.following = following  # the count of another queue that holds the same message

    @property
    def size(self) -> i64:
        """The bytes of its record."""
        length: i64 = len(self.annotations)
        return COUNT_BYTES + _LENGTH_BYTES + length if length > 0 else COUNT_BYTES

    def matches(self, records: Records) -> bool:
        """Whether the current record contains this count."""
        return self.value == records.count and self.annotations == records.annotations()


@final
class Counts:
    """The newest count of every live message that has one.

    Each count is in one record, which must be copied forward before its segment is removed. All other count
    records are void. `Segment.count_bytes` is the size of the valid count records of a segment.
    """

    def __init__(self, segments: SegmentTable) -> None:
        self.segments = segments
        self.first: dict[int, Count] = {}  # by sequence; the others follow

    def of(self, sequence: i64, queue: i64) -> Count | None:
        """Return the count of a message in a queue."""
        count = self.first.get(sequence)
        while count is not None and count.queue != queue:
            count = count.following
        return count

    def note(self, sequence: i64, queue: i64, value: i64, annotations: bytes, segment: Segment) -> None:
        """Note a record in `segment` with the count and the annotations of a message in `queue`.

        The last record of a message is the valid one, because a count may also be reduced.
        """
        count = self.of(sequence, queue)
        if count is None:
            count = Count(queue, value, annotations, segment.number, self.first.get(sequence))
            self.first[sequence] = count
        else:
            self._void(count)
            count.value = value
            count.annotations = annotations
            count.segment = segment.number
        segment.count_bytes += count.size

    def settle(self, sequence: i64, queue: i64) -> None:
        """Void the count of a queue that no longer holds the message."""
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
        """Void all counts of a message that no queue holds."""
        count = self.first.pop(sequence, None)
        while count is not None:
            self._void(count)
            count = count.following

    def by_queue(self, sequence: i64) -> dict[int, Count]:
        """Return the counts of a message by queue number."""
        counts: dict[int, Count] = {}
        count = self.first.get(sequence)
        while count is not None:
            counts[count.queue] = count
            count = count.following
        return counts

    def _void(self, count: Count) -> None:
        segment = self.segments.get(count.segment)
        if segment is not None:
            segment.count_bytes -= count.size
