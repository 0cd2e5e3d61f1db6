"""The replay of the files of a folder, which stay unchanged."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from broker.store.errors import LogDamaged
from broker.store.recovery.replay import Replay, StoredLog
from broker.store.recovery.sink import NOWHERE
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment, SegmentTable, segment_name
from broker.store.segment_files import SegmentFiles

STRAY_GAP: Final = 1000  # the largest number of starts in a row that ended before their segment had a batch


class FileReplay(StoredLog):
    """The log in the files of a folder. Damage raises an error here; `Salvage` continues behind it."""

    def __init__(self, files: SegmentFiles, cut: tuple[int, int] = NOWHERE) -> None:
        super().__init__()
        self.files = files
        self.disk = files.disk
        self.cut = cut  # a segment, and the beginning of its last batch, which is not whole
        self.tail_at: i64 = 0  # the last valid batch of the newest segment
        self.tail_segment: Segment | None = None
        self.leftovers: list[str] = []

    def scanner(self, number: i64, identity: int) -> SegmentScanner:
        """Return a scanner over the segment's file, which the caller closes."""
        path = self.files.path(segment_name(number))
        scanner = SegmentScanner(self.disk, self.disk.open(path), path, number, identity)
        if number == self.cut[0]:
            scanner.size = self.cut[1]
        return scanner

    def run(self) -> None:
        """Replay every segment. Raises LogDamaged, LogVersionUnknown, OSError."""
        noted = self.files.newest_noted()
        numbers = self._without_strays(self.files.numbers(), noted)
        if noted > (numbers[-1] if numbers else 0):
            self.on_newest_missing(noted, numbers[-1] + 1 if numbers else 1)
        if not numbers:
            self.report.is_new = noted == 0
            return
        self.highest = max(self.highest, numbers[-1])
        self.identity = self.find_identity(numbers)
        newest = self.find_newest(numbers)
        if newest < 0:
            return
        listed = self.find_listed(numbers, newest)
        for number in listed:
            if number not in numbers:
                self.on_missing(number, newest)
        for number in numbers:
            if number in listed or number == newest:
                self.replay_segment(number, listed.get(number, -1))
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
                self.on_stray(number, last)
        return ours

    def _has_batch(self, number: int) -> bool:
        scanner = self.scanner(number, 0)
        try:
            return scanner.next() or scanner.skip_damage()
        finally:
            self.disk.close(scanner.fd)

    def on_stray(self, number: int, newest: int) -> None:
        """Refuse a file with the name of a segment that cannot exist yet."""
        path = self.files.path(segment_name(number))
        raise LogDamaged(path, 0, f"no file of this log, whose newest segment is number {newest}")

    def on_newest_missing(self, number: int, first: int) -> None:
        """Refuse: the newest segment had been synced and does not exist, nor any from number `first` on."""
        path = self.files.path(segment_name(number))
        raise LogDamaged(path, 0, "the file is missing, and was the newest segment")

    def on_missing(self, number: int, newest: int) -> None:
        """Refuse: a segment must exist and does not, unless the record of its removal is damaged."""
        scanner = self.scanner(newest, self.identity)
        try:
            while scanner.next():
                pass
            scanner.refuse_damage()
        finally:
            self.disk.close(scanner.fd)
        raise LogDamaged(self.files.path(segment_name(number)), 0, "the file is missing")

    def find_identity(self, numbers: list[int]) -> int:
        """Return the identity in the newest readable batch; 0 if none is found."""
        for number in reversed(numbers):
            scanner = self.scanner(number, 0)
            has_record = scanner.next()
            self.disk.close(scanner.fd)
            if has_record:
                return scanner.identity
        return 0

    def find_newest(self, numbers: list[int]) -> int:
        """Return the newest segment with a checkpoint, -1 if there is none. The file after it may be torn."""
        for number in reversed(numbers[-2:]):
            scanner = self.scanner(number, self.identity)
            try:
                if scanner.next():
                    return number
                noted = self.files.newest_noted()
                if number != numbers[-1] or number <= noted or scanner.skip_damage():
                    raise LogDamaged(scanner.path, 0, "the first batch does not read back")
                scanner.position = 0
                if not scanner.at_blank():
                    self.note_torn_end(scanner)
            finally:
                self.disk.close(scanner.fd)
        self.leftovers += map(segment_name, numbers)
        return -1

    def note_torn_end(self, scanner: SegmentScanner) -> None:
        """Note that the log ends at the scanner's position, and that bytes follow there."""
        self.report.torn = scanner.path
        self.report.torn_offset = scanner.position
        self.report.torn_bytes = scanner.size - scanner.position

    def find_listed(self, numbers: list[int], newest: i64) -> dict[int, int]:
        """Return the older segments that exist according to the newest one."""
        replay = Replay(SegmentTable())
        scanner = self.scanner(newest, self.identity)
        segment = Segment(newest, 0)
        replay.segments.add(segment)
        try:
            while scanner.next():
                replay.replay_batch(scanner, segment)
        finally:
            self.disk.close(scanner.fd)
            segment.forget_all()
        if not replay.checkpoint:
            raise LogDamaged(scanner.path, 0, "the segment has no checkpoint")
        return replay.listed_segments()

    def replay_segment(self, number: i64, length: i64) -> None:
        """Replay a segment of `length` bytes; -1: the newest one, whose length is not recorded."""
        segment = Segment(number, 0)
        segment.entry_synced = True
        self.segments.add(segment)
        scanner = self.scanner(number, self.identity)
        scanner.number = 0
        try:
            while scanner.next():
                self.replay.replay_batch(scanner, segment)
                self.report.batches += 1
                self.tail_at = scanner.batch_at
            self.last_batch = max(self.last_batch, scanner.number)
            segment.end = segment.written = scanner.position
            if length >= 0:
                if scanner.position != length:
                    raise LogDamaged(scanner.path, scanner.position, f"{length} bytes had been synced")
                return
            self.tail_segment = segment
            if number == self.cut[0]:
                scanner.size = self.disk.size(scanner.fd)
                self.note_torn_end(scanner)
                return
            scanner.refuse_damage()
            if not scanner.at_blank():
                self.note_torn_end(scanner)
        finally:
            self.disk.close(scanner.fd)

    def forget(self) -> None:
        """Drop everything that was read, because it is read again."""
        for segment in self.segments.all():
            segment.forget_all()
