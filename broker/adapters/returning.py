"""Messages that were not taken, and how their publishers learn it. [amqp-0-9-1 1.8.3.8]"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.adapters.publication import Publication
from broker.adapters.target091 import write_message
from broker.core.errors import BrokerError, QueueStopped, StoreFailed
from broker.core.message import Message
from broker.core.publishing.passage import DUPLICATE, NOT_NOW
from broker.core.schedule import PROPERTIES
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.errors import NO_CONSUMERS, NO_ROUTE, PRECONDITION_FAILED, REPLY_NAMES

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel


def not_taken(channel: Channel, publication: Publication, message: Message, taken: i64) -> None:
    """Give a message back if it was published so; `taken` is what VirtualHost.publish has returned."""
    if taken == DUPLICATE:
        if publication.mandatory:
            _give_back(channel, message, PRECONDITION_FAILED, "DUPLICATE")
        return
    if publication.mandatory and taken != NOT_NOW:
        code = NO_ROUTE
    elif publication.immediate:
        code = NO_CONSUMERS
    else:
        return
    _give_back(channel, message, code, REPLY_NAMES[code])


def refuse_publish(channel: Channel, publication: Publication, message: Message, error: BrokerError) -> None:
    """Tell the publisher of a message that cannot be kept, and that nobody has got.

    It is nacked to who wants confirms and, if a stopped queue was in its way, given back to who asked for
    that. Who wants neither loses the channel over it.
    """
    if channel.virtual_host.journal.on:
        channel.virtual_host.journal.refused_by(channel.session, message, error)
    confirms = channel.confirms
    if isinstance(error, QueueStopped):
        wanted = publication.mandatory or publication.immediate
        if wanted:
            text = f"{REPLY_NAMES[PRECONDITION_FAILED]} - {error.text}"
            _give_back(channel, message, PRECONDITION_FAILED, text)
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


def _give_back(channel: Channel, message: Message, code: int, text: str) -> None:
    assert message.content is not None
    channel.server.counters.returned += 1
    channel.virtual_host.schedule.allowance.use(PROPERTIES)
    out = channel.connection.out
    out.write(methods.basic_return(channel.number, code, text, message.address.encoded))
    write_message(channel, message, message.content, message.content)
