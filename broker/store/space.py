"""Gives space back: deletes segments that nothing needs, copies what is left of mostly dead ones forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from mypy_extensions import i64

from broker.core.message import Message
from broker.store.batch import Move, encode_queues
from broker.store.counts import Count
from broker.store.disk import NO_DESCRIPTORS
from broker.store.format import COUNT, MESSAGE, SETTLE
from broker.store.records import END, MALFORMED, Records
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment

if TYPE_CHECKING:
    from broker.store.log import Log

SLICE: Final = 256 * 1024  # copied per batch at most, or one batch of the victim if that is larger
SETTLE_BYTES: Final = 17

_log = structlog.get_logger("amqpd.store")


@final
class Space:
    """Works a little after every durable batch.

    A segment is removed in three steps: nothing live is in it and nothing older needs its settles and counts
    (or all of that has been appended again: it is *emptied*); a batch that says it is removed becomes
    durable, and from then on recovery ignores it; its file is deleted in the background.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.changed = False  # a segment may have become removable
        self.victim: Segment | None = None  # the segment being copied forward
        self.scanner: SegmentScanner | None = None
        self.records = Records()

    def batches_failed(self, number: i64) -> None:
        """What batches from this number on said has not been written."""
        for segment in self.log.segments.all():
            if segment.removal >= number:
                segment.removal = 0
            if segment.emptied >= number:
                segment.emptied = 0
        self.victim = None
        self.scanner = None
        self.changed = True

    def step(self) -> None:
        """A batch has become durable."""
        if self.changed:
            self.changed = False
            self._finish_removals()
            self._remove_dead()
            if self.victim is None:
                self.victim = self._choose()
                self.scanner = None
        if self.victim is not None:
            self._copy_slice(self.victim)

    def _finish_removals(self) -> None:
        log = self.log
        for segment in log.segments.all():
            if 0 < segment.removal <= log.durable:
                log.segments.remove(segment)
                if log.full or not log.files.recycle(segment):
                    log.files.close(segment)
                    log.syncer.remove(segment.name)

    def _remove_dead(self) -> None:
        log = self.log
        going: set[int] = set()
        current = log.filling.segment
        for segment in log.segments.all():
            if segment.removal:
                going.add(segment.number)
            elif segment is current or segment.live > 0:
                continue
            elif segment.emptied or self._needs_only(segment, going):
                going.add(segment.number)
                segment.removal = log.filling.number
                log.filling.add_removed(segment.number)
        if going:
            self.changed = True

    def _needs_only(self, segment: Segment, going: set[int]) -> bool:
        """Whether every segment that this one must outlive is going or gone."""
        for number in segment.needs:
            if number not in going and self.log.segments.get(number) is not None:
                return False
        return True

    def _choose(self) -> Segment | None:
        """The segment with the smallest share of what is needed, if too much of the log is not needed."""
        log = self.log
        current = log.filling.segment
        total: i64 = 0
        needed: i64 = 0
        best: Segment | None = None
        best_needed: i64 = 0
        for segment in log.segments.all():
            if segment.removal:
                continue
            part = segment.live_bytes + segment.settles * SETTLE_BYTES + segment.count_bytes
            total += segment.end
            needed += part
            if segment is current or segment.emptied or segment.end == 0:
                continue
            if best is None or part * best.end < best_needed * segment.end:
                best = segment
                best_needed = part
        if best is None or best_needed * 2 > best.end:
            return None
        if log.full:
            return best if best_needed < (current.limit - current.end) // 4 else None
        return best if total > 2 * needed + 2 * log.files.segment_bytes else None

    def _copy_slice(self, victim: Segment) -> None:
        """Append some of what is needed of the victim to the batch being filled."""
        log = self.log
        log.filling.segment.needs.add(victim.number)
        scanner = self.scanner
        try:
            if scanner is None:
                fd = log.files.readable(victim)
                path = log.files.path(victim.name)
                scanner = SegmentScanner(log.disk, fd, path, victim.number, log.identity)
                scanner.size = victim.good
                self.scanner = scanner
            scanner.fd = log.files.readable(victim)
            before: i64 = len(log.filling.writer)
            while len(log.filling.writer) - before < SLICE:
                if scanner.position >= victim.good:
                    self._emptied(victim)
                    return
                start = scanner.position
                if not scanner.next() or not self.copy_batch(victim, scanner):
                    self._give_up(victim, f"{scanner.path} is damaged at offset {start}")
                    return
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # the next batch tries again
            self._give_up(victim, f"{log.files.path(victim.name)}: {error}")

    def _emptied(self, victim: Segment) -> None:
        log = self.log
        assert victim.live == 0, "every live message has a record"
        assert victim.count_bytes == 0, "every count has a record, in a segment that needs its message's"
        victim.emptied = log.filling.number
        self.victim = None
        self.scanner = None
        self.changed = True

    def _give_up(self, victim: Segment, problem: str) -> None:
        """Leave a segment that does not read back where it is; it is never chosen again."""
        _log.error("a segment of the log does not read back and is left as it is", reason=problem)
        self.log.damaged_segments += 1
        victim.settles = victim.end
        self.victim = None
        self.scanner = None

    def copy_batch(self, victim: Segment, scanner: SegmentScanner) -> bool:
        """Append again what is needed of the batch that the scanner stands on; false if it makes no sense."""
        records = self.records
        records.open(scanner.data, scanner.start, scanner.end)
        while True:
            kind = records.next()
            if kind == MESSAGE:
                message = victim.first
                if message is not None and message.offset == scanner.shift + records.content_at:
                    self._copy(victim, message)
            elif kind == SETTLE:
                if self._is_needed(victim, records.sequence):
                    self.log.filling.add_settle(records.sequence, records.queue)
                    self.log.filling.segment.settles += 1
            elif kind == COUNT:
                self._copy_count(victim)
            elif kind == END:
                return True
            elif kind == MALFORMED:
                return False

    def _is_needed(self, victim: Segment, sequence: i64) -> bool:
        """Whether a segment that still exists may have a record of this message."""
        needed = False
        for number in victim.needs:
            older = self.log.segments.get(number)
            if older is not None and older.lowest <= sequence <= older.highest:
                self.log.filling.segment.needs.add(number)
                needed = True
        return needed

    def _copy_count(self, victim: Segment) -> None:
        """Append a count again that is not void. One of a message in the victim itself goes with that."""
        log = self.log
        records = self.records
        count = log.counts.of(records.sequence, records.queue)
        if (
            count is not None
            and count.segment == victim.number
            and count.is_said_by(records)
            and self._is_needed(victim, records.sequence)
        ):
            self._add_count(records.sequence, count)

    def _add_count(self, sequence: i64, count: Count) -> None:
        filling = self.log.filling
        filling.add_count(sequence, count.queue, count.value, count.annotations)
        self.log.counts.note(sequence, count.queue, count.value, count.annotations, filling.segment)

    def _copy(self, victim: Segment, message: Message) -> None:
        log = self.log
        records = self.records
        content = records.data[records.content_at : records.content_at + records.length]
        queues = records.queue_numbers()
        done = log.settled.get(message.sequence)
        if done is not None:
            queues = [queue for queue in queues if queue not in done]
        filling = log.filling
        filling.moved.append(Move(message, victim, message.offset))
        if message.content is None:  # the copy is not in the file yet
            message.content = content
            log.content_bytes += message.length
        victim.unlink(message)
        filling.add_message(message, content, encode_queues(queues) + message.address.encoded)
        filling.segment.link(message)
        count = log.counts.first.get(message.sequence) if log.counts.first else None
        while count is not None:
            self._add_count(message.sequence, count)
            count = count.following
