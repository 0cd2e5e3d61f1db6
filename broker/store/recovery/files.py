"""The reading part of recovery: the files of a folder are replayed and given to a sink, unchanged."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from broker.core.message import REMEMBERED, Message
from broker.store.append import HeldMessages
from broker.store.counts import Count
from broker.store.errors import LogDamaged
from broker.store.recovery.replay import PAGE, Replay
from broker.store.recovery.sink import NOWHERE, RecoveryReport, RecoverySink
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment, SegmentTable, segment_name

STRAY_GAP: Final = 1000  # the largest number of starts in a row that ended before their segment had a batch
_NO_COUNTS: Final[dict[int, Count]] = {}


class Reading:
    """The read-only half of recovery. Damage raises an error here; `salvage.Salvage` continues behind it."""

    def __init__(self, log: HeldMessages, cut: tuple[int, int] = NOWHERE) -> None:
        self.log = log
        self.cut = cut  # a segment, and the beginning of its last batch, which is not whole
        self.segments = SegmentTable()
        self.replay = Replay(self.segments)
        self.report = RecoveryReport()
        self.identity: int = 0
        self.last_batch: i64 = 0
        self.tail_at: i64 = 0  # the last valid batch of the newest segment
        self.tail_segment: Segment | None = None
        self.leftovers: list[str] = []
        self.void: list[tuple[Message, int]] = []  # large messages, and their deleted queues
        self.highest: i64 = 0

    def scanner(self, number: i64, identity: int) -> SegmentScanner:
        """Return a scanner over the segment's file, which the caller closes."""
        path = self.log.files.path(segment_name(number))
        scanner = SegmentScanner(self.log.disk, self.log.disk.open(path), path, number, identity)
        if number == self.cut[0]:
            scanner.size = self.cut[1]
        return scanner

    def run(self) -> None:
        """Replay every segment. Raises LogDamaged, LogVersionUnknown, OSError."""
        noted = self.log.files.newest_noted()
        numbers = self._without_strays(self.log.files.numbers(), noted)
        if noted > (numbers[-1] if numbers else 0):
            self.missing_newest(noted, numbers[-1] + 1 if numbers else 1)
        if not numbers:
            self.report.is_new = noted == 0
            return
        self.highest = max(self.highest, numbers[-1])
        self.identity = self.find_identity(numbers)
        newest = self.newest(numbers)
        if newest < 0:
            return
        listed = self.listed(numbers, newest)
        for number in listed:
            if number not in numbers:
                self.missing(number, newest)
        for number in numbers:
            if number in listed or number == newest:
                self.segment(number, listed.get(number, -1))
            else:
                self.leftovers.append(segment_name(number))

    def _without_strays(self, numbers: list[int], noted: int) -> list[int]:
        """Return the numbers of segments, without stray files that have come into the folder.

        The noted number may be old after a crash. A later segment has a readable batch, or nothing in it was
        synced. Each start that ends before it has synced anything skips a number.
        """
        if noted == 0:
            return numbers
        ours, last = [], noted
        for number in numbers:
            if number > noted and self._has_batch(number):
                last = number
            if number <= last + STRAY_GAP:
                ours.append(number)
            else:
                self.stray(number, last)
        return ours

    def _has_batch(self, number: int) -> bool:
        scanner = self.scanner(number, 0)
        try:
            return scanner.next() or scanner.skip_damage()
        finally:
            self.log.disk.close(scanner.fd)

    def stray(self, number: int, newest: int) -> None:
        """Refuse a file with the name of a segment that cannot exist yet."""
        path = self.log.files.path(segment_name(number))
        raise LogDamaged(path, 0, f"it is no file of this log, whose newest segment is number {newest}")

    def missing_newest(self, number: int, first: int) -> None:
        """Refuse: the newest segment had been synced and does not exist, nor any from number `first` on."""
        path = self.log.files.path(segment_name(number))
        raise LogDamaged(path, 0, "the file is missing, and was the newest segment")

    def missing(self, number: int, newest: int) -> None:
        """Refuse: a segment must exist and does not, unless the record of its removal is damaged."""
        scanner = self.scanner(newest, self.identity)
        try:
            while scanner.next():
                pass
            scanner.refuse_damage()
        finally:
            self.log.disk.close(scanner.fd)
        raise LogDamaged(self.log.files.path(segment_name(number)), 0, "the file is missing")

    def find_identity(self, numbers: list[int]) -> int:
        """Return the identity in the newest readable batch; 0 if none is found."""
        for number in reversed(numbers):
            scanner = self.scanner(number, 0)
            found = scanner.next()
            self.log.disk.close(scanner.fd)
            if found:
                return scanner.identity
        return 0

    def newest(self, numbers: list[int]) -> int:
        """Return the newest segment with a checkpoint, -1 if there is none. The file after it may be torn."""
        for number in reversed(numbers[-2:]):
            scanner = self.scanner(number, self.identity)
            try:
                if scanner.next():
                    return number
                noted = self.log.files.newest_noted()
                if number != numbers[-1] or number <= noted or scanner.skip_damage():
                    raise LogDamaged(scanner.path, 0, "the first batch does not read back")
                scanner.position = 0
                if not scanner.at_blank():
                    self.torn(scanner)
            finally:
                self.log.disk.close(scanner.fd)
        self.leftovers += map(segment_name, numbers)
        return -1

    def torn(self, scanner: SegmentScanner) -> None:
        """Note that the log ends at the scanner's position, and that bytes follow there."""
        self.report.torn = scanner.path
        self.report.torn_offset = scanner.position
        self.report.torn_bytes = scanner.size - scanner.position

    def listed(self, numbers: list[int], newest: i64) -> dict[int, int]:
        """Return the older segments that exist according to the newest one."""
        replay = Replay(SegmentTable())
        scanner = self.scanner(newest, self.identity)
        segment = Segment(newest, 0)
        replay.segments.add(segment)
        try:
            while scanner.next():
                replay.batch(scanner, segment)
        finally:
            self.log.disk.close(scanner.fd)
            segment.forget_all()
        if not replay.checkpoint:
            raise LogDamaged(scanner.path, 0, "it has no checkpoint")
        return replay.listed()

    def segment(self, number: i64, length: i64) -> None:
        """Replay a segment; its length is -1 for the newest."""
        segment = Segment(number, 0)
        segment.entry_synced = True
        self.segments.add(segment)
        scanner = self.scanner(number, self.identity)
        scanner.number = 0
        try:
            while scanner.next():
                self.replay.batch(scanner, segment)
                self.report.batches += 1
                self.tail_at = scanner.batch_at
            self.last_batch = max(self.last_batch, scanner.number)
            segment.end = segment.good = scanner.position
            if length >= 0:
                if scanner.position != length:
                    raise LogDamaged(scanner.path, scanner.position, f"{length} bytes had been synced")
                return
            self.tail_segment = segment
            if number == self.cut[0]:
                scanner.size = self.log.disk.size(scanner.fd)
                self.torn(scanner)
                return
            scanner.refuse_damage()
            if not scanner.at_blank():
                self.torn(scanner)
        finally:
            self.log.disk.close(scanner.fd)

    def forget(self) -> None:
        """Drop everything that was read, because it is read again."""
        for segment in self.segments.all():
            segment.forget_all()

    def is_whole(self) -> bool:
        """Whether all rows of streams that were appended with the last batch exist."""
        streams = self.log.streams
        return all(streams.files_of(number).is_whole(*rows) for number, *rows in self.replay.appended)

    def deliver(self, sink: RecoverySink) -> None:
        """Give the sink everything. The contents of its messages can be loaded."""
        self.log.segments = self.segments
        replay = self.replay
        for change in replay.definitions():
            sink.apply(change)
            self.report.definitions += 1
        sink.defined()
        clean = replay.closed
        self.report.clean = clean
        pages = replay.pages
        for number in sorted(pages):
            page = pages[number]
            for slot in range(PAGE):
                message = page.messages[slot]
                if message is not None and message.references > 0 and page.queues[slot]:
                    self._deliver(sink, message, page.queues[slot], clean)
            page.messages = []
        pages.clear()
        for piece in replay.bodies.unnamed():
            piece.references = 0
            self.segments.holding(piece).unlink(piece)

    def _deliver(self, sink: RecoverySink, message: Message, queues: list[int], clean: bool) -> None:
        replay = self.replay
        if replay.bodies.named:
            self._join(message)
        if len(queues) != message.references:
            queues = replay.holders(message)
        if message.marks & REMEMBERED == 0:
            self.report.messages += 1
        seen = replay.delivered.get(message.sequence) if clean and replay.delivered else None
        counts = replay.counts.by_queue(message.sequence) if replay.counts.first else _NO_COUNTS
        taken: i64 = 0
        if message.body is not None:
            queues = self._existing(sink, message, queues)
        if seen is not None:
            taken = sink.message(message, [queue for queue in queues if queue in seen], True, counts)
            queues = [queue for queue in queues if queue not in seen]
        if queues:
            taken += sink.message(message, queues, not clean, counts)
        message.references = taken
        if taken == 0:
            self.segments.holding(message).unlink(message)
            replay.settled.pop(message.sequence, None)
            replay.counts.drop(message.sequence)

    def _existing(self, sink: RecoverySink, message: Message, queues: list[int]) -> list[int]:
        """Return the queues that still exist.

        For all others it must be on disk that they do not hold the message: its pieces may be removed before
        the record that names them.
        """
        there = [queue for queue in queues if sink.has(queue)]
        self.void += [(message, queue) for queue in queues if queue not in there]
        return there

    def _join(self, message: Message) -> None:
        """Give a message its body. Raises LogDamaged if a piece of it is missing."""
        bodies = self.replay.bodies
        missing = bodies.missing(message.sequence)
        if missing:
            path = self.log.files.path(self.segments.holding(message).name)
            problem = f"message {message.sequence} names piece {missing} of its body, which is nowhere"
            raise LogDamaged(path, message.offset, problem)
        bodies.join(message, self.log.orphans)
