"""`amqpd check`: reports the contents of a log and its damage, and repairs it on request."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import mypyc_attr

from broker.core.message import REMEMBERED, Message
from broker.core.routing.topology import last_number
from broker.core.values import decode_table
from broker.store.counts import Count
from broker.store.definition_text import DefinitionText
from broker.store.disk import Disk
from broker.store.file_commit import FileStorage
from broker.store.log import Log
from broker.store.recovery.sink import RecoverySink
from broker.store.repair.salvage import KEPT_SUFFIX, Damage, Loss, Salvage
from broker.store.repair.streams import StreamSalvage
from broker.store.segment import Segment, is_stranger, segment_name
from broker.store.start import Handover, Start
from broker.store.streams.files import parse_stream_name
from broker.store.sync import DiskSyncer


@dataclass
class CheckReport:
    """The contents of a log, and its damage."""

    segments: int = 0
    batches: int = 0
    messages: int = 0
    by_queue: dict[int, int] = field(default_factory=dict)
    queue_names: dict[int, str] = field(default_factory=dict)
    definitions: int = 0
    changes: list[dict[str, object]] = field(default_factory=list)  # the definitions themselves, in order
    torn: str = ""  # the place of an unsynced end, which the next start cuts off, or ""
    damages: list[Damage] = field(default_factory=list)
    loss: Loss = field(default_factory=Loss)
    streams: dict[int, StreamSalvage] = field(default_factory=dict)  # by the queue's number
    unowned: list[str] = field(default_factory=list)  # files of streams whose queue is not known
    strangers: list[str] = field(default_factory=list)  # files that look like segments but are none
    repaired: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the daemon starts with this log."""
        return not self.damages and not any(stream.damages for stream in self.streams.values())

    def lines(self) -> list[str]:
        """Return the report for an operator."""
        lines = [
            f"{self.segments} segments, {self.batches} batches, {self.definitions} definitions, "
            f"{self.messages} messages"
        ]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(self.by_queue.items())]
        lines += self._stream_lines()
        if self.torn:
            lines.append(f"torn end, never confirmed, cut off by the next start: {self.torn}")
        lines += [damage.line() for damage in self.damages]
        for number, stream in sorted(self.streams.items()):
            lines += [damage.line(self._queue(number)) for damage in stream.damages]
        lines += [f"no file of this log, left alone: {path}" for path in self.strangers]
        if self.healthy:
            lines.append("nothing is damaged")
        else:
            lines += self._loss_lines() if self.damages else []
            lines += self._lost_row_lines()
        return lines

    def _stream_lines(self) -> list[str]:
        """Return the lines about the sizes of streams."""
        if not self.streams:
            return []
        rows = sum(stream.rows for stream in self.streams.values())
        size = sum(stream.bytes for stream in self.streams.values())
        lines = [f"{len(self.streams)} streams, {rows} rows, {size} bytes"]
        for number, stream in sorted(self.streams.items()):
            lost = f", {stream.lost} lost before" if stream.lost else ""
            where = f"offsets {stream.first} to {stream.next - 1}: " if stream.next > stream.first else ""
            lines.append(f"  {self._queue(number)}: {where}{stream.rows} rows{lost}, {stream.bytes} bytes")
        return lines

    def _verb(self) -> str:
        return "lost" if self.repaired else "a repair would lose"

    def _lost_row_lines(self) -> list[str]:
        lines = [
            f"{self._verb()}: {stream.damaged_rows} rows of {self._queue(number)}; others keep their offsets"
            for number, stream in sorted(self.streams.items())
            if stream.damages
        ]
        if self.unowned:
            lines.append(f"kept aside: {len(self.unowned)} files of streams whose queues are not known")
        return lines

    def _loss_lines(self) -> list[str]:
        loss = self.loss
        verb = self._verb()
        uncounted = ", and what only missing files held" if self._misses_files() else ""
        lines = [f"{verb}: {loss.messages} messages, {loss.definitions} definitions{uncounted}"]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(loss.by_queue.items())]
        if loss.unknown:
            lines.append(f"  of an unknown queue: {loss.unknown}")
        if loss.settles:
            lines.append(f"messages that were already settled and may come back: at least {loss.settles}")
        if loss.counts:
            lines.append(
                f"messages with too low a delivery count, or without annotations: at least {loss.counts}"
            )
        if loss.memories:
            lines.append(f"messages whose duplicates queues may take for new: at most {loss.memories}")
        return lines

    def _misses_files(self) -> bool:
        """Whether files are missing whose messages cannot be counted."""
        return any(damage.length == 0 for damage in self.damages)

    def _queue(self, number: int) -> str:
        name = self.queue_names.get(number)
        return f"queue {name}" if name is not None else f"queue number {number} (deleted or unknown)"


