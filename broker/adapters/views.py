"""A message that is kept, of whatever protocol, as routing and selectors see it."""

from __future__ import annotations

from broker.adapters.amqp10.view import View10
from broker.adapters.view091 import ContentView
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import MessageView
from protocol.amqp10.sections import is_sections


def view_of(message: Message, store: MessageStore) -> MessageView:
    """The view of a message that was published before (Views). Raises what MessageStore.load raises."""
    content = message.content
    if content is None:
        content = store.load(message)
    return View10(content) if is_sections(content) else ContentView(content)
