"""The output of commands: tables for people; JSON, CSV and tab-separated values for programs."""

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

HIDDEN: Final = "(removed)"
SECRET_KEY: Final = re.compile(
    r"password|secret|token|verifier|credential|authorization|private_key|hash$", re.IGNORECASE
)
"""Names of fields whose values may be secrets."""

SECRET_IN_URI: Final = re.compile(r"(\w[\w+.-]*://[^\s:/@]*):[^\s/\"']*@")
"""The password in a URI such as amqp://user:password@host, up to the @."""


class Form(StrEnum):
    """The format of lists."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PRETTY_TABLE = "pretty_table"


@dataclass
class Output:
    """Prints lists and objects in the format of the command; `headers`: with the names of the columns."""

    form: Form = Form.TABLE
    headers: bool = True

    @property
    def is_json(self) -> bool:
        """Whether the command prints JSON."""
        return self.form is Form.JSON

    def show(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fields: Sequence[str] = ()
    ) -> None:
        """Print a list. A column may have levels: `message_stats.publish`.

        `fields`: the fields of the columns, where they have other names.
        """
        cells = [[field_at(row, field) for field in fields or columns] for row in rows]
        if self.is_json:
            print_json([dict(zip(columns, row, strict=True)) for row in cells])
            return
        lines = [[_text(value) for value in row] for row in cells]
        if self.headers:
            lines.insert(0, list(columns))
        if self.form is Form.CSV:
            csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        elif self.form is Form.TSV:
            sys.stdout.writelines("\t".join(line) + "\n" for line in lines)
        else:
            widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(columns))]
            for line in lines:
                padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
                sys.stdout.write("  ".join(padded).rstrip() + "\n")

    def show_object(self, facts: Mapping[str, Any]) -> None:
        """Print an object: in JSON as it is, otherwise a line for each field."""
        if self.is_json:
            print_json(facts)
        else:
            self.show([{"what": name, "value": value} for name, value in facts.items()], ("what", "value"))


def print_json(value: object) -> None:
    """Print a value as JSON."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def field_at(row: Any, column: str) -> Any:
    """Return a field of an object; `column` may have levels. None: the object does not have it."""
    for part in column.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return row


def without_secrets(value: Any) -> Any:
    """Return a JSON value without passwords, hashes and the like, also in the URIs in texts."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if SECRET_KEY.search(name) and each not in (None, "") else without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return SECRET_IN_URI.sub(rf"\1:{HIDDEN}@", value) if isinstance(value, str) else value


def printable(text: str) -> str:
    """Return a text in which characters that break a line or move the cursor are escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _text(value: object) -> str:
    """Return a value for a cell of a table."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else json.dumps(value)
