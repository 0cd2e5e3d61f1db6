"""Queues that peers make by attaching links to them, or by sending messages to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.adapters import topology
from broker.core.queues.queue import Queue
from broker.core.schedule import METHOD
from protocol.amqp10.addresses import CREATED_ALWAYS, CREATED_NEVER, Node

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10

TOPIC_CAPABILITY: Final = "topic"  # of a terminus: it is no queue


def may_create(session: Session10, node: Node, capabilities: tuple[str, ...]) -> bool:
    """Return whether the queue that a terminus names, and that is not there, is one that links make."""
    if node.creation == CREATED_NEVER or TOPIC_CAPABILITY in capabilities:
        return False
    virtual_host = session.vhost
    virtual_host.schedule.allowance.use(METHOD)
    always = node.creation == CREATED_ALWAYS
    return session.peer.server.auto_creation.allows(virtual_host, node.name, always)


def create_queue(session: Session10, node: Node) -> Queue:
    """Make the queue that a terminus names, after `may_create` has allowed it.

    The queue is durable, shared, and of the virtual host's default type. Policies apply to it.

    Raises:
        AccessRefused: the user may not configure a queue of this name.
        LimitReached: the virtual host has as many queues as it may have.
        StoreFailed: the log has stopped.
    """
    return topology.declare_queue(session.peer, session.vhost, node.name, True, False, False, {})
