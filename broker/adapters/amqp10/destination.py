"""The one queue or exchange that a link's messages are for: the link ends with it. [amqp-1.0 2.8.15]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.core.names import DEFAULT_EXCHANGE
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.vhosts.deletion import Dependent
from protocol.amqp10.conditions import RESOURCE_DELETED

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink


@final
class Destination(Dependent):
    """That of a link from when it is attached until it ends."""

    def __init__(self, link: IncomingLink, node: Queue | Exchange) -> None:
        super().__init__(node)
        self._link = link
        link.session.vhost.dependents.add(self)

    def left(self) -> None:
        """The link has ended."""
        self._link.session.vhost.dependents.remove(self)

    def node_deleted(self) -> None:
        """End the link, behind the answers that its sender waits for (Dependent)."""
        link, node = self._link, self.node
        what = "queue" if isinstance(node, Queue) else "exchange"
        text = f"{what} '{node.name}' in vhost '{link.session.vhost.name}' is gone"
        link.session.owed.answers.detach(link, RESOURCE_DELETED, text)
        link.session.peer.schedule()


def destination_of(link: IncomingLink) -> Destination | None:
    """Return what a new link depends on; None if each message says where it goes, or is a direct reply."""
    exchange, key, vhost = link.exchange, link.key, link.session.vhost
    if exchange is None:
        return None
    if exchange == DEFAULT_EXCHANGE and key is not None:
        queue = vhost.queues.get(key)
        return None if queue is None else Destination(link, queue)
    return Destination(link, vhost.exchanges[exchange])


def is_gone(destination: Destination | None) -> bool:
    """Whether a link is about to be detached because of that; what comes on it is dropped meanwhile."""
    return destination is not None and destination.node.deleted