COMMIT_BYTES: Final = 8 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class _Counter(RecoverySink):
    """A sink that counts the messages of each queue."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        self.queues: dict[int, tuple[object, object]] = {}  # the existing ones: vhost and name

    def apply(self, change: dict[str, object]) -> None:
        """Note the names of queues: an operator does not know their numbers."""
        self.report.changes.append(change)
        number = change.get("number")
        name = change.get("name")
        where = f"{name!r} in vhost {change.get('vhost', '/')!r}"
        if change.get("kind") == "queue" and isinstance(number, int):
            last = last_number(number, decode_table(change.get("arguments", {})))
            for each in range(number, int(last) + 1):  # all its partitions
                partition = f", partition {each - number}" if last > number else ""
                self.report.queue_names[each] = where + partition
                self.queues[each] = (change.get("vhost", "/"), name)
        elif change.get("kind") == "queue.delete" and isinstance(number, int):
            deleted = self.queues.get(number)
            self.queues = {each: queue for each, queue in self.queues.items() if queue != deleted}
        elif change.get("kind") == "vhost.delete":
            self.queues = {number: queue for number, queue in self.queues.items() if queue[0] != name}
        elif change.get("kind") == "exchange" and isinstance(number, int):
            self.report.queue_names[number] = f"of exchange {where}"

    def has(self, queue: int) -> bool:
        """Every queue counts as existing."""
        return True

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """Count a message; every queue counts as existing."""
        for queue in queues if message.marks & REMEMBERED == 0 else ():
            self.report.by_queue[queue] = self.report.by_queue.get(queue, 0) + 1
        return len(queues)


class _KeepingSyncer(DiskSyncer):
    """A syncer that keeps damaged segments aside instead of deleting them."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.kept: set[str] = set()

    def remove(self, name: str) -> None:
        """Rename the file if it was damaged, else delete it."""
        if name not in self.kept:
            super().remove(name)
            return
        path = f"{self.directory}/{name}"
        self.disk.rename(path, path + KEPT_SUFFIX)
        self.disk.sync_directory(self.directory)
        if self.target is not None:
            self.target.on_removed(name, "")


def _ignore_progress(done: int, total: int) -> None:
    """Report nothing."""


def check(
    directory: str, disk: Disk, advance: Callable[[int, int], object] = _ignore_progress
) -> CheckReport:
    """Read the whole log of a folder and change nothing.

    `advance` takes the number of segments that are read, and of those to read: each is read once or twice.

    Raises LogLocked while a daemon uses it, LogVersionUnknown, OSError (also if there is no such folder).
    """
    return _Repair(directory, disk, advance).check()


def repair(
    directory: str, disk: Disk, advance: Callable[[int, int], object] = _ignore_progress
) -> CheckReport:
    """Turn a damaged log into one with which the daemon starts: unreadable data is lost.

    The readable records of damaged files are copied into a new segment. The files are kept, with ".damaged"
    added to their names. Restored messages are redelivered. An undamaged log is not changed. `advance` and
    errors as in `check`.
    """
    return _Repair(directory, disk, advance).repair()


