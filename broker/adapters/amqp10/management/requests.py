"""Requests to the management node: messages, paths, bodies and statuses."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.access import EXCHANGE, QUEUE
from broker.adapters.formats.amqp10 import NOTHING, simple_value
from broker.adapters.peers.peer import ServedConnection
from broker.core import errors
from broker.core.errors import BrokerError
from broker.core.names import is_short
from broker.core.ports import DurableWaiter
from broker.core.routing.graph import Binding, digest_of
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10 import types
from protocol.amqp10.addresses import AddressError, quote, unquote
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE, APPLICATION_PROPERTIES, DATA, PROPERTIES
from protocol.amqp10.encoding import encode, encode_described
from protocol.amqp10.properties import MESSAGE_ID, REPLY_TO, SUBJECT, TO, read_property, read_text
from protocol.amqp10.sections import Sections
from protocol.amqp10.writing import NULL_VALUE, composite

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
TOO_LARGE: Final = 413
INTERNAL_ERROR: Final = 500
NOT_IMPLEMENTED: Final = 501
UNAVAILABLE: Final = 503

STATUSES: Final[dict[type[errors.BrokerError], int]] = {
    errors.NotFound: NOT_FOUND,
    errors.PreconditionFailed: BAD_REQUEST,
    errors.Inequivalent: CONFLICT,
    errors.LimitReached: FORBIDDEN,
    errors.Protected: FORBIDDEN,
    errors.UnknownKind: BAD_REQUEST,
    errors.ResourceLocked: BAD_REQUEST,
    errors.QueueStopped: BAD_REQUEST,
    errors.AccessRefused: FORBIDDEN,
    errors.InUse: FORBIDDEN,
    errors.NotAllowed: FORBIDDEN,
    errors.Unsupported: BAD_REQUEST,
    errors.StoreFailed: UNAVAILABLE,
}


@final
class Refused(Exception):  # noqa: N818  the exception is an answer, not a fault
    """A request that is refused with a status; `text` is sent to the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


def status_of(error: errors.BrokerError) -> int:
    """Return the status for an error of the core."""
    return STATUSES.get(type(error), INTERNAL_ERROR)


_I64_MAX: Final = 2**63 - 1
_DECIMAL128: Final = 0x94
_DECIMAL128_BIAS: Final = 6176
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

Fields = dict[str, object]


def fields_of(body: object, what: str, known: Collection[str]) -> Fields:
    """Return the fields of a body, a map of `known` fields; `what`: the object in errors. Raises Refused."""
    if not isinstance(body, dict):
        raise Refused(BAD_REQUEST, f"the body is not a map of properties of the {what} with each name once")
    fields: Fields = {}
    for name, value in body.items():
        if not isinstance(name, str) or name not in known:
            raise Refused(BAD_REQUEST, f"bad {what} property '{name}', known are {', '.join(known)}")
        fields[str(name)] = value
    return fields


