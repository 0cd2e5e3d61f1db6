"""The files of a journal: raw files, the manifest of sealed files, and the start of the next file.

The manifest has a line of JSON for each sealed file, and lines about dropped days.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import NamedTuple

from protocol.journal.decoder import Decoder, JournalDamagedError, Record
from protocol.journal.files import LIVE, MANIFEST, OPEN, SUFFIX, parse_file_name, read_drops
from protocol.journal.records import END, FORMAT, RECORD_BYTES


class Sealed(NamedTuple):
    """A sealed file: its path in the journal's folder, its records, and the SHA-256 of its bytes.

    `earliest` and `latest` are microseconds since 1970. `ended`: its last event is a clean stop.
    """

    file: str
    node: str
    rows: int
    first: int
    last: int
    earliest: int
    latest: int
    sha256: str
    ended: bool


def read_manifest(manifest: Path) -> Iterator[Sealed]:
    """Yield all sealed files, dropped ones too; none without a manifest.

    Malformed lines are skipped: a crash may cut a line.
    """
    for line in _manifest_lines(manifest):
        try:
            yield Sealed(**json.loads(line))
        except (ValueError, TypeError):
            continue


def dropped_paths(manifest: Path) -> set[str]:
    """Return the paths of sealed files that the pipeline's job `retain` has deleted, or would delete."""
    return {file for drop in read_drops(_manifest_lines(manifest)) for file in drop.files}


def format_line(sealed: Sealed) -> str:
    """Return the line of a file in the manifest."""
    return json.dumps(sealed._asdict()) + "\n"


def _manifest_lines(manifest: Path) -> list[str]:
    try:
        return manifest.read_text().splitlines()
    except FileNotFoundError:
        return []


class NextFile(NamedTuple):
    """The start of a node's next journal file. `crashed`: the journal does not end with a clean stop."""

    next_seq: int
    crashed: bool


class LastEvent(NamedTuple):
    """The seq of the last event, and whether the event is a clean stop."""

    seq: int
    ended: bool


def list_raw_files(folder: Path, node: str | None = None) -> list[Path]:
    """Return the raw files of a node, or of all nodes, oldest first, with the open one."""
    files = []
    for path in (folder / LIVE).glob(f"*{SUFFIX}*"):
        parsed = parse_file_name(path.name)
        if parsed is not None and node in (None, parsed.node):
            files.append((parsed.node, parsed.first, path))
    return [path for _, _, path in sorted(files)]


def find_next_file(folder: Path, node: str) -> NextFile:
    """Find the start of the next file of `node`. A file that was still open is cut to its complete blocks.

    Raises OSError.
    """
    lasts = [
        LastEvent(sealed.last, sealed.ended)
        for sealed in read_manifest(folder / MANIFEST)
        if sealed.node == node
    ]
    files = list_raw_files(folder, node)
    left_open = False
    for path in files:
        if path.name.endswith(OPEN):
            left_open = True
            lasts += [_end_file(path), LastEvent(_first_of(path) - 1, False)]
        elif path is files[-1]:
            lasts += [_last_of(path), LastEvent(_first_of(path) - 1, False)]
    if not lasts:
        return NextFile(1, False)
    last = max(lasts)
    return NextFile(last.seq + 1, left_open or not last.ended)


def read_last_event(decoder: Decoder) -> LastEvent:
    """Return the last event of a file, which is read to its end; seq 0 without events."""
    last = LastEvent(0, False)
    for block in decoder.blocks():
        record = Record._make(unpack(FORMAT, block.records[-RECORD_BYTES:]))
        last = LastEvent(record.seq, record.op == END)
    return last


def _first_of(path: Path) -> int:
    parsed = parse_file_name(path.name)
    assert parsed is not None, "it is one of the live files"
    return parsed.first


def _last_of(path: Path) -> LastEvent:
    try:
        return read_last_event(Decoder(path.read_bytes()))
    except JournalDamagedError:
        return LastEvent(0, False)


def _end_file(path: Path) -> LastEvent:
    """Complete a file that a crash has left open; a file without events is deleted."""
    try:
        decoder = Decoder(path.read_bytes())
    except JournalDamagedError:
        path.unlink()
        return LastEvent(0, False)
    last = read_last_event(decoder)
    if last.seq == 0:
        path.unlink()
        return last
    if decoder.holes and decoder.holes[-1].start == decoder.end:
        os.truncate(path, decoder.end)
    path.rename(path.with_name(path.name.removesuffix(OPEN)))
    return LastEvent(last.seq, False)
