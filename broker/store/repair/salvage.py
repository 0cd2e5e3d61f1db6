"""The salvage of a damaged log: all readable records are replayed, and the loss is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import i64

from broker.core.message import REMEMBERED
from broker.store.format import CHECKPOINT, COUNT, DEFINITION, HEADER_BYTES, MESSAGE, SETTLE, Records
from broker.store.recovery.files import FileReplay
from broker.store.recovery.replay import Replay
from broker.store.recovery.sink import NOWHERE
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment, SegmentTable, segment_name
from broker.store.segment_files import SegmentFiles

KEPT_SUFFIX: Final = ".damaged"  # added to the name of a file that a repair gives up


@dataclass
class Damage:
    """A stretch of a file, in bytes, that is not readable; length 0: the file is missing from there on.

    `first`: segments from this number on are missing too, if there were any; 0: no others.
    """

    path: str
    segment: int
    offset: int
    length: int
    stray: bool = False  # the file is none of this log
    first: int = 0

    def line(self) -> str:
        """Return the report of the damage."""
        if self.stray:
            return f"no file of this log: {self.path}, {self.length} bytes"
        if self.length:
            return f"damaged: {self.path} at offset {self.offset}, {self.length} bytes"
        others = f", and others from {segment_name(self.first)} on, if there were any" if self.first else ""
        return f"missing: {self.path} from offset {self.offset} on{others}"


@dataclass
class Loss:
    """The loss by the damage. Messages that could still be recognised in the damage are counted by queue."""

    messages: int = 0
    by_queue: dict[int, int] = field(default_factory=dict)
    unknown: int = 0  # messages whose queue is not known
    settles: int = 0  # live messages whose settle is lost, so that they are delivered again
    counts: int = 0  # messages whose delivery count is too low, or that lack annotations
    memories: int = 0  # ids and producers that queues no longer remember
    definitions: int = 0


class Salvage(FileReplay):
    """A FileReplay that steps over damage and notes it."""

    def __init__(self, files: SegmentFiles, cut: tuple[int, int] = NOWHERE) -> None:
        super().__init__(files, cut)
        self.advance: Callable[[int], object] | None = None  # takes the number of replayed segments
        self.replayed: int = 0
        self.damages: list[Damage] = []
        self.loss = Loss()
        self.lost: dict[int, list[int]] = {}  # by sequence: the queues, [] if not known
        self.recognised: dict[int, list[int]] = {}  # in the damage before the next batch
        self.lost_pieces: set[int] = set()
        self.lost_memories: set[int] = set()
        self.lost_settles: list[tuple[int, int]] = []
        self.lost_counts: list[tuple[int, int, int, bytes]] = []
        self.base: i64 = 0  # the segment whose checkpoint counts
        self.numbers: list[int] = []
        self.gap_after: i64 = -1  # the segment with damage whose size the next batch may show

    def find_identity(self, numbers: list[int]) -> int:
        """Return the identity in a segment's first batch, or else in any readable batch; 0 without one."""
        identity = super().find_identity(numbers)
        for number in [] if identity else numbers:
            scanner = self.scanner(number, 0)
            has_record = scanner.skip_damage() and scanner.next()
            self.disk.close(scanner.fd)
            if has_record:
                return scanner.identity
        return identity

    def find_newest(self, numbers: list[int]) -> int:
        """Return the newest segment with a readable checkpoint; 0: none has one, -1: nothing is readable."""
        self.numbers = numbers
        for number in reversed(numbers):
            scanner = self.scanner(number, self.identity)
            try:
                if scanner.next() and scanner.data[scanner.start] == CHECKPOINT:
                    self.base = number
                    return number
            finally:
                self.disk.close(scanner.fd)
        if self.identity:
            return 0
        self.leftovers += map(segment_name, numbers)
        for number in numbers:
            scanner = self.scanner(number, 0)
            self.disk.close(scanner.fd)
            if len(numbers) > 1:  # a single one may be the torn first batch of a new log
                self.damages.append(Damage(scanner.path, number, 0, scanner.size))
        return -1

    def find_listed(self, numbers: list[int], newest: i64) -> dict[int, int]:
        """Return the segments in the newest readable checkpoint, and all later ones."""
        replay = Replay(SegmentTable())
        for number in numbers:
            if number >= newest:
                self._scan(replay, number)
        listed = replay.listed_segments() if newest > 0 else {}
        for number in numbers:
            if number > newest:
                listed[number] = -1
        return listed

    def _scan(self, replay: Replay, number: int) -> None:
        segment = Segment(number, 0)
        replay.segments.add(segment)
        scanner = self.scanner(number, self.identity)
        try:
            while scanner.next_valid():
                replay.replay_batch(scanner, segment)
        finally:
            self.disk.close(scanner.fd)
            segment.forget_all()

    def on_stray(self, number: int, newest: int) -> None:
        """Keep a stray file aside."""
        path = self.files.path(segment_name(number))
        fd = self.disk.open(path)
        self.damages.append(Damage(path, number, 0, self.disk.size(fd), stray=True))
        self.disk.close(fd)
        self.leftovers.append(segment_name(number))

    def on_newest_missing(self, number: int, first: int) -> None:
        """Note the missing newest segment; the messages that only it held cannot be counted."""
        path = self.files.path(segment_name(number))
        self.damages.append(Damage(path, number, 0, 0, first=first if first < number else 0))
        self.highest = number

    def on_missing(self, number: int, newest: int) -> None:
        """Note a missing segment; the messages that only it held cannot be counted."""
        self.damages.append(Damage(self.files.path(segment_name(number)), number, 0, 0))

    def replay_segment(self, number: i64, length: i64) -> None:
        """Replay the readable part of a segment."""
        segment = Segment(number, 0)
        segment.entry_synced = True
        self.segments.add(segment)
        scanner = self.scanner(number, self.identity)
        valid = False
        try:
            while True:
                at = scanner.position
                if scanner.next():
                    self._note_gap(number, scanner.first_sequence)
                    self.replay.replay_batch(scanner, segment)
                    self.report.batches += 1
                    self.tail_at = scanner.batch_at
                    self.tail_segment = segment
                    valid = True
                    continue
                if scanner.skip_damage():
                    self._damaged(scanner, at, scanner.position)
                    continue
                break
            self.last_batch = max(self.last_batch, scanner.number)
            segment.end = segment.written = scanner.position
            if (length >= 0 and scanner.position < length) or number != self.numbers[-1]:
                if scanner.position < length:
                    self._damaged(scanner, scanner.position, length)
                elif not scanner.rest_is_empty():
                    self._damaged(scanner, scanner.position, scanner.size)
            elif number == self.cut[0]:
                scanner.size = self.disk.size(scanner.fd)
                self.note_torn_end(scanner)
            elif not scanner.at_blank():
                self.note_torn_end(scanner)
        finally:
            self.disk.close(scanner.fd)
        if not valid:
            known = any(damage.segment == number for damage in self.damages)
            if not known and number <= self.files.newest_noted():
                self.damages.append(Damage(self.files.path(segment.name), number, 0, 0))
            self.segments.remove(segment)
            self.leftovers.append(segment.name)
        self.replayed += 1
        if self.advance is not None:
            self.advance(self.replayed)

    def _damaged(self, scanner: SegmentScanner, start: i64, end: i64) -> None:
        self.gap_after = scanner.segment
        self.damages.append(Damage(scanner.path, scanner.segment, start, max(end - start, 0)))
        data = self.disk.read(scanner.fd, max(end - start, 0), start)
        if len(data) < HEADER_BYTES:
            return
        self._recognise(data, scanner.segment)

    def _recognise(self, data: bytes, segment: i64) -> None:
        """Note the records that seem to be in the damaged batch, up to the first malformed one."""
        records = Records()
        records.open(data, HEADER_BYTES, len(data))
        while True:
            kind = records.next()
            if kind == MESSAGE:
                if records.date != 0 and records.marks & REMEMBERED:
                    self.lost_memories.add(records.sequence)
                elif records.queues > 0:
                    self.recognised[records.sequence] = records.queue_numbers()
                else:  # the loss of a piece is the loss of the message that names it
                    self.lost_pieces.add(records.sequence)
            elif kind == SETTLE:
                self.lost_settles.append((records.sequence, records.queue))
            elif kind == COUNT:
                self.lost_counts.append(
                    (records.sequence, records.queue, records.count, records.annotations())
                )
            elif kind in (DEFINITION, CHECKPOINT):
                if segment >= self.base:
                    self.loss.definitions += self._changes(records, kind)
            elif kind <= 0:
                return

    def _changes(self, records: Records, kind: int) -> int:
        """Return how many changes a definition or checkpoint record seems to have."""
        if kind == DEFINITION:
            return 1
        try:
            text = records.data[records.content_at : records.content_at + records.length]
            return len(json.loads(text)["definitions"])
        except (ValueError, KeyError, TypeError, RecursionError):  # damaged bytes
            return 0

    def _note_gap(self, segment: i64, first_sequence: i64) -> None:
        """Note the sequences missing right behind damage: sequences are consecutive.

        The missing sequences were in the damage, or were never on disk.
        """
        near = self.gap_after >= 0 and segment - self.gap_after <= 1
        self.gap_after = -1
        if near:
            for sequence in range(self.replay.next_sequence, first_sequence):
                self.lost[sequence] = self.recognised.get(sequence, [])
        for sequence, queues in self.recognised.items():
            if not near or sequence < self.replay.next_sequence:  # others had a damaged sequence
                self.lost.setdefault(sequence, queues)
        self.recognised.clear()

    def count_loss(self) -> None:
        """Count the loss, before `deliver`.

        Messages that were settled later, or have a copy, are not lost.
        """
        for sequence, queues in self.recognised.items():
            self.lost.setdefault(sequence, queues)
        for number in self.numbers:
            if self.segments.get(number) is not None and self.lost:
                self._forgive(number)
        self._give_up_incomplete()
        loss = self.loss
        for sequence in self.lost_memories:
            self.lost.pop(sequence, None)
            loss.memories += not self._is_alive(sequence)
        for sequence, queues in self.lost.items():
            if self._is_alive(sequence):
                continue
            loss.messages += 1
            if not queues:
                loss.unknown += 1
            for queue in queues:
                loss.by_queue[queue] = loss.by_queue.get(queue, 0) + 1
        for sequence, _ in self.lost_settles:
            loss.settles += self._is_alive(sequence)
        later = {
            (sequence, queue)
            for sequence, queue, count, annotations in self.lost_counts
            if self._is_alive(sequence) and self._says_more(sequence, queue, count, annotations)
        }
        loss.counts = len(later)

    def _says_more(self, sequence: int, queue: int, count: int, annotations: bytes) -> bool:
        """Whether a lost count is higher than the remaining one, or has other annotations."""
        known = self.replay.counts.of(sequence, queue)
        if known is None:
            return count > 0 or annotations != b""
        return known.value < count or (known.value == count and known.annotations != annotations)

    def _give_up_incomplete(self) -> None:
        """Count a message whose body has lost a piece as lost. A piece alone is no loss."""
        replay = self.replay
        for piece in self.lost_pieces:
            self.lost.pop(piece, None)
        for sequence, pieces in replay.bodies.named.items():
            for piece in pieces:
                self.lost.pop(piece, None)
            message = replay.find(sequence)
            if message is not None and message.references > 0 and replay.bodies.missing_piece(sequence):
                self.lost[sequence] = replay.queues_of(message)
                message.references = 0
                self.segments.holding(message).unlink(message)
                replay.settled.pop(sequence, None)
                replay.counts.drop(sequence)

    def _forgive(self, number: int) -> None:
        """Remove the messages that a segment settles from the loss."""
        records = Records()
        scanner = self.scanner(number, self.identity)
        try:
            while scanner.next_valid():
                records.open(scanner.data, scanner.start, scanner.end)
                kind = records.next()
                while kind > 0:
                    if kind == SETTLE:
                        self._settled(records.sequence, records.queue)
                    kind = records.next()
        finally:
            self.disk.close(scanner.fd)
        for sequence, queue in self.lost_settles:
            self._settled(sequence, queue)

    def _settled(self, sequence: int, queue: int) -> None:
        queues = self.lost.get(sequence)
        if queues is None:
            return
        rest = [other for other in queues if other != queue]
        if rest and len(queues) > 1:  # a single queue's number may itself be damaged
            self.lost[sequence] = rest
        else:
            del self.lost[sequence]

    def _is_alive(self, sequence: int) -> bool:
        message = self.replay.find(sequence)
        return message is not None and message.references > 0
