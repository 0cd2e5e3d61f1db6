"""The last messages of an exchange, kept for queues that are bound later."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed
from broker.core.message import BY_CLOCK, DELAYED, Message, copy_of
from broker.core.queues.queue import Queue, drop
from broker.core.routing.graph import (
    Binding,
    Description,
    Destinations,
    Exchange,
    HistoryKeeper,
    Resolution,
)
from broker.core.values import show, type_name
from broker.core.view import MessageView

REPLAY_BYTES: Final = 16 * 1024 * 1024  # read, copied and appended in one step


def _content_bytes(message: Message) -> i64:
    content = message.content
    return message.length if content is None else len(content)


@final
class History(HistoryKeeper):
    """A queue that no client knows, of at most `length` messages.

    It is `logged` if its exchange is durable: then persistent messages are in it again after a restart.
    """

    def __init__(self, queue: Queue, length: i64) -> None:
        super().__init__(queue, 0)
        self.length = length
        self.replay_bytes: i64 = REPLAY_BYTES

    def add(self, message: Message) -> None:
        """Keep a message, which was appended for `queue` if need be, and let the oldest go for it."""
        self.queue.enqueue(message)
        self._trim()

    def messages(self, now: i64) -> list[Message]:
        """Copies of the messages, oldest first, which the log has not seen: they may go to other queues.

        They have no date, as their time begins anew where they go; but those that were delayed until after
        `now`, in ms since 1970, still are. Nobody gets receipts for them. All are in memory at once, so they
        are the latest with `replay_bytes` of content together, or just the last one if that has more.

        Raises OSError or LogDamaged if the disk does not give a content back.
        """
        self._trim()
        kept = [entry.message for entry in self.queue.entries]
        first = len(kept)
        room = self.replay_bytes
        while first > 0:
            room -= _content_bytes(kept[first - 1])
            if room < 0 and first < len(kept):
                break
            first -= 1
        return [self._copy(message, now) for message in kept[first:]]

    def _copy(self, message: Message, now: i64) -> Message:
        content = message.content
        copy = copy_of(message, self.queue.store.load(message) if content is None else content)
        copy.marks = 0
        if message.marks & DELAYED and message.date > now:
            copy.marks = message.marks & (DELAYED | BY_CLOCK)
            copy.date = message.date
        return copy

    def _trim(self) -> None:
        """Let the oldest go: one that was added is one too many, and after a restart there may be more."""
        queue = self.queue
        while queue.ready > self.length:
            oldest = queue.entries.next(queue.entries.head)
            assert oldest is not None, "a queue that counts entries has them"
            drop(queue, oldest)


RECENT_HISTORY: Final = "x-recent-history"
HISTORY_LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = "x-recent-history-no-store"
_LENGTH_DEFAULT: Final = 20
_LENGTH_MAX: Final = 100_000  # a new binding gets them all in one step


@final
class RecentHistoryExchange(Exchange):
    """A fanout exchange with a history. [RabbitMQ x-recent-history]

    A message with the header `x-recent-history-no-store` true is not kept.
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        length = self.arguments.get(HISTORY_LENGTH, _LENGTH_DEFAULT)
        if not isinstance(length, int) or isinstance(length, bool) or not 0 < length <= _LENGTH_MAX:
            raise PreconditionFailed(
                f"Invalid argument '{show(length)}' of type '{type_name(length)}', '{HISTORY_LENGTH}' of "
                f"exchange '{self.name}' must be a positive integer, at most {_LENGTH_MAX}"
            )
        self.keeps = True
        self._length: i64 = length
        self._all = Destinations()

    def keep_in(self, queue: Queue) -> None:
        """Keep the latest messages in this queue, which is logged if the exchange is durable (Exchange)."""
        super().keep_in(queue)
        self.history = History(queue, self._length)

    def match(self, keys: list[str], view: MessageView | None, found: Resolution) -> None:
        """All destinations, and the history."""
        found.by_message = True
        if view is None:
            return
        if view.headers().get(NO_STORE) is not True and self.history is not None:
            found.keepers.append(self.history)
        found.take(self._all, view)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)
