"""The events that the pipeline reads of journals made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pipeline.journal.events import EventReader
from pipeline.journal.journals import FolderJournal
from tests.support.journal.handmade_journal import NODE

READ_BYTES: Final = 65_536


def read(
    folder: Path, start: int, end: int, fail_on_loss: bool = True, journal: Any = None
) -> list[dict[str, Any]]:
    """Return all events of the range."""
    journal = journal or FolderJournal(str(folder))
    reader = EventReader(journal, NODE, start, end, fail_on_loss, READ_BYTES)
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of events."""
    return [row["seq"] for row in rows]


def lose(folder: Path, first: int) -> None:
    """Delete the raw file that begins with this event."""
    (path,) = folder.glob(f"live/{NODE}-{first:020d}*")
    path.unlink()
