"""The exchange that gives a queue that is bound to it the last messages that it has passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.binding import Binding, Destinations
from broker.core.errors import PreconditionFailed
from broker.core.exchange import Description, Exchange
from broker.core.field_values import show, type_name
from broker.core.history import History
from broker.core.queue import Queue
from broker.core.route import Resolution
from broker.core.view import MessageView

if TYPE_CHECKING:
    from broker.core.topology import Topology

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

    def keep_in(self, queue: Queue, topology: Topology) -> None:
        """Keep the latest messages in this queue, which is logged if the exchange is durable (Exchange)."""
        super().keep_in(queue, topology)
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
