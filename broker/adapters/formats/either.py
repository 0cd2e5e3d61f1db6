"""Stored messages of either protocol: views, dead letters, filters and conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.formats import amqp091, amqp10
from broker.adapters.formats.amqp091 import ContentFilter091, ContentView
from broker.adapters.formats.amqp10 import View10
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.message import Body, Message, copy_of
from broker.core.message_view import Criterion, MessageView
from broker.core.ports import MessageStore
from broker.core.queues.death import DeadLetter, Notice
from broker.core.queues.state import QueueState
from broker.core.schedule import Schedule
from broker.core.selector.selector import Selector
from protocol.amqp091.content import body_of_frames, header_frame_bytes
from protocol.amqp091.properties import Field, Properties
from protocol.amqp10.annotations import annotate_message, decode_map
from protocol.amqp10.constructors import NONE
from protocol.amqp10.sections import is_sections, scan_preamble
from protocol.conversion.field_values import SHORT_BYTES_MAX, field_value
from protocol.conversion.to091 import content091
from protocol.conversion.to10 import content10, preamble10
from protocol.errors import ProtocolError


def view_of(message: Message, store: MessageStore) -> MessageView:
    """Return a view of a message that was published before (Views). Raises what MessageStore.load raises."""
    content = store.content_of(message)
    return View10(content) if is_sections(content) else ContentView(content)


def write_letter(message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
    """Return the dead letter of a message (LetterWriter). Raises what MessageStore.load raises."""
    content = store.content_of(message)
    if notice.past is not None and notice.past.annotations:
        content = annotate_content(content, notice.past.annotations)
    if is_sections(content):
        return amqp10.letter_of(message, content, notice)
    return amqp091.letter_of(message, content, notice)


@final
class SelectorFilter(EntryFilter):
    """The filter of entries by a criterion on their messages, most often a selector.

    `trouble` is called once if a content cannot be read. An entry without readable content does not pass,
    because the check may run for another connection, which the error must not close. None: the error is
    raised.
    """

    def __init__(
        self, criterion: Criterion, store: MessageStore, trouble: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(criterion.canonical)
        self.criterion = criterion
        self.demands = criterion.demands
        if isinstance(criterion, Selector):
            self.selector = criterion.canonical
        self._sieve = ContentFilter091(criterion)
        self._store = store
        self._trouble = trouble
        self._has_reported = False

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the criterion is true for the message.

        Raises what the store raises, if `trouble` is None.
        """
        content = entry.message.content
        if content is None:
            content = self._load(entry.message)
            if content is None:
                return False
        if is_sections(content):
            return self.criterion.matches(View10(content))
        return self._sieve.passes(content)

    def _load(self, message: Message) -> bytes | None:
        trouble = self._trouble
        if trouble is None:
            return self._store.load(message)
        try:
            return self._store.load(message)
        except Exception as error:  # the message cannot be read from disk
            if not self._has_reported:
                self._has_reported = True
                trouble(
                    f"a selector skips an unreadable message: '{self.key}', message {message.sequence}: "
                    f"{type(error).__name__}: {error}"
                )
            return None


KEPT_BYTES_MAX: Final = 1048576
KEPT_EACH_MAX: Final = 4096  # finding a longer content takes longer than converting the content
_OVERHEAD: Final = 256  # bytes of memory for each kept conversion


@final
class Conversions:
    """The latest conversions, by contents: a message for many consumers is converted once.

    The contents and their conversions take up to KEPT_BYTES_MAX. `value_as_text`: see `content091`.
    """

    def __init__(self, schedule: Schedule, value_as_text: bool = False) -> None:
        self._schedule = schedule
        self._value_as_text = value_as_text
        self._kept: dict[bytes, bytes] = {}
        self._bytes: i64 = 0

    def content(self, content: bytes) -> bytes:
        """Return the content header and body frames for the sections of a message."""
        if len(content) > KEPT_EACH_MAX:
            return self.convert(content)
        converted = self._kept.get(content)
        if converted is None:
            converted = self.convert(content)
            self._keep(content, converted)
        return converted

    def convert(self, content: bytes, ttl: i64 = NONE) -> bytes:
        """Convert a content without keeping the result. `ttl`: see `content091`."""
        return content091(content, value_as_text=self._value_as_text, ttl=ttl)

    def convert_expiring(self, content: bytes, expiration: i64, date: i64) -> bytes:
        """Convert `content` with the rest of an expiration that began on `date` (0: unknown)."""
        left = expiration
        if date > 0:
            left -= max(self._schedule.date() - date, 0)
        return self.convert(content, max(left, 0))

    def _keep(self, content: bytes, converted: bytes) -> None:
        size: i64 = len(content) + len(converted) + _OVERHEAD
        if self._bytes + size > KEPT_BYTES_MAX:
            self._kept.clear()
            self._bytes = 0
        self._kept[content] = converted
        self._bytes += size


