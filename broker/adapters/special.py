"""Publishes of which more has to be known than the hot path looks at: their headers or other properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.adapters import direct_reply
from broker.adapters.expiration import parse_expiration
from broker.adapters.receipt091 import mark_receipts
from broker.adapters.view091 import BCC, CC, View091
from broker.auth.terms import WRITE
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.publishing.delay import hold_until_due
from broker.core.schedule import PROPERTIES
from broker.core.values import type_name
from protocol.amqp091.content import COPIES, DELAYS, EXPIRES, NAMES_USER, RECEIPTS, REPLIES, SPECIAL
from protocol.amqp091.properties import EXPIRATION, USER_ID, Properties

if TYPE_CHECKING:
    from broker.adapters.access import Rights
    from broker.adapters.channel091 import Channel
    from broker.adapters.publication import Publication

DECODED: Final = SPECIAL & ~REPLIES  # traits of properties that have to be decoded


def publish_special(channel: Channel, publication: Publication, message: Message, traits: i64) -> i64:
    """Publish a message that is immediate, routed by more than its key, or whose `traits` are SPECIAL.

    In a transaction every message comes here, is held, and counts as taken. Otherwise this returns what
    VirtualHost.publish does, and raises what that raises; PreconditionFailed for a property that the
    publisher may not set so; ProtocolError for one that does not decode.
    """
    route = publication.route
    if route.epoch != channel.virtual_host.epoch:  # a transaction must not hold what is refused now
        channel.virtual_host.refresh(route)
    keys: list[str] = []
    view: View091 | None = None
    if traits & REPLIES != 0:
        assert message.content is not None
        message.content = direct_reply.addressed(channel, message.content)
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
            if BCC in headers and not route.exchange.holds(view):
                message.content = view.public_content()
        if traits & DELAYS != 0 and not publication.immediate:
            hold_until_due(message, view, channel.virtual_host.schedule)
        if traits & RECEIPTS != 0:
            mark_receipts(message, view.headers(), channel.connection.rights)
        if traits & EXPIRES != 0:
            message.expiration = parse_expiration(properties.text(EXPIRATION))
    if keys:
        keys = [route.address.routing_key, *keys]
    if channel.transaction is not None:
        return channel.transaction.publish(publication, message, keys)
    if publication.replies is not None:
        return publication.replies.deliver(message, channel.server.counters)
    if not keys and not route.by_message:
        return channel.virtual_host.publish_carefully(route, message, publication.immediate)
    return _by_message(channel, publication, message, keys, view)


def _by_message(
    channel: Channel, publication: Publication, message: Message, keys: list[str], view: View091 | None
) -> i64:
    """Publish a message whose route depends on more than the publication."""
    route = publication.route
    if view is None:
        assert message.content is not None
        channel.virtual_host.schedule.allowance.use(PROPERTIES)
        view = View091(Properties(message.content))
    keys = keys or [route.address.routing_key]
    return channel.virtual_host.publish_by_message(route, message, keys, view, publication.immediate)


def check_user(rights: Rights, name: str) -> None:
    """A publisher names itself or nobody, unless it is an impersonator. [RabbitMQ validated user-id]

    Raises PreconditionFailed.
    """
    user = rights.user
    if name != user and not rights.may_impersonate():
        raise PreconditionFailed(f"user_id property set to '{name}' but authenticated user was '{user}'")


def check_copies(headers: dict[str, object]) -> None:
    """The headers that add routing keys are lists. [RabbitMQ sender-selected distribution]

    Raises PreconditionFailed.
    """
    for name in (CC, BCC):
        if name in headers and not isinstance(headers[name], list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(headers[name])}}}'
            )
