"""From a message that has arrived to the outcome that its sender is told. [amqp-1.0 3.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.adapters import direct_reply
from broker.adapters.amqp10.destination import is_gone
from broker.adapters.amqp10.ingest import Arrival
from broker.adapters.amqp10.refusing import condition_of
from broker.adapters.amqp10.routes import place
from broker.adapters.amqp10.view import View10
from broker.adapters.receipt091 import mark_receipts
from broker.auth.terms import WRITE
from broker.core.errors import AccessRefused, BrokerError, ExchangeReplaced, NotFound, PreconditionFailed
from broker.core.message import ON_ITS_WAY, Address, Message
from broker.core.publishing.delay import hold_until_due
from broker.core.publishing.passage import BY_MESSAGE, DUPLICATE, REFUSED
from broker.core.routing.graph import Route
from broker.core.schedule import METHOD, PROPERTIES
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import AddressError, node_of
from protocol.amqp10.conditions import (
    INVALID_FIELD,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.outcomes import ACCEPTED_VALUE, RELEASED_VALUE
from protocol.amqp10.properties import SUBJECT, TO, read_text, read_user_id
from protocol.conversion.names import X_CC

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink
    from broker.adapters.amqp10.transactions import Transaction10
    from broker.adapters.direct_reply import ReplyConsumer

_RELEASED: Final = "amqp:released:list"


def publish(link: IncomingLink, arrived: Arrival, delivery_id: i64, settled: bool) -> None:
    """Take the message of a delivery, and owe its sender the outcome. Raises PeerError to end the link."""
    message: Message | None = None
    try:
        route = _route(link, arrived)
        message = _message(route, arrived)
        taken = _publish(link, route, message, arrived)
        if taken == BY_MESSAGE:  # its route was found wanting, and will be another one now
            taken = _publish(link, route, message, arrived)
    except ExchangeReplaced:
        link.session.peer.routes.forget()
        publish(link, arrived, delivery_id, settled)
        return
    except AddressError as fault:
        _note_refusal(link, arrived, message, NotFound(str(fault)))
        _refuse(link, delivery_id, settled, INVALID_FIELD, str(fault))
        return
    except BrokerError as error:
        _note_refusal(link, arrived, message, error)
        _refuse(link, delivery_id, settled, condition_of(error), error.text)
        return
    if taken > 0 or taken == DUPLICATE:
        if not settled:
            logged = message.sequence != 0 or message.marks & ON_ITS_WAY != 0
            link.owe(delivery_id, ACCEPTED_VALUE, logged)
    elif taken == REFUSED:
        if not settled:
            text = f"a queue that '{route.address.routing_key}' leads to is full"
            link.refuse(delivery_id, False, RESOURCE_LIMIT_EXCEEDED, text)
    else:
        _unroutable(link, route, delivery_id, settled)


def _note_refusal(link: IncomingLink, arrived: Arrival, message: Message | None, error: BrokerError) -> None:
    """Have the journal know of a message that is refused. Without a `message` no route was found."""
    journal = link.session.vhost.journal
    if journal.on:
        if message is None:
            address = Address(link.exchange or "", link.key or "")
            message = Message(address, arrived.content, arrived.size, arrived.durable, 0)
        journal.refused_by(link.session, message, error)


def _message(route: Route, arrived: Arrival) -> Message:
    priority = 0 if arrived.priority == NONE else arrived.priority
    message = Message(route.address, arrived.content, arrived.size, arrived.durable, priority)
    if arrived.body is not None:
        message.body = arrived.body
    return message


def _route(link: IncomingLink, arrived: Arrival) -> Route:
    """Where the message goes. Raises AddressError, and what Routes.find raises."""
    exchange, key = link.exchange, link.key
    routes = link.session.peer.routes
    layout = arrived.layout
    if exchange is None:
        to = None
        if layout.properties != NONE:
            to = read_text(arrived.data, layout.properties, layout.properties_end, TO)
        node = node_of(to)
        if node.kind in (addresses.ANONYMOUS, addresses.MANAGEMENT):
            raise AddressError(f"a message to '{to or ''}', which is no place for one")
        exchange, key, _ = place(link.session, node, ())
    if key is None:
        key = ""
        if layout.properties != NONE:
            key = read_text(arrived.data, layout.properties, layout.properties_end, SUBJECT) or ""
    return routes.find(exchange, key)


def _publish(link: IncomingLink, route: Route, message: Message, arrived: Arrival) -> i64:
    """Put the message where it goes; returns what VirtualHost.publish does, and raises what that raises."""
    virtual_host = link.session.vhost
    virtual_host.journal.publisher = link.session
    layout = arrived.layout
    transaction = link.transaction
    if layout.properties != NONE:
        user = read_user_id(arrived.data, layout.properties, layout.properties_end)
        if user is not None:
            _check_user(link, user)
    if not route.queues:
        replies = direct_reply.answers(link.session.peer.server, virtual_host, route.address)
        if replies is not None:
            return _reply(link, replies, route, message)
    if not arrived.heeded and arrived.ttl == NONE and not route.by_message and transaction is None:
        return virtual_host.publish(route, message)
    virtual_host.schedule.allowance.use(PROPERTIES)
    view = View10(arrived.content)
    rights = link.session.peer.rights
    keys: list[str] = []
    if arrived.ttl != NONE:
        message.expiration = arrived.ttl
    if arrived.heeded:
        _check_copies(view)
        keys = view.further_keys()
        for key in keys:
            rights.require_topic(WRITE, route.exchange, key)
        hold_until_due(message, view, virtual_host.schedule)
        mark_receipts(message, view.headers(), rights)
    if keys:
        keys = [route.address.routing_key, *keys]
    if transaction is not None:
        return _post(link, transaction, route, message, keys)
    if not keys and not route.by_message:
        return virtual_host.publish_carefully(route, message)
    return virtual_host.publish_by_message(route, message, keys or [route.address.routing_key], view)


def _post(
    link: IncomingLink, transaction: Transaction10, route: Route, message: Message, keys: list[str]
) -> i64:
    """Hold a message until its transaction is discharged; what goes nowhere is told at once."""
    if route.epoch != link.session.vhost.epoch:
        link.session.vhost.refresh(route)
    if not route.queues and not keys and not route.by_message:
        if link.session.vhost.journal.on:
            link.session.vhost.journal.unroutable(message)
        return 0
    transaction.post(route, message, keys)
    return 1


def _reply(link: IncomingLink, replies: ReplyConsumer, route: Route, message: Message) -> i64:
    """Send a direct reply to a requester of AMQP 0-9-1, in a transaction with its commit; counts as taken."""
    if link.transaction is not None:
        link.transaction.post(route, message, [], replies)
        return 1
    return replies.deliver(message, link.session.peer.server.counters)


def _check_user(link: IncomingLink, name: bytes) -> None:
    """A sender names itself or nobody, unless it is an impersonator. Raises AccessRefused."""
    connection = link.session.peer
    if name != connection.user.encode() and not connection.rights.may_impersonate():
        shown = name[:64].decode(errors="replace")
        raise AccessRefused(f"user-id is '{shown}' but the authenticated user is '{connection.user}'")


def _check_copies(view: View10) -> None:
    """The annotation that adds routing keys is a list of strings. Raises PreconditionFailed."""
    name = X_CC.decode()
    copies = view.headers().get(name)
    if copies is None:
        return
    if not isinstance(copies, list) or not all(isinstance(copy, str) for copy in copies):
        raise PreconditionFailed(f"annotation '{name}' is no list of strings")


def _unroutable(link: IncomingLink, route: Route, delivery_id: i64, settled: bool) -> None:
    """No queue is where the message goes. [amqp-1.0 3.4.4; anonymous terminus 2.2.2]"""
    if is_gone(link.destination):
        return
    if link.exchange is None:
        address = route.address
        text = f"no queue takes messages to exchange '{address.exchange}' with key '{address.routing_key}'"
        _refuse(link, delivery_id, settled, NOT_FOUND, text)
    elif not settled:
        if link.understands(_RELEASED):
            link.owe(delivery_id, RELEASED_VALUE, False)
        else:
            link.detach(NOT_FOUND, f"no queue takes messages with key '{route.address.routing_key}'")


def _refuse(link: IncomingLink, delivery_id: i64, settled: bool, condition: str, text: str) -> None:
    """The message cannot be taken. A link whose target is gone ends."""
    link.session.vhost.schedule.allowance.use(METHOD)
    link.session.peer.server.counters.refused += 1
    if is_gone(link.destination):
        return
    if link.exchange is not None and condition == NOT_FOUND:
        link.detach(condition, text)
    else:
        link.refuse(delivery_id, settled, condition, text)
