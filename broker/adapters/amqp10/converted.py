"""Messages of AMQP 0-9-1 as clients of AMQP 1.0 are given them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.core.message import Body, Message
from broker.core.ports import MessageStore
from protocol.amqp091.content import body_of_frames
from protocol.amqp10.sections import is_sections
from protocol.conversion.to10 import content10, front10


def content_for10(message: Message, content: bytes) -> bytes:
    """The sections for `content`, which `message` is kept as: a header, annotations, and the bare message.

    The annotations name exchange and routing key. Of a large body only what stands in front of it is there,
    the start of its data section, which is the last, included: `message.size` bytes follow.
    """
    address = message.address
    if message.body is None:
        return content10(content, address.exchange, address.routing_key)
    return front10(content, address.exchange, address.routing_key, message.size)


def pieces_of(body: Body, content: bytes, store: MessageStore) -> Iterator[bytes]:
    """A large body as sections, or what of a data section follows `content_for10`.

    `content` is what is kept in front of it. Each piece is made when it is asked for. Raises what
    MessageStore.load raises.
    """
    sections = is_sections(content)
    for piece in body.pieces:
        data = piece.content
        if data is None:
            data = store.load(piece)
        yield data if sections else body_of_frames(data)
