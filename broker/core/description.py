"""Everything durable of a virtual host, object by object, while it goes on changing."""

from __future__ import annotations

from collections.abc import Iterator

from broker.core.definitions import Change, binding_change, exchange_change, queue_change
from broker.core.exchange import Exchange
from broker.core.names import DEFAULT_EXCHANGE, is_predeclared
from broker.core.topology import Topology


def described(topology: Topology) -> Iterator[list[Change]]:
    """The declarations that make everything durable again, in an order that works: a list for each object.

    The list is empty if there is nothing to say of an object, so that all of them take a short time. Between
    two of them anything may happen: an object is described as it is when its turn comes, and not at all if
    it has gone. One that has come is left out too, as the change that made it is with the log. So the
    declarations, and between them the changes that came between them, make what there is at the end:

    - What has been described, or has come since the beginning, is changed by whatever changes it later.
    - What has not been described is absent. What is said of it then either makes it as a whole, and its
      description does so again; or it concerns nothing (a deletion, a binding to it).
    - All ends of bindings are there before the first binding is described, so no later change of a binding
      is lost. One that was lost before is described if it is still there.
    """
    vhost = topology.name
    policies = topology.policies
    for policy in policies.all():
        there = policies.named(policy.operator).get(policy.name) is policy
        yield [policy.change(vhost)] if there else []
    for exchange in list(topology.exchanges.values()):
        yield [exchange_change(vhost, exchange)] if _is_kept(exchange) else []
    for queue in list(topology.queues.values()):
        yield [queue_change(vhost, queue)] if queue.durable and not queue.deleted else []
    for exchange in list(topology.exchanges.values()):
        yield []
        if exchange.durable:
            yield from _bindings(vhost, exchange)


def _is_kept(exchange: Exchange) -> bool:
    """Whether recovery has to be told of an exchange."""
    always_there = exchange.name == DEFAULT_EXCHANGE or is_predeclared(exchange.name)
    return exchange.durable and not exchange.deleted and not always_there


def _bindings(vhost: str, exchange: Exchange) -> Iterator[list[Change]]:
    for parallel in list(exchange.outgoing.values()):
        for binding in list(parallel.values()):
            there = exchange.binding(binding.destination, binding.key) is binding
            yield [binding_change(vhost, binding)] if binding.durable and there else []
