"""What the arguments of a basic.publish mean, resolved once. [amqp-0-9-1 1.8.3.7]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE, Rights
from broker.auth.terms import WRITE
from broker.core.message import Address
from broker.core.routing.graph import Route
from protocol.amqp091.constants import BASIC_PUBLISH
from protocol.errors import SYNTAX_ERROR, ProtocolError

if TYPE_CHECKING:
    from broker.adapters.direct_reply import ReplyConsumer
    from broker.core.vhosts.vhost import VirtualHost

REMEMBERED_MAX: Final = 4096  # per channel; then all are forgotten, which costs one look-up each


@final
class Publication:
    """A route with the two bits of basic.publish. `special`: it needs more than the hot path looks at.

    `replies`: who waits for a direct reply, if that is what this is.
    """

    def __init__(self, route: Route, mandatory: bool, immediate: bool) -> None:
        self.route = route
        self.mandatory = mandatory
        self.immediate = immediate
        self.replies: ReplyConsumer | None = None
        self.special = immediate or route.by_message


def resolve(rights: Rights, virtual_host: VirtualHost, arguments: bytes) -> Publication:
    """Decode basic.publish's arguments (without class and method id) and find the route.

    What the user may do is asked here, once for the route and not for each message.
    Raises ProtocolError(SYNTAX_ERROR), what VirtualHost.route raises, and AccessRefused.
    """
    exchange, p = _short_string(arguments, 2)
    routing_key, p = _short_string(arguments, p)
    if p + 1 != len(arguments):
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", BASIC_PUBLISH)
    bits = arguments[p]
    rights.require(WRITE, EXCHANGE, exchange)
    route = virtual_host.route(exchange, routing_key)
    rights.require_topic(WRITE, route.exchange, routing_key)
    route.pinned = True
    return Publication(route, bits & 1 != 0, bits & 2 != 0)


def address_of(arguments: bytes) -> Address:
    """Return the exchange and the routing key in basic.publish's arguments, which are whole."""
    exchange, p = _short_string(arguments, 2)
    return Address(exchange, _short_string(arguments, p)[0])


def _short_string(data: bytes, p: i64) -> tuple[str, i64]:
    """The short string at `p` and the offset behind it."""
    end: i64 = p + 1 + data[p] if p < len(data) else -1
    if end < 0 or end > len(data):
        raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", BASIC_PUBLISH)
    try:
        return data[p + 1 : end].decode(), end
    except UnicodeDecodeError as e:
        raise ProtocolError(SYNTAX_ERROR, "a name in Basic.Publish is not UTF-8", BASIC_PUBLISH) from e