class _Repair:
    """The check of a folder's log, and its repair."""

    def __init__(self, directory: str, disk: Disk, advance: Callable[[int, int], object]) -> None:
        self.advance = advance
        self.syncer = _KeepingSyncer(disk)
        self.storage = FileStorage(directory, disk, self.syncer, lambda: 0.0)
        self.log = Log(self.storage, list)
        self.report = CheckReport()
        self.void: list[tuple[Message, int]] = []

    def check(self) -> CheckReport:
        """Read everything; raises the errors of `check`."""
        self._lock()
        try:
            self._read()
            return self.report
        finally:
            self.log.release()

    def _lock(self) -> None:
        self.storage.disk.names(self.storage.files.directory)
        self.storage.files.lock()

    def repair(self) -> CheckReport:
        """Read everything, and drop unreadable records; raises the errors of `check`."""
        self._lock()
        log = self.log
        report = self.report
        try:
            salvage = self._read()
            if report.healthy:
                return report
            self._repair_streams()
            report.repaired = True
            if not report.damages:  # the next start finds the log as it was
                return report
            for damage in report.damages:
                self.syncer.kept.add(segment_name(damage.segment))
            self.storage.attach(log.group)
            log.appender.definitions = DefinitionText(lambda: [salvage.replay.definitions()])
            for name in salvage.leftovers:
                if name in self.syncer.kept:
                    self.syncer.remove(name)
            Start(log, self.storage, log.appender, log.streams, log.group).begin(salvage, self.void)
            for number in sorted({damage.segment for damage in report.damages}):
                segment = log.segments.get(number)
                if segment is not None:
                    self._copy_forward(segment)
            while log.filling.count:
                log.commit()
            return report
        finally:
            log.release()

    def _read(self) -> Salvage:
        report = self.report
        files = self.storage.files
        count = len(files.numbers())
        salvage = Salvage(files)
        salvage.advance = lambda done: self.advance(done, 2 * count)
        salvage.run()
        self.log.identity = salvage.identity
        tail = salvage.tail_segment
        if tail is not None and not salvage.damages and not self.storage.has_chunks_of(salvage):
            cut = (int(tail.number), int(salvage.tail_at))
            salvage.forget()
            salvage = Salvage(files, cut)
            salvage.advance = lambda done: self.advance(count + done, 2 * count)
            salvage.run()
        salvage.count_loss()
        report.segments = salvage.segments.count
        names = files.disk.names(files.directory)
        report.strangers = [files.path(name) for name in sorted(names) if is_stranger(name)]
        counter = _Counter(report)
        self.void = Handover(self.log, self.storage, salvage, counter).run()
        salvaged = salvage.report
        report.batches = salvaged.batches
        report.messages = salvaged.messages
        report.definitions = salvaged.definitions
        if salvaged.torn:
            report.torn = f"{salvaged.torn} at offset {salvaged.torn_offset}, {salvaged.torn_bytes} bytes"
        report.damages = salvage.damages
        report.loss = salvage.loss
        self._read_streams(salvage, counter.queues)
        return salvage

    def _read_streams(self, salvage: Salvage, queues: Container[int]) -> None:
        """Read all chunks of the streams of these queues."""
        report = self.report
        files = self.storage.files
        known = salvage.replay.streams
        damaged = bool(salvage.damages)
        for name in sorted(files.disk.names(files.directory)):
            parsed = parse_stream_name(name)
            if parsed is None:
                continue
            number = parsed[0]
            if number not in queues:
                if damaged:  # else the queue has been deleted
                    report.unowned.append(name)
            elif damaged and number not in known:
                known[number] = (parsed[1], parsed[1])  # the oldest file comes first
        for number, (first, behind) in known.items():
            if number in queues:
                stream_files = self.storage.stream_files(number, self.log.identity)
                stream = StreamSalvage(stream_files, first, behind, damaged)
                stream.run()
                report.streams[number] = stream

    def _repair_streams(self) -> None:
        """Rewrite damaged files, and record in the log how far the streams go."""
        for stream in self.report.streams.values():
            stream.repair()
            self.log.streams.recovered[stream.files.number] = (int(stream.first), int(stream.next))
        files = self.storage.files
        for name in self.report.unowned:
            path = files.path(name)
            files.disk.rename(path, path + KEPT_SUFFIX)

    def _copy_forward(self, segment: Segment) -> None:
        """Append every needed record of a damaged segment again, and remove the segment."""
        log = self.log
        scanner = self.storage.scan(segment, log.identity)
        scanner.size = self.storage.disk.size(scanner.fd)  # whole batches may follow behind damage
        log.space.victim = None
        while scanner.next_valid():
            self.storage.resume(scanner, segment)
            log.filling.segment.needs.add(segment.number)
            log.space.copy_batch(segment, scanner)
            if len(log.filling.writer) > COMMIT_BYTES:
                log.commit()
        assert segment.live == 0, "every live message has a record that reads"
        segment.emptied_in = log.filling.number
        log.space_changed = True
        log.commit()
