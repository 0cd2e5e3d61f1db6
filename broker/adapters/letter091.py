"""Writes into a message of AMQP 0-9-1 where and why it died. [RabbitMQ dead lettering]"""

from __future__ import annotations

from typing import Final, final

from broker.adapters.redelivery import counted_fields
from broker.adapters.view091 import View091
from broker.core.message import Message
from broker.core.queues.death import DeadLetter, Notice, Past
from broker.core.view import MessageView
from protocol.amqp091.deaths import X_DEATH, Death, add_death, decode_deaths, long_string, write_headers
from protocol.amqp091.fields import Reader
from protocol.amqp091.properties import EXPIRATION, Field, Properties
from protocol.errors import ProtocolError

_COPIES: Final = b"CC"
_EXPIRED_BY: Final = b"x-expired-by"
_EXPIRED_WHILE: Final = b"x-expired-while"
_EXPIRED: Final[tuple[bytes, ...]] = (_EXPIRED_BY, _EXPIRED_WHILE)


def letter_of(message: Message, content: bytes, notice: Notice) -> DeadLetter:
    """The dead letter of a message with this content (LetterWriter).

    The expiration goes, so that it does not die of that again, and so do the further routing keys if they are
    void. What a publisher wrote of deaths is not believed. Headers that do not decode are of no use to
    anybody, and go too.
    """
    properties = Properties(content)
    fields = _fields(properties)
    deaths = _deaths(fields) if message.died else []
    copies = _keys(fields)
    death = Death(
        notice.queue,
        notice.reason,
        notice.date // 1000,
        message.address.exchange,
        [message.address.routing_key, *copies],
        _expiration(message, properties),
    )
    deaths = add_death(deaths, death)
    fields = write_headers(fields, deaths, message.address.exchange, not message.died)
    fields = _with_past(fields, notice.past)
    if not notice.keeps_keys:
        copies = []
        fields = [field for field in fields if field[0] != _COPIES]
    properties.set_fields(fields)
    properties.drop(EXPIRATION)
    return DeadLetter(
        properties.content(),
        copies,
        [(death.queue, death.reason) for death in deaths],
        LetterView(View091(properties)),
    )


def _with_past(fields: list[Field], past: Past | None) -> list[Field]:
    """How often the queue gave it out, and whose time was over; what the headers said of that before goes."""
    fields = [field for field in fields if field[0] not in _EXPIRED]
    if past is None:
        return fields
    if past.deliveries > 0:
        fields = counted_fields(fields, int(past.deliveries), int(past.returns))
    if past.expired_by:
        fields.append((_EXPIRED_BY, long_string(past.expired_by)))
        fields.append((_EXPIRED_WHILE, long_string(past.expired_while)))
    return fields


def _fields(properties: Properties) -> list[Field]:
    try:
        return properties.fields()
    except ProtocolError:
        return []


def _deaths(fields: list[Field]) -> list[Death]:
    for name, value in fields:
        if name == X_DEATH:
            return decode_deaths(value)
    return []


def _keys(fields: list[Field]) -> list[str]:
    """The routing keys that the publisher added. [RabbitMQ sender-selected distribution]"""
    keys: list[str] = []
    for name, value in fields:
        if name == _COPIES:
            try:
                decoded = Reader(value).value()
            except ValueError:
                continue
            keys = [key for key in decoded if isinstance(key, str)] if isinstance(decoded, list) else []
    return keys


def _expiration(message: Message, properties: Properties) -> str:
    """Milliseconds as text, "" if the message had none."""
    if message.expiration >= 0:
        return str(int(message.expiration))
    octets = properties.octets(EXPIRATION)
    return "" if octets is None else octets.decode(errors="replace")


@final
class LetterView(MessageView):
    """A dead letter as routing sees it: nothing that is wrong with its headers keeps it from its way."""

    def __init__(self, view: View091) -> None:
        self._view = view

    def headers(self) -> dict[str, object]:
        """The headers (MessageView)."""
        try:
            return self._view.headers()
        except ProtocolError:
            return {}

    def property(self, name: str) -> object | None:
        """A property (MessageView)."""
        return self._view.property(name)
