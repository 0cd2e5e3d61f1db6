"""Routes: the exchange and routing key of a message are resolved to its queues."""

from __future__ import annotations

from broker.core.errors import AccessRefused, ExchangeReplaced
from broker.core.message_view import MessageView
from broker.core.partitions.partitioned import partitions_of
from broker.core.queues.queue import Queue
from broker.core.queues.stops import is_stopped
from broker.core.remotes.remote import is_awaited
from broker.core.routing.graph import NO_QUEUES, Exchange, Resolution, Route
from broker.core.routing.topology import Topology


def open_exchange(topology: Topology, name: str) -> Exchange:
    """Find an exchange to which clients may publish.

    Raises:
        NotFound: no exchange has this name.
        AccessRefused: the exchange is internal.
    """
    exchange = topology.existing_exchange(name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{topology.host.name}'")
    return exchange


def refresh_route(topology: Topology, route: Route) -> None:
    """Resolve the queues of a publisher's route again.

    Raises:
        NotFound: the exchange has been deleted; the route stays stale.
        AccessRefused: another exchange has its name now and is internal.
        ExchangeReplaced: another exchange has its name now, and the route is pinned.
    """
    route.epoch = 0
    exchange = open_exchange(topology, route.address.exchange)
    if route.pinned and exchange is not route.exchange:
        raise ExchangeReplaced(
            f"exchange '{exchange.name}' in vhost '{topology.host.name}' is another one now"
        )
    route.exchange = exchange
    resolve_route(topology, route)


def resolve_route(topology: Topology, route: Route) -> None:
    """Resolve the queues of a route from its exchange, and make the route valid."""
    resolution = Resolution(topology.host.chance)
    resolution.resolve(route.exchange, [route.address.routing_key], None, topology.exchanges)
    topology.no_local.remove_queues(resolution, route.publisher)
    queues = NO_QUEUES if resolution.by_message else list(resolution.queues)
    logged: list[Queue] = []
    careful = resolution.by_message
    remembers = False
    for queue in queues:
        if queue.logged:
            logged.append(queue)
        if queue.memory is not None:
            remembers = True
        if (
            queue.stream is not None
            or queue.partitions is not None
            or is_awaited(queue)
            or is_stopped(queue)
            or (queue.limits is not None and queue.limits.careful)
        ):
            careful = True
    route.queues = queues
    route.partitions = partitions_of(queues[0]) if len(queues) == 1 else None
    if len(logged) == len(queues):
        route.logged = queues
    else:
        route.logged = logged or NO_QUEUES
        careful = careful or bool(logged)
    route.by_message = resolution.by_message
    route.remembers = remembers and not careful and len(queues) == 1 and len(logged) == 1
    route.careful = careful or remembers
    route.epoch = topology.epoch


def resolve_letter(topology: Topology, route: Route, keys: list[str], view: MessageView) -> Resolution:
    """Resolve the queues of a dead letter with these routing keys; internal exchanges are allowed.

    Raises:
        NotFound: the route is stale, and its exchange has been deleted.
    """
    resolution = Resolution(topology.host.chance)
    if route.epoch != topology.epoch:
        route.exchange = topology.existing_exchange(route.address.exchange)
        resolve_route(topology, route)
    if route.by_message or len(keys) != 1:
        resolution.resolve(route.exchange, keys, view, topology.exchanges)
    else:
        resolution.queues = dict.fromkeys(route.queues)
    return resolution
