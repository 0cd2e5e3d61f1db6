"""The names of the files of a journal.

    <folder>/live/<node>-<first seq>.ajl.open    the file that is being written
    <folder>/live/<node>-<first seq>.ajl         ended; kept for a while when it has been sealed
    <folder>/parquet/date=YYYY-MM-DD/hour=HH/<node>-<first seq>-<last seq>.parquet    sealed
    <folder>/manifest.jsonl                      the sealed files, a line of JSON for each
    <folder>/.sealing                            locked (flock) while files are sealed or deleted

The hour is the hour of a file's first event, UTC.

Lines of the manifest stay when files are deleted, so that no file is sealed again. A program that deletes a
day's folder, as the pipeline's job `retain` does, first appends a line to the manifest:
{"dropped": "date=2026-11-20", "rows": 1000}. The day's files in lines above may be missing from then on. The
day's files in lines below were sealed later and are present. A job that was killed behind its line has left
all files of the day or none. The files that are present count, and may be dropped again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

LIVE: Final = "live"
PARQUET: Final = "parquet"
MANIFEST: Final = "manifest.jsonl"
LOCK: Final = ".sealing"
SUFFIX: Final = ".ajl"
OPEN: Final = ".open"
SEALED: Final = ".parquet"
DAY: Final = 86_400_000_000  # microseconds
_DIGITS: Final = 20


class FileName(NamedTuple):
    """The parts of a file's name. `last` is None for a raw file."""

    node: str
    first: int
    last: int | None


class Drop(NamedTuple):
    """A line about a dropped day: its folder, its number of events, and its files in the lines above."""

    day: str
    rows: int
    files: list[str]


def file_name(node: str, first: int) -> str:
    """Return the name of a completed raw file whose first event has the seq `first`."""
    return f"{node}-{first:0{_DIGITS}d}{SUFFIX}"


def sealed_name(node: str, first: int, last: int) -> str:
    """Return the name of a sealed file."""
    return f"{node}-{first:0{_DIGITS}d}-{last:0{_DIGITS}d}{SEALED}"


def day_number(folder: str) -> int | None:
    """Return the day of a folder of sealed files, in days since 1970; None: the folder is none of a day."""
    try:
        return date.fromisoformat(folder.removeprefix("date=")).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None


def sealed_path(node: str, first: int, last: int, earliest: int) -> str:
    """Return the path of a sealed file in the journal's folder. `earliest`: microseconds since 1970."""
    begun = datetime.fromtimestamp(earliest / 1e6, UTC)
    return f"{PARQUET}/date={begun:%Y-%m-%d}/hour={begun:%H}/{sealed_name(node, first, last)}"


def drop_line(day: str, rows: int) -> str:
    """Return the line to write before the folder of a day with `rows` events is deleted."""
    return json.dumps({"dropped": day, "rows": rows}) + "\n"


def read_drops(lines: Iterable[str]) -> Iterator[Drop]:
    """Yield the dropped days of all lines of a manifest. Malformed lines are skipped."""
    above: dict[str, list[str]] = {}
    for line in lines:
        try:
            said = json.loads(line)
            if "dropped" in said:
                yield Drop(said["dropped"], said["rows"], above.pop(said["dropped"], []))
            else:
                above.setdefault(said["file"].split("/")[1], []).append(said["file"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            continue


def parse_name(name: str) -> FileName | None:
    """Return the parts of the name of a raw file (open or not) or a sealed file; None for other names."""
    raw = name.removesuffix(OPEN)
    if raw.endswith(SUFFIX):
        node, _, first = raw.removesuffix(SUFFIX).rpartition("-")
        return FileName(node, int(first), None) if node and _is_seq(first) else None
    if not name.endswith(SEALED):
        return None
    rest, _, last = name.removesuffix(SEALED).rpartition("-")
    node, _, first = rest.rpartition("-")
    return FileName(node, int(first), int(last)) if node and _is_seq(first) and _is_seq(last) else None


def _is_seq(text: str) -> bool:
    return len(text) == _DIGITS and text.isdecimal()