def flag_field(fields: Fields, name: str, default: bool) -> bool:
    """Return a boolean field of a body. Raises Refused."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise Refused(BAD_REQUEST, f"property '{name}' is not a boolean")
    return value


def text_field(fields: Fields, name: str, default: str | None = None) -> str:
    """Return a string field of a body. Raises Refused, also if the field is missing without a `default`."""
    value = fields.get(name, default)
    if value is None and name not in fields:
        raise Refused(BAD_REQUEST, f"property '{name}' is missing")
    if not isinstance(value, str):
        raise Refused(BAD_REQUEST, f"property '{name}' is not a string")
    return str(value)


def arguments_field(fields: Fields) -> Fields:
    """Return the arguments in a body as a field table. Raises Refused for values that no table can have."""
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, dict):
        raise Refused(BAD_REQUEST, "property 'arguments' is not a map with each name once")
    return {_name(name): _field(str(name), value) for name, value in arguments.items()}


def arguments_map(table: Fields) -> dict[object, object]:
    """Return a field table as a map of AMQP 1.0."""
    return {name: _to_amqp10(value) for name, value in table.items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_short(name):
        raise Refused(BAD_REQUEST, f"argument '{name}' has no name that is a string of at most 255 bytes")
    return str(name)


def _field(argument: str, value: object) -> object:
    """Return a value with the types of field tables; `argument`: its name in errors. Raises Refused."""
    if isinstance(value, list):
        return [_field(argument, item) for item in value]
    if isinstance(value, types.Array) and not value.descriptors and value.count == len(value.items):
        return [_field(argument, item) for item in value.items]
    if isinstance(value, dict):
        return {_name(name): _field(argument, item) for name, item in value.items()}
    simple = simple_value(value)
    if simple is NOTHING or (isinstance(simple, int) and simple > _I64_MAX):
        raise Refused(BAD_REQUEST, f"argument '{argument}' has a value that no argument can have")
    return simple


def _to_amqp10(value: object) -> object:
    if isinstance(value, dict):
        return {name: _to_amqp10(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_amqp10(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, datetime):
        return types.Timestamp((value - _EPOCH) // _MILLISECOND)
    if isinstance(value, Decimal):
        return _decimal128(value)
    return value


def _decimal128(value: Decimal) -> types.Decimal:
    """Return a decimal of a field table, which has no sign and at most 32 bits of digits. [IEEE 754]"""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a decimal of a field table is a number"
    significand = int("".join(map(str, digits)))
    raw = (_DECIMAL128_BIAS + exponent << 113 | significand).to_bytes(16, "big")
    return types.Decimal(_DECIMAL128, raw)


_KINDS: Final = {"dstq": QUEUE, "dste": EXCHANGE}


@final
class Target:
    """The target of a request: the segments of its path, still quoted, and its query. Raises Refused."""

    def __init__(self, text: str) -> None:
        path, mark, query = text.partition("?")
        if not path.startswith("/"):
            raise Refused(BAD_REQUEST, f"path '{text}' does not begin with '/'")
        self.text = text
        self.segments = path[1:].split("/")
        self.query: dict[str, str] = {}
        for part in query.split("&") if mark else []:
            name, _, value = part.partition("=")
            self.query[name] = unquoted(text, value.replace("+", " "))

    def name(self) -> str:
        """Return the name in the second segment. Raises Refused."""
        return unquoted(self.text, self.segments[1])


@final
class BindingEnds:
    """The source and destination of a binding, and its key or None. `kind`: the destination's kind."""

    def __init__(self, source: str, kind: str, destination: str, key: str | None) -> None:
        self.source = source
        self.kind = kind
        self.destination = destination
        self.key = key


def ends_in_query(target: Target) -> BindingEnds:
    """Return the ends that a query names. Raises Refused."""
    query = target.query
    kinds = [name for name in _KINDS if name in query]
    if "src" not in query or len(kinds) != 1:
        raise Refused(BAD_REQUEST, f"'{target.text}' needs src, one of dstq and dste, and may have a key")
    return BindingEnds(query["src"], _KINDS[kinds[0]], query[kinds[0]], query.get("key"))


def binding_in_path(target: Target) -> tuple[BindingEnds, str, str]:
    """Return the ends, the key and the arguments' digest of the binding in a path. Raises Refused.

    `/bindings/src=S;dstq=Q;key=K;args=D`, or dste instead of dstq.
    """
    parts = [part.partition("=") for part in target.segments[1].split(";")]
    names = [name for name, _, _ in parts]
    if len(parts) != 4 or names[1] not in _KINDS or [names[0], *names[2:]] != ["src", "key", "args"]:
        raise Refused(BAD_REQUEST, f"bad binding path segment '{target.segments[1]}'")
    source, destination, key = (unquoted(target.text, value) for _, _, value in parts[:3])
    return BindingEnds(source, _KINDS[names[1]], destination, key), key, parts[3][2]


