"""Deletion of sealed files that are old enough, by folders of a day."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.lake.manifest import Entry, entries

_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def retain(folder: Path, keep: float, now: datetime) -> dict[str, Any]:
    """Delete folders of days that ended more than `keep` seconds before `now`; returns what is gone.

    Each file of a day must be in the manifest with its SHA-256, and each file that the manifest has for that
    day must be there: else nothing of that day goes. Raises PipelineError naming the first that is not so,
    after the other days are done. The manifest keeps its lines, so that nothing is sealed again.
    """
    known: dict[str, Entry] = {entry.file: entry for entry in entries(folder)}
    parquet = folder / "parquet"
    if not parquet.is_dir():
        raise PipelineError(f"no sealed journal in '{folder}'")
    dropped: list[str] = []
    rows = 0
    wrong: list[str] = []
    for path in sorted(parquet.glob("date=*")):
        day = _day(path)
        if day is None or not _is_over(day, keep, now):
            continue
        reason = _difference(folder, path, known)
        if reason:
            wrong.append(reason)
            continue
        for file in sorted(path.rglob("*.parquet")):
            rows += known[str(file.relative_to(folder))].rows
            file.unlink()
        _remove_folders(path)
        dropped.append(path.name)
    if wrong:
        raise PipelineError(f"{wrong[0]}; nothing of that day was deleted ({len(dropped)} other days were)")
    return {"dropped": dropped, "rows": rows}


def _day(path: Path) -> date | None:
    found = _DAY.fullmatch(path.name)
    return date.fromisoformat(found[1]) if found else None


def _is_over(day: date, keep: float, now: datetime) -> bool:
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return end + timedelta(seconds=keep) <= now


def _difference(folder: Path, day: Path, known: dict[str, Entry]) -> str:
    """What of a day is not as the manifest says; empty if all is."""
    there = {str(path.relative_to(folder)) for path in day.rglob("*.parquet") if path.name[0] != "."}
    prefix = str(day.relative_to(folder)) + "/"
    for name in sorted({name for name in known if name.startswith(prefix)} - there):
        return f"{name} is in the manifest and is not there"
    for name in sorted(there):
        if name not in known:
            return f"{name} is not in the manifest"
        with (folder / name).open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != known[name].sha256:
                return f"{name} is not what the manifest says"
    return ""


def _remove_folders(path: Path) -> None:
    """Remove a tree of folders; whoever has put a file there meanwhile keeps it."""
    for each in sorted(path.rglob("*"), reverse=True):
        if each.is_dir() and not any(each.iterdir()):
            each.rmdir()
    if not any(path.iterdir()):
        path.rmdir()
