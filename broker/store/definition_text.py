"""The definitions as a checkpoint has them: encoded once, and not anew for each segment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, final

from mypy_extensions import i64

CHANGES_MIN: Final = 1024 * 1024  # bytes of changes for which it is not worth describing everything anew
STEP: Final = 300  # objects described in one step: half a millisecond or one
STEPS_MAX: Final = 8  # as many in one turn, when very much has changed

Change = dict[str, object]
Describe = Callable[[], Iterable[list[Change]]]
"""Gives the changes that make everything again, a list for each object.

What changes between two lists is appended there, and counts with them; see `Broker.describe`.
"""


def encode_json(value: object) -> bytes:
    """Compact JSON in ASCII, which holds any string: UTF-8 has no half a surrogate pair."""
    return json.dumps(value, separators=(",", ":")).encode()


@final
class DefinitionText:
    """A list of changes that make everything durable again, in JSON: all there was, then what came later.

    When the changes are longer than what there was, all of it is described anew, in steps; until that is done
    the text so far is the one that is used. So each change costs as much as it is long, a segment a copy of
    bytes, and a turn a few milliseconds, however many definitions there are. A step describes as much as has
    changed since the last one, so that the text is no longer than a few times what there is.
    """

    def __init__(self, describe: Describe, changes_min: i64 = CHANGES_MIN, step: i64 = STEP) -> None:
        self.describe = describe
        self.changes_min = changes_min
        self.objects = step  # described in one step
        self._known: _Text | None = None
        self._coming: _Text | None = None  # what is being described; its changes are in between
        self._description: Iterator[list[Change]] = iter(())
        self._changed: i64 = 0  # bytes of changes since the last step

    def add(self, change: Change) -> bytes:
        """Something changes in this turn; returns that in JSON. Raises TypeError if it cannot be."""
        text = encode_json(change)
        if self._known is not None:  # or it will be described with everything else
            self._known.change(text)
        if self._coming is not None:
            self._coming.change(text)
            self._changed += len(text)
        return text

    def step(self) -> None:
        """Describe some more, if there is something to be described anew; between two turns, not in one."""
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
        """Bytes of the text, as far as there is one."""
        return 0 if self._known is None else self._known.length

    def text(self) -> bytes:
        """All of it: the elements of a list in JSON."""
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
        """Take the descriptions of so many objects; False if these were the last."""
        described = list(islice(description, objects))
        changes = [change for changes in described for change in changes]
        if changes:
            text = encode_json(changes)[1:-1]
            self.described += len(text)
            self._add(text)
        return len(described) == objects

    def change(self, text: bytes) -> None:
        """Something has changed."""
        self.changed += len(text)
        self._add(text)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self.length += len(part) + 1

    def joined(self) -> bytes:
        """All of it."""
        if len(self._parts) > 1:
            self._parts = [b",".join(self._parts)]
        return self._parts[0] if self._parts else b""
