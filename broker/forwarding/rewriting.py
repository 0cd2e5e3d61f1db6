"""The changes of a message on its way: its address, its properties, and the headers of the forwarding."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.publishing.duplicate_check import ORIGIN, POSITION, PRECEDING
from broker.core.publishing.receipts import RECEIPT_PATH, RECEIPT_TO, receipt_path
from broker.core.schedule import Schedule
from broker.forwarding.definition import EXACTLY_ONCE, Definition
from broker.forwarding.uri import Uri
from protocol.amqp091.content import header_frame_bytes
from protocol.amqp091.methods import short_string
from protocol.amqp091.properties import Field, Properties
from protocol.amqp091.table import encode_table
from protocol.amqp10.annotations import replace_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, SMALL_ULONG, STRING8
from protocol.amqp10.descriptors import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from protocol.amqp10.encoding import encode
from protocol.amqp10.sections import Sections, scan_preamble
from protocol.amqp10.writing import composite
from protocol.conversion.editing import map_entries, property_fields
from protocol.conversion.values import string_map
from protocol.errors import ProtocolError

SHOVELLED: Final = "x-shovelled"
"""The header with a table for each shovel that has moved the message, the last one first. [RabbitMQ]"""

SHOVELLED_TIME: Final = "x-shovelled-timestamp"
"""The header with the time of the last move, in seconds since 1970. [RabbitMQ]"""

SHOVELLED_BY: Final = b"x-opt-shovelled-by"
SHOVEL_TYPE: Final = b"x-opt-shovel-type"
SHOVEL_NAME: Final = b"x-opt-shovel-name"
SHOVELLED_TIME10: Final = b"x-opt-shovelled-timestamp"
"""The message-annotations that name the last shovel, and the time of its move in milliseconds. [RabbitMQ]"""

ADDRESSES_MAX: Final = 4096
TO: Final = RECEIPT_TO.encode()
PATH: Final = RECEIPT_PATH.encode()
ORIGIN_NAME: Final = ORIGIN.encode()  # with this the names of all headers of an origin begin
ORIGIN_NAMES: Final = {name.encode() for name in (ORIGIN, POSITION, PRECEDING)}


@final
class Rewriting:
    """The changes of an attempt. `changes_address`: whether addresses change."""

    def __init__(
        self, definition: Definition, source: Uri, destination: Uri, cluster: str, schedule: Schedule
    ) -> None:
        end = definition.destination
        self.changes_address = end.exchange is not None or end.key is not None
        self._changes_content = bool(end.properties) or end.adds_headers or end.adds_time
        self._removes_origin = definition.ack_mode != EXACTLY_ONCE
        self._receipt_queue = _long_string(end.receipt_queue.encode()) if end.receipt_queue else b""
        self._returns_receipts = end.returns_receipts
        self._exchange = None if end.exchange is None else short_string(end.exchange)
        self._key = None if end.key is None else short_string(end.key)
        self._properties = end.properties
        self._entry = _describe(definition, source, destination, cluster) if end.adds_headers else b""
        self._adds_time = end.adds_time
        self._schedule = schedule
        self._addresses: dict[bytes, bytes] = {}

    def address_of(self, address: bytes, content: bytes) -> bytes:
        """Return the address of the publish of a message that was published to `address`; both encoded."""
        if self._returns_receipts:
            return _address_back(content)
        changed = self._addresses.get(address)
        if changed is None:
            split: i64 = 1 + address[0]
            exchange = address[:split] if self._exchange is None else self._exchange
            changed = exchange + (address[split:] if self._key is None else self._key)
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[address] = changed
        return changed

    def changes(self, content: bytes) -> bool:
        """Whether a content changes. A message that was forwarded exactly once before loses its origin."""
        if self._changes_content or self._returns_receipts:
            return True
        if self._receipt_queue and content.find(TO, 0, header_frame_bytes(content)) >= 0:
            return True
        return self._removes_origin and content.find(ORIGIN_NAME, 0, header_frame_bytes(content)) >= 0

    def content_of(self, content: bytes) -> bytes:
        """Return a content with its new properties and headers.

        Raises ValueError if the content does not decode and needs more changes than the loss of an origin.
        """
        try:
            properties = Properties(content)
            if self._returns_receipts:
                properties.set_fields(_with_shorter_path(properties))
            for place, value in self._properties:
                properties.put(place, value)
            if self._removes_origin or self._entry or self._adds_time or self._receipt_queue:
                properties.set_fields(self._changed_fields(properties.fields()))
        except ProtocolError as error:
            if not self._changes_content:
                return content
            raise ValueError(error.text) from error
        return properties.content()

    def _changed_fields(self, fields: list[Field]) -> list[Field]:
        """Return headers with those of the forwarding."""
        if self._receipt_queue:
            fields = _with_way_back(fields, self._receipt_queue)
        added: list[Field] = []
        if self._entry:
            entries = self._entry
            for name, value in fields:
                if name == SHOVELLED.encode() and value[:1] == b"A":
                    entries += value[5:]
            added.append((SHOVELLED.encode(), b"A" + len(entries).to_bytes(4, "big") + entries))
        if self._adds_time:
            seconds: int = self._schedule.date() // 1000
            added.append((SHOVELLED_TIME.encode(), b"l" + seconds.to_bytes(8, "big")))
        names = {name for name, _ in added}
        if self._removes_origin:
            names |= ORIGIN_NAMES
        return [field for field in fields if field[0] not in names] + added


def _long_string(text: bytes) -> bytes:
    """Return a long string with its type."""
    return b"S" + len(text).to_bytes(4, "big") + text


def _array(entries: bytes) -> bytes:
    """Return an array of encoded values with its type."""
    return b"A" + len(entries).to_bytes(4, "big") + entries


def _with_way_back(fields: list[Field], queue: bytes) -> list[Field]:
    """Return headers whose receipts go to `queue`, and from there to the queue that the headers name now.

    Without a request for receipts the headers stay as they are.
    """
    named = dict(fields)
    to, path = named.get(TO, b""), named.get(PATH, b"")
    if to[:1] != b"S":
        return fields
    entries = to + (path[5:] if path[:1] == b"A" else b"")
    others = [field for field in fields if field[0] not in (TO, PATH)]
    return [*others, (TO, queue), (PATH, _array(entries))]


def _path_in(properties: Properties) -> list[str]:
    """Return the queues through which a receipt returns. Raises ProtocolError for malformed headers."""
    return receipt_path(properties.headers())


def _address_back(content: bytes) -> bytes:
    """Return the address of the next queue of a receipt; no queue has it for a message of another kind."""
    try:
        path = _path_in(Properties(content))
    except ProtocolError:
        path = []
    return b"\0" + short_string(path[0] if path else "")


def _with_shorter_path(properties: Properties) -> list[Field]:
    """Return the headers of a receipt without the first queue of its path."""
    others = [field for field in properties.fields() if field[0] != PATH]
    rest = [_long_string(name.encode()) for name in _path_in(properties)[1:]]
    return [*others, (PATH, _array(b"".join(rest)))] if rest else others


def _describe(definition: Definition, source: Uri, destination: Uri, cluster: str) -> bytes:
    """Return the table of a shovel in the header `x-shovelled`, encoded with its type."""
    ends = definition.source, definition.destination
    table = {
        "shovelled-by": cluster,
        "shovel-type": "dynamic",
        "shovel-name": definition.name,
        "shovel-vhost": definition.vhost,
        "src-uri": source.shown,
        "dest-uri": destination.shown,
    }
    if ends[0].address:
        table["src-address"] = ends[0].address
    elif ends[0].queue:
        table["src-queue"] = ends[0].queue
    else:
        table |= {"src-exchange": ends[0].exchange, "src-exchange-key": ends[0].key}
    if ends[1].queue:
        table["dest-queue"] = ends[1].queue
    else:
        if ends[1].exchange is not None:
            table["dest-exchange"] = ends[1].exchange
        if ends[1].key is not None:
            table["dest-exchange-key"] = ends[1].key
    return b"F" + encode_table(table)


@final
class Rewriting10:
    """The changes of an attempt whose destination is a node of AMQP 1.0.

    Delivery-annotations, which are meant for this broker, are removed from each message, and so is the origin
    of a message that was forwarded exactly once before. Other sections keep their bytes. [amqp-1.0 3.2]
    """

    def __init__(self, definition: Definition, cluster: str, schedule: Schedule) -> None:
        end = definition.destination
        self._fields = end.fields
        self._application = end.application
        self._annotations = dict(end.annotations)
        if end.adds_headers:
            self._annotations[SHOVELLED_BY] = encode(cluster)
            self._annotations[SHOVEL_TYPE] = encode("dynamic")
            self._annotations[SHOVEL_NAME] = encode(definition.name)
        self._adds_time = end.adds_time
        self._schedule = schedule

    def sections_of(self, message: bytes) -> bytes:
        """Return a message with its changes. Raises ValueError if a section to be changed does not decode.

        A message that does not decode and needs no changes is returned as it is: the destination decides.
        """
        annotations = self._annotations
        if self._adds_time:
            annotations = {**annotations, SHOVELLED_TIME10: encode(int(self._schedule.date()))}
        changes = bool(annotations or self._fields or self._application)
        without = list(ORIGIN_NAMES) if message.find(ORIGIN_NAME) >= 0 else []
        if not changes and not without:
            return _without_delivery_annotations(message)
        try:
            return self._changed(message, annotations, without)
        except DecodeError as error:
            if not changes:
                return message
            raise ValueError(error.text) from error

    def _changed(self, message: bytes, annotations: dict[bytes, bytes], without: list[bytes]) -> bytes:
        layout = scan_preamble(message)
        sections = Sections(message, 0, len(message))
        parts: dict[int, bytes] = {}
        end: i64 = 0
        while sections.advance() and sections.code < DATA:
            parts[int(sections.code)] = message[sections.start : sections.end]
            end = sections.end
        parts.pop(DELIVERY_ANNOTATIONS, None)
        if annotations or (without and layout.annotations != NONE):
            parts[MESSAGE_ANNOTATIONS] = replace_annotations(
                message,
                layout.annotations,
                layout.annotations_end,
                without,
                list(annotations),
                list(annotations.values()),
            )
        if self._fields:
            fields = property_fields(message, layout)
            for place, value in self._fields:
                fields[place] = value
            parts[PROPERTIES] = composite(PROPERTIES, fields)
        if self._application:
            entries: dict[bytes, bytes] = {}
            if layout.application_properties != NONE:
                start, after = layout.application_properties, layout.application_properties_end
                entries = map_entries(message, start, after, STRING8)
            named = string_map({**entries, **self._application})
            parts[APPLICATION_PROPERTIES] = bytes((0, SMALL_ULONG, APPLICATION_PROPERTIES)) + named
        return b"".join(parts[code] for code in sorted(parts)) + message[end:]


def _without_delivery_annotations(message: bytes) -> bytes:
    sections = Sections(message, 0, len(message))
    try:
        while sections.advance() and sections.code <= DELIVERY_ANNOTATIONS:
            if sections.code == DELIVERY_ANNOTATIONS:
                return message[: sections.start] + message[sections.end :]
    except DecodeError:
        return message
    return message
