"""A journal's folder held against its manifest, with the digest of each file."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from protocol.journal.files import LIVE, MANIFEST, PARQUET, SEALED
from protocol.journal.inventory import Fault, Inventory, dropped_files


class Held(NamedTuple):
    """Faults; `files`: how many listed files are there; `next`: the number to go on with, None: no more."""

    faults: list[Fault]
    files: int
    next: int | None


def hold(folder: Path, start: int = 0, bytes_max: int | None = None) -> Held:
    """Compare names with the manifest, and digests of listed files from number `start` on.

    Numbers count all files of the manifest, which only grows. A file may be dropped while others are read.
    Faults of names are found with `start` 0 only. `bytes_max`: about so many bytes are read at most. Raises
    OSError.
    """
    inventory = look(folder)
    size = 0
    present = {listed.file for listed in inventory.present}
    dropped: set[str] = set()
    if start > 0:
        inventory.faults.clear()
    for at, listed in enumerate(inventory.listed[start:], start):
        if listed.file not in present:
            continue
        if bytes_max is not None and size >= bytes_max:
            return Held(inventory.faults, len(present), at)
        path = folder / listed.file
        try:
            with path.open("rb") as file:
                digest: str | None = file_digest(file, "sha256").hexdigest()
                size += file.tell()
        except FileNotFoundError:
            digest = None
            if listed.file not in dropped:
                dropped = dropped_files(lines_of(folder) or [])
            if listed.file in dropped:
                continue
        inventory.changed(listed, digest)
    return Held(inventory.faults, len(present), None)


def look(folder: Path) -> Inventory:
    """The files of the folder, listed before the manifest is read: the manifest may grow meanwhile."""
    sealed = [
        str(path.relative_to(folder))
        for path in (folder / PARQUET).rglob(f"*{SEALED}")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    raw = [path.name for path in (folder / LIVE).glob("*")]
    return Inventory(lines_of(folder), sealed, raw)


def lines_of(folder: Path) -> list[str] | None:
    """Return the lines of the manifest; None: there is none."""
    try:
        return (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return None
