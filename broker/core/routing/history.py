"""Recent history: an exchange stores its last messages for queues that are bound later."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed
from broker.core.message import BY_CLOCK, DELAYED, Message, copy_of
from broker.core.message_view import MessageView
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

REPLAY_BYTES: Final = 16 * 1024 * 1024  # read, copied and appended in one step


def _content_bytes(message: Message) -> i64:
    content = message.content
    return message.length if content is None else len(content)


@final
class History(HistoryKeeper):
    """The history of an exchange: at most `length` messages in a queue that no client can reach.

    The queue is `logged` if its exchange is durable: then a restart restores its persistent messages.
    """

    def __init__(self, queue: Queue, length: i64) -> None:
        super().__init__(queue, 0)
        self.length = length
        self.replay_bytes: i64 = REPLAY_BYTES

    def add(self, message: Message) -> None:
        """Store a message, which was appended for `queue` if need be, and drop the oldest one."""
        self.queue.enqueue(message)
        self._trim()

    def messages(self, now: i64) -> list[Message]:
        """Return copies of the messages, oldest first; the copies are not in the log.

        The copies have no date, because their time to live begins anew in their queues. Messages that are
        delayed until after `now`, in ms since 1970, stay delayed. No receipts are sent for the copies. All
        copies are in memory at once, so they are the latest with `replay_bytes` of content together, or just
        the last one if that is larger.

        Raises OSError or LogDamaged if the disk cannot read a content.
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
        """Drop the oldest messages beyond the length; after a restart there may be several."""
        queue = self.queue
        while queue.ready > self.length:
            oldest = queue.entries.next(queue.entries.head)
            assert oldest is not None, "a queue that counts entries has them"
            drop(queue, oldest)


RECENT_HISTORY: Final = "x-recent-history"
HISTORY_LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = "x-recent-history-no-store"
_LENGTH_DEFAULT: Final = 20
_LENGTH_MAX: Final = 100_000  # a single step sends the whole history to a new binding


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
        """Store the latest messages in this queue, which is logged if the exchange is durable."""
        super().keep_in(queue)
        self.history = History(queue, self._length)

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add all destinations, and the history."""
        resolution.by_message = True
        if view is None:
            return
        if view.headers().get(NO_STORE) is not True and self.history is not None:
            resolution.keepers.append(self.history)
        resolution.add_destinations(self._all, view)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)
