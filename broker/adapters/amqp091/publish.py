"""basic.publish: its arguments, its headers, and returned messages. [amqp-0-9-1 1.8.3.7, 1.8.3.8]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE, Rights
from broker.adapters.amqp091 import direct_reply
from broker.adapters.amqp091.deliver import write_message
from broker.adapters.amqp091.state import ChannelState
from broker.adapters.formats.amqp091 import BCC, CC, View091, parse_expiration
from broker.adapters.peers.requests import mark_receipts
from broker.adapters.peers.server import ReplyReceiver
from broker.auth.terms import WRITE
from broker.core.errors import BrokerError, PreconditionFailed, QueueStopped, StoreFailed
from broker.core.message import Address, Message
from broker.core.publishing.delay import mark_delay
from broker.core.publishing.publisher import DUPLICATE, NO_CONSUMER, REFUSED, ROUTED, Outcome, Publisher
from broker.core.queues.source import Source
from broker.core.routing.graph import Route
from broker.core.schedule import PROPERTIES
from broker.core.transactions.transaction import INDEPENDENT, HeldPublish, is_independent
from broker.core.values import type_name
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091 import constants as c
from protocol.amqp091 import lookup, methods
from protocol.amqp091.constants import BASIC_PUBLISH
from protocol.amqp091.content import COPIES, DELAYS, EXPIRES, NAMES_USER, RECEIPTS, REPLIES, SPECIAL
from protocol.amqp091.properties import EXPIRATION, USER_ID, Properties
from protocol.errors import DUPLICATE as DUPLICATE_TEXT
from protocol.errors import (
    NO_CONSUMERS,
    NO_ROUTE,
    PRECONDITION_FAILED,
    REPLY_NAMES,
    SYNTAX_ERROR,
    ProtocolError,
)

REMEMBERED_MAX: Final = 4096  # routes of a channel; the next route clears all, and each is resolved again


@final
class Publication:
    """A route with the two bits of basic.publish. `is_special`: every message takes the slow path.

    `replies`: the receiver of a direct reply, if the publish is one.
    """

    def __init__(self, route: Route, mandatory: bool, immediate: bool) -> None:
        self.route = route
        self.mandatory = mandatory
        self.immediate = immediate
        self.replies: ReplyReceiver | None = None
        self.is_special = immediate


def resolve(rights: Rights, virtual_host: VirtualHost, arguments: bytes) -> Publication:
    """Decode basic.publish's arguments (without class and method id) and find the route.

    The user's rights are checked here, once for the route and not for each message.
    Raises ProtocolError(SYNTAX_ERROR), what Publisher.route raises, and AccessRefused.
    """
    exchange, p = _short_string(arguments, 2)
    routing_key, p = _short_string(arguments, p)
    if p + 1 != len(arguments):
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", BASIC_PUBLISH)
    bits = arguments[p]
    rights.require(WRITE, EXCHANGE, exchange)
    route = virtual_host.publisher.route(exchange, routing_key)
    rights.require_topic(WRITE, route.exchange, routing_key)
    route.pinned = True
    return Publication(route, bits & 1 != 0, bits & 2 != 0)


def address_of(arguments: bytes) -> Address:
    """Return the exchange and the routing key in basic.publish's arguments, which are whole."""
    exchange, p = _short_string(arguments, 2)
    return Address(exchange, _short_string(arguments, p)[0])


def _short_string(data: bytes, p: i64) -> tuple[str, i64]:
    """Return the short string at `p` and the offset after the string."""
    end: i64 = p + 1 + data[p] if p < len(data) else -1
    if end < 0 or end > len(data):
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", BASIC_PUBLISH)
    try:
        return data[p + 1 : end].decode(), end
    except UnicodeDecodeError as e:
        raise ProtocolError(SYNTAX_ERROR, "a name in Basic.Publish is not valid UTF-8", BASIC_PUBLISH) from e


