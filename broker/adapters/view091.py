"""A message of AMQP 0-9-1 as routing and selectors see it."""

from __future__ import annotations

from typing import Final, final

from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import MessageView
from protocol.amqp091 import properties as p
from protocol.amqp091.properties import Field, Properties

CC: Final = "CC"
BCC: Final = "BCC"
_HIDDEN: Final = BCC.encode()
_TEXTS: Final = {
    "content_type": p.CONTENT_TYPE,
    "content_encoding": p.CONTENT_ENCODING,
    "correlation_id": p.CORRELATION_ID,
    "reply_to": p.REPLY_TO,
    "expiration": p.EXPIRATION,
    "message_id": p.MESSAGE_ID,
    "type": p.TYPE,
    "user_id": p.USER_ID,
    "app_id": p.APP_ID,
    "cluster_id": p.CLUSTER_ID,
}
_NUMBERS: Final = {"delivery_mode": p.DELIVERY_MODE, "priority": p.PRIORITY, "timestamp": p.TIMESTAMP}


@final
class View091(MessageView):
    """What stands in a content header. `headers` raises ProtocolError for what does not decode."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._headers: dict[str, object] | None = None

    def headers(self) -> dict[str, object]:
        """The headers (MessageView)."""
        headers = self._headers
        if headers is None:
            headers = self._properties.headers()
            self._headers = headers
        return headers

    def further_keys(self) -> list[str]:
        """The routing keys in CC and BCC (MessageView). [RabbitMQ sender-selected distribution]"""
        headers = self.headers()
        keys: list[str] = []
        for name in (CC, BCC):
            value = headers.get(name)
            if isinstance(value, list):
                keys += [key for key in value if isinstance(key, str)]
        return keys

    def released_content(self, name: str) -> bytes:
        """The content without BCC, and with the number in this header negated (MessageView)."""
        number = self.headers().get(name, 0)
        assert isinstance(number, int | float | str), "what was held has a number there"
        held = (name.encode(), b"l" + (-int(number)).to_bytes(8, "big", signed=True))
        fields = [held if field[0] == held[0] else field for field in self._properties.fields()]
        return self._with([field for field in fields if field[0] != _HIDDEN])

    def public_content(self) -> bytes:
        """The content without BCC."""
        return self._with([field for field in self._properties.fields() if field[0] != _HIDDEN])

    def _with(self, fields: list[Field]) -> bytes:
        """The content with other headers."""
        properties = Properties(self._properties.original)
        properties.set_fields(fields)
        return properties.content()

    def property(self, name: str) -> object | None:
        """A property (MessageView)."""
        if name in _TEXTS:
            octets = self._properties.octets(_TEXTS[name])
            return None if octets is None else octets.decode(errors="surrogateescape")
        value = self._properties.number(_NUMBERS[name])
        return value * 1000 if value is not None and name == "timestamp" else value


def view_of(message: Message, store: MessageStore) -> MessageView:
    """The view of a message that was published before. Raises what MessageStore.load raises."""
    content = message.content
    return View091(Properties(store.load(message) if content is None else content))
