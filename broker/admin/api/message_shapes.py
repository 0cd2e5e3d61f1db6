"""A message as the API shows it: as clients of AMQP 0-9-1 receive it, whatever its protocol."""

import base64
from contextlib import suppress
from typing import Any, Final

from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.bodies import read_large_body
from broker.adapters.formats.either import annotate_content, content_for091
from broker.adapters.peers.server import Server
from broker.admin.api.answers import bad_request
from broker.core.entries.entry import QueueEntry
from broker.core.message_view import PROPERTIES, MessageView
from broker.core.queues.queue import Queue
from broker.core.values import to_json
from protocol.amqp091.content import body as body_of
from protocol.amqp10.sections import is_sections
from protocol.conversion.names import ENCODED_BODY

BYTES_MAX: Final = 8 * 2**20  # all bodies in an answer; a request has to truncate longer bodies


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
    kept = server.store.content_of(message)
    kept = annotate_content(kept, added) if added else kept
    content = content_for091(server.conversions, message, kept)
    converted = is_sections(kept)
    properties = _properties(ContentView(content))
    if message.body is None:
        whole = body_of(content)
        size = len(whole)
        payload = whole[:limit]
    else:
        payload, encoded = read_large_body(server.store, message.body, _wanted(size, limit), converted)
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
