"""What a criterion lets pass, asked of content as it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from broker.adapters.amqp10.view import View10
from broker.adapters.selecting091 import Sieve091
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import Criterion
from protocol.amqp10.sections import is_sections


@final
class SelectorFilter(EntryFilter):
    """The entries whose messages a criterion is true for, most often a selector.

    `trouble`: who is told, once, that content cannot be read. That is unknown then, and does not pass: the
    look may be on behalf of somebody else, whose connection it must not close. None: who asks gets an error.
    """

    def __init__(
        self, criterion: Criterion, store: MessageStore, trouble: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(criterion.canonical)
        self.criterion = criterion
        self.demands = criterion.demands
        self._sieve = Sieve091(criterion)
        self._store = store
        self._trouble = trouble
        self._told = False

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the criterion is true for the message (EntryFilter).

        Raises what the store raises, if nobody else is told of trouble.
        """
        content = entry.message.content
        if content is None:
            content = self._load(entry.message)
            if content is None:
                return False
        if is_sections(content):
            return self.criterion.matches(View10(content))
        return self._sieve.passes(content)

    def _load(self, message: Message) -> bytes | None:
        trouble = self._trouble
        if trouble is None:
            return self._store.load(message)
        try:
            return self._store.load(message)
        except Exception as error:  # the disk does not give it back, or not now
            if not self._told:
                self._told = True
                trouble(
                    f"a selector passes by what cannot be read: '{self.key}', message {message.sequence}: "
                    f"{type(error).__name__}: {error}"
                )
            return None
