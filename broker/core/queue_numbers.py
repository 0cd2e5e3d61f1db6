"""The numbers by which the log knows queues."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.queue import Queue


@final
class QueueNumbers:
    """One sequence for all virtual hosts. A number is never given twice, also not after a restart.

    The log says which queues hold a message by their numbers, so a new queue that took the number of a
    deleted one would inherit its messages.
    """

    def __init__(self) -> None:
        self.next: i64 = 1
        self.queues: dict[int, Queue] = {}

    def take(self) -> i64:
        """A number that no queue has had."""
        number = self.next
        self.next = number + 1
        return number

    def reserve(self, number: i64) -> None:
        """Never give `number`, nor one before it: some queue has had it."""
        if number >= self.next:
            self.next = number + 1
