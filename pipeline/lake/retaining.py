"""Deletion of sealed files that are old enough, by folders of a day."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime, timedelta
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.lake.manifest import Entry, entries
from protocol.journal.files import PARQUET

_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def retain(folder: Path, keep: float, now: datetime) -> dict[str, Any]:
    """Delete folders of days that ended more than `keep` seconds before `now`; returns what is gone.

    Each file of a day must be in the manifest with its SHA-256, and each file that the manifest has for that
    day must be there: else nothing of that day goes. Raises PipelineError naming the first that is not so,
    after the other days are done. The manifest keeps its lines, so that nothing is sealed again.
    """
    known: dict[str, Entry] = {entry.file: entry for entry in entries(folder)}
    parquet = folder / PARQUET
    if not parquet.is_dir():
        raise PipelineError(f"no sealed journal in '{folder}'")
    wrong: list[str] = []
    for path in sorted(parquet.glob("date=*")):
        day = _day(path)
        if day is None or not _is_over(day, keep, now):
            continue
        reason = _difference(folder, path, known)
        if reason:
            wrong.append(reason)
        else:
            path.rename(path.with_name(f".{path.name}"))  # all of it is gone for readers, at once
    dropped = _delete_hidden(parquet)
    if wrong:
        raise PipelineError(f"{wrong[0]}; nothing of that day was deleted ({len(dropped)} other days were)")
    rows = sum(entry.rows for entry in known.values() if Path(entry.file).parent.parent.name in dropped)
    return {"dropped": dropped, "rows": rows}


def _day(path: Path) -> date | None:
    found = _DAY.fullmatch(path.name)
    return date.fromisoformat(found[1]) if found else None


def _is_over(day: date, keep: float, now: datetime) -> bool:
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return end + timedelta(seconds=keep) <= now


def _difference(folder: Path, day: Path, known: dict[str, Entry]) -> str:
    """What of a day is not as the manifest says; empty if all is. What a killed sealer has left is hidden."""
    files = (path for path in day.rglob("[!.]*") if not path.is_dir())
    there = {str(path.relative_to(folder)) for path in files}
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


def _delete_hidden(parquet: Path) -> list[str]:
    """Delete the days that are hidden, by this run or one that was killed; returns which."""
    hidden = sorted(parquet.glob(".date=*"))
    for path in hidden:
        shutil.rmtree(path)
    return [path.name[1:] for path in hidden]
