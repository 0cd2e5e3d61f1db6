"""The output of commands: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], form: str) -> None:
    """Print a list; `form`: table or json. A column may have levels: `message_stats.publish`."""
    if form == "json":
        print_json([{column: _at(row, column) for column in columns} for row in rows])
        return
    lines = [list(columns)]
    lines += [[_text(_at(row, column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_json(value: object) -> None:
    """Print a value as JSON."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _at(row: Any, column: str) -> Any:
    for part in column.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return row


def _text(value: object) -> str:
    """Return a value for a table; characters that break a line or move the cursor are escaped."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value if value.isprintable() else ascii(value)[1:-1]
    return json.dumps(value)
