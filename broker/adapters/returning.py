"""Messages that no queue took and whose publisher wants them back then. [amqp-0-9-1 1.8.3.8]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.adapters.publication import Publication
from broker.adapters.target091 import write_message
from broker.core.message import Message
from broker.core.publishing import NOT_NOW
from protocol.amqp091 import methods
from protocol.errors import NO_CONSUMERS, NO_ROUTE, REPLY_NAMES

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel


def not_taken(channel: Channel, publication: Publication, message: Message, taken: i64) -> None:
    """Give a message back if it was published so; `taken` is what VirtualHost.publish has returned."""
    if publication.mandatory and taken != NOT_NOW:
        code = NO_ROUTE
    elif publication.immediate:
        code = NO_CONSUMERS
    else:
        return
    assert message.content is not None
    channel.server.counters.returned += 1
    out = channel.connection.out
    out.write(methods.basic_return(channel.number, code, REPLY_NAMES[code], message.address.encoded))
    write_message(channel, message, message.content)