def return_message(
    channel: ChannelState, publication: Publication, message: Message, outcome: Outcome
) -> None:
    """Return a message that no queue accepted, if the publisher requested this."""
    if outcome is DUPLICATE:
        if publication.mandatory:
            _return_message(channel, message, PRECONDITION_FAILED, DUPLICATE_TEXT)
        return
    if publication.mandatory and outcome is not NO_CONSUMER:
        code = NO_ROUTE
    elif publication.immediate:
        code = NO_CONSUMERS
    else:
        channel.traffic.dropped += 1
        return
    channel.server.counters.unroutable -= 1  # the message is returned instead
    _return_message(channel, message, code, REPLY_NAMES[code])


def refuse_publish(
    channel: ChannelState, publication: Publication, message: Message, error: BrokerError
) -> None:
    """Report a message that could not be stored, and is in no queue, to its publisher.

    With confirms, a stopped queue or a failed log nacks the message. A stopped queue also returns a mandatory
    or immediate message. In all other cases the channel or the connection is closed.
    """
    if channel.virtual_host.journal.on:
        channel.virtual_host.journal.refused_by(channel.session, message, error)
    confirms = channel.confirms
    if isinstance(error, QueueStopped):
        wanted = publication.mandatory or publication.immediate
        if wanted:
            text = f"{REPLY_NAMES[PRECONDITION_FAILED]} - {error.text}"
            _return_message(channel, message, PRECONDITION_FAILED, text)
        if confirms is not None:
            channel.server.counters.refused += 1
            confirms.add_refused()
        if wanted or confirms is not None:
            return
    elif confirms is not None and isinstance(error, StoreFailed):
        channel.server.counters.refused += 1
        confirms.refuse()
        return
    channel.refuse(error, c.BASIC_PUBLISH)


def _return_message(channel: ChannelState, message: Message, code: int, text: str) -> None:
    assert message.content is not None
    channel.server.counters.returned += 1
    channel.traffic.returned += 1
    channel.virtual_host.schedule.allowance.use(PROPERTIES)
    out = channel.connection.out
    out.write(methods.basic_return(channel.number, code, text, message.address.encoded))
    write_message(channel, message, message.content, message.content)


@final
class HeldPublish091(HeldPublish):
    """A basic.publish that waits for tx.commit."""

    def __init__(
        self, channel: ChannelState, publication: Publication, message: Message, keys: list[str]
    ) -> None:
        super().__init__(publication.route, message, keys, publication.immediate)
        self.channel = channel
        self.publication = publication

    def resolve(self, publisher: Publisher, source: Source) -> str:
        """Find the route: a direct reply needs no queue."""
        if self.publication.replies is not None:
            return ""
        try:
            return super().resolve(publisher, source)
        except ProtocolError as error:  # the headers do not decode
            return error.text

    def put(self, publisher: Publisher) -> Outcome:
        """Enqueue the message, or deliver the direct reply."""
        replies = self.publication.replies
        if replies is not None:
            replies.deliver(self.message, publisher.host.counters)
            return ROUTED
        return super().put(publisher)

    def report_outcome(self, outcome: Outcome) -> None:
        """Return the message if no queue accepted it and the publisher requested this."""
        if outcome is not ROUTED and self.channel.is_open():
            return_message(self.channel, self.publication, self.message, outcome)


_INDEPENDENT: Final = INDEPENDENT.encode()
DECODED: Final = SPECIAL & ~REPLIES  # traits of properties that are decoded before routing


