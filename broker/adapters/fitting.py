"""Content headers that are too long for a client: there is no way to split one. [amqp-0-9-1 4.2.6.1]

What the broker has written of a message's deaths is left out for such a client, the oldest first. What the
publisher has written is not: a client without room for that cannot be given the message: its channel ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.message import Message
from broker.core.queues.queue import Queue
from broker.core.schedule import Alarm
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.deaths import without_deaths, without_oldest_deaths
from protocol.amqp091.properties import Properties
from protocol.errors import PRECONDITION_FAILED

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel


def fitted(message: Message, content: bytes, frame_max: i64) -> bytes | None:
    """The content of `message` for a client with this frame_max; None if there is no way to give it that."""
    excess = header_frame_bytes(content) - frame_max
    if excess <= 0:
        return content
    if not message.died:
        return None
    properties = Properties(content)
    fields = properties.fields()
    for shorter in (without_oldest_deaths(fields, excess), without_deaths(fields)):
        properties.set_fields(shorter)
        found = properties.content()
        if header_frame_bytes(found) <= frame_max:
            return found
    return None


def too_long(queue: Queue, content: bytes, frame_max: i64) -> str:
    """What a client is told that cannot be given a message of `queue`."""
    return (
        f"message in queue '{queue.name}' in vhost '{queue.vhost}' has a content header of "
        f"{header_frame_bytes(content)} bytes, the negotiated frame_max is {frame_max}"
    )


@final
class Misfit(Alarm):
    """Ends a channel that was to be given what does not fit, in a turn of its own: a delivery must not."""

    def __init__(self, channel: Channel, text: str) -> None:
        super().__init__()
        self._channel = channel
        self._text = text
        schedule = channel.virtual_host.schedule
        schedule.set(self, schedule.now())

    def ring(self) -> None:
        """Say why, and give back all that the channel has (Alarm)."""
        if self._channel.is_open():
            self._channel.fail(PRECONDITION_FAILED, self._text, 0)
            self._channel.connection.answer()
