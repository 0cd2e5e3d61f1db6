"""The bodies of stored messages, as clients of AMQP 0-9-1 get them: whole, or their first bytes."""

from __future__ import annotations

from broker.core.message import Body
from broker.core.ports import MessageStore
from protocol.amqp091.content import body_of_frames
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE
from protocol.conversion.parts import BodyParts


def read_large_body(store: MessageStore, body: Body, wanted: int, sections: bool) -> tuple[bytes, bool]:
    """Return the first `wanted` bytes of a large body, and whether they are undecoded sections.

    `sections`: the body is of a message of AMQP 1.0. Raises the errors of MessageStore.load.
    """
    parts = BodyParts()
    raw: list[bytes] = []
    inside: list[bytes] = []
    encoded = False
    for piece in body.pieces:
        read = 0
        for each in raw if encoded else inside:
            read += len(each)
        enough = read >= wanted or (parts.ended and not encoded)
        if raw and enough:  # the first body decides the kind
            break
        content = store.content_of(piece)
        raw.append(content)
        if not sections:
            inside.append(body_of_frames(content))
        elif not encoded:
            try:
                inside += parts.feed(content)
                encoded = parts.code == AMQP_VALUE or parts.code == AMQP_SEQUENCE
            except DecodeError:
                encoded = True
    return b"".join(raw if encoded else inside)[:wanted], encoded
