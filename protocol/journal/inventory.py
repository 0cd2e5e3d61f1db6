"""Compare the files of a journal with its manifest, by lines and names alone.

A journal begins with event 1. The manifest keeps a line for each file that was ever sealed, and lists the
dropped days. So a sealed file that is missing or present twice is found, whether it is the first, the last or
any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from protocol.journal.files import MANIFEST, FileName, parse_file_name, read_drops

MISSING: Final = "missing"
DOUBLED: Final = "doubled"
CHANGED: Final = "changed"


class Fault(NamedTuple):
    """A fault of a file. `what`: MISSING, DOUBLED or CHANGED; `file`: its path in the folder, "" for no file.

    `first`, `last`: the seqs of the file by the manifest or by its name, None if unknown.
    """

    what: str
    file: str
    node: str | None
    first: int | None
    last: int | None
    text: str


class Listed(NamedTuple):
    """A sealed file in the manifest. `latest`: the time of its last event, microseconds since 1970."""

    file: str
    node: str
    first: int
    last: int
    latest: int
    sha256: str


class Inventory:
    """The files of a folder, and their faults.

    `lines`: the lines of the manifest, None without a manifest. `sealed`: the paths of Parquet files in the
    journal's folder. `raw`: the names of raw files. Both were read before the manifest.

    `faults`: the faults found by names and lines. `listed`: all files of the manifest in its order, also
    dropped files. `present`: the listed files that exist; the caller compares their digests. `strays`: the
    paths of files that are no part of the journal.
    """

    def __init__(self, lines: Iterable[str] | None, sealed: Iterable[str], raw: Iterable[str]) -> None:
        self.faults: list[Fault] = []
        self.strays: list[str] = []
        self.listed: list[Listed] = []
        self.present: list[Listed] = []
        existing = set(sealed)
        raws = [name for name in map(parse_file_name, raw) if name is not None and name.last is None]
        if lines is None:
            self._look_without_manifest(existing, raws)
            return
        lines = list(lines)
        listed = _listed(lines)
        dropped = dropped_files(lines)
        self.listed = list(listed.values())
        self.present = [each for each in self.listed if each.file in existing]
        for each in listed.values():
            if each.file not in existing and each.file not in dropped:
                self._add(MISSING, each, "it is listed in the manifest, but missing")
        for path in sorted(existing.difference(listed)):
            self._look_at_unlisted(path, raws)
        self._find_overlaps()
        self._find_beginnings(list(listed.values()), raws)

    def compare_digest(self, listed: Listed, sha256: str | None) -> Fault | None:
        """Compare a file's digest; return the fault, if any. `sha256`: None if the file was deleted since."""
        if sha256 == listed.sha256:
            return None
        if sha256 is None:
            self._add(MISSING, listed, "it is listed in the manifest, but missing")
        else:
            self.strays.append(listed.file)
            self._add(CHANGED, listed, f"it has the SHA-256 {sha256}, and {listed.sha256} in the manifest")
        return self.faults[-1]

    def _look_without_manifest(self, existing: set[str], raws: list[FileName]) -> None:
        """Add a fault for a missing manifest, if sealed files exist."""
        names = [parse_file_name(path.rpartition("/")[2]) for path in existing]
        if any(name is not None and name.last is not None for name in names):
            text = "sealed files exist without a manifest"
            self.faults.append(Fault(MISSING, MANIFEST, None, None, None, text))
        else:
            self._find_beginnings([], raws)

    def _look_at_unlisted(self, path: str, raws: list[FileName]) -> None:
        name = parse_file_name(path.rpartition("/")[2])
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
            return  # the file is being sealed, or a crash has left it: sealing replaces the file
        self.strays.append(path)
        text = f"it has events that '{same[0].file}' has too" if same else "it is not in the manifest"
        self.faults.append(Fault(DOUBLED, path, name.node, name.first, name.last, text))

    def _find_overlaps(self) -> None:
        before: Listed | None = None
        for each in sorted(self.present, key=lambda listed: (listed.node, listed.first, listed.last)):
            if before is not None and before.node == each.node and each.first <= before.last:
                self.strays.append(each.file)
                self._add(DOUBLED, each, f"it has events that '{before.file}' has too")
            else:
                before = each

    def _find_beginnings(self, listed: list[Listed], raws: list[FileName]) -> None:
        firsts: dict[str, int] = {}
        for node, first in [(each.node, each.first) for each in listed] + [
            (each.node, each.first) for each in raws
        ]:
            firsts[node] = min(first, firsts.get(node, first))
        for node, first in sorted(firsts.items()):
            if first > 1:
                text = f"events 1 to {first - 1} of node '{node}' are in no file, and were not dropped"
                self.faults.append(Fault(MISSING, "", node, 1, first - 1, text))

    def _add(self, what: str, listed: Listed, text: str) -> None:
        self.faults.append(Fault(what, listed.file, listed.node, listed.first, listed.last, text))


def dropped_files(lines: Iterable[str]) -> set[str]:
    """Return the paths of the files that may be missing, because their days are dropped."""
    return {file for drop in read_drops(lines) for file in drop.files}


def _listed(lines: list[str]) -> dict[str, Listed]:
    """Return the files in the manifest, also dropped ones; malformed lines are ignored."""
    files: dict[str, Listed] = {}
    for line in lines:
        try:
            entry: dict[str, Any] = json.loads(line)
            numbers = (int(entry["first"]), int(entry["last"]), int(entry["latest"]))
            files[entry["file"]] = Listed(
                str(entry["file"]), str(entry["node"]), *numbers, str(entry["sha256"])
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return files
