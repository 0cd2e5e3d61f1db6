"""`/exchanges/:exchange`: declare and delete. [RabbitMQ rabbit_amqp_management]"""

from __future__ import annotations

from typing import Final

from broker.adapters import topology
from broker.adapters.amqp10.management.asking import Answer, Asking, no_content
from broker.adapters.amqp10.management.bodies import arguments, fields_of, flag, text
from broker.adapters.amqp10.management.queues import check_name
from broker.core.routing.exchanges import DIRECT

PROPERTIES: Final = ("type", "durable", "auto_delete", "internal", "arguments")


def declare(asking: Asking) -> Answer:
    """Make an exchange, or find it; by default direct and durable. Raises Refused, BrokerError."""
    fields = fields_of(asking.request.body, "exchange", PROPERTIES)
    name = asking.target.name()
    check_name(name)
    exchange = topology.declare_exchange(
        asking.client,
        asking.virtual_host,
        name,
        text(fields, "type", DIRECT),
        flag(fields, "durable", True),
        flag(fields, "auto_delete", False),
        flag(fields, "internal", False),
        arguments(fields),
    )
    return no_content(exchange.durable)


def delete(asking: Asking) -> Answer:
    """Delete an exchange; one that is absent is deleted already. Raises Refused, BrokerError."""
    durable = topology.delete_exchange(asking.client, asking.virtual_host, asking.target.name())
    return no_content(durable)
