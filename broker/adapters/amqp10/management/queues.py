"""`/queues/:queue`: declare, show, purge and delete. [RabbitMQ rabbit_amqp_management]"""

from __future__ import annotations

from typing import Final, final

from broker.adapters import direct_reply, topology
from broker.adapters.access import QUEUE
from broker.adapters.amqp10.management.asking import Answer, Asking
from broker.adapters.amqp10.management.bodies import arguments, fields_of, flag, shown_arguments
from broker.adapters.amqp10.management.refusal import BAD_REQUEST, CREATED, OK, Refused
from broker.adapters.server import PRODUCT
from broker.core.errors import NotFound
from broker.core.policies.policy import type_of
from broker.core.queues.limits import touch
from broker.core.queues.purge import Purge, PurgeWaiter
from broker.core.queues.queue import Queue
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Uint, Ulong

PROPERTIES: Final = ("durable", "exclusive", "auto_delete", "arguments")
STRING8: Final = 0xA1


def check_name(name: str) -> None:
    """Refuse a name for something new that would be two lines. Raises Refused. [RabbitMQ]"""
    if "\n" in name or "\r" in name:
        raise Refused(BAD_REQUEST, f"Bad name '{name}': line feed and carriage return characters not allowed")


def declare(asking: Asking) -> Answer:
    """Make a queue, or find it as described; by default it is durable. Raises Refused, BrokerError."""
    fields = fields_of(asking.request.body, "queue", PROPERTIES)
    name = asking.target.name()
    if not name:
        raise Refused(BAD_REQUEST, "declare queue with empty name not allowed")
    check_name(name)
    is_new = name not in asking.virtual_host.queues
    queue = topology.declare_queue(
        asking.client,
        asking.virtual_host,
        name,
        flag(fields, "durable", True),
        flag(fields, "exclusive", False),
        flag(fields, "auto_delete", False),
        arguments(fields),
    )
    return Answer(CREATED if is_new else OK, [encode(_shown(asking, queue))], queue.durable)


def show(asking: Asking) -> Answer:
    """A queue as it is now, also one that is exclusive to another. Raises Refused, BrokerError."""
    name = asking.target.name()
    asking.client.rights.require_any(QUEUE, name)
    queue = asking.virtual_host.queues.get(name)
    if queue is None:
        if direct_reply.find(asking.client.server, asking.virtual_host, name) is not None:
            return Answer(OK, [encode(_requester(asking, name))])
        raise NotFound(f"queue '{name}' in vhost '{asking.virtual_host.name}' not found")
    touch(queue)
    return Answer(OK, [encode(_shown(asking, queue))])


def delete(asking: Asking) -> Answer:
    """Delete a queue; one that is absent is deleted already. Raises Refused, BrokerError."""
    count, durable = topology.delete_queue(asking.client, asking.virtual_host, asking.target.name())
    return Answer(OK, _counted(count), durable)


def purge(asking: Asking) -> Answer | None:
    """Drop the ready messages; the answer comes when they are gone. Raises Refused, BrokerError."""
    under_way = topology.purge_queue(asking.client, asking.virtual_host, asking.target.name())
    if under_way.over:
        return _purged(under_way)
    under_way.tell(_PurgeAnswer(asking))
    return None


@final
class _PurgeAnswer(PurgeWaiter):
    """The answer to a purge that takes several turns."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def on_purged(self, done: Purge) -> None:
        """Give the answer (PurgeWaiter)."""
        self._asking.give(_purged(done))


def _purged(done: Purge) -> Answer:
    return Answer(OK, _counted(int(done.dropped)), done.queue.logged)


def _counted(messages: int) -> list[bytes]:
    return [encode({"message_count": Ulong(messages)})]


def _requester(asking: Asking, name: str) -> dict[object, object]:
    """A requester of AMQP 0-9-1 that waits for direct replies, shown as RabbitMQ shows its pseudo-queue."""
    return {
        "message_count": Ulong(0),
        "consumer_count": Uint(1),
        "name": name,
        "vhost": asking.virtual_host.name,
        "durable": False,
        "auto_delete": True,
        "exclusive": True,
        "type": "rabbit_volatile_queue",
        "arguments": {},
        "leader": PRODUCT,
        "replicas": Array(STRING8, [PRODUCT]),
    }


def _shown(asking: Asking, queue: Queue) -> dict[object, object]:
    """A queue under RabbitMQ's names. There is one node, and it is called as in the broker's open."""
    node = str(asking.client.server.properties["product"])
    return {
        "message_count": Ulong(int(queue.ready)),
        "consumer_count": Uint(queue.consumer_count),
        "name": queue.name,
        "vhost": queue.vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner is not None,
        "type": type_of(queue.arguments),
        "arguments": shown_arguments(queue.arguments),
        "leader": node,
        "replicas": Array(STRING8, [node]),
    }
