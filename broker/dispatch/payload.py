"""The contents of a call: messages as a request of HTTP, as CloudEvents, or as input of a command.

Messages of both protocols look as clients of AMQP 0-9-1 get them.

- plain: the body as it is, and the properties as headers or variables. A dispatcher with batches sends a
  JSON array of messages in the form of the HTTP API.
- cloudevents-binary, cloudevents-structured: [CloudEvents 1.0.2, HTTP protocol binding and JSON format]

A signature is one of [Standard Webhooks]: HMAC-SHA256 over the id, the time and the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.bodies import read_large_body
from broker.adapters.formats.either import Conversions, annotate_content, content_for091
from broker.core.entries.entry import QueueEntry
from broker.core.message_view import PROPERTIES
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.core.queues.search import message_id
from broker.core.values import to_json
from broker.dispatch.definition import BINARY, PLAIN, Definition, Reference
from protocol.amqp091.content import body as body_of
from protocol.amqp10.sections import is_sections
from protocol.conversion.names import ENCODED_BODY

OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"
EVENT: Final = "application/cloudevents+json"
EVENTS: Final = "application/cloudevents-batch+json"
HEADER_BYTES_MAX: Final = 4096  # limit of a header's value; HTTP servers refuse much longer ones
VARIABLE_BYTES_MAX: Final = 32_768  # limit of a variable's value
VARIABLES_BYTES_MAX: Final = 524_288  # limit for the variables of one message; systems allow 2 MiB
ATTRIBUTE_MAX: Final = 20  # characters of the name of an extension attribute [CloudEvents 1.0.2]
PREFIX: Final = "Amqp-"
VARIABLE_PREFIX: Final = "AMQP_"
WHSEC: Final = "whsec_"

_EVENT_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")  # [CloudEvents 1.0.2, AMQP protocol binding 3.1.3]
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,20}", re.ASCII)
_NAME_SAFE: Final = "!#$&'*+.^_`|~-"  # besides letters, digits and %
_TEXT_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_ATTRIBUTE_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')
_REQUIRED: Final = ("specversion", "id", "source", "type")
_RESERVED: Final = frozenset(
    {*_REQUIRED, "subject", "time", "datacontenttype", "dataschema", "data", "data_base64"}
)

Secrets = Callable[[Reference], bytes]
"""Returns a secret. Raises SecretError."""


class SecretError(Exception):
    """A secret cannot be read; the text names its place, and never its value."""


class PayloadError(Exception):
    """The contents of a call cannot be made. `too_large`: the body would exceed the limit."""

    def __init__(self, text: str, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request: headers with ASCII values, and the body."""

    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class CommandInput:
    """The input of a command: variables of its environment, and its standard input."""

    environment: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as a call has it.

    `id`: the id in the API, unique within its queue. `unique_id`: no other message has it, of this broker or
    another, before or after a restart. `properties` has no headers; `timestamp` is in seconds since 1970.
    """

    id: str
    unique_id: str
    exchange: str
    routing_key: str
    redelivered: bool
    deliveries: int
    properties: Mapping[str, Any]
    headers: Mapping[str, Any]
    body: bytes


def read_delivered(
    queue: Queue,
    entry: QueueEntry,
    conversions: Conversions,
    store: MessageStore,
    size_max: int,
    names: tuple[str, str],
) -> Delivered:
    """Return the message of an entry.

    `names`: the unique names of the log and of this start of the broker, for unique ids.

    Raises:
        PayloadError: the body has more than `size_max` bytes.
        OSError, LogDamaged: the disk cannot read the content.
    """
    message = entry.message
    if message.size > size_max:
        raise _too_large(int(message.size), size_max)
    kept = store.content_of(message)
    annotations = queue.entries.annotations_of(entry)
    if annotations:
        kept = annotate_content(kept, annotations)
    content = content_for091(conversions, message, kept)
    view = ContentView(content)
    properties = {name: to_json(value) for name in PROPERTIES if (value := view.property(name)) is not None}
    timestamp = properties.get("timestamp")
    if isinstance(timestamp, int):
        properties["timestamp"] = timestamp // 1000
    if message.body is None:
        body = body_of(content)
    else:
        body, encoded = read_large_body(store, message.body, size_max + 1, is_sections(kept))
        if encoded:
            properties["type"] = ENCODED_BODY.decode()
    if len(body) > size_max:
        raise _too_large(len(body), size_max)
    headers = to_json(view.headers())
    assert isinstance(headers, dict), "a table becomes an object"
    in_api = message_id(queue, entry)
    log, start = names
    return Delivered(
        in_api,
        f"{log}-{in_api}" if message.sequence > 0 else f"{log}-{start}-{queue.name}-{in_api}",
        message.address.exchange,
        str(to_json(message.address.routing_key)),
        bool(entry.redelivered),
        int(entry.delivery_count),
        properties,
        headers,
        body,
    )


def _too_large(size: int, size_max: int) -> PayloadError:
    return PayloadError(f"a body of {size} bytes, above 'size_max' {size_max}", too_large=True)


def make_request(
    definition: Definition, messages: Sequence[Delivered], secrets: Secrets, seconds: int
) -> HttpRequest:
    """Return the request of a call with `messages`. `seconds`: the time since 1970, for the signature.

    Raises:
        PayloadError: the body is too large.
        SecretError: a secret cannot be read.
    """
    first = messages[0]
    headers: list[tuple[str, str]] = []
    if definition.batch > 1 or definition.format not in (PLAIN, BINARY):
        kind, body = _document(definition, messages)
        headers.append(("Content-Type", kind))
    elif definition.format == PLAIN:
        body = first.body
        headers += _plain_headers(first)
    else:
        body = first.body
        headers += _event_headers(definition, first)
    headers.append((f"{PREFIX}Dispatcher", _encode(definition.name, _TEXT_SAFE)))
    headers.append((f"{PREFIX}Queue", _encode(definition.queue, _TEXT_SAFE)))
    headers.append((f"{PREFIX}Messages", str(len(messages))))
    if len(messages) == 1:
        headers.append((f"{PREFIX}Delivery-Count", str(first.deliveries)))
        headers.append((f"{PREFIX}Redelivered", _word(first.redelivered)))
    for name, value in definition.headers.items():
        headers.append((name, _secret_text(value, secrets) if isinstance(value, Reference) else value))
    if definition.secret is not None:
        call_id = _encode(f"{first.unique_id}:{len(messages)}", _ATTRIBUTE_SAFE)
        signature = sign(secrets(definition.secret), call_id, seconds, body)
        headers += [
            ("Webhook-Id", call_id),
            ("Webhook-Timestamp", str(seconds)),
            ("Webhook-Signature", signature),
        ]
    return HttpRequest(headers, body)


def sign(secret: bytes, call_id: str, seconds: int, body: bytes) -> str:
    """Return the signature of a call. [Standard Webhooks]

    A secret that begins with `whsec_` is Base64. Any other secret is used as it is, without the line break at
    its end. Raises SecretError.
    """
    key = secret.rstrip(b"\r\n")
    if key.startswith(WHSEC.encode()):
        try:
            key = base64.b64decode(key[len(WHSEC) :], validate=True)
        except binascii.Error as error:
            raise SecretError(f"the secret for signatures begins with {WHSEC} and is not Base64") from error
    if not key:
        raise SecretError("the secret for signatures is empty")
    digest = hmac.new(key, f"{call_id}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def make_input(definition: Definition, messages: Sequence[Delivered]) -> CommandInput:
    """Return the input of a command that is started with `messages`. Raises PayloadError."""
    environment = {
        f"{VARIABLE_PREFIX}DISPATCHER": definition.name,
        f"{VARIABLE_PREFIX}QUEUE": definition.queue,
        f"{VARIABLE_PREFIX}VHOST": definition.vhost,
        f"{VARIABLE_PREFIX}MESSAGES": str(len(messages)),
    }
    first = messages[0]
    if definition.batch > 1 or definition.format != PLAIN:
        kind, body = _document(definition, messages)
        environment[f"{VARIABLE_PREFIX}CONTENT_TYPE"] = kind
    else:
        body = first.body
        environment |= _variables(first)
    return CommandInput({name: _without_nul(value) for name, value in environment.items()}, body)


def _without_nul(value: str) -> str:
    return value.replace("\0", "%00")


def _variables(message: Delivered) -> dict[str, str]:
    """Return the properties and headers of a message as variables; very long values are left out."""
    found = {
        "MESSAGE": message.id,
        "EXCHANGE": message.exchange,
        "ROUTING_KEY": message.routing_key,
        "REDELIVERED": _word(message.redelivered),
        "DELIVERY_COUNT": str(message.deliveries),
    }
    for name, value in message.properties.items():
        found[name.upper()] = _text(value)
    for name, value in message.headers.items():
        found.setdefault("HEADER_" + re.sub(r"[^A-Z0-9_]", "_", name.upper()), _text(value))
    variables: dict[str, str] = {}
    room = VARIABLES_BYTES_MAX
    for name, value in found.items():
        size = len(name) + len(value.encode("utf-8", "surrogateescape"))
        if size <= VARIABLE_BYTES_MAX and size <= room:
            room -= size
            variables[VARIABLE_PREFIX + name] = value
    return variables


def _plain_headers(message: Delivered) -> list[tuple[str, str]]:
    """Return the properties and headers of a message as headers of HTTP; very long values are left out."""
    properties = dict(message.properties)
    headers = [("Content-Type", _content_type(properties.pop("content_type", None)))]
    encoding = properties.pop("content_encoding", None)
    if isinstance(encoding, str) and encoding.isascii() and encoding.isprintable():
        headers.append(("Content-Encoding", encoding))
    named: list[tuple[str, object]] = [
        (f"{PREFIX}Message", message.id),
        (f"{PREFIX}Exchange", message.exchange),
        (f"{PREFIX}Routing-Key", message.routing_key),
    ]
    named += [
        (PREFIX + "-".join(part.capitalize() for part in name.split("_")), value)
        for name, value in properties.items()
    ]
    named += [
        (f"{PREFIX}Header-{_encode(name, _NAME_SAFE)}", value) for name, value in message.headers.items()
    ]
    for name, value in named:
        text = _encode(_text(value), _TEXT_SAFE)
        if len(name) + len(text) <= HEADER_BYTES_MAX:
            headers.append((name, text.strip(" ")))
    return headers


def _content_type(value: object) -> str:
    """Return the property `content_type` if it can be a header."""
    right = isinstance(value, str) and bool(value) and value.isascii() and value.isprintable()
    return str(value).strip() if right and "/" in str(value) else OCTETS


def _document(definition: Definition, messages: Sequence[Delivered]) -> tuple[str, bytes]:
    """Return the messages as JSON, with its type. Raises PayloadError."""
    shown: Any
    if definition.format == PLAIN:
        kind, shown = JSON, [_show(message) for message in messages]
    elif definition.batch > 1:
        kind, shown = EVENTS, [_event(definition, message) for message in messages]
    else:
        kind, shown = EVENT, _event(definition, messages[0])
    body = json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return kind, body


def _show(message: Delivered) -> dict[str, Any]:
    """Return a message in the form of the HTTP API."""
    how, payload = _payload(message.body)
    properties = dict(message.properties)
    if message.headers:
        properties["headers"] = message.headers
    return {
        "id": message.id,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "delivery_count": message.deliveries,
        "properties": properties,
        "payload_bytes": len(message.body),
        "payload": payload,
        "payload_encoding": how,
    }


def _payload(body: bytes) -> tuple[str, str]:
    with suppress(UnicodeDecodeError):
        return "string", body.decode()
    return "base64", base64.b64encode(body).decode()


def attributes_of(definition: Definition, message: Delivered) -> dict[str, str]:
    """Return the attributes of the CloudEvent that a message is.

    A publisher sets attributes by headers with the prefix `cloudEvents:` or `cloudEvents_`. [CloudEvents
    1.0.2, AMQP protocol binding]
    """
    properties = message.properties
    attributes = {
        "specversion": "1.0",
        "id": str(properties.get("message_id") or message.unique_id),
        "source": f"/vhosts/{quote(definition.vhost, safe='')}/queues/{quote(definition.queue, safe='')}",
        "type": str(properties.get("type") or "amqpd.message"),
        "subject": message.routing_key,
    }
    if isinstance(properties.get("timestamp"), int):
        with suppress(ValueError, OverflowError, OSError):
            time = datetime.fromtimestamp(properties["timestamp"], UTC)
            attributes["time"] = time.isoformat().replace("+00:00", "Z")
    if properties.get("content_type"):
        attributes["datacontenttype"] = str(properties["content_type"])
    if properties.get("correlation_id"):
        attributes["correlationid"] = str(properties["correlation_id"])
    attributes["amqpexchange"] = message.exchange
    attributes["amqpdeliverycount"] = str(message.deliveries)
    for name, value in message.headers.items():
        if name not in _RESERVED and _ATTRIBUTE.fullmatch(name) and isinstance(value, str | int | bool):
            attributes.setdefault(name, _text(value))
    for name, value in message.headers.items():
        for prefix in _EVENT_PREFIXES:
            attribute = name.removeprefix(prefix)
            if attribute != name and _ATTRIBUTE.fullmatch(attribute) and attribute != "data":
                attributes[attribute] = _text(value)
    return {name: value for name, value in attributes.items() if value}


def _event_headers(definition: Definition, message: Delivered) -> list[tuple[str, str]]:
    """Return the headers of an event in binary mode."""
    attributes = attributes_of(definition, message)
    headers = [("Content-Type", _content_type(attributes.pop("datacontenttype", None)))]
    for name, value in attributes.items():
        text = _encode(value, _ATTRIBUTE_SAFE)
        if len(text) <= HEADER_BYTES_MAX or name in _REQUIRED:
            headers.append((f"ce-{name}", text))
    return headers


def _event(definition: Definition, message: Delivered) -> dict[str, Any]:
    """Return an event in structured mode."""
    event: dict[str, Any] = dict(attributes_of(definition, message))
    kind = event.get("datacontenttype", "").partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        with suppress(ValueError, RecursionError):
            return event | {"data": json.loads(message.body, parse_constant=_refuse_constant)}
    how, payload = _payload(message.body)
    if how == "string" and kind.startswith("text/"):
        return event | {"data": payload}
    return event | {"data_base64": base64.b64encode(message.body).decode()}


def _refuse_constant(literal: str) -> float:
    raise ValueError(f"JSON has no {literal}")


def _secret_text(reference: Reference, secrets: Secrets) -> str:
    """Return a secret as the value of a header. Raises SecretError."""
    text = secrets(reference).rstrip(b"\r\n").decode("latin-1")
    if not text.isascii() or not text.isprintable():
        raise SecretError(f"the secret in {reference.kind} {reference.name} is not printable ASCII")
    return text


def _text(value: object) -> str:
    """Return a value as text: booleans as in JSON, arrays and tables as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _word(value)
    return "" if value is None else json.dumps(value, default=str)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _encode(text: str, safe: str) -> str:
    """Return a text with all other characters percent-encoded."""
    return quote(text, safe=safe, errors="replace")