def location(binding: Binding) -> str:
    """Return the path that names a binding."""
    kind = "dstq" if binding.queue is not None else "dste"
    return (
        f"/bindings/src={quote(binding.source.name)};{kind}={quote(binding.destination_name)}"
        f";key={quote(binding.routing_key)};args={digest_of(binding.key[1])}"
    )


def unquoted(text: str, part: str) -> str:
    """Return a part of the path `text` without its quoting. Raises Refused."""
    try:
        return unquote(text, part)
    except AddressError as error:
        raise Refused(BAD_REQUEST, str(error)) from None


REQUEST_BYTES_MAX: Final = 32768  # the decoding of a larger request would take too many milliseconds
LINK_PAIR: Final = "$me"  # the reply-to of a request: the other link of the pair

_VERSION: Final = encode_described(APPLICATION_PROPERTIES, encode({"http:response": "1.1"}))
_VALUE: Final = encode_described(AMQP_VALUE, b"")  # the beginning of a body section


@final
class Request:
    """A request: `method`, `target` (a path with a query), and the decoded `body`, None without a body.

    `message_id`: the encoded message-id, which becomes the response's correlation-id.
    """

    def __init__(self) -> None:
        self.message_id = NULL_VALUE
        self.method = ""
        self.target = ""
        self.body: object = None

    def read(self, data: bytes) -> None:
        """Read the sections of a message, which may come in any order. Raises Refused.

        Fields that could be read are set also after an error; `message_id` is the first one.
        """
        sections = _RequestSections(data)
        if sections.properties != NONE:
            try:
                self._read_properties(data, sections.properties, sections.properties_end)
            except DecodeError as error:
                raise Refused(BAD_REQUEST, error.text) from None
        if len(data) > REQUEST_BYTES_MAX:
            text = f"request of {len(data)} bytes, at most {REQUEST_BYTES_MAX} are taken"
            raise Refused(TOO_LARGE, text)
        if sections.fault:
            raise Refused(BAD_REQUEST, sections.fault)
        if sections.properties == NONE:
            raise Refused(BAD_REQUEST, "request without properties")
        self.body = sections.body()

    def _read_properties(self, data: bytes, value: i64, end: i64) -> None:
        """Read the properties. Raises DecodeError, Refused."""
        message_id = read_property(data, value, end, MESSAGE_ID)
        if message_id is not None:
            decode(message_id)  # raises for bytes that are no value, which must not be in the response
            self.message_id = message_id
        target = read_text(data, value, end, TO)
        method = read_text(data, value, end, SUBJECT)
        self.target = target or ""
        self.method = method or ""
        if target is None:
            raise Refused(BAD_REQUEST, "properties.to, the path, is missing")
        if method is None:
            raise Refused(BAD_REQUEST, "properties.subject, the method, is missing")
        reply_to = read_text(data, value, end, REPLY_TO)
        if reply_to is not None and reply_to != LINK_PAIR:
            raise Refused(BAD_REQUEST, f"properties.reply-to is '{reply_to}', expected '{LINK_PAIR}'")


@final
class _RequestSections:
    """The offsets of the properties and the body of a message, up to the first malformed section."""

    def __init__(self, data: bytes) -> None:
        self.properties: i64 = NONE
        self.properties_end: i64 = NONE
        self.fault = ""
        self._data = data
        self._code: i64 = 0
        self._bodies: list[tuple[i64, i64]] = []
        sections = Sections(data, 0, len(data), ordered=False)
        try:
            while sections.advance():
                if sections.code == PROPERTIES:
                    self.properties = sections.value
                    self.properties_end = sections.end
                elif DATA <= sections.code <= AMQP_VALUE:
                    self._code = sections.code
                    self._bodies.append((sections.value, sections.end))
        except DecodeError as error:
            self.fault = error.text

    def body(self) -> object:
        """Return the decoded body, data sections as bytes. Raises Refused."""
        if self._code == AMQP_SEQUENCE:
            raise Refused(BAD_REQUEST, "the body is amqp-sequence, amqp-value is expected")
        if not self._bodies:
            return None
        try:
            values = [decode(self._data, start, end)[0] for start, end in self._bodies]
        except DecodeError as error:
            raise Refused(BAD_REQUEST, error.text) from None
        if self._code == AMQP_VALUE:
            return values[0]
        return b"".join([value for value in values if isinstance(value, bytes)])


