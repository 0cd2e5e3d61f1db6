"""What a criterion lets pass of AMQP 0-9-1, asked of content as it is kept."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.view091 import ContentView, marks
from broker.core.view import Criterion
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.lookup import NO_INTEGER, integer_at

_SHORT: Final = 1024  # bytes of content that are searched faster than it is found out where the header ends


@final
class Sieve091:
    """The content that a criterion is true for.

    If it asks for an equality, most of the rest is told by what is not in the header: a name with a string,
    or with an integer.
    """

    def __init__(self, criterion: Criterion) -> None:
        self._criterion = criterion
        self._mark = b""
        self._named = b""  # the name of a header that must be `_number`
        self._number: i64 = 0
        for name, value in criterion.demands:
            mark = marks(name, value)
            if isinstance(value, str):
                self._mark = max(self._mark, mark, key=len)
            elif mark and -(1 << 63) <= value < 1 << 63:
                self._named = mark
                self._number = value

    def passes(self, content: bytes) -> bool:
        """Whether the criterion is true for the message with this content."""
        end: i64 = len(content)
        if end > _SHORT:
            end = header_frame_bytes(content)
        if self._mark:
            if content.find(self._mark, 0, end) < 0:
                return False
        elif self._named and self._has_other_number(content, end):
            return False
        return self._criterion.matches(ContentView(content))

    def _has_other_number(self, content: bytes, end: i64) -> bool:
        """Whether the header that must be there is not, or is certainly another number."""
        named = self._named
        at: i64 = content.find(named, 0, end)
        if at < 0:
            return True
        start = at + len(named)
        if start + 9 > end or content.find(named, at + 1, end) >= 0:
            return False  # which of them is the header, if it is not a value that looks like one?
        value = integer_at(content, start)
        if value == NO_INTEGER:
            return False
        return value != self._number
