"""The list of sealed files, one line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


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
    """The lines of a manifest; none if there is none. What is no line is passed over: a crash may cut one."""
    try:
        text = manifest.read_text()
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield Sealed(**json.loads(line))
        except (ValueError, TypeError):
            continue


def line_of(sealed: Sealed) -> str:
    """A file's line."""
    return json.dumps(sealed._asdict()) + "\n"
