"""Messages with what consumers of AMQP 1.0 have added to them. [amqp-1.0 3.4.5]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.adapters.converting import content_for091
from broker.core.entries.entry import QueueEntry
from broker.core.message import Message, copy_of
from broker.core.queues.queue import Queue
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.properties import Field, Properties
from protocol.amqp10.annotations import entries_of, with_annotations
from protocol.amqp10.sections import is_sections, scan_front
from protocol.conversion.field_values import SHORT_BYTES_MAX, field_value
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from broker.adapters.server import Server


def annotated_content(content: bytes, annotations: bytes) -> bytes:
    """A content with these, which are an encoded map and replace what has the same names.

    In a message of AMQP 0-9-1 they are headers; what has no field value there is left out, and so are all
    of them if its headers do not decode.
    """
    keys, values = entries_of(annotations)
    if is_sections(content):
        return with_annotations(content, scan_front(content), [], keys, values)
    added: list[Field] = []
    for key, value in zip(keys, values, strict=True):
        converted = field_value(value, 0, len(value)) if len(key) <= SHORT_BYTES_MAX else None
        if converted is not None:
            added.append((key, converted))
    try:
        properties = Properties(content)
        names = {name for name, _ in added}
        properties.set_fields([field for field in properties.fields() if field[0] not in names] + added)
    except ProtocolError:
        return content
    return properties.content()


def content_given(content: bytes, queue: Queue, entry: QueueEntry) -> bytes:
    """The content of an entry's message as a client is given it."""
    annotations = queue.entries.annotations_of(entry)
    return annotated_content(content, annotations) if annotations else content


def given091(
    server: Server, message: Message, content: bytes, queue: Queue, entry: QueueEntry, frame_max: i64
) -> tuple[bytes, bytes]:
    """The content of an entry's message as it is given, and converted for a client of AMQP 0-9-1.

    If that has no room for what consumers have added, it is without.
    """
    given = content_given(content, queue, entry)
    converted = content_for091(server, message, given)
    if given is not content and header_frame_bytes(converted) > frame_max:
        return content, content_for091(server, message, content)
    return given, converted


def message_given(queue: Queue, entry: QueueEntry) -> Message:
    """The message of an entry, or a copy that has what consumers have added. Raises what load raises."""
    return annotated(queue, entry.message, queue.entries.annotations_of(entry))


def annotated(queue: Queue, message: Message, annotations: bytes) -> Message:
    """A message of `queue`, or a copy that has these annotations. Raises what load raises."""
    if not annotations:
        return message
    content = queue.store.load(message) if message.content is None else message.content
    copy = copy_of(message, annotated_content(content, annotations))
    copy.date = message.date
    return copy
