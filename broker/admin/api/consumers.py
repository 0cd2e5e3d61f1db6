"""Consumers, and their JSON form."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp10.target import Target10
from broker.admin.api.connections import channel_details, session_details
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Name, Visitor
from broker.admin.shapes import BROWSER, STATES, Shown
from broker.core.arguments.consumer import ALSO_CONSUME
from broker.core.delivery.session import PullingTarget
from broker.core.entries.entry import Holder
from broker.core.queues.consumer import (
    BLOCKED_BY_GATE,
    BLOCKED_BY_GROUPS,
    BLOCKED_BY_MEMBERS,
    BLOCKED_BY_PURGE,
    BLOCKED_BY_RETURNS,
    BLOCKED_BY_SIZE,
    BLOCKED_BY_STANDBY,
    BLOCKED_BY_STOP,
    BLOCKED_BY_TARGET,
    ConsumerTarget,
    QueueConsumer,
)
from broker.core.queues.election import activity_of, is_served
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import consumers_of
from broker.core.values import to_json
from broker.core.vhosts.vhost import VirtualHost
from broker.dispatch.dispatcher import DispatchTarget

router = APIRouter(tags=["consumers"])


def show_consumer(consumer: QueueConsumer, node: str) -> Shown:
    """Show a consumer. A consumer of a partitioned queue has the deliveries of its parts.

    `consumer_timeout` is the time limit for settling a message, in milliseconds; 0: none.
    """
    queue, target = consumer.queue, consumer.target
    window: int = 0
    if isinstance(target, DispatchTarget):
        window = target.dispatcher.messages_max
    elif isinstance(target, Target10):
        window = target.link.credit.left
    elif isinstance(target, PullingTarget):
        window = target.credit.count_max
    arguments: Shown = {}
    if isinstance(target, Target091 | Target10):
        arguments = {name: to_json(value) for name, value in target.arguments.items()}
    elif isinstance(target, DispatchTarget):
        arguments = {"dispatcher": target.dispatcher.definition.name}
    if ALSO_CONSUME in arguments:  # the further queues, as they are now
        others = [each for each in target.consumers if each.front is None and each is not consumer]
        arguments[ALSO_CONSUME] = [each.queue.name for each in others]
    details = _details(target)
    return {
        "queue": {"name": queue.name, "vhost": queue.vhost},
        "consumer_tag": consumer.tag,
        "channel_details": {"node": node} | details if details else {},
        "ack_required": not consumer.no_ack,
        "prefetch_count": window,
        "exclusive": consumer.exclusive,
        "active": is_served(consumer),
        "activity_status": activity_of(consumer),
        **_pull_fields(consumer),
        "messages_unacknowledged": sum(int(each.inflight) for each in consumer.parts or [consumer]),
        "messages_delivered": sum(int(each.delivered) for each in consumer.parts or [consumer]),
        "user_who_performed_action": details.get("user", ""),
        "consumer_timeout": 0 if consumer.lease is None else int(consumer.lease.milliseconds),
        "arguments": arguments,
    }


BLOCKERS: Final = {
    BLOCKED_BY_TARGET: "no credit, or the client does not read",
    BLOCKED_BY_SIZE: "the next message is larger than the rest of the byte window",
    BLOCKED_BY_STANDBY: "another consumer is served alone",
    BLOCKED_BY_STOP: "dequeue is stopped",
    BLOCKED_BY_GATE: "the queue waits for more consumers",
    BLOCKED_BY_PURGE: "the queue is being purged",
    BLOCKED_BY_GROUPS: "the owners of the message groups are being determined",
    BLOCKED_BY_RETURNS: "an earlier message may be about to be requeued",
    BLOCKED_BY_MEMBERS: "consumers of the members get the messages",
}


def _pull_fields(consumer: QueueConsumer) -> Shown:
    """Return the state of a consumer in the pull model, and why it may take no message. [amqpd]"""
    blockers = int(consumer.blockers)
    state = STATES.get(int(consumer.state), "removed") if consumer.acquires else BROWSER
    return {
        "state": state,
        "blocked_by": [reason for bit, reason in BLOCKERS.items() if blockers & bit],
        "priority": int(consumer.priority),
        "selector": "" if consumer.filter is None else consumer.filter.selector,
    }


def show_holder(holder: Holder) -> Shown:
    """Show the holder of a message: a consumer or basic.get, or a reader or operation without a channel."""
    details = _details(holder.target) if isinstance(holder, QueueConsumer) else {}
    return {"consumer_tag": holder.tag, "channel_details": details}


def _user(consumer: QueueConsumer) -> str:
    user = _details(consumer.target).get("user", "")
    return str(user)


def _details(target: ConsumerTarget) -> Shown:
    """Return the channel or session of a consumer; empty for a consumer without a client."""
    if isinstance(target, Target091):
        return channel_details(target.channel)
    return session_details(target.link.session) if isinstance(target, Target10) else {}


def _with_followers(queue: Queue) -> list[QueueConsumer]:
    """Return the consumers of a queue, and its followers over HTTP, which count as no consumers."""
    return [*consumers_of(queue), *(each for each in queue.manager.gets if not each.acquires)]


def show_consumers(queue: Queue, node: str) -> list[Shown]:
    """Show all consumers of a queue."""
    return [show_consumer(consumer, node) for consumer in _with_followers(queue)]


async def _list(
    management: Management, vhosts: list[VirtualHost], visitor: Visitor, options: Options
) -> Response:
    consumers = [
        consumer
        for vhost in vhosts
        for queue in vhost.topology.queues.values()
        if queue.consumer_count or queue.manager.gets
        for consumer in _with_followers(queue)
        if consumer.front is None  # else its consumer of the partitioned queue is in the list
        if visitor.monitors or _user(consumer) == visitor.name
    ]
    return await answer_with_list(
        consumers,
        lambda consumer: show_consumer(consumer, management.node),
        options,
        lambda consumer: (consumer.queue.vhost, consumer.queue.name, consumer.tag),
        lambda consumer: consumer.tag,
    )


@router.get("/consumers")
async def list_consumers(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return the consumers in all virtual hosts.

    A user without the tag `monitoring` or `administrator` sees only their own.
    """
    return await _list(management, visitor.vhosts(), visitor, options)


@router.get("/consumers/{vhost}")
async def list_consumers_in(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the consumers in a virtual host."""
    return await _list(management, [visitor.vhost(vhost)], visitor, options)
