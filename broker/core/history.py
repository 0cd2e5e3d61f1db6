"""The last messages of an exchange, kept for queues that are bound later."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.keeper import Keeper
from broker.core.leaving import drop
from broker.core.message import Message, copy_of

if TYPE_CHECKING:
    from broker.core.queue import Queue


@final
class History(Keeper):
    """A queue that no client knows, of at most `length` messages.

    It is `logged` if its exchange is durable: then persistent messages are in it again after a restart.
    """

    def __init__(self, queue: Queue, length: i64) -> None:
        super().__init__(queue, 0)
        self.length = length

    def add(self, message: Message) -> None:
        """Keep a message, which was appended for `queue` if need be, and let the oldest go for it."""
        self.queue.enqueue(message)
        self._trim()

    def messages(self) -> list[Message]:
        """Copies of the messages, oldest first, which the log has not seen: they may go to other queues.

        Raises OSError or LogDamaged if the disk does not give a content back.
        """
        self._trim()
        return [self._copy(entry.message) for entry in self.queue.entries]

    def _copy(self, message: Message) -> Message:
        content = message.content
        if content is None:
            content = self.queue.store.load(message)
        copy = copy_of(message, content)
        copy.date = message.date
        return copy

    def _trim(self) -> None:
        """Let the oldest go: one that was added is one too many, and after a restart there may be more."""
        queue = self.queue
        while queue.ready > self.length:
            oldest = queue.entries.next(queue.entries.head)
            assert oldest is not None, "a queue that counts entries has them"
            drop(queue, oldest)
