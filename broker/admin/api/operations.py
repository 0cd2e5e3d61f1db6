"""Operations on messages of a queue: delete, move, copy, edit, redrive; on all selected messages or none.

Messages are found and acquired one by one, and other work runs in between. Then one batch of the log changes
them all. The answer comes when the batch is on disk. [amqpd]
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from fastapi import APIRouter

from broker.adapters.access import EXCHANGE, QUEUE, Rights
from broker.adapters.formats.amqp091 import parse_expiration
from broker.adapters.formats.amqp10 import View10, deaths_of, first_queue, without_history
from broker.adapters.formats.either import annotated_copy, delivered_message
from broker.admin.api.answers import ApiError, JSONResponse, bad_request, not_found
from broker.admin.api.management import Managed, Management
from broker.admin.api.publish import check_header, encode_message, read_payload, read_properties
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Body, MessageBody, Name
from broker.admin.api.selection import (
    DEAD_LETTER,
    READY,
    deaths_after,
    make_filter,
    make_search,
    ready_entries,
    run_search,
    state_to_operate_on,
)
from broker.admin.json_documents import Fields, read_flag, read_number, read_table, read_text
from broker.auth.terms import WRITE
from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import NEVER, Address, Message, copy_of, held_bytes, set_descent
from broker.core.message_view import PROPERTIES
from broker.core.operators.operation import Operation, is_over
from broker.core.ports import MessageStore
from broker.core.queues.consumer import make_holder
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.hooks import EXPIRED
from broker.core.queues.queue import Queue, refuse_stream
from broker.core.queues.search import id_of, is_message_id, message_id, numbers_of
from broker.core.queues.source import COPIED, EDITED, MOVED, PUBLISHED, REDRIVEN
from broker.core.routing.graph import Route
from broker.core.vhosts.vhost import VirtualHost
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

MESSAGES_MAX: Final = 2000  # in an operation, whose commit is a single step and must be short
BYTES_MAX: Final = 8 * 2**20  # content that an operation appends to the log, approximately

Put = Callable[[Message], tuple[Route, Message] | None]
"""Returns the route and the message to publish; None for a message that the operation skips."""

router = APIRouter(tags=["operations"])


class Edit:
    """The changes to messages that a request wants: `properties`, `headers` among them, and `payload`.

    A null removes a property or a header; a null for `headers` removes all of them. Properties that are not
    named stay as they were sent. Raises ApiError, PreconditionFailed.
    """

    def __init__(self, body: Fields, frame_max: int, payload_max: int) -> None:
        properties = read_table(body, "properties")
        headers = read_table(properties, "headers")
        bare = "headers" in properties and properties.pop("headers") is None
        self._payload = read_payload(body, payload_max) if body.get("payload") is not None else None
        if not properties and not headers and not bare and self._payload is None:
            raise bad_request("nothing to edit: there is neither 'properties' nor 'payload'")
        unknown = [name for name in properties if name not in _INDEXES]
        if unknown:
            raise bad_request(
                f"property {unknown[0]} is not known, allowed: {', '.join(PROPERTIES)}, headers"
            )
        kept: dict[str, Any] = {name: value for name, value in properties.items() if value is not None}
        new_headers = {name: value for name, value in headers.items() if value is not None}
        content = encode_message(
            read_properties(kept | ({"headers": new_headers} if new_headers else {})), b"", frame_max
        )
        self._said = Properties(content)
        if "expiration" in kept:
            parse_expiration(kept["expiration"])  # otherwise each message would be refused, if there were any
        self._places = {name: _INDEXES[name] for name in properties}
        self._bare = bare
        self._fields = self._said.fields()
        self._headers = {name.encode() for name in headers}
        self._frame_max = frame_max
        self._edition: Edition | None = None  # the same changes for messages of AMQP 1.0
        self.names_user = properties.get("user_id")

    def of(self, message: Message, store: MessageStore) -> Message:
        """Return the edited message. Raises ApiError, and the errors of MessageStore.load."""
        content = store.content_of(message)
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
                fresh = Properties(encode_message({}, self._payload, self._frame_max))
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


class RestoredMessage(NamedTuple):
    """A dead letter in its form before its death, and the queue in which it died first."""

    message: Message
    queue: str


def restore_dead_letter(message: Message, store: MessageStore) -> RestoredMessage | None:
    """Return a dead letter as it was before it died; None for a message that is no dead letter.

    No header refers to its deaths any more, so that it can die again like other messages. Raises the errors
    of MessageStore.load.
    """
    if not message.died:
        return None
    content = store.content_of(message)
    return _restore10(message, content) if is_sections(content) else _restore091(message, content)


def _restore091(message: Message, content: bytes) -> RestoredMessage | None:
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


def _restore10(message: Message, content: bytes) -> RestoredMessage | None:
    queue = first_queue(content)
    first = [death for death in deaths_of(content) if death.queue == queue]
    if not first or not first[-1].routing_keys:
        return None
    return _alive(message, without_history(content), queue, first[-1].exchange, first[-1].routing_keys[0])


def _alive(message: Message, content: bytes, queue: str, exchange: str, key: str) -> RestoredMessage:
    copy = copy_of(message, content)
    copy.address = Address(exchange, key)
    copy.died = False
    return RestoredMessage(copy, queue)


def _text(fields: list[Field], wanted: bytes) -> str:
    """Return a header that the broker has written, "" without the header. Raises ValueError."""
    for name, value in fields:
        if name == wanted:
            return str(Reader(value).value())
    return ""


def check_user(edit: Edit, user: str, may_impersonate: bool) -> None:
    """Refuse a `user_id` that is not the editor's, unless the editor may impersonate others.

    Raises PreconditionFailed.
    """
    if edit.names_user is not None and edit.names_user != user and not may_impersonate:
        raise PreconditionFailed(
            f"user_id property set to '{edit.names_user}' but authenticated user was '{user}'"
        )


@router.post("/queues/{vhost}/{name}/messages/delete")
async def delete_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> JSONResponse:
    """Delete messages without dead-lettering them."""
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    return await _operate(virtual_host, queue, _Selection(virtual_host, body), None, PUBLISHED)


@router.post("/queues/{vhost}/{name}/messages/move")
async def move_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> JSONResponse:
    """Move messages to the end of a queue, or through an exchange, as `to` says."""
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    put = _destination(management, virtual_host, visitor.rights(virtual_host), body)
    return await _operate(virtual_host, queue, _Selection(virtual_host, body), put, MOVED)


@router.post("/queues/{vhost}/{name}/messages/copy")
async def copy_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> JSONResponse:
    """Copy messages to the end of a queue, or through an exchange, as `to` says."""
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    put = _destination(management, virtual_host, visitor.rights(virtual_host), body)
    return await _operate(virtual_host, queue, _Selection(virtual_host, body), put, COPIED)


@router.post("/queues/{vhost}/{name}/messages/edit")
async def edit_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: MessageBody
) -> JSONResponse:
    """Replace messages by edited ones, which are enqueued like new messages."""
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    rights = visitor.rights(virtual_host)
    rights.require(WRITE, QUEUE, name)
    _require_room(management)
    edit = Edit(body, int(management.server.frame_max), int(management.server.body_bytes_max))
    check_user(edit, visitor.name, rights.may_impersonate())
    route = virtual_host.publisher.route("", name)
    return await _operate(
        virtual_host,
        queue,
        _Selection(virtual_host, body),
        lambda message: (route, edit.of(message, virtual_host.store)),
        EDITED,
    )


@router.post("/queues/{vhost}/{name}/messages/redrive")
async def redrive_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> JSONResponse:
    """Return dead letters to the queue in which they died first, or with `via` to their first exchange.

    A redriven message is as it was published, without an expiration. Messages that are no dead letters stay.
    """
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    via = read_text(body, "via", "queue")
    if via not in ("queue", "exchange"):
        raise bad_request(f"via '{via}' is not known, allowed: queue, exchange")
    _require_room(management)
    routes = _Routes(virtual_host, visitor.rights(virtual_host))

    def put(message: Message) -> tuple[Route, Message] | None:
        letter = restore_dead_letter(message, virtual_host.store)
        if letter is None:
            return None
        address = letter.message.address
        if via == "queue":
            return routes.to_queue(letter.queue), letter.message
        return routes.through(address.exchange, address.routing_key), letter.message

    return await _operate(virtual_host, queue, _Selection(virtual_host, body), put, REDRIVEN)


class _Selection:
    """The messages of a request: those with one of `ids`, those that `selector` matches, or `all`.

    `selector` and `all` select ready messages, or with `state` = `dead-letter` messages that wait to be
    dead-lettered. `ids` select both.
    """

    def __init__(self, vhost: VirtualHost, body: Fields) -> None:
        self.sieve = make_filter(body, vhost.store)
        self.ids: set[str] | None = None
        if body.get("ids") is not None:
            ids = body["ids"]
            if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
                raise bad_request("'ids' is not a list of strings")
            if len(ids) > MESSAGES_MAX:
                raise bad_request(f"'ids' has {len(ids)} ids, an operation takes {MESSAGES_MAX}")
            self.ids = set(ids)
        if sum((self.ids is not None, self.sieve is not None, read_flag(body, "all"))) != 1:
            raise bad_request("no messages are selected: set one of 'ids', 'selector' and 'all': true")
        if self.ids is not None and body.get("state") is not None:
            raise bad_request("'state' and 'ids' do not go together: an id is found whatever the state")
        self.dead = state_to_operate_on(read_text(body, "state", READY)) == DEAD_LETTER
        self.limit = read_number(body, "limit") if body.get("limit") is not None else MESSAGES_MAX
        if not 0 < self.limit <= MESSAGES_MAX:
            raise bad_request(f"limit {self.limit} is not from 1 to {MESSAGES_MAX}")


class _Routes:
    """Routes to the destinations that a user may publish to, each found once. Raises BrokerError."""

    def __init__(self, vhost: VirtualHost, rights: Rights) -> None:
        self._vhost = vhost
        self._rights = rights
        self._found: dict[tuple[str, str], Route] = {}

    def to_queue(self, name: str) -> Route:
        """Return the route to a single queue, for users with write permission on the queue."""
        if ("", name) not in self._found:
            self._rights.require(WRITE, QUEUE, name)
            self._vhost.declarations.find_queue(name)
            self._found["", name] = self._vhost.publisher.route("", name)
        return self._found["", name]

    def through(self, exchange: str, key: str) -> Route:
        """Return the route through an exchange, with the rights of the user as a publisher."""
        route = self._found.get((exchange, key))
        if route is None:
            self._rights.require(WRITE, EXCHANGE, exchange)
            route = self._vhost.publisher.route(exchange, key)
            self._rights.require_topic(WRITE, route.exchange, key)
            self._found[exchange, key] = route
        return route


def _destination(management: Management, vhost: VirtualHost, rights: Rights, body: Fields) -> Put:
    """Return the destination that `to` names. Raises ApiError and BrokerError."""
    _require_room(management)
    to = read_table(body, "to")
    routes = _Routes(vhost, rights)
    if set(to) == {"queue"}:
        fixed = routes.to_queue(read_text(to, "queue"))

        def unchanged(message: Message) -> tuple[Route, Message]:
            return fixed, copy_of(message, vhost.store.content_of(message))

        return unchanged
    if not {"exchange"} <= set(to) <= {"exchange", "routing_key"}:
        raise bad_request("'to' has either 'queue', or 'exchange' and perhaps 'routing_key'")
    exchange = read_text(to, "exchange")
    routing_key = read_text(to, "routing_key") if to.get("routing_key") is not None else None
    if routing_key is not None:
        routes.through(exchange, routing_key)
    else:
        rights.require(WRITE, EXCHANGE, exchange)
        vhost.topology.existing_exchange(exchange)

    def published(message: Message) -> tuple[Route, Message]:
        route = routes.through(exchange, message.address.routing_key if routing_key is None else routing_key)
        copy = copy_of(message, vhost.store.content_of(message))
        copy.address = route.address
        return route, copy

    return published


def _require_room(management: Management) -> None:
    shortage = management.server.shortage.reason
    if shortage:
        raise ApiError(503, "service_unavailable", f"publishers wait: the broker is {shortage}")


_UNLIMITED: Final = Edit({"properties": {"expiration": None}}, (1 << 31) - 1, 0)
"""The edit that removes the expiration of a message."""


class _Operation(Operation):
    """An operation, and the future that its request awaits."""

    def __init__(self, vhost: VirtualHost, queue: Queue, way: int) -> None:
        super().__init__(vhost.publisher, queue, make_holder(queue, no_ack=True), way)
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_committed(self) -> None:
        """Note that the operation is on disk."""
        if not self.future.done():
            self.future.set_result(None)

    def on_commit_failed(self, reason: str) -> None:
        """Note that the operation has failed."""
        if not self.future.done():
            self.future.set_exception(
                ApiError(503, "service_unavailable", f"nothing was done: the log has failed: {reason}")
            )


async def _operate(
    vhost: VirtualHost, queue: Queue, selection: _Selection, put: Put | None, way: int
) -> JSONResponse:
    """Do an operation: `put` the selected messages to their destination, and remove them unless COPIED."""
    if way != COPIED:
        refuse_stream(queue, "relieved of single messages")
    operation = _Operation(vhost, queue, way)
    try:
        answer = await _acquire_messages(operation, selection, put)
        operation.commit()
    except BaseException:
        operation.abort()
        raise
    await operation.future
    return JSONResponse(answer)


async def _with_ids(operation: _Operation, ids: set[str]) -> AsyncGenerator[QueueEntry | Death]:
    """Yield the ready entries with these ids in order, then messages that wait to be dead-lettered."""
    queue, store = operation.queue, operation.host.store
    matches: list[QueueEntry] = []
    died: list[Death] = []
    for wanted in ids:
        if not is_message_id(wanted):
            continue
        backlog = existing_backlog(queue)
        death = None if backlog is None else backlog.find(*numbers_of(wanted))
        if death is not None:
            died.append(death)
            continue
        entry = await run_search(make_search(queue, wanted, store))
        if entry is not None:
            matches.append(entry)
    for entry in sorted(matches):
        if (entry.state == AVAILABLE or queue.stream is not None) and not is_over(queue, entry):
            yield entry
    for death in sorted(died, key=lambda each: int(each.number)):
        yield death


def _select_messages(operation: _Operation, selection: _Selection) -> AsyncGenerator[QueueEntry | Death]:
    """Yield the messages of a selection."""
    queue = operation.queue
    if selection.ids is not None:
        return _with_ids(operation, selection.ids)
    if selection.dead:
        return deaths_after(queue, 0, selection.sieve)
    return ready_entries(queue, selection.sieve)


def _with_annotations(queue: Queue, each: QueueEntry | Death) -> Message:
    """Return a message with the annotations of consumers. Raises the errors of MessageStore.load.

    A message that has expired loses its expiration, as its dead letter would. Otherwise it would expire again
    at its destination.
    """
    if isinstance(each, QueueEntry):
        return delivered_message(queue, each)
    copy = annotated_copy(queue, each.message, b"" if each.past is None else each.past.annotations)
    if each.reason != EXPIRED or copy.expiration == NEVER:
        return copy
    return _UNLIMITED.of(copy, queue.store)


def _id(queue: Queue, each: QueueEntry | Death) -> str:
    return message_id(queue, each) if isinstance(each, QueueEntry) else id_of(each.message, int(each.arrival))


async def _acquire_messages(operation: _Operation, selection: _Selection, put: Put | None) -> dict[str, Any]:
    """Acquire the messages; return the content of the answer after success."""
    queue = operation.queue
    ids = None if selection.ids is None else set(selection.ids)
    count, size, more = 0, 0, False
    async with aclosing(_select_messages(operation, selection)) as chosen:
        async for each in chosen:
            if isinstance(each, Death) and (each.is_seized or each.lane is None):
                continue  # another operation has removed the message
            if count == selection.limit or size >= BYTES_MAX:
                more = True
                break
            if put is not None:
                placed = put(_with_annotations(queue, each))
                if placed is None:
                    continue
                route, message = placed
                set_descent(message, each.message)
                operation.publish(route, message)
                size += int(held_bytes(message)) if message.body is None else 0
            if ids is not None:
                ids.discard(_id(queue, each))
            if operation.way != COPIED:
                if isinstance(each, Death):
                    operation.remove_dead(each)
                else:
                    operation.remove(each)
            count += 1
    if queue.deleted:
        raise not_found(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
    missing = [] if more or ids is None else sorted(ids)  # with more, the search has ended early
    return {"done": count, "more": more} | ({} if ids is None else {"missing": missing})
