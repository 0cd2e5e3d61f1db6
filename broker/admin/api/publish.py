"""Publishing over HTTP, for tools and tests: as over AMQP, by a channel of the broker itself."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter
from pamqp import commands, frame, header
from pamqp import exceptions as pamqp_exceptions
from pamqp.body import ContentBody

from broker.adapters.access import Origin, Rights
from broker.adapters.amqp091.channel import Channel
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp091.publish import publish_special, resolve
from broker.adapters.peers.server import Server
from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request
from broker.admin.api.exchanges import find_exchange
from broker.admin.api.management import Managed
from broker.admin.api.requests import Asker, ExchangeName, MessageBody, Name
from broker.admin.json_documents import Fields, read_field_table, read_table, read_text
from broker.core.delivery.journal import refusal_of
from broker.core.delivery.session import NoTurns
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.message import Address, Message
from broker.core.names import check_length
from broker.core.publishing.publisher import DUPLICATE, REFUSED, ROUTED, Outcome
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.content import PERSISTENT, PRIORITY_SHIFT, header_frame_bytes, scan
from protocol.amqp091.methods import short_string
from protocol.amqp091.properties import TEXTS, Properties
from protocol.amqp091.table import encode_table
from protocol.errors import ProtocolError

FRAME_BODY_BYTES: Final = 131_064
NUMBERS: Final = {"delivery_mode": 2, "priority": 255, "timestamp": 253_402_300_799}
"""Properties that are numbers, and the largest value of each; time is in seconds since 1970."""

router = APIRouter(tags=["messages"])


class _NoSocket:
    """The edge of a connection without a peer: nothing is sent."""

    def write(self, data: bytes) -> None:
        """Ignore the bytes."""

    def close(self) -> None:
        """Do nothing."""

    def end_output(self) -> None:
        """Do nothing."""

    def await_hangup(self, seconds: int) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""

    def is_closing(self) -> bool:
        """Whether the connection ends: always, as no client reads."""
        return True

    def hold(self, reason: int) -> None:
        """Do nothing."""

    def release(self, reason: int) -> None:
        """Do nothing."""

    def on_logged_in(self) -> None:
        """Do nothing."""

    def limit_close(self, seconds: int) -> None:
        """Do nothing."""


def make_channel(server: Server, rights: Rights, vhost: VirtualHost) -> Channel:
    """Make a channel in a virtual host for a user with these rights."""
    connection = Connection091(server, NoTurns(), _NoSocket(), Origin("", 0, True))
    connection.user = rights.user
    connection.rights = rights
    connection.virtual_host = vhost
    return Channel(connection, 1, vhost)


@router.post("/exchanges/{vhost}/{name}/publish")
async def publish(
    management: Managed, visitor: Asker, vhost: Name, name: ExchangeName, body: MessageBody
) -> JSONResponse:
    """Publish a message.

    `routed` says whether a queue took it; a persistent message is on disk by then.

    `duplicate` says that no queue took the message because all of them had it before. While publishers wait
    for memory or disk space, the status is 503.
    """
    virtual_host = visitor.vhost(vhost)
    find_exchange(virtual_host, name)
    key = read_text(body, "routing_key")
    channel = make_channel(management.server, visitor.rights(virtual_host), virtual_host)
    try:
        payload = read_payload(body, int(management.server.body_bytes_max))
    except PreconditionFailed as error:
        if virtual_host.journal.on:
            virtual_host.journal.refused(channel.session, Address(name, key), None, refusal_of(error))
        raise
    shortage = management.server.shortage.reason
    if shortage:
        raise ApiError(503, "service_unavailable", f"publishers wait: the broker is {shortage}")
    outcome = publish_message(channel, name, key, read_properties(read_table(body, "properties")), payload)
    if outcome is REFUSED:
        raise bad_request(f"a queue is full and refuses messages from exchange '{name}' with key '{key}'")
    await await_sync(management.store)
    if outcome is DUPLICATE:
        return JSONResponse({"routed": False, "duplicate": True})
    return JSONResponse({"routed": outcome is ROUTED})


def publish_message(
    channel: Channel, exchange: str, key: str, properties: dict[str, Any], payload: bytes
) -> Outcome:
    """Publish a message. Raises ApiError and BrokerError."""
    try:
        check_length("routing key", key)
        arguments = b"\0\0" + short_string(exchange) + short_string(key) + b"\0"
        content = encode_message(properties, payload, channel.server.frame_max)
        traits = scan(content, 0, header_frame_bytes(content) - 8)
        is_persistent = traits & PERSISTENT != 0
        message = Message(
            Address(exchange, key), content, len(payload), is_persistent, traits >> PRIORITY_SHIFT
        )
        return _publish(channel, arguments, message, traits)
    except ValueError as error:
        raise bad_request(f"the message cannot be encoded: {error}") from error
    except ProtocolError as error:
        raise bad_request(error.text) from error


def _publish(channel: Channel, arguments: bytes, message: Message, traits: int) -> Outcome:
    """Publish `message`, and record a refusal in the journal."""
    journal = channel.virtual_host.journal
    try:
        publication = resolve(channel.connection.rights, channel.virtual_host, arguments)
        message.address = publication.route.address
        return publish_special(channel, publication, message, traits)
    except BrokerError as error:
        if journal.on:
            journal.refused_by(channel.session, message, error)
        raise


def encode_message(properties: dict[str, Any], payload: bytes, frame_max: int) -> bytes:
    """Return a message in the bytes that a client would send.

    Raises ApiError if no client could send the message.
    """
    headers = properties.pop("headers", None)
    try:
        head = header.ContentHeader(0, len(payload), commands.Basic.Properties(**properties))
        content = frame.marshal(head, 1)
        if headers:
            written = Properties(content)
            written.set_table(encode_table(headers))
            content = written.content()
    except (ValueError, TypeError, pamqp_exceptions.PAMQPException) as error:
        raise bad_request(f"the message cannot be encoded: {error}") from error
    check_header(content, frame_max)
    pieces = [
        frame.marshal(ContentBody(payload[start : start + FRAME_BODY_BYTES]), 1)
        for start in range(0, len(payload), FRAME_BODY_BYTES)
    ]
    return b"".join([content, *pieces])


def check_header(content: bytes, frame_max: int) -> None:
    """Refuse properties that do not fit into a frame. Raises ApiError."""
    if header_frame_bytes(content) > frame_max:
        raise bad_request(
            f"the properties make a content header of {header_frame_bytes(content)} bytes, "
            f"frame_max is {frame_max}"
        )


def read_payload(body: Fields, most: int) -> bytes:
    """Return the body of a message in a request. Raises ApiError, PreconditionFailed."""
    value, encoding = read_text(body, "payload"), read_text(body, "payload_encoding", "string")
    if encoding == "string":
        payload = value.encode("utf-8", "surrogatepass")
    elif encoding == "base64":
        try:
            payload = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request(f"payload is not base 64: {error}") from error
    else:
        raise bad_request(f"payload_encoding '{encoding}' is not known, allowed: string, base64")
    if len(payload) > most:
        raise PreconditionFailed(f"message size {len(payload)} is larger than configured max size {most}")
    return payload


def read_properties(given: dict[str, Any]) -> dict[str, Any]:
    """Return the properties in a request, in the form of pamqp. Raises ApiError, PreconditionFailed."""
    properties: dict[str, Any] = {}
    for name, value in given.items():
        if name == "headers":
            properties[name] = read_field_table(value, "the headers")
        elif name in NUMBERS:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBERS[name]:
                raise bad_request(f"property {name} is not a number from 0 to {NUMBERS[name]}: {value!r}")
            properties[name] = datetime.fromtimestamp(value, UTC) if name == "timestamp" else value
        elif name in TEXTS:
            if not isinstance(value, str):
                raise bad_request(f"property {name} is not a string: {value!r}")
            properties["message_type" if name == "type" else name] = value
        else:
            known = ", ".join(sorted((*TEXTS, *NUMBERS, "headers")))
            raise bad_request(f"property {name} is not known, allowed: {known}")
    return properties
