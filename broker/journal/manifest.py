"""The list of sealed files, one line of JSON for each; beside them are lines about days that are dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.journal.files import drops


class Sealed(NamedTuple):
    """A sealed file: its path in the journal's folder, its records, and the SHA-256 of its bytes.

    `earliest` and `latest` are microseconds since 1970. `ended`: its last event is that of a clean stop.
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


def read(manifest: Path) -> Iterator[Sealed]:
    """All files that were ever sealed, those too that were dropped since; none if there is no manifest.

    What is no line is passed over: a crash may cut one.
    """
    for line in _lines(manifest):
        try:
            yield Sealed(**json.loads(line))
        except (ValueError, TypeError):
            continue


def dropped(manifest: Path) -> set[str]:
    """Paths of sealed files that the pipeline's job `retain` has deleted, or was killed before it did."""
    return {file for drop in drops(_lines(manifest)) for file in drop.files}


def line_of(sealed: Sealed) -> str:
    """A file's line."""
    return json.dumps(sealed._asdict()) + "\n"


def _lines(manifest: Path) -> list[str]:
    try:
        return manifest.read_text().splitlines()
    except FileNotFoundError:
        return []
