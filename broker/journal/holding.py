"""A journal's folder held against its manifest, with the digest of each file."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from protocol.journal.files import LIVE, MANIFEST, PARQUET, SEALED
from protocol.journal.inventory import Fault, Inventory


class Held(NamedTuple):
    """Faults; `next`: which listed file is to be looked at next, None: all have been."""

    faults: list[Fault]
    files: int
    next: int | None


def hold(folder: Path, start: int = 0, bytes_max: int | None = None) -> Held:
    """Compare names with the manifest, and digests of listed files from number `start` on.

    Faults of names are found with `start` 0 only. `bytes_max`: about so many bytes are read at most. Raises
    OSError.
    """
    inventory = look(folder)
    size = 0
    at = start
    if start > 0:
        inventory.faults.clear()
    for listed in inventory.present[start:]:
        if bytes_max is not None and size >= bytes_max:
            return Held(inventory.faults, len(inventory.present), at)
        path = folder / listed.file
        try:
            with path.open("rb") as file:
                digest: str | None = file_digest(file, "sha256").hexdigest()
                size += file.tell()
        except FileNotFoundError:
            digest = None
        inventory.changed(listed, digest)
        at += 1
    return Held(inventory.faults, len(inventory.present), None)


def look(folder: Path) -> Inventory:
    """What the folder has, by names. Files are listed before the manifest is read: it may grow meanwhile."""
    sealed = [
        str(path.relative_to(folder))
        for path in (folder / PARQUET).rglob(f"*{SEALED}")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    raw = [path.name for path in (folder / LIVE).glob("*")]
    try:
        lines = (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        lines = []
    return Inventory(lines, sealed, raw)
