"""The check of a journal: its files by their digests, and the contents of its queues by their events."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path
from typing import Final, NamedTuple

from protocol.journal.files import LIVE, MANIFEST, PARQUET, SEALED
from protocol.journal.inventory import Fault, Inventory, dropped_files
from protocol.journal.rows import EventRow

LEAVING: Final = frozenset({"ack", "reject", "expire", "dead_letter", "drop_overflow", "replace", "remove"})
FINDINGS_MAX: Final = 1000


class FileCheck(NamedTuple):
    """The faults of files. `files`: listed files that exist. `next`: the number to continue with, or None."""

    faults: list[Fault]
    files: int
    next: int | None


def check_sealed_files(folder: Path, start: int = 0, bytes_max: int | None = None) -> FileCheck:
    """Compare names with the manifest, and digests of listed files from number `start` on.

    Numbers count all files of the manifest, which only grows. A file may be dropped during the check. Faults
    of names are found with `start` 0 only. `bytes_max`: approximate limit of bytes to read. Raises OSError.
    """
    inventory = list_present_files(folder)
    size = 0
    present = {listed.file for listed in inventory.present}
    dropped: set[str] = set()
    if start > 0:
        inventory.faults.clear()
    for at, listed in enumerate(inventory.listed[start:], start):
        if listed.file not in present:
            continue
        if bytes_max is not None and size >= bytes_max:
            return FileCheck(inventory.faults, len(present), at)
        path = folder / listed.file
        try:
            with path.open("rb") as file:
                digest: str | None = file_digest(file, "sha256").hexdigest()
                size += file.tell()
        except FileNotFoundError:
            digest = None
            if listed.file not in dropped:
                dropped = dropped_files(read_manifest_lines(folder) or [])
            if listed.file in dropped:
                continue
        inventory.compare_digest(listed, digest)
    return FileCheck(inventory.faults, len(present), None)


def list_present_files(folder: Path) -> Inventory:
    """Return the files of the folder.

    The manifest is read later, as it may grow meanwhile.
    """
    sealed = [
        str(path.relative_to(folder))
        for path in (folder / PARQUET).rglob(f"*{SEALED}")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    raw = [path.name for path in (folder / LIVE).glob("*")]
    return Inventory(read_manifest_lines(folder), sealed, raw)


def read_manifest_lines(folder: Path) -> list[str] | None:
    """Return the lines of the manifest; None: no manifest."""
    try:
        return (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return None


class Verification:
    """The findings in a journal. Pass all events to `take`, then read the findings, each a line of text.

    After a `gap` in the journal the state of all queues of its node is unknown until their next checkpoint. A
    gap also explains as many missing events before it as it names: they are listed in `gaps` and are no
    finding. A restart's list of contents that a gap interrupts is not compared.
    """

    def __init__(self) -> None:
        self.events = 0
        self.gaps = 0
        self.findings: list[str] = []
        self.unmentioned = 0  # findings beyond FINDINGS_MAX
        self.queues = 0
        self.checked = 0  # compared balances
        self._node = ""
        self._seq = 0
        self._depths: dict[int, int | None] = {}
        self._listed: int | None = 0  # entries of the present list after a restart
        self._closed: set[int] = set()  # queues recorded in the last clean stop so far

    def take(self, rows: Iterable[EventRow]) -> None:
        """Check events; the events of a node are in the order of their seqs."""
        for row in rows:
            self._look_at(row)

    def find(self, text: str) -> None:
        """Note a finding."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(text)
        else:
            self.unmentioned += 1

    def _look_at(self, row: EventRow) -> None:
        self.events += 1
        if row.node != self._node:
            self._node = row.node
            self._seq = row.seq - 1
            self._depths = {}
            self._listed = 0 if row.seq == 1 else None  # a later file may begin in the middle of a list
            self._closed = set()
        first = row.seq  # the first event that the journal reports as missing
        if row.op == "gap" or (row.op == "level" and row.queue_id is None and row.reason == "off"):
            self.gaps += 1
            self._forget()
        if row.op == "gap":
            first = self._seq + 1 if row.quantity is None else row.seq - row.quantity
        if row.seq <= self._seq:
            self.find(f"event {row.seq} of node '{row.node}' comes again")
            self._forget()
        elif first > self._seq + 1:
            self.find(f"events {self._seq + 1} to {first - 1} of node '{row.node}' are missing")
            self._forget()
        self._seq = row.seq
        if row.op == "end":  # messages may have changed while nothing was journaled
            self._depths = {
                queue: self._depths[queue] if queue in self._closed else None for queue in self._depths
            }
            self._closed = set()
            self._listed = 0
        if row.queue_id is not None:
            self._account(row, row.queue_id)

    def _forget(self) -> None:
        """Forget the known state, as events may be missing here."""
        self._depths = dict.fromkeys(self._depths)
        self._listed = None

    def _account(self, row: EventRow, queue: int) -> None:
        depth = self._depths.get(queue)
        if queue not in self._depths:
            self.queues += 1
            self._depths[queue] = None
        if row.op == "declare":
            self._depths[queue] = 0
        elif row.op == "checkpoint":
            self._compare(row, depth)
            self._depths[queue] = row.quantity
            if row.reason == "shutdown":
                self._closed.add(queue)
        elif row.op == "recover" and row.msg_uid is not None:
            if self._listed is not None:
                self._listed += 1
        elif row.op == "recover":
            self._compare(row, self._listed)
            self._compare(row, depth)
            self._listed = 0
            self._depths[queue] = row.quantity
        elif row.op == "level":
            if row.reason == "off":
                self._depths[queue] = None
        elif depth is not None:
            self._depths[queue] = depth + _count_change(row)
            if row.op == "queue_delete" and depth != row.quantity:
                self._compare(row, depth)

    def _compare(self, row: EventRow, depth: int | None) -> None:
        if depth is None:
            return
        self.checked += 1
        if depth != row.quantity:
            self.find(
                f"queue '{row.queue}' in vhost '{row.vhost}' ({row.queue_id}): {row.op} {row.seq} says "
                f"{row.quantity} messages, what came and left makes it {depth}"
            )


def _count_change(row: EventRow) -> int:
    """Return the change of a queue's message count by an event."""
    if row.op in ("enqueue", "append"):
        return 1
    if row.op in LEAVING:
        return -1
    return -(row.quantity or 0) if row.op in ("purge", "queue_delete", "lost", "trim") else 0
