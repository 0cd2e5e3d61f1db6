"""Direct reply-to: the names of requesters, and the receivers behind the names. [RabbitMQ direct reply-to]

A requester of AMQP 0-9-1 or 1.0 gets a name that nobody can guess. Publishers of either protocol send replies
to the name through the default exchange. A name lives as long as its requester, and is good in its virtual
host only. The name of a requester of AMQP 1.0 is the name of a queue, and needs no `ReplyReceiver`.
"""

from __future__ import annotations

from typing import Final

from broker.adapters.peers.server import ReplyReceiver, Server
from broker.core.message import Address
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091 import methods
from protocol.amqp091.content import DIRECT_REPLY_TO

PREFIX: Final = DIRECT_REPLY_TO + "."


def receiver_at_address(server: Server, virtual_host: VirtualHost, address: Address) -> ReplyReceiver | None:
    """Return the reply consumer that an address of no queue leads to, None if it leads to none."""
    return None if address.exchange else receiver_named(server, virtual_host, address.routing_key)


def receiver_named(server: Server, virtual_host: VirtualHost, name: str) -> ReplyReceiver | None:
    """Return the reply consumer of AMQP 0-9-1 with this name, None if there is none."""
    if not name.startswith(PREFIX):
        return None
    return server.replies.get((virtual_host, methods.short_string(name)))
