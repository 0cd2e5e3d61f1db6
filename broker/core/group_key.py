"""Which group a message says that it belongs to."""

from __future__ import annotations

from typing import final

from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import Views


@final
class GroupKeys:
    """Reads the group of messages in memory or on disk, out of `header`; "": as messages usually say it."""

    def __init__(self, views: Views, store: MessageStore, header: str) -> None:
        self._views = views
        self._store = store
        self._header = header
        self.closes = False

    def key(self, message: Message) -> str:
        """The key of its group: a string, or a number as such; "": it is in none. `closes` is set with it.

        To enqueue is not to judge: what does not decode, or cannot be read from the disk, is in none.
        """
        self.closes = False
        try:
            view = self._views(message, self._store)
            value = view.headers().get(self._header) if self._header else view.group_id()
            if value is None:
                return ""
            sequence = view.group_sequence()
        except Exception:
            return ""
        self.closes = isinstance(sequence, int) and sequence == -1
        if isinstance(value, (bytes, bytearray)):
            return value.decode(errors="surrogateescape")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return ""
        return str(value)
