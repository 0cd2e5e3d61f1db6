"""What journals there are when the broker starts, and where the next one begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker.journal.manifest import read
from protocol.journal.decoder import Decoder, JournalDamagedError
from protocol.journal.records import RECORD_BYTES

SUFFIX: Final = ".ajl"
OPEN: Final = ".open"
LIVE: Final = "live"
MANIFEST: Final = "manifest.jsonl"


class Found(NamedTuple):
    """Where the journal of a node goes on: `next_seq`. `crashed`: its last file had not been ended."""

    next_seq: int
    crashed: bool


def file_name(node: str, first: int) -> str:
    """The name of a file that begins with this seq."""
    return f"{node}-{first:020d}{SUFFIX}"


def first_seq(name: str) -> int:
    """The seq that a file with this name, which `file_name` has given, begins with."""
    return int(name.removesuffix(OPEN).removesuffix(SUFFIX).rpartition("-")[2])


def live_files(folder: Path, node: str | None = None) -> list[Path]:
    """The files of a node, or of all, that are not sealed and gone, oldest first; the open one too."""
    found = []
    for path in (folder / LIVE).glob(f"*{SUFFIX}*"):
        stem = path.name.removesuffix(OPEN)
        if stem.endswith(SUFFIX) and stem[-24:-4].isdecimal() and (node is None or stem[:-25] == node):
            found.append(path)
    return sorted(found, key=lambda path: (path.name[: path.name.rindex("-")], first_seq(path.name)))


def find(folder: Path, node: str) -> Found:
    """Where the journal of `node` goes on; a file that had not been ended is cut to its whole blocks.

    Raises OSError.
    """
    following, crashed = 1, False
    files = live_files(folder, node)
    for path in files:
        if path.name.endswith(OPEN):
            crashed = True
            following = max(following, _end_file(path), first_seq(path.name))
        elif path is files[-1]:
            following = max(following, behind(path), first_seq(path.name))
    for last in _sealed(folder / MANIFEST, node):
        following = max(following, last + 1)
    return Found(following, crashed)


def behind(path: Path) -> int:
    """The seq behind the last record of a file; 0: it has none that can be read."""
    try:
        decoder = Decoder(path.read_bytes())
    except JournalDamagedError:
        return 0
    return _read_on(decoder)


def _read_on(decoder: Decoder) -> int:
    """The seq behind the last record, 0 if there is none."""
    last = 0
    for block in decoder.blocks():
        last = int.from_bytes(block.records[-RECORD_BYTES:][:8], "little") + 1
    return last


def _end_file(path: Path) -> int:
    """End a file that a crash has left open; returns the seq behind its last record, 0: it had none."""
    try:
        decoder = Decoder(path.read_bytes())
    except JournalDamagedError:
        path.unlink()
        return 0
    last = _read_on(decoder)
    if last == 0:
        path.unlink()
        return 0
    if decoder.holes and decoder.holes[-1].start == decoder.end:
        os.truncate(path, decoder.end)
    path.rename(path.with_name(path.name.removesuffix(OPEN)))
    return last


def _sealed(manifest: Path, node: str) -> Iterator[int]:
    """The last seqs of the sealed files of a node."""
    for line in read(manifest):
        if line.node == node:
            yield line.last