def response(status: int, message_id: bytes, body: list[bytes]) -> bytes:
    """Return the sections of the response to the request with this message-id.

    `message_id` and `body` are encoded.
    """
    absent = NULL_VALUE
    fields = [absent, absent, absent, encode(str(status)), absent, message_id]
    return b"".join([composite(PROPERTIES, fields), _VERSION, _VALUE, *body])


SHOWN_MAX: Final = 255  # characters of a path in the log

_log = structlog.get_logger("amqpd.management")


@final
class Answer:
    """An answer: a status, and an encoded body in pieces, because it may be long.

    `durable`: the answer is sent after everything appended is on disk.
    """

    def __init__(self, status: int, body: list[bytes], durable: bool = False) -> None:
        self.status = status
        self.body = body
        self.durable = durable


def no_content(durable: bool) -> Answer:
    """Return the answer of a success without a body."""
    return Answer(NO_CONTENT, [NULL_VALUE], durable)


@final
class RequestContext:
    """A request of `client` that is being handled. `send`: a function that is called with the response, once.

    `target`: the parsed target of the request. `dropped`: no response is needed any more.
    """

    def __init__(
        self, client: ServedConnection, virtual_host: VirtualHost, send: Callable[[bytes], None]
    ) -> None:
        self.client = client
        self.virtual_host = virtual_host
        self.request = Request()
        self.target: Target = Target("/")
        self.dropped = False
        self._send = send

    def run_step(self, step: Callable[[], Answer | None]) -> None:
        """Call `step`, which returns the answer, or None if the answer follows later. No error is raised."""
        try:
            answer = step()
        except Refused as refused:
            answer = self._refusal(refused.status, refused.text)
        except BrokerError as error:
            answer = self._refusal(status_of(error), error.text)
        except Exception:
            _log.exception("internal error", peer=self.client.peer)
            answer = self._refusal(INTERNAL_ERROR, "internal error, see the broker's log")
        if answer is not None:
            self.send_answer(answer)

    def send_answer(self, answer: Answer) -> None:
        """Send the answer; a durable answer waits until everything appended is on disk."""
        if answer.durable:
            self.client.server.store.wait(_OnDisk(self, answer))
        elif not self.dropped:
            self._send(response(answer.status, self.request.message_id, answer.body))

    def on_log_failed(self, reason: str) -> None:
        """Refuse the request: the log has failed, so the change may not be on disk."""
        self.send_answer(self._refusal(UNAVAILABLE, f"the log has failed: {reason}"))

    def _refusal(self, status: int, text: str) -> Answer:
        client, request = self.client, self.request
        _log.warning(
            "request refused",
            peer=client.peer,
            user=client.user,
            method=request.method,
            target=request.target[:SHOWN_MAX],
            status=status,
            reason=text,
        )
        return Answer(status, [encode(text)])


@final
class _OnDisk(DurableWaiter):
    """The answer to a durable change, which waits for the sync of the log."""

    def __init__(self, context: RequestContext, answer: Answer) -> None:
        self._context = context
        self._answer = answer

    def on_durable(self, batch: i64) -> None:
        """Send the answer."""
        self._answer.durable = False
        self._context.send_answer(self._answer)

    def on_store_failed(self, reason: str) -> None:
        """Refuse the request."""
        self._context.on_log_failed(reason)
