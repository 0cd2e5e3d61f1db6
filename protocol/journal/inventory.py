"""Compare the files of a journal with its manifest, by lines and names alone.

A journal begins with event 1. The manifest keeps a line for each file that was ever sealed, and lists the
dropped days. So a sealed file that is missing or present twice is found, whether it is the first, the last or
any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from protocol.journal.files import MANIFEST, FileName, parse_name, read_drops

MISSING: Final = "missing"
DOUBLED: Final = "doubled"
CHANGED: Final = "changed"


class Fault(NamedTuple):
    """A fault of a file. `what`: MISSING, DOUBLED or CHANGED; `file`: its path in the folder, "" for no file.

    `first` and `last`: the seqs of the file by the manifest, or by its name; None if neither has them.
    """

    what: str
    file: str
    node: str | None
    first: int | None
    last: int | None
    text: str


class ListedFile(NamedTuple):
    """A sealed file in the manifest; `latest`: microseconds since 1970 of its last event."""

    file: str
    node: str
    first: int
    last: int
    latest: int
    sha256: str


class Inventory:
    """The files of a folder, and their faults.

    `lines`: the whole manifest; None: no manifest. `sealed`: paths of Parquet files in the journal's folder.
    `raw`: names of raw files. Both are listed before the manifest is read.

    `faults`: faults of names and lines. `listed`: all files of the manifest in its order, dropped or not.
    `present`: the listed files that exist, whose digests are to be compared. `strays`: paths of files that no
    reader may treat as part of the journal.
    """

    def __init__(self, lines: Iterable[str] | None, sealed: Iterable[str], raw: Iterable[str]) -> None:
        self.faults: list[Fault] = []
        self.strays: list[str] = []
        self.listed: list[ListedFile] = []
        self.present: list[ListedFile] = []
        there = set(sealed)
        raws = [name for name in map(parse_name, raw) if name is not None and name.last is None]
        if lines is None:
            self._look_without_manifest(there, raws)
            return
        lines = list(lines)
        listed = _listed(lines)
        dropped = dropped_files(lines)
        self.listed = list(listed.values())
        self.present = [each for each in self.listed if each.file in there]
        for each in listed.values():
            if each.file not in there and each.file not in dropped:
                self._add(MISSING, each, "it is listed in the manifest, but missing")
        for path in sorted(there.difference(listed)):
            self._look_at_unlisted(path, raws)
        self._find_overlaps()
        self._find_beginnings(list(listed.values()), raws)

    def find_change(self, listed: ListedFile, sha256: str | None) -> Fault | None:
        """Compare a file's digest; None: it is as listed. `sha256`: None for a file deleted since."""
        if sha256 == listed.sha256:
            return None
        if sha256 is None:
            self._add(MISSING, listed, "it is listed in the manifest, but missing")
        else:
            self.strays.append(listed.file)
            self._add(CHANGED, listed, f"it has the SHA-256 {sha256}, and {listed.sha256} in the manifest")
        return self.faults[-1]

    def _look_without_manifest(self, there: set[str], raws: list[FileName]) -> None:
        """Report a missing manifest, if sealed files exist."""
        names = [parse_name(path.rpartition("/")[2]) for path in there]
        if any(name is not None and name.last is not None for name in names):
            text = "sealed files are there without it"
            self.faults.append(Fault(MISSING, MANIFEST, None, None, None, text))
        else:
            self._find_beginnings([], raws)

    def _look_at_unlisted(self, path: str, raws: list[FileName]) -> None:
        name = parse_name(path.rpartition("/")[2])
        if name is None or name.last is None:
            self.strays.append(path)
            text = "it is not in the manifest, and its name is not that of a sealed file"
            self.faults.append(Fault(DOUBLED, path, None, None, None, text))
            return
        same = [
            each
            for each in self.present
            if each.node == name.node and each.first <= name.last and name.first <= each.last
        ]
        if not same and (name.node, name.first, None) in raws:
            return  # it is being sealed, or a crash has left it: sealing again replaces it
        self.strays.append(path)
        text = f"it has events that '{same[0].file}' has too" if same else "it is not in the manifest"
        self.faults.append(Fault(DOUBLED, path, name.node, name.first, name.last, text))

    def _find_overlaps(self) -> None:
        before: ListedFile | None = None
        for each in sorted(self.present, key=lambda listed: (listed.node, listed.first, listed.last)):
            if before is not None and before.node == each.node and each.first <= before.last:
                self.strays.append(each.file)
                self._add(DOUBLED, each, f"it has events that '{before.file}' has too")
            else:
                before = each

    def _find_beginnings(self, listed: list[ListedFile], raws: list[FileName]) -> None:
        firsts: dict[str, int] = {}
        for node, first in [(each.node, each.first) for each in listed] + [
            (each.node, each.first) for each in raws
        ]:
            firsts[node] = min(first, firsts.get(node, first))
        for node, first in sorted(firsts.items()):
            if first > 1:
                text = f"events 1 to {first - 1} of node '{node}' are in no file, nor were they dropped"
                self.faults.append(Fault(MISSING, "", node, 1, first - 1, text))

    def _add(self, what: str, listed: ListedFile, text: str) -> None:
        self.faults.append(Fault(what, listed.file, listed.node, listed.first, listed.last, text))


def dropped_files(lines: Iterable[str]) -> set[str]:
    """Return the paths of the files that may be missing, as their days are dropped."""
    return {file for drop in read_drops(lines) for file in drop.files}


def _listed(lines: list[str]) -> dict[str, ListedFile]:
    """Return the files in the manifest, dropped or not.

    Malformed lines are skipped, as a crash may cut a line.
    """
    found: dict[str, ListedFile] = {}
    for line in lines:
        try:
            said: dict[str, Any] = json.loads(line)
            numbers = (int(said["first"]), int(said["last"]), int(said["latest"]))
            found[said["file"]] = ListedFile(
                str(said["file"]), str(said["node"]), *numbers, str(said["sha256"])
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found
