"""The numbers by which the log knows queues."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.argument_rule import Arguments
from broker.core.arguments import PARTITIONS, number_argument
from broker.core.queue import Queue


def last_number(number: i64, arguments: Arguments) -> i64:
    """The last number of a queue with this number and these arguments."""
    return number + number_argument(arguments, PARTITIONS, 1) - 1


@final
class QueueNumbers:
    """One sequence for all virtual hosts. A number is never given twice, also not after a restart.

    The log says which queues hold a message by their numbers, so a new queue that took the number of a
    deleted one would inherit its messages.
    """

    def __init__(self) -> None:
        self.next: i64 = 1
        self.queues: dict[int, Queue] = {}

    def take(self, arguments: Arguments | None = None) -> i64:
        """A number that no queue has had. Further partitions of one with these arguments have the next."""
        number = self.next
        self.next = last_number(number, arguments or {}) + 1
        return number

    def reserve(self, number: i64) -> None:
        """Never give `number`, nor one before it: some queue has had it."""
        if number >= self.next:
            self.next = number + 1
