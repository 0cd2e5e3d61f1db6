"""From the files of a folder to a log that is ready for appends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import Message
from broker.store.errors import LogDamaged
from broker.store.files import READY, RESERVE, SPARE
from broker.store.format import HEADER_BYTES
from broker.store.replay import PAGE, Replay
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment, SegmentTable, segment_name

if TYPE_CHECKING:
    from broker.store.log import Log


_NO_COUNTS: Final[dict[int, int]] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class RecoverySink:
    """Receives what survived: first every definition, then every message, each in its original order."""

    def apply(self, change: dict[str, object]) -> None:
        """A change as it was appended, or as `definitions` gave it."""
        raise NotImplementedError

    def message(self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, int]) -> int:
        """A message that these queues hold; returns how many of the queues still exist and took it.

        Its content is on disk. Called twice for a message that only some queues had delivered. `counts`: how
        often a queue had given it out, of queues that count. List and dict may be shared with other calls:
        they are not to be changed or kept.
        """
        raise NotImplementedError


@dataclass
class RecoveryReport:
    """What recovery found. A torn tail is the end of a batch that had never been synced: nobody missed it."""

    segments: int = 0
    batches: int = 0
    messages: int = 0
    definitions: int = 0
    clean: bool = False  # the log had been closed
    torn: str = ""  # the file that was cut, "" if none
    torn_offset: int = 0
    torn_bytes: int = 0
    removed: list[str] = field(default_factory=list)  # files that nothing needed any more


class Reading:
    """The read-only half of recovery. Damage raises; `salvage.Salvage` is the one that reads on."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.segments = SegmentTable()
        self.replay = Replay(self.segments)
        self.report = RecoveryReport()
        self.identity: int = 0
        self.last_batch: i64 = 0
        self.tail_at: i64 = 0  # the last valid batch of the newest segment
        self.tail_segment: Segment | None = None
        self.leftovers: list[str] = []
        self.highest: i64 = 0

    def scanner(self, number: i64, identity: int) -> SegmentScanner:
        """A scanner over the segment's file, which the caller closes."""
        path = self.log.files.path(segment_name(number))
        return SegmentScanner(self.log.disk, self.log.disk.open(path), path, number, identity)

    def run(self) -> None:
        """Replay every segment. Raises LogDamaged, LogVersionUnknown, OSError."""
        numbers = self.log.files.numbers()
        if not numbers:
            return
        self.highest = numbers[-1]
        self.identity = self._find_identity(numbers)
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

    def missing(self, number: int, newest: int) -> None:
        """A segment that must exist does not, unless what says that it is removed does not read back."""
        scanner = self.scanner(newest, self.identity)
        try:
            while scanner.next():
                pass
            scanner.refuse_damage()
        finally:
            self.log.disk.close(scanner.fd)
        raise LogDamaged(self.log.files.path(segment_name(number)), 0, "the file is missing")

    def _find_identity(self, numbers: list[int]) -> int:
        for number in reversed(numbers):
            scanner = self.scanner(number, 0)
            found = scanner.next()
            self.log.disk.close(scanner.fd)
            if found:
                return scanner.identity
        return 0

    def newest(self, numbers: list[int]) -> int:
        """The newest segment with a checkpoint, -1 if there is none. The file after it may be torn."""
        for number in reversed(numbers[-2:]):
            scanner = self.scanner(number, self.identity)
            try:
                if scanner.next():
                    return number
                if number != numbers[-1] or scanner.skip_damage():
                    raise LogDamaged(scanner.path, 0, "the first batch does not read back")
                scanner.position = 0
                if not scanner.at_blank():
                    self.torn(scanner)
            finally:
                self.log.disk.close(scanner.fd)
        self.leftovers += map(segment_name, numbers)
        return -1

    def torn(self, scanner: SegmentScanner) -> None:
        """Note that the log ends where the scanner stands, and that something follows there."""
        self.report.torn = scanner.path
        self.report.torn_offset = scanner.position
        self.report.torn_bytes = scanner.size - scanner.position

    def listed(self, numbers: list[int], newest: i64) -> dict[int, int]:
        """The older segments that exist according to the newest one."""
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
            scanner.refuse_damage()
            if not scanner.at_blank():
                self.torn(scanner)
        finally:
            self.log.disk.close(scanner.fd)

    def deliver(self, sink: RecoverySink) -> None:
        """Give the sink everything."""
        replay = self.replay
        for change in replay.definitions():
            sink.apply(change)
            self.report.definitions += 1
        clean = replay.closed
        self.report.clean = clean
        pages = replay.pages
        for number in sorted(pages):
            page = pages[number]
            for slot in range(PAGE):
                message = page.messages[slot]
                if message is not None and message.references > 0:
                    self._deliver(sink, message, page.queues[slot], clean)
            page.messages = []
        pages.clear()

    def _deliver(self, sink: RecoverySink, message: Message, queues: list[int], clean: bool) -> None:
        replay = self.replay
        if len(queues) != message.references:
            done = replay.settled[message.sequence]
            queues = [queue for queue in queues if queue not in done]
        self.report.messages += 1
        seen = replay.delivered.get(message.sequence) if clean and replay.delivered else None
        counts = replay.counts.by_queue(message.sequence) if replay.counts.first else _NO_COUNTS
        taken: i64 = 0
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


