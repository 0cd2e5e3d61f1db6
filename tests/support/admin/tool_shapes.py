"""Shapes of JSON answers as client tools declare them, in a short notation, and the check of answers.

A table maps names of shapes to their fields: `name vhost: text; memory: u64; tags?: [text]`. Types are
`text`, `flag`, `number`, `object`, `list`, `any`, whole numbers (`u16`, `i32`, ...), another shape of the
table, lists (`[u32]`) and objects whose values are all of one type (`{Rate}`). `?` behind a name: the field
may be missing or null. `~`: the field may be missing, and is not null. A `/` in a name leads into an object.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

WHOLE: Final = re.compile(r"([iu])(8|16|32|64)$")

Table = Mapping[str, str]


def find_misfits(table: Table, kind: str, value: Any, where: str = "") -> list[str]:
    """Return the places in a JSON value that are not of the type `kind`, each with its value."""
    return list(_misfits(table, kind.strip(), value, where))


def _misfits(table: Table, kind: str, value: Any, where: str) -> Iterator[str]:
    if kind in table:
        if isinstance(value, dict):
            yield from _fields(table, table[kind], value, where)
        else:
            yield f"{where}: {value!r} is no {kind}"
    elif kind.startswith("["):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for number, item in enumerate(value):
            yield from _misfits(table, kind[1:-1], item, f"{where}[{number}]")
    elif kind.startswith("{"):
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        for name, item in value.items():
            yield from _misfits(table, kind[1:-1], item, f"{where}.{name}")
    elif not _fits(kind, value):
        yield f"{where}: {value!r} is no {kind}"


def _fields(table: Table, fields: str, value: dict[str, Any], where: str) -> Iterator[str]:
    for entry in filter(None, (part.strip() for part in fields.split(";"))):
        names, _, kind = entry.partition(":")
        for name in names.split():
            path, mark = name.rstrip("?~"), name[-1]
            place: Any = value
            *outer, last = path.split("/")
            for step in outer:
                place = place.get(step, {}) if isinstance(place, dict) else {}
            if last not in place:
                if mark not in "?~":
                    yield f"{where}.{path} is missing"
            elif not (place[last] is None and mark == "?"):
                yield from _misfits(table, kind.strip(), place[last], f"{where}.{path}")


def _fits(kind: str, value: Any) -> bool:
    whole = WHOLE.match(kind)
    if whole is not None:
        signed, bits = whole[1] == "i", int(whole[2])
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
        return type(value) is int and low <= value < high
    if kind == "number":
        return type(value) in (int, float)
    kinds = {"text": str, "flag": bool, "object": dict, "list": list, "any": object}
    return isinstance(value, kinds[kind])