def content_for091(conversions: Conversions, message: Message, content: bytes) -> bytes:
    """Return the stored `content` of `message` as content header and body frames, of any channel and size.

    A content of AMQP 0-9-1 stays unchanged. A message of AMQP 1.0 with an expiration gets the rest of the
    expiration. For a large body only the header is returned, without the body's size, which is not known yet
    (`amqp091.large`).
    """
    if content[0] != 0:
        return content
    if message.expiration < 0:
        converted = conversions.content(content)
    else:
        converted = conversions.convert_expiring(content, message.expiration, message.date)
    return converted if message.body is None else converted[: header_frame_bytes(converted)]


def content_for10(message: Message, content: bytes) -> bytes:
    """Return the stored `content` of `message` as sections: a header, annotations, and the bare message.

    The annotations name exchange and routing key. For a large body only the bytes before the body are
    returned. These bytes include the start of the last section, the data section: `message.size` bytes
    follow.
    """
    address = message.address
    if message.body is None:
        return content10(content, address.exchange, address.routing_key)
    return preamble10(content, address.exchange, address.routing_key, message.size)


def pieces_of(body: Body, content: bytes, store: MessageStore) -> Iterator[bytes]:
    """Return a large body in pieces: its sections, or the content of the data section after `content_for10`.

    `content` is the stored content before the body. Each piece is made when it is requested. Raises what
    MessageStore.load raises.
    """
    sections = is_sections(content)
    for piece in body.pieces:
        data = store.content_of(piece)
        yield data if sections else body_of_frames(data)


def annotate_content(content: bytes, annotations: bytes) -> bytes:
    """Return a content with annotations from an encoded map, in place of annotations with the same names.

    In a message of AMQP 0-9-1 annotations become headers. Annotations without a field value are left out, and
    all annotations if the message's headers do not decode.
    """
    keys, values = decode_map(annotations)
    if is_sections(content):
        return annotate_message(content, scan_preamble(content), [], keys, values)
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


def delivered_content(content: bytes, queue: QueueState, entry: QueueEntry) -> bytes:
    """Return the content of an entry's message as a client gets it, with the consumers' annotations."""
    annotations = queue.entries.annotations_of(entry)
    return annotate_content(content, annotations) if annotations else content


def delivered_content091(
    conversions: Conversions,
    message: Message,
    content: bytes,
    queue: QueueState,
    entry: QueueEntry,
    frame_max: i64,
) -> tuple[bytes, bytes]:
    """Return the content that a client of AMQP 0-9-1 gets of an entry's message, as stored and converted.

    If the client's frames have no room for the consumers' annotations, the content is without them.
    """
    annotated = delivered_content(content, queue, entry)
    converted = content_for091(conversions, message, annotated)
    if annotated is not content and header_frame_bytes(converted) > frame_max:
        return content, content_for091(conversions, message, content)
    return annotated, converted


def delivered_message(queue: QueueState, entry: QueueEntry) -> Message:
    """Return the message of an entry, or a copy with the consumers' annotations. Raises what load raises."""
    return annotated_copy(queue, entry.message, queue.entries.annotations_of(entry))


def annotated_copy(queue: QueueState, message: Message, annotations: bytes) -> Message:
    """Return a message of `queue`, or a copy with these annotations. Raises what load raises."""
    if not annotations:
        return message
    content = queue.store.content_of(message)
    copy = copy_of(message, annotate_content(content, annotations))
    copy.date = message.date
    return copy