def recover(log: Log, sink: RecoverySink) -> RecoveryReport:
    """Lock the folder, replay it, repair its end, and begin a segment of this run's own.

    Nothing is ever appended to a segment of an earlier run. The order of the writes matters: a torn end is
    cut, and the last batch, which may be in the page cache only, is written once more and synced before
    anything that follows it exists.
    """
    log.files.lock()
    reading = Reading(log)
    try:
        reading.run()
        reading.deliver(sink)
        begin(log, reading)
    except BaseException:
        log.let_go()
        raise
    return reading.report


def begin(log: Log, reading: Reading) -> None:
    """Repair the end of what was read and begin a segment of this run's own. Raises OSError."""
    _mend(log, reading)
    _take_over(log, reading)
    reading.report.segments = log.segments.count


def _mend(log: Log, reading: Reading) -> None:
    """Make the disk hold exactly what has been replayed."""
    disk = log.disk
    files = log.files
    tail = reading.tail_segment
    if tail is not None:
        fd = disk.open(files.path(tail.name))
        try:
            length = tail.good - reading.tail_at
            assert length > HEADER_BYTES
            disk.truncate(fd, tail.good)
            disk.write(fd, [disk.read(fd, length, reading.tail_at)], reading.tail_at)
            disk.sync(fd)
        finally:
            disk.close(fd)
    disk.sync_directory(
        files.directory
    )  # the newest name, too, may be in memory only: before it is acted upon
    for name in [*reading.leftovers, SPARE]:
        disk.unlink(files.path(name))
    if RESERVE in disk.names(files.directory):
        fd = disk.open(files.path(RESERVE))
        whole = disk.size(fd) >= files.reserve_bytes
        disk.close(fd)
        if whole:
            files.reserve = READY
        else:
            disk.unlink(files.path(RESERVE))
    disk.sync_directory(files.directory)
    reading.report.removed += reading.leftovers


def _take_over(log: Log, reading: Reading) -> None:
    """Take over what was read, and write the first batch: a checkpoint that leaves out what is not needed."""
    replay = reading.replay
    log.segments = reading.segments
    log.identity = reading.identity or log.disk.new_identity()
    log.next_sequence = replay.next_sequence
    log.settled = replay.settled
    log.counts = replay.counts
    log.batch = reading.last_batch + 1
    log.durable = reading.last_batch
    gone: set[int] = set()
    dead: list[str] = []
    for segment in log.segments.all():
        if segment.live == 0 and segment.needs <= gone:
            gone.add(segment.number)
            dead.append(segment.name)
            log.segments.remove(segment)
    log.start(reading.highest + 1)
    for name in dead:
        log.syncer.remove(name)
    reading.report.removed += dead
    log.files.ask(True)
