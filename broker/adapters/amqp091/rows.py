"""Rows of staged sinks as messages of AMQP 0-9-1: the check of incoming rows, and their publishing."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE as EXCHANGES
from broker.adapters.access import Rights
from broker.adapters.amqp091.publish import DECODED, check_copies, check_user
from broker.adapters.formats.amqp091 import BCC, View091, parse_expiration
from broker.auth.terms import WRITE
from broker.core.errors import PreconditionFailed
from broker.core.message import NOWHERE, Address, Message
from broker.core.names import check_length
from broker.core.operators.sink import BatchRow, Known
from broker.core.publishing.delay import due_date, mark_delay
from broker.core.publishing.receipts import receipt_marks
from broker.core.routing.graph import Exchange
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.content import (
    COPIES,
    DELAYS,
    EXPIRES,
    NAMES_USER,
    PRIORITY_SHIFT,
    RECEIPTS,
    REPLIES,
    body,
    header_frame_bytes,
    scan,
)
from protocol.amqp091.properties import EXPIRATION, USER_ID, Properties
from protocol.errors import ProtocolError
from protocol.streams.chunk import BASIC, BODY, EXCHANGE, PROPERTIES, ROUTING_KEY, Chunk
from protocol.streams.rows import content_of

STORED_IN: Final = "amqpd.sink"  # the exchange of stored chunks, in the log
HAS_HEADERS: Final = 0x20  # in the first octet of the properties
NO_KEYS: Final[list[str]] = []
_NO_PROPERTIES: Final = b"\0\0"


def chunk_message(chunk: bytes, rows: int) -> Message:
    """Return a chunk as the log stores it for an attempt: the body of a message."""
    content = content_of(BASIC, _NO_PROPERTIES, chunk)
    return Message(Address(STORED_IN, str(rows)), content, len(chunk), True, 0)


def rows_of(content: bytes, virtual_host: VirtualHost, known: Known | None) -> list[BatchRow]:
    """Return the rows of a stored chunk, without `known` rows, which were checked on arrival (OpenRows)."""
    chunk = Chunk(body(content))
    names: dict[tuple[bytes, bytes], tuple[str, str]] = {}
    rows: list[BatchRow] = []
    for number in range(chunk.rows):
        encoded = chunk.value(EXCHANGE, number), chunk.value(ROUTING_KEY, number)
        address = names.get(encoded)
        if address is None:
            address = encoded[0].decode(), encoded[1].decode()
            names[encoded] = address
        properties = chunk.value(PROPERTIES, number)
        if known is not None and address in known and properties[0] & HAS_HEADERS == 0:
            continue
        payload = chunk.value(BODY, number)
        content = content_of(BASIC, properties, payload)
        traits = scan(content, 0, header_frame_bytes(content) - 8)
        message = Message(NOWHERE, content, len(payload), True, traits >> PRIORITY_SHIFT)
        keys = NO_KEYS
        if traits & DECODED != 0:
            keys = _apply_properties(message, traits, address, virtual_host)
        rows.append(BatchRow(message, address[0], address[1], keys))
    return rows


def _apply_properties(
    message: Message, traits: i64, address: tuple[str, str], virtual_host: VirtualHost
) -> list[str]:
    """Apply the special properties of a row; return all its routing keys, [] for its own key only."""
    assert message.content is not None
    properties = Properties(message.content)
    view = View091(properties)
    keys: list[str] = []
    if traits & EXPIRES != 0:
        message.expiration = parse_expiration(properties.text(EXPIRATION))
    if traits & DELAYS != 0:
        mark_delay(message, view, virtual_host.schedule)
    if traits & COPIES != 0:
        keys = view.further_keys()
        exchange = virtual_host.topology.exchanges.get(address[0])
        if BCC in view.headers() and (exchange is None or not exchange.delays_message(view)):
            message.content = view.public_content()
    return [address[1], *keys] if keys else []


@final
class Checker:
    """The checks of a publish for rows: the user's rights and the properties.

    `frame_max` and `body_max`: the most bytes of a content header frame and of a body.
    """

    def __init__(self, rights: Rights, virtual_host: VirtualHost, frame_max: int, body_max: int) -> None:
        self._rights = rights
        self._vhost = virtual_host
        self._frame_max = frame_max
        self._body_max = body_max
        self._exchanges: dict[tuple[bytes, bytes], Exchange] = {}

    def check(self, chunk: Chunk) -> None:
        """Refuse a chunk with a row that cannot be published; the refusal names the row.

        Raises:
            PreconditionFailed: the row is no message of AMQP 0-9-1, or a property makes no sense.
            NotFound: there is no such exchange.
            AccessRefused: the user may not publish to the exchange, or no user may.
        """
        if chunk.header.lost:
            raise PreconditionFailed("the chunk says that its rows are lost")
        for number in range(chunk.rows):
            try:
                self._check(chunk, number)
            except (ProtocolError, PreconditionFailed) as error:
                raise PreconditionFailed(f"row {number} of the chunk: {error.text}") from error

    def require_rights(self, content: bytes) -> None:
        """Check again whether the rows of a stored chunk, which was checked on arrival, may be published.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the user may not publish to the exchange, or not with the user-id of a row.
        """
        chunk = Chunk(body(content))
        for number in range(chunk.rows):
            exchange = self._find_exchange(chunk, number)
            properties = chunk.value(PROPERTIES, number)
            encoded = content_of(BASIC, properties, b"")
            traits = scan(encoded, 0, len(encoded) - 8)
            if traits & (NAMES_USER | COPIES) != 0:
                self._require_special(Properties(encoded), traits, exchange)

    def _find_exchange(self, chunk: Chunk, number: int) -> Exchange:
        address = chunk.value(EXCHANGE, number), chunk.value(ROUTING_KEY, number)
        exchange = self._exchanges.get(address)
        if exchange is None:
            exchange = self._check_exchange(*address)
            self._exchanges[address] = exchange
        return exchange

    def _check(self, chunk: Chunk, number: int) -> None:
        if chunk.kind(number) != BASIC:
            raise PreconditionFailed(f"its kind is {chunk.kind(number)}, expected {BASIC} (AMQP 0-9-1)")
        size = len(chunk.value(BODY, number))
        if size > self._body_max:
            raise PreconditionFailed(
                f"message size {size} is larger than configured max size {self._body_max}"
            )
        exchange = self._find_exchange(chunk, number)
        properties = chunk.value(PROPERTIES, number)
        if len(properties) < len(_NO_PROPERTIES):
            raise PreconditionFailed("it has no property flags")
        content = content_of(BASIC, properties, b"")
        if len(content) > self._frame_max:
            raise PreconditionFailed(
                f"the content header would have {len(content)} bytes, frame_max is {self._frame_max}"
            )
        traits = scan(content, 0, len(content) - 8)
        if traits & REPLIES != 0:
            raise PreconditionFailed(
                "its reply-to is amq.rabbitmq.reply-to, and a sink has no consumer of replies"
            )
        if traits & DECODED != 0:
            self._check_special(content, traits, exchange)

    def _check_exchange(self, name: bytes, key: bytes) -> Exchange:
        """Return the exchange of a row. Raises what `check` raises."""
        try:
            exchange, routing_key = name.decode(), key.decode()
        except UnicodeDecodeError as error:
            raise PreconditionFailed(
                f"exchange {name!r} or routing key {key!r} is not valid UTF-8"
            ) from error
        check_length("exchange name", exchange)
        check_length("routing key", routing_key)
        self._rights.require(WRITE, EXCHANGES, exchange)
        exchange_found = self._vhost.publisher.route(exchange, routing_key).exchange
        self._rights.require_topic(WRITE, exchange_found, routing_key)
        return exchange_found

    def _check_special(self, content: bytes, traits: i64, exchange: Exchange) -> None:
        properties = Properties(content)
        view = View091(properties)
        if traits & COPIES != 0:
            check_copies(view.headers())
            for key in view.further_keys():
                check_length("routing key", key)
        self._require_special(properties, traits, exchange)
        if traits & DELAYS != 0:
            due_date(view, self._vhost.schedule)
        if traits & RECEIPTS != 0 and receipt_marks(view.headers()) != 0:
            raise PreconditionFailed("it requests receipts, which sinks do not send")
        if traits & EXPIRES != 0:
            parse_expiration(properties.text(EXPIRATION))

    def _require_special(self, properties: Properties, traits: i64, exchange: Exchange) -> None:
        if traits & NAMES_USER != 0:
            check_user(self._rights, properties.text(USER_ID))
        if traits & COPIES != 0:
            for key in View091(properties).further_keys():
                self._rights.require_topic(WRITE, exchange, key)
