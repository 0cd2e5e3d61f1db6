"""Messages whose priority is the value of their only header, `key`; 0 without it."""

from typing import Final

from broker.core.message import Message
from broker.core.message_view import Headers, MessageView
from broker.core.ports import MessageStore

KEY: Final = "key"


class KeyView(MessageView):
    """The view of a message with the header `key`."""

    def __init__(self, priority: int) -> None:
        self.priority = priority

    def headers(self) -> dict[str, object]:
        return {KEY: self.priority} if self.priority else {}


def key_view(message: Message, store: MessageStore) -> MessageView:
    return KeyView(int(message.priority))


HEADERS: Final = Headers(key_view, MessageStore())
