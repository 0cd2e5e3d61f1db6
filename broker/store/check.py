"""`amqpd check`: says what is in a log and what is wrong with it, and repairs it on request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import mypyc_attr

from broker.core.message import REMEMBERED, Message
from broker.store.counts import Count
from broker.store.definition_text import DefinitionText
from broker.store.disk import Disk
from broker.store.log import Log
from broker.store.reading import RecoverySink
from broker.store.recovery import begin
from broker.store.salvage import Damage, Loss, Salvage
from broker.store.scan import SegmentScanner
from broker.store.segment import Segment, segment_name
from broker.store.syncer import DiskSyncer

KEPT_SUFFIX: Final = ".damaged"
COMMIT_BYTES: Final = 8 * 1024 * 1024


@dataclass
class CheckReport:
    """What a log holds, and what of it does not read back."""

    segments: int = 0
    batches: int = 0
    messages: int = 0
    by_queue: dict[int, int] = field(default_factory=dict)
    queue_names: dict[int, str] = field(default_factory=dict)
    definitions: int = 0
    torn: str = ""  # "" or where an unsynced end is, which the next start cuts off
    damages: list[Damage] = field(default_factory=list)
    loss: Loss = field(default_factory=Loss)
    repaired: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the daemon starts with this log."""
        return not self.damages

    def lines(self) -> list[str]:
        """The report for an operator."""
        lines = [
            f"{self.segments} segments, {self.batches} batches, {self.definitions} definitions, "
            f"{self.messages} messages"
        ]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(self.by_queue.items())]
        if self.torn:
            lines.append(f"torn end, never confirmed, cut off by the next start: {self.torn}")
        lines += [
            f"damaged: {damage.path} at offset {damage.offset}, {damage.length} bytes"
            if damage.length
            else f"missing: {damage.path} from offset {damage.offset} on"
            for damage in self.damages
        ]
        if self.damages:
            lines += self._loss_lines()
        else:
            lines.append("nothing is damaged")
        return lines

    def _loss_lines(self) -> list[str]:
        loss = self.loss
        verb = "lost" if self.repaired else "a repair would lose"
        lines = [f"{verb}: {loss.messages} messages, {loss.definitions} definitions"]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(loss.by_queue.items())]
        if loss.unknown:
            lines.append(f"  of an unknown queue: {loss.unknown}")
        if loss.settles:
            lines.append(f"messages that were already settled and may come back: at least {loss.settles}")
        if loss.counts:
            lines.append(
                f"messages with too low a delivery count, or without what was added: at least {loss.counts}"
            )
        if loss.memories:
            lines.append(f"messages whose duplicates queues may take for new: at most {loss.memories}")
        return lines

    def _queue(self, number: int) -> str:
        name = self.queue_names.get(number)
        return f"queue {name}" if name is not None else f"queue number {number} (deleted or unknown)"


@mypyc_attr(allow_interpreted_subclasses=True)
class _Counter(RecoverySink):
    """Counts."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report

    def apply(self, change: dict[str, object]) -> None:
        """A definition: queues have names that tell an operator more than their numbers."""
        number = change.get("number")
        name = change.get("name")
        where = f"{name!r} in vhost {change.get('vhost', '/')!r}"
        if change.get("kind") == "queue" and isinstance(number, int):
            self.report.queue_names[number] = where
        elif change.get("kind") == "exchange" and isinstance(number, int):
            self.report.queue_names[number] = f"of what exchange {where} keeps"

    def has(self, queue: int) -> bool:
        """Every queue counts as existing (RecoverySink)."""
        return True

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """A message; every queue counts as existing."""
        for queue in queues if message.marks & REMEMBERED == 0 else ():
            self.report.by_queue[queue] = self.report.by_queue.get(queue, 0) + 1
        return len(queues)


class _KeepingSyncer(DiskSyncer):
    """Keeps damaged segments aside instead of deleting them."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.kept: set[str] = set()

    def remove(self, name: str) -> None:
        """Rename, or delete if it was not damaged."""
        if name not in self.kept:
            super().remove(name)
            return
        path = f"{self.directory}/{name}"
        self.disk.rename(path, path + KEPT_SUFFIX)
        self.disk.sync_directory(self.directory)
        if self.target is not None:
            self.target.removed(name, "")


def check(directory: str, disk: Disk) -> CheckReport:
    """Read the whole log of a folder and change nothing.

    Raises LogLocked while a daemon uses it, LogVersionUnknown, OSError (also if there is no such folder).
    """
    disk.names(directory)
    log, _ = _new_log(directory, disk)
    log.files.lock()
    try:
        return _report(log)[0]
    finally:
        log.let_go()


def repair(directory: str, disk: Disk) -> CheckReport:
    """Make a damaged log one that the daemon starts with: what does not read back is lost.

    What still reads of damaged files is copied into a new segment, and the files are kept, with ".damaged"
    added to their names. Messages come back redelivered. A log that is not damaged is left alone.
    Raises as `check`.
    """
    disk.names(directory)
    log, syncer = _new_log(directory, disk)
    log.files.lock()
    try:
        report, salvage = _report(log)
        if report.healthy:
            return report
        for damage in report.damages:
            syncer.kept.add(segment_name(damage.segment))
        syncer.attach(directory, log, log.files.lock_fd)
        log.definitions = DefinitionText(lambda: [salvage.replay.definitions()])
        for name in salvage.leftovers:
            if name in syncer.kept:
                syncer.remove(name)
        begin(log, salvage)
        for number in sorted({damage.segment for damage in report.damages}):
            segment = log.segments.get(number)
            if segment is not None:
                _copy_forward(log, segment)
        while log.filling.count:
            log.commit()
        report.repaired = True
        return report
    finally:
        log.let_go()


def _new_log(directory: str, disk: Disk) -> tuple[Log, _KeepingSyncer]:
    syncer = _KeepingSyncer(disk)
    return Log(directory, disk, syncer, lambda: 0.0, list), syncer


def _report(log: Log) -> tuple[CheckReport, Salvage]:
    report = CheckReport()
    salvage = Salvage(log)
    salvage.run()
    salvage.count_loss()
    report.segments = salvage.segments.count
    salvage.deliver(_Counter(report))
    found = salvage.report
    report.batches = found.batches
    report.messages = found.messages
    report.definitions = found.definitions
    if found.torn:
        report.torn = f"{found.torn} at offset {found.torn_offset}, {found.torn_bytes} bytes"
    report.damages = salvage.damages
    report.loss = salvage.loss
    return report, salvage


def _copy_forward(log: Log, segment: Segment) -> None:
    """Append everything that is needed of a damaged segment again, and let it go."""
    fd = log.files.readable(segment)
    scanner = SegmentScanner(log.disk, fd, log.files.path(segment.name), segment.number, log.identity)
    log.space.victim = None
    while scanner.next_valid():
        scanner.fd = log.files.readable(segment)
        log.filling.segment.needs.add(segment.number)
        log.space.copy_batch(segment, scanner)
        if len(log.filling.writer) > COMMIT_BYTES:
            log.commit()
    assert segment.live == 0, "every live message has a record that reads"
    segment.emptied = log.filling.number
    log.space.changed = True
    log.commit()
