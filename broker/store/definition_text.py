"""The definitions in the form of a checkpoint: encoded once, and not again for each segment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, final

from mypy_extensions import i64

CHANGES_MIN: Final = 1024 * 1024  # fewer bytes of changes are not worth a new description
STEP: Final = 300  # objects described in one step: half a millisecond or one
STEPS_MAX: Final = 8  # as many in one turn, when very much has changed

Change = dict[str, object]
Describe = Callable[[], Iterable[list[Change]]]
"""Yields the changes that recreate everything durable, a list for each object.

Changes between two lists are appended there, and belong to the result; see `Broker.describe`.
"""


def encode_json(value: object) -> bytes:
    """Compact JSON in ASCII, which holds any string: UTF-8 has no half a surrogate pair."""
    return json.dumps(value, separators=(",", ":")).encode()


@final
class DefinitionText:
    """The changes that recreate everything durable, in JSON: a description, then later changes.

    When the changes are longer than the description, everything is described again, in steps; until that is
    done the old text is used. So a change costs as much as it is long, a segment a copy of bytes, and a turn
    a few milliseconds, however many definitions there are. A step describes as much as has changed since the
    last one, so that the text is never longer than a few times a description.
    """

    def __init__(self, describe: Describe, changes_min: i64 = CHANGES_MIN, step: i64 = STEP) -> None:
        self.describe = describe
        self.changes_min = changes_min
        self.objects = step  # described in one step
        self._known: _Text | None = None
        self._coming: _Text | None = None  # the new description, with the changes made meanwhile
        self._description: Iterator[list[Change]] = iter(())
        self._changed: i64 = 0  # bytes of changes since the last step

    def add(self, change: Change) -> bytes:
        """Add a change. Return it in JSON. Raises TypeError if that is not possible."""
        text = encode_json(change)
        if self._known is not None:  # else the first description will include it
            self._known.change(text)
        if self._coming is not None:
            self._coming.change(text)
            self._changed += len(text)
        return text

    def step(self) -> None:
        """Describe some more, if a new description is due; called between turns, not within one."""
        known = self._known
        if known is None:
            return
        coming = self._coming
        if coming is None:
            if known.changed <= max(known.described, self.changes_min):
                return
            coming = _Text()
            self._coming = coming
            self._description = iter(self.describe())
        enough = coming.described + self._changed
        self._changed = 0
        going = coming.describe(self._description, self.objects)
        more = STEPS_MAX
        while going and coming.described < enough and more > 1:
            going = coming.describe(self._description, self.objects)
            more -= 1
        if not going:
            self._known = coming
            self._coming = None

    @property
    def length(self) -> i64:
        """The bytes of the text, 0 if there is none yet."""
        return 0 if self._known is None else self._known.length

    def text(self) -> bytes:
        """Return the whole text: the elements of a list in JSON."""
        if self._known is None:
            known = _Text()
            description = iter(self.describe())
            while known.describe(description, self.objects):
                pass
            self._known = known
        return self._known.joined()


@final
class _Text:
    """The elements of a list in JSON: descriptions, and changes."""

    def __init__(self) -> None:
        self.described: i64 = 0  # bytes of descriptions
        self.changed: i64 = 0  # bytes of changes
        self.length: i64 = 0  # bytes of the whole list, with its commas
        self._parts: list[bytes] = []

    def describe(self, description: Iterator[list[Change]], objects: i64) -> bool:
        """Add the descriptions of up to `objects` objects; False if these were the last."""
        described = list(islice(description, objects))
        changes = [change for changes in described for change in changes]
        if changes:
            text = encode_json(changes)[1:-1]
            self.described += len(text)
            self._add(text)
        return len(described) == objects

    def change(self, text: bytes) -> None:
        """Add a change."""
        self.changed += len(text)
        self._add(text)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self.length += len(part) + 1

    def joined(self) -> bytes:
        """Return the whole text."""
        if len(self._parts) > 1:
            self._parts = [b",".join(self._parts)]
        return self._parts[0] if self._parts else b""
