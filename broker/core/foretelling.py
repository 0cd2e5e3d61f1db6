"""The receipts of transactions, which are appended before what they tell has come to pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.core.message import DELAYED, TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.receipts import ARRIVAL, CONSUMED, Receipts

if TYPE_CHECKING:
    from broker.core.queue import Queue


@final
class Foretelling:
    """The receipts of what one transaction will do: in its batch, so that none is there without the other."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._told: list[tuple[Message, Queue]] = []

    def arrival(self, message: Message, queues: list[Queue]) -> None:
        """These queues will get the message, which has been appended for those that are logged."""
        if message.marks & (TELLS_ARRIVAL | DELAYED) == TELLS_ARRIVAL and message.persistent:
            for queue in queues:
                self._foretell(message, queue, ARRIVAL)

    def consumed(self, message: Message, queue: Queue) -> None:
        """The queue will settle the message."""
        if message.marks & TELLS_CONSUMED:
            self._foretell(message, queue, CONSUMED)

    def withdraw(self) -> None:
        """The transaction is over: what has not been told will not be done."""
        for message, queue in self._told:
            self._receipts.withdraw(message, queue)
        self._told = []

    def _foretell(self, message: Message, queue: Queue, what: str) -> None:
        if queue.logged and message.sequence != 0 and self._receipts.foretell(message, queue, what):
            self._told.append((message, queue))
