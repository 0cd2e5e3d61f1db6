"""The delivery-tags of what a link's sender waits for: no two of them are the same. [amqp-1.0 2.6.12]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

FREE_MAX: Final = 64  # tags that are free and may stay, which costs less than to let go of each


@final
class Tags:
    """Those of one link. They are free again in the order of their claims, or each by its delivery."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}  # each tag's place among all that have been claimed
        self._claimed: i64 = 0
        self._freed: i64 = 0
        self._named: dict[int, bytes] = {}

    def claim(self, tag: bytes) -> bool:
        """Take a tag; False if it is not free."""
        number: int = self._claimed
        known = self._numbers.setdefault(tag, number)
        if known != number:
            if known >= self._freed:
                return False
            self._numbers[tag] = number
        self._claimed += 1
        return True

    def free(self, count: i64) -> None:
        """The oldest `count` are free again."""
        self._freed += count
        numbers = self._numbers
        if len(numbers) <= FREE_MAX:
            return
        left = self._claimed - self._freed
        if left == 0:
            numbers.clear()
        elif len(numbers) > 2 * (left + FREE_MAX):
            self._numbers = {tag: number for tag, number in numbers.items() if number >= self._freed}

    def claim_for(self, tag: bytes, delivery_id: i64) -> bool:
        """Take a tag for the delivery with this id, for `free_of`; False if it is not free."""
        if tag in self._numbers:
            return False
        self._numbers[tag] = 0
        self._named[delivery_id] = tag
        return True

    def named(self) -> list[tuple[int, bytes]]:
        """The deliveries that have tags of their own, oldest first."""
        return list(self._named.items())

    def free_of(self, delivery_id: i64) -> None:
        """The tag of this delivery is free again."""
        tag = self._named.pop(delivery_id, None)
        if tag is not None:
            self._numbers.pop(tag, None)
