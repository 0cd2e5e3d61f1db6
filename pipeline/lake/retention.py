"""Deletion of sealed files that are old enough, and the list of sealed files.

The manifest has a line of JSON for each sealed file, which the broker's `journal seal` writes, and lines
about days that are dropped; protocol/journal/files.py says what these mean.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.errors import PipelineError
from protocol.journal.files import LOCK, MANIFEST, PARQUET, Drop, drop_line, read_drops

PATIENCE_S: Final = 30.0  # for a sealer, which `seal --follow` is each few seconds, mostly for a moment
LOOK_S: Final = 0.1
_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


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
    return list(read_drops(_lines(folder)))


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


class _Known(NamedTuple):
    """The manifest: its entries by file, and the files that may be missing as their day was dropped."""

    entries: dict[str, Entry]
    gone: set[str]


def retain(folder: Path, keep: float, now: datetime) -> dict[str, Any]:
    """Delete folders of days that ended more than `keep` seconds before `now`; returns what is gone.

    Each file of a day must be in the manifest with its SHA-256, and each file that the manifest has for that
    day must be there, if it was not dropped before: a file may be sealed later into a day that is gone. Else
    nothing of that day goes. Raises PipelineError naming the first that is not so, after the other days are
    done, or if somebody else is sealing. The manifest keeps its lines, so that nothing is sealed again, and
    gets one more for each day, before that goes.
    """
    parquet = folder / PARQUET
    if not parquet.is_dir():
        raise PipelineError(f"no sealed journal in '{folder}'")
    with _alone(folder):
        known, rows = _look(folder)
        done = {day: rows.get(day, 0) for day in _delete_hidden(parquet)}  # a run before was killed at them
        wrong: list[str] = []
        for path in sorted(parquet.glob("date=*")):
            day = _day(path)
            if day is None or not _is_over(day, keep, now):
                continue
            there = _files(folder, path)
            reason = _difference(folder, path, there, known)
            if reason:
                wrong.append(reason)
                continue
            count = sum(known.entries[name].rows for name in there)
            note_dropped(folder, path.name, count)
            path.rename(path.with_name(f".{path.name}"))  # all of it is gone for readers, at once
            done[path.name] = done.get(path.name, 0) + count
        _delete_hidden(parquet)
    if wrong:
        raise PipelineError(f"{wrong[0]}; nothing of that day was deleted ({len(done)} other days were)")
    return {"dropped": sorted(done), "rows": sum(done.values())}


def _look(folder: Path) -> tuple[_Known, dict[str, int]]:
    """Read the manifest, and how many events were deleted with each day when it was dropped last."""
    drops = dropped(folder)
    known = _Known(
        {entry.file: entry for entry in entries(folder)}, {file for drop in drops for file in drop.files}
    )
    return known, {drop.day: drop.rows for drop in drops}


def _day(path: Path) -> date | None:
    found = _DAY.fullmatch(path.name)
    return date.fromisoformat(found[1]) if found else None


def _is_over(day: date, keep: float, now: datetime) -> bool:
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return end + timedelta(seconds=keep) <= now


def _files(folder: Path, day: Path) -> set[str]:
    """The files of a day. What a killed sealer has left is hidden."""
    return {str(path.relative_to(folder)) for path in day.rglob("[!.]*") if not path.is_dir()}


def _difference(folder: Path, day: Path, there: set[str], known: _Known) -> str:
    """Return how a day's files differ from the manifest; empty if they do not."""
    prefix = str(day.relative_to(folder)) + "/"
    for name in sorted({name for name in known.entries if name.startswith(prefix)} - there - known.gone):
        return f"{name} is in the manifest and is not there"
    for name in sorted(there):
        if name not in known.entries:
            return f"{name} is not in the manifest"
        with (folder / name).open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != known.entries[name].sha256:
                return f"{name} is not what the manifest says"
    return ""


def _delete_hidden(parquet: Path) -> list[str]:
    """Delete the days that are hidden, by this run or one that was killed; returns which."""
    hidden = sorted(parquet.glob(".date=*"))
    if hidden:
        _sync_folder(parquet)  # else a crash could bring back a day of which a part is deleted
    for path in hidden:
        shutil.rmtree(path)
    return [path.name[1:] for path in hidden]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a journal against sealing: a file that is sealed into a deleted day would be lost unseen.

    Raises PipelineError: another process seals files and does not end in time.
    """
    late = time.monotonic() + PATIENCE_S
    with (folder / LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= late:
                    raise PipelineError(f"'{folder}' is being sealed by another process") from error
            time.sleep(LOOK_S)
        yield
