"""Messages of AMQP 1.0 as clients of AMQP 0-9-1 are given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.message import Message
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp10.constructors import NONE
from protocol.conversion.to091 import content091

if TYPE_CHECKING:
    from broker.adapters.server import Server

KEPT_BYTES_MAX: Final = 1048576
KEPT_EACH_MAX: Final = 4096  # a longer content takes longer to be found than to be converted
_OVERHEAD: Final = 256  # of one that is kept


@final
class Conversions:
    """The latest of them, by the contents that they are of: a message for many consumers is converted once.

    They take up to KEPT_BYTES_MAX with what they are of. `value_as_text`: see `content091`.
    """

    def __init__(self, value_as_text: bool = False) -> None:
        self._value_as_text = value_as_text
        self._kept: dict[bytes, bytes] = {}
        self._bytes: i64 = 0

    def content(self, content: bytes) -> bytes:
        """The content header and body frames for some sections."""
        if len(content) > KEPT_EACH_MAX:
            return self.made(content)
        found = self._kept.get(content)
        if found is None:
            found = self.made(content)
            self._keep(content, found)
        return found

    def made(self, content: bytes, ttl: i64 = NONE) -> bytes:
        """A new one, not kept. `ttl`: see `content091`."""
        return content091(content, value_as_text=self._value_as_text, ttl=ttl)

    def _keep(self, content: bytes, converted: bytes) -> None:
        size: i64 = len(content) + len(converted) + _OVERHEAD
        if self._bytes + size > KEPT_BYTES_MAX:
            self._kept.clear()
            self._bytes = 0
        self._kept[content] = converted
        self._bytes += size


def content_for091(server: Server, message: Message, content: bytes) -> bytes:
    """The content header and body frames, of any channel and size, for `content`, which `message` is kept as.

    That of AMQP 0-9-1 stays what it is. A message of AMQP 1.0 with an expiration tells what is left of it. Of
    a large body there are no frames, and the header does not say how long it is: that is not known yet
    (`large_sections`).
    """
    if content[0] != 0:
        return content
    if message.expiration < 0:
        converted = server.conversions.content(content)
    else:
        left = message.expiration
        if message.date > 0:
            left -= max(server.broker.schedule.date() - message.date, 0)
        converted = server.conversions.made(content, max(left, 0))
    return converted if message.body is None else converted[: header_frame_bytes(converted)]
