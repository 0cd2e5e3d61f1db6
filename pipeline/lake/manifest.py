"""The list of sealed files, as the broker's `journal seal` writes it: a line of JSON for each.

Beside them there are lines about days that are dropped; protocol/journal/files.py says what they mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from protocol.journal.files import MANIFEST, Drop, drop_line, drops


class Entry(NamedTuple):
    """A sealed file: path in the folder, records, microseconds since 1970, SHA-256, and its line."""

    file: str
    rows: int
    latest: int
    sha256: str
    line: str


def entries(folder: Path) -> Iterator[Entry]:
    """The files in a manifest, dropped or not; lines that are none are passed over: a crash may cut one."""
    for line in _lines(folder):
        try:
            value: dict[str, Any] = json.loads(line)
            yield Entry(value["file"], value["rows"], value["latest"], value["sha256"], line)
        except (ValueError, KeyError, TypeError):
            continue


def dropped(folder: Path) -> list[Drop]:
    """The days that were dropped, or that were going to be when their run was killed, in that order."""
    return list(drops(_lines(folder)))


def note_dropped(folder: Path, day: str, rows: int) -> None:
    """Append the line that says that a day is dropped, and have it on disk: then its files may go."""
    path = folder / MANIFEST
    with path.open("ab") as file:
        if file.tell() > 0 and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")  # a crash has cut the line before
        file.write(drop_line(day, rows).encode())
        file.flush()
        os.fsync(file.fileno())


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return []
