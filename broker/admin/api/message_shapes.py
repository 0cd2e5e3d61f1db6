"""A message as the API shows it: as clients of AMQP 0-9-1 receive it, whatever its protocol."""

import base64
from contextlib import suppress
from typing import Any, Final

from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.either import annotate_content, content_for091
from broker.adapters.peers.server import Server
from broker.admin.api.answers import bad_request
from broker.admin.json_documents import to_json
from broker.core.entries.entry import QueueEntry
from broker.core.message import Body, Message
from broker.core.message_view import PROPERTIES, MessageView
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from protocol.amqp091.content import body as body_of
from protocol.amqp091.content import body_of_frames
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE
from protocol.amqp10.sections import is_sections
from protocol.conversion.names import ENCODED_BODY
from protocol.conversion.parts import BodyParts

BYTES_MAX: Final = 8 * 2**20  # all bodies in an answer; a request has to truncate longer bodies


def load_content(message: Message, store: MessageStore) -> bytes:
    """Return the content of a message from memory or disk. Raises the errors of MessageStore.load."""
    return message.content if message.content is not None else store.load(message)


def show_message(
    server: Server,
    queue: Queue,
    entry: QueueEntry,
    left: int,
    encoding: str,
    limit: int | None,
    annotations: bytes | None = None,
) -> dict[str, Any]:
    """Show a message with up to `limit` bytes of its body.

    `annotations`: additions of consumers, if the queue's entries do not have them any more.
    """
    message = entry.message
    size = int(message.size)
    added = queue.entries.annotations_of(entry) if annotations is None else annotations
    kept = load_content(message, server.store)
    kept = annotate_content(kept, added) if added else kept
    content = content_for091(server.conversions, message, kept)
    converted = is_sections(kept)
    properties = _properties(ContentView(content))
    if message.body is None:
        whole = body_of(content)
        size = len(whole)
        payload = whole[:limit]
    else:
        payload, encoded = _beginning(server.store, message.body, _wanted(size, limit), converted)
        if encoded:
            properties["type"] = ENCODED_BODY.decode()
    how, what = "base64", base64.b64encode(payload).decode()
    if encoding == "auto":
        with suppress(UnicodeDecodeError):
            how, what = "string", payload.decode()
    return {
        "payload_bytes": size,
        "redelivered": bool(entry.redelivered),
        "exchange": message.address.exchange,
        "routing_key": to_json(message.address.routing_key),
        "message_count": left,
        "protocol": "amqp-1.0" if converted else "amqp-0-9-1",
        "properties": properties,
        "payload": what,
        "payload_encoding": how,
    }


def _wanted(size: int, limit: int | None) -> int:
    """Return how many bytes of a large body are shown. Raises ApiError if an answer cannot hold as many."""
    wanted = size if limit is None else min(size, limit)
    if wanted > BYTES_MAX:
        raise bad_request(
            f"message of {size} bytes, an answer holds {BYTES_MAX}: ask for less with 'truncate'"
        )
    return wanted


def _beginning(store: MessageStore, body: Body, wanted: int, sections: bool) -> tuple[bytes, bool]:
    """Return the first `wanted` bytes of a large body, and whether they are undecoded sections."""
    parts = BodyParts()
    raw: list[bytes] = []
    inside: list[bytes] = []
    encoded = False
    for piece in body.pieces:
        enough = sum(map(len, raw if encoded else inside)) >= wanted or (parts.ended and not encoded)
        if raw and enough:  # the first body decides the kind
            break
        content = load_content(piece, store)
        raw.append(content)
        if not sections:
            inside.append(body_of_frames(content))
        elif not encoded:
            try:
                inside += parts.feed(content)
                encoded = parts.code in (AMQP_VALUE, AMQP_SEQUENCE)
            except DecodeError:
                encoded = True
    return b"".join(raw if encoded else inside)[:wanted], encoded


def _properties(view: MessageView) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name in PROPERTIES:
        value = view.property(name)
        if value is not None:
            properties[name] = (
                value // 1000 if name == "timestamp" and isinstance(value, int) else to_json(value)
            )
    headers = view.headers()
    if headers:
        properties["headers"] = to_json(headers)
    return properties