def publish_special(
    channel: ChannelState, publication: Publication, message: Message, traits: i64
) -> Outcome:
    """Publish a message that is immediate, routed by more than its key, or has `traits` in SPECIAL.

    In a transaction every message comes here. Unless it is independent, it is held and counts as routed.
    Otherwise this function returns and raises what Publisher.publish does. Raises PreconditionFailed for a
    property that the publisher may not set in this way, and ProtocolError for a property that does not
    decode.
    """
    route = publication.route
    publisher = channel.publisher
    publisher.refresh(route)  # a transaction must not hold a publish that is refused now
    keys: list[str] = []
    view: View091 | None = None
    if traits & REPLIES != 0:
        assert message.content is not None
        message.content = direct_reply.set_reply_to(channel, message.content)
    if traits & DECODED != 0:
        assert message.content is not None
        channel.virtual_host.schedule.allowance.use(PROPERTIES)
        properties = Properties(message.content)
        view = View091(properties)
        if traits & NAMES_USER != 0:
            check_user(channel.connection.rights, properties.text(USER_ID))
        if traits & COPIES != 0:
            headers = view.headers()
            check_copies(headers)
            keys = view.further_keys()
            for key in keys:
                channel.connection.rights.require_topic(WRITE, route.exchange, key)
            if BCC in headers and not route.exchange.delays_message(view):
                message.content = view.public_content()
        if traits & DELAYS != 0 and not publication.immediate:
            mark_delay(message, view, channel.virtual_host.schedule)
        if traits & RECEIPTS != 0:
            mark_receipts(message, view.headers(), channel.connection.rights)
        if traits & EXPIRES != 0:
            message.expiration = parse_expiration(properties.text(EXPIRATION))
    if keys:
        keys = [route.address.routing_key, *keys]
    transaction = channel.transaction
    if transaction is not None:
        if not _is_independent(message):
            transaction.hold_publish(HeldPublish091(channel, publication, message, keys))
            return ROUTED
        outcome = _publish_now(channel, publication, message, keys, view)
        if outcome is REFUSED:
            text = f"independent message: a queue to which key '{route.address.routing_key}' routes is full"
            raise PreconditionFailed(text)
        transaction.note_independent(message)
        return outcome
    return _publish_now(channel, publication, message, keys, view)


def _is_independent(message: Message) -> bool:
    """Whether the transaction does not hold the message. Raises PreconditionFailed, see `is_independent`."""
    content = message.content
    assert content is not None
    position = lookup.header_at(content, _INDEPENDENT)
    return position != lookup.NOWHERE and is_independent(lookup.header_value(content, position))


def _publish_now(
    channel: ChannelState, publication: Publication, message: Message, keys: list[str], view: View091 | None
) -> Outcome:
    """Publish a message that no transaction holds. `keys`: all routing keys; []: the publication's alone."""
    route = publication.route
    publisher = channel.publisher
    if publication.replies is not None:
        publication.replies.deliver(message, channel.server.counters)
        return ROUTED
    if not keys and not route.by_message:
        return publisher.publish_carefully(route, message, channel.session, publication.immediate)
    return _by_message(channel, publication, message, keys, view)


def _by_message(
    channel: ChannelState, publication: Publication, message: Message, keys: list[str], view: View091 | None
) -> Outcome:
    """Publish a message whose route depends on more than the publication."""
    route = publication.route
    if view is None:
        assert message.content is not None
        channel.virtual_host.schedule.allowance.use(PROPERTIES)
        view = View091(Properties(message.content))
    keys = keys or [route.address.routing_key]
    publisher, source = channel.publisher, channel.session
    return publisher.publish_by_message(route, message, keys, view, source, publication.immediate)


def check_user(rights: Rights, name: str) -> None:
    """Check that the user-id is the publisher's own name, unless the publisher is an impersonator.

    Raises PreconditionFailed. [RabbitMQ validated user-id]
    """
    user = rights.user
    if name != user and not rights.may_impersonate():
        raise PreconditionFailed(f"user_id property set to '{name}' but authenticated user was '{user}'")


def check_copies(headers: dict[str, object]) -> None:
    """Check that the headers with further routing keys are lists. [RabbitMQ sender-selected distribution]

    Raises PreconditionFailed.
    """
    for name in (CC, BCC):
        if name in headers and not isinstance(headers[name], list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(headers[name])}}}'
            )
