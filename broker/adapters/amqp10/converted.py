"""Messages of AMQP 0-9-1 as clients of AMQP 1.0 are given them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.core.message import Message
from broker.core.ports import MessageStore
from protocol.amqp091.content import body_of_frames
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


def parts_for10(message: Message, content: bytes, store: MessageStore) -> Iterator[bytes]:
    """The message in parts, each made when it is asked for: `content_for10`, then a large body by pieces.

    Raises what MessageStore.load raises.
    """
    yield content_for10(message, content)
    body = message.body
    if body is not None:
        for piece in body.pieces:
            frames = piece.content
            yield body_of_frames(store.load(piece) if frames is None else frames)
