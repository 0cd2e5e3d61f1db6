"""The definitions as a checkpoint has them: encoded once, and not anew for each segment."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

CHANGES_MIN: Final = 1024 * 1024  # bytes of changes for which it is not worth describing everything anew


def encode_json(value: object) -> bytes:
    """Compact JSON in ASCII, which holds any string: UTF-8 has no half a surrogate pair."""
    return json.dumps(value, separators=(",", ":")).encode()


@final
class DefinitionText:
    """A list of changes that make everything durable again, in JSON: all there was, then what came later.

    All of it is described anew when the changes are longer than that was. So each change costs as much as it
    is long, and a segment a copy of bytes, however many definitions there are.
    """

    def __init__(self, describe: Callable[[], list[dict[str, object]]]) -> None:
        self.describe = describe
        self._known = False
        self._parts: list[bytes] = []
        self._described: i64 = 0  # bytes of the description
        self._changed: i64 = 0  # bytes of the changes since

    def add(self, change: dict[str, object]) -> bytes:
        """Something has changed; returns that in JSON. Raises TypeError if it cannot be."""
        text = encode_json(change)
        if self._known:  # or it will be described with everything else
            self._parts.append(text)
            self._changed += len(text)
            if self._changed > max(self._described, CHANGES_MIN):
                self._known = False
                self._parts = []
        return text

    def text(self) -> bytes:
        """All of it: the elements of a list in JSON."""
        if not self._known:
            described = encode_json(self.describe())[1:-1]
            self._known = True
            self._parts = [described] if described else []
            self._described = len(described)
            self._changed = 0
        elif len(self._parts) > 1:
            self._parts = [b",".join(self._parts)]
        return self._parts[0] if self._parts else b""
