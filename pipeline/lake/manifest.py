"""The list of sealed files, as the broker's `journal seal` writes it: a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

MANIFEST: Final = "manifest.jsonl"


class Entry(NamedTuple):
    """A sealed file: path in the folder, records, microseconds since 1970, SHA-256, and its line."""

    file: str
    rows: int
    latest: int
    sha256: str
    line: str


def entries(folder: Path) -> Iterator[Entry]:
    """The files in a manifest; lines that are none are passed over: a crash may cut one."""
    try:
        lines = (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            value: dict[str, Any] = json.loads(line)
            yield Entry(value["file"], value["rows"], value["latest"], value["sha256"], line)
        except (ValueError, KeyError, TypeError):
            continue
