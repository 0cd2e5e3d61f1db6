"""Messages that operators change on their way: edited ones, and dead letters that are to live again."""

from typing import Any, Final, NamedTuple

from broker.adapters.formats.amqp091 import parse_expiration
from broker.adapters.formats.amqp10 import View10, deaths_of, first_queue, without_history
from broker.admin.api.errors import bad_request
from broker.admin.api.publishing import check_header, content_of, payload_of, properties_of
from broker.admin.api.showing import loaded
from broker.admin.fields import Fields, table
from broker.core.errors import PreconditionFailed
from broker.core.message import NEVER, Address, Message, copy_of
from broker.core.ports import MessageStore
from broker.core.view import PROPERTIES
from protocol.amqp091 import properties as p
from protocol.amqp091.content import EXPIRES, PERSISTENT, PRIORITY_SHIFT, header_frame_bytes, scan
from protocol.amqp091.deaths import FIRST, X_DEATH, decode_deaths, without_deaths
from protocol.amqp091.fields import Reader
from protocol.amqp091.properties import Field, Properties
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.sections import is_sections
from protocol.conversion.editing import Edition, data_section
from protocol.errors import ProtocolError

_INDEXES: Final = {name: getattr(p, name.upper()) for name in PROPERTIES}
_FIRST_QUEUE: Final = FIRST + b"queue"


class Edit:
    """What a request asks to be changed in messages: `properties`, `headers` among them, and `payload`.

    A property or header that is null goes, with `headers` all of them; one that is not named stays as it was
    sent. Raises ApiError, PreconditionFailed.
    """

    def __init__(self, body: Fields, frame_max: int, payload_max: int) -> None:
        given = table(body, "properties")
        headers = table(given, "headers")
        bare = "headers" in given and given.pop("headers") is None
        self._payload = payload_of(body, payload_max) if body.get("payload") is not None else None
        if not given and not headers and not bare and self._payload is None:
            raise bad_request("nothing to edit: there is neither 'properties' nor 'payload'")
        unknown = [name for name in given if name not in _INDEXES]
        if unknown:
            raise bad_request(
                f"property {unknown[0]} is not known, allowed: {', '.join(PROPERTIES)}, headers"
            )
        kept: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        said = {name: value for name, value in headers.items() if value is not None}
        content = content_of(properties_of(kept | ({"headers": said} if said else {})), b"", frame_max)
        self._said = Properties(content)
        if "expiration" in kept:
            parse_expiration(kept["expiration"])  # which would refuse it for each message, if there were any
        self._places = {name: _INDEXES[name] for name in given}
        self._bare = bare
        self._fields = self._said.fields()
        self._headers = {name.encode() for name in headers}
        self._frame_max = frame_max
        self._edition: Edition | None = None  # the same for messages of AMQP 1.0
        self.names_user = given.get("user_id")

    def of(self, message: Message, store: MessageStore) -> Message:
        """The message as it is to be. Raises ApiError, and what MessageStore.load raises."""
        content = loaded(message, store)
        edited = (
            self._of_sections(message, content) if is_sections(content) else self._of091(message, content)
        )
        edited.died = message.died
        edited.marks = message.marks
        return edited

    def _of091(self, message: Message, content: bytes) -> Message:
        size, body = message.size, message.body
        try:
            properties = Properties(content)
            if self._headers:
                fields = [field for field in properties.fields() if field[0] not in self._headers]
                properties.set_fields(fields + self._fields)
            if self._payload is not None:
                size, body = len(self._payload), None
                fresh = Properties(content_of({}, self._payload, self._frame_max))
                for index in (*_INDEXES.values(), p.HEADERS):
                    fresh.adopt(properties, index)
                properties = fresh
            for index in (*self._places.values(), *([p.HEADERS] if self._bare else [])):
                properties.adopt(self._said, index)
            content = properties.content()
            check_header(content, self._frame_max)
            traits = scan(content, 0, header_frame_bytes(content) - 8)
            edited = Message(
                message.address, content, size, traits & PERSISTENT != 0, traits >> PRIORITY_SHIFT
            )
            edited.expiration = parse_expiration(properties.text(p.EXPIRATION)) if traits & EXPIRES else NEVER
        except ProtocolError as error:
            raise bad_request(f"a message cannot be edited: {error.text}") from error
        edited.body = body
        return edited

    def _of_sections(self, message: Message, content: bytes) -> Message:
        size, body = message.size, message.body
        if self._payload is not None:
            size, body = len(data_section(self._payload)), None
        try:
            if self._edition is None:
                self._edition = Edition(
                    self._said.original, self._places, list(self._headers), self._bare, self._payload
                )
            content = self._edition.content(content)
        except (ValueError, DecodeError) as error:
            raise bad_request(f"a message cannot be edited: {error}") from error
        header = View10(content).header()
        edited = Message(
            message.address,
            content,
            size,
            header.durable if "delivery_mode" in self._places else message.persistent,
            header.priority if "priority" in self._places else message.priority,
        )
        edited.expiration = NEVER if header.ttl == NONE else header.ttl
        edited.body = body
        return edited


class Revived(NamedTuple):
    """A dead letter as it was published, and the queue in which it died first."""

    message: Message
    queue: str


def revived(message: Message, store: MessageStore) -> Revived | None:
    """What a dead letter was; None for a message that is none.

    Nothing in it tells of its deaths any more, so that it can die again as others do. Raises what
    MessageStore.load raises.
    """
    if not message.died:
        return None
    content = loaded(message, store)
    return _revived10(message, content) if is_sections(content) else _revived091(message, content)


def _revived091(message: Message, content: bytes) -> Revived | None:
    properties = Properties(content)
    try:
        fields = properties.fields()
        queue = _text(fields, _FIRST_QUEUE)
        deaths = [death for name, value in fields if name == X_DEATH for death in decode_deaths(value)]
    except (ProtocolError, ValueError):
        return None
    first = [death for death in deaths if death.queue == queue]
    if not first or not first[-1].routing_keys:
        return None
    properties.set_fields(without_deaths(fields))
    return _alive(message, properties.content(), queue, first[-1].exchange, first[-1].routing_keys[0])


def _revived10(message: Message, content: bytes) -> Revived | None:
    queue = first_queue(content)
    first = [death for death in deaths_of(content) if death.queue == queue]
    if not first or not first[-1].routing_keys:
        return None
    return _alive(message, without_history(content), queue, first[-1].exchange, first[-1].routing_keys[0])


def _alive(message: Message, content: bytes, queue: str, exchange: str, key: str) -> Revived:
    copy = copy_of(message, content)
    copy.address = Address(exchange, key)
    copy.died = False
    return Revived(copy, queue)


def _text(fields: list[Field], wanted: bytes) -> str:
    """A header that the broker has written, "" if it is not there. Raises ValueError."""
    for name, value in fields:
        if name == wanted:
            return str(Reader(value).value())
    return ""


def check_user(edit: Edit, user: str, may_impersonate: bool) -> None:
    """Who edits names itself or nobody, unless it is an impersonator. Raises PreconditionFailed."""
    if edit.names_user is not None and edit.names_user != user and not may_impersonate:
        raise PreconditionFailed(
            f"user_id property set to '{edit.names_user}' but authenticated user was '{user}'"
        )
