"""Effects before they happen: where a message would go, what a policy would match. [amqpd]"""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from broker.adapters.access import EXCHANGE
from broker.adapters.amqp091.publish import check_copies
from broker.adapters.formats.amqp091 import View091
from broker.admin.api.answers import JSONResponse, bad_request
from broker.admin.api.exchanges import find_exchange
from broker.admin.api.management import Managed
from broker.admin.api.publish import encode_message, read_properties
from broker.admin.api.requests import Asker, Body, ExchangeName, Name
from broker.admin.api.slices import Slices
from broker.admin.json_documents import read_table, read_text
from broker.admin.shapes import Shown
from broker.auth.terms import WRITE
from broker.core.message import Address, Message
from broker.core.partitions.partitioned import partitions_of
from broker.core.policies.policy import ALL, APPLY_TO, Policy, queue_type_of
from broker.core.publishing.delay import due_date
from broker.core.queues.queue import Queue
from broker.core.queues.stops import ENQUEUE, stopped
from broker.core.values import to_json
from protocol.amqp091.content import PERSISTENT, PRIORITY_SHIFT, header_frame_bytes, scan
from protocol.amqp091.properties import Properties
from protocol.errors import ProtocolError

SHOWN_MAX: Final = 100
"""Names of queues and exchanges in an answer about a pattern."""

router = APIRouter(tags=["previews"])


@router.post("/exchanges/{vhost}/{name}/route")
async def preview_route(
    management: Managed, visitor: Asker, vhost: Name, name: ExchangeName, body: Body
) -> JSONResponse:
    """Return the queues that a message with this `routing_key` and these `properties` would go to.

    Nothing is published. The routing keys of the headers CC and BCC count too. `delay_ms` is the time for
    which an exchange or the queues would delay the message.
    """
    virtual_host = visitor.vhost(vhost)
    exchange = find_exchange(virtual_host, name)
    rights = visitor.rights(virtual_host)
    rights.require(WRITE, EXCHANGE, name)
    key = read_text(body, "routing_key")
    rights.require_topic(WRITE, exchange, key)
    try:
        properties = read_properties(read_table(body, "properties"))
        content = encode_message(properties, b"", management.server.frame_max)
        traits = scan(content, 0, header_frame_bytes(content) - 8)
    except ProtocolError as error:
        raise bad_request(error.text) from error
    message = Message(Address(name, key), content, 0, traits & PERSISTENT != 0, traits >> PRIORITY_SHIFT)
    publisher = virtual_host.publisher
    view = View091(Properties(content))
    check_copies(view.headers())
    further = view.further_keys()
    for each in further:
        rights.require_topic(WRITE, exchange, each)
    resolution = publisher.resolve(publisher.route(name, key), message, [key, *further], view)
    queues, schedule = resolution.queues, virtual_host.schedule
    date = int(message.date) or int(due_date(view, schedule))
    delay = max(0, int(schedule.due_at(date)) - int(schedule.now())) if date else 0
    return JSONResponse(
        {"routed": bool(queues), "queues": [_destination(queue) for queue in queues], "delay_ms": delay}
    )


def _destination(queue: Queue) -> Shown:
    """Show a queue that a message would go to."""
    return {
        "name": to_json(queue.name),
        "vhost": queue.vhost,
        "type": queue_type_of(queue.arguments),
        "is_partitioned": partitions_of(queue) is not None,
        "is_stopped": ENQUEUE in stopped(queue),
    }


@router.get("/policy-matches/{vhost}")
async def preview_policy(
    visitor: Asker,
    vhost: Name,
    pattern: Annotated[str, Query(description="Regular expression of the policy.")],
    apply_to: Annotated[str, Query(alias="apply-to", description="The objects that it applies to.")] = ALL,
) -> JSONResponse:
    """Return how many queues and exchanges a policy with this pattern would match, and the first names."""
    virtual_host = visitor.vhost(vhost)
    if apply_to not in APPLY_TO:
        raise bad_request(f"apply-to '{apply_to}' is none of: {', '.join(APPLY_TO)}")
    policy = Policy("preview", pattern, {}, 0, apply_to, False)
    if policy.objection:
        raise bad_request(f"pattern '{pattern}' {policy.objection}")
    slices = Slices()
    queues: list[object] = []
    exchanges: list[object] = []
    queue_count = exchange_count = 0
    for queue in list(virtual_host.topology.queues.values()):
        if policy.applies_to_queue(queue.name, queue_type_of(queue.arguments)):
            queue_count += 1
            if len(queues) < SHOWN_MAX:
                queues.append(to_json(queue.name))
        await slices.breathe()
    for exchange in list(virtual_host.topology.exchanges.values()):
        if exchange.name and policy.applies_to_exchange(exchange.name):
            exchange_count += 1
            if len(exchanges) < SHOWN_MAX:
                exchanges.append(to_json(exchange.name))
        await slices.breathe()
    return JSONResponse(
        {
            "queues": queues,
            "queue_count": queue_count,
            "exchanges": exchanges,
            "exchange_count": exchange_count,
        }
    )
