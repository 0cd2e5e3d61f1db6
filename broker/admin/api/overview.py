"""Overview: the broker as a whole, its single node, its versions."""

import os
import platform
import resource
import time
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, not_found
from broker.admin.api.connections import open_connections
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Name
from broker.admin.api.slices import Slices
from broker.admin.api.vhosts import SUMMED_AT_ONCE
from broker.admin.json_documents import read_text
from broker.admin.shapes import queue_counters
from broker.core.broker import CLUSTER_NAME
from broker.core.routing.kinds import KINDS
from broker.core.vhosts.vhost import VirtualHost

COMPATIBLE_WITH: Final = "3.13.0"
"""The version of RabbitMQ whose API this is: tools choose their requests by it."""

CHANGED: Final = 204

Shown = dict[str, Any]

router = APIRouter(tags=["overview"])


def cluster_name(management: Management) -> str:
    """Return the name that operators gave the broker, or else the node's name."""
    name = management.broker.parameters.get(CLUSTER_NAME)
    return name if isinstance(name, str) else management.node


class _Sums:
    """Sums over the queues, exchanges and messages of some virtual hosts."""

    def __init__(self) -> None:
        self.objects = {"queues": 0, "exchanges": 0, "consumers": 0}
        self.ready = 0
        self.unacked = 0
        self.held = 0
        self.dead = 0
        self.counters = {"publish": 0, "deliver_get": 0, "redeliver": 0, "ack": 0, "replaced": 0}

    @property
    def messages(self) -> dict[str, int]:
        """Return the number of messages by state."""
        return {
            "messages": self.ready + self.unacked + self.held + self.dead,
            "messages_ready": self.ready,
            "messages_unacknowledged": self.unacked,
            "messages_held": self.held,
            "messages_dlx": self.dead,
        }

    async def add(self, vhost: VirtualHost, slices: Slices) -> None:
        """Add the numbers of a virtual host."""
        self.objects["exchanges"] += len(vhost.topology.exchanges)
        queues = list(vhost.topology.queues.values())
        self.objects["queues"] += len(queues)
        for start in range(0, len(queues), SUMMED_AT_ONCE):
            for queue in queues[start : start + SUMMED_AT_ONCE]:
                self.ready += int(queue.ready)
                self.unacked += int(queue.unacked)
                self.held += int(queue.held)
                self.dead += int(queue.dead)
                self.objects["consumers"] += queue.subscription_count
                if queue.partitions is None:  # else the counters are those of its members
                    for name, count in queue_counters(queue).items():
                        self.counters[name] += count
            await slices.breathe()


def _counters(management: Management) -> Mapping[str, int]:
    counters = management.broker.counters
    return {
        "publish": int(counters.published),
        "confirm": int(counters.confirmed),
        "deliver_get": int(counters.delivered),
        "redeliver": int(counters.redelivered),
        "ack": int(counters.acked),
        "return_unroutable": int(counters.returned),
        "drop_unroutable": int(counters.unroutable),
    }


@router.get("/overview")
async def overview(management: Managed, visitor: Asker) -> JSONResponse:
    """Return figures of the whole broker.

    A user without the tag `monitoring` or `administrator` sees only their own virtual hosts and connections.
    """
    broker, state, rates = management.broker, management.state, management.rates
    vhosts = list(broker.vhosts.values()) if visitor.monitors else visitor.vhosts()
    sums, slices = _Sums(), Slices()
    for vhost in vhosts:
        await sums.add(vhost, slices)
    seen: object = "all" if visitor.monitors else frozenset(vhost.name for vhost in vhosts)
    shown: Shown = {
        "management_version": COMPATIBLE_WITH,
        "rabbitmq_version": COMPATIBLE_WITH,
        "product_name": "amqpd",
        "product_version": state.version,
        "flavour": state.flavour,
        "cluster_name": cluster_name(management),
        "node": management.node,
        "rates_mode": "basic",
        "exchange_types": [{"name": kind, "description": "", "enabled": True} for kind in KINDS],
        "queue_totals": rates.of_sum(("messages", seen), sums.messages),
    }
    if visitor.monitors:
        counters = broker.counters
        connections = int(counters.connections_opened - counters.connections_closed)
        channels = int(counters.channels_opened - counters.channels_closed)
        shown["message_stats"] = rates.of_sum("broker", _counters(management))
        shown["listeners"] = [
            {"node": management.node, "protocol": protocol, "ip_address": host, "port": port}
            for protocol, host, port in management.listeners
        ]
    else:
        own = open_connections(management, visitor)
        connections, channels = len(own), sum(each.channels_open() for each in own)
        shown["message_stats"] = rates.of_sum(("queues", seen), sums.counters)
    shown["object_totals"] = sums.objects | {"connections": connections, "channels": channels}
    return JSONResponse(shown)


@router.get("/version")
async def version(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the version of amqpd."""
    return JSONResponse({"product_name": "amqpd", "product_version": management.state.version})


@router.get("/cluster-name")
async def get_cluster_name(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the broker's name."""
    return JSONResponse({"name": cluster_name(management)})


@router.put("/cluster-name", status_code=CHANGED)
async def put_cluster_name(management: Managed, visitor: Administrator, body: Body) -> Response:
    """Set the broker's name."""
    management.broker.parameters.set(CLUSTER_NAME, read_text(body, "name"))
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _node(management: Management) -> Shown:
    counters = management.broker.counters
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resources = management.state.measured.resources
    return {
        "name": management.node,
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count(),
        "uptime": int((time.monotonic() - management.started) * 1000),
        "mem_used": _resident_bytes() or usage.ru_maxrss * 1024,
        "fd_used": _open_files(),
        "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sockets_used": int(counters.connections_opened - counters.connections_closed),
        "mem_limit": resources.memory_max,
        "mem_alarm": resources.shortage.memory,
        "disk_free": resources.disk_free,
        "disk_free_limit": resources.disk_free_min,
        "disk_free_alarm": resources.shortage.disk or bool(management.store.failure),
        "rates_mode": "basic",
        "python": platform.python_version(),
        "applications": [
            {"name": "amqpd", "description": "amqpd", "version": management.state.version},
        ],
        "partitions": [],
    }


@router.get("/nodes")
async def list_nodes(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the single node, as a list."""
    visitor.require_monitor()
    return JSONResponse([_node(management)])


@router.get("/nodes/{node}")
async def get_node(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return the single node, by its name."""
    visitor.require_monitor()
    if node != management.node:
        raise not_found(f"no node '{node}'")
    return JSONResponse(_node(management))


@router.get("/extensions")
async def list_extensions(visitor: Asker) -> JSONResponse:
    """Return an empty list: there are no extensions of a user interface."""
    return JSONResponse([])


@router.get("/feature-flags")
async def list_feature_flags(visitor: Asker) -> JSONResponse:
    """Return an empty list: no feature can be switched off."""
    return JSONResponse([])


@router.get("/deprecated-features")
async def list_deprecated_features(visitor: Asker) -> JSONResponse:
    """Return an empty list: no feature is deprecated."""
    return JSONResponse([])


@router.get("/deprecated-features/used")
async def list_deprecated_features_in_use(visitor: Asker) -> JSONResponse:
    """Return an empty list: no feature is deprecated."""
    return JSONResponse([])


@router.post("/rebalance/queues", status_code=204)
async def rebalance_queues(visitor: Administrator) -> Response:
    """Accept RabbitMQ's request to spread queues over nodes. The request has no effect on a single node."""
    return Response(status_code=204)


@router.get("/auth")
async def ways_to_authenticate() -> JSONResponse:
    """Return how users authenticate: by Basic authentication."""
    return JSONResponse({"oauth_enabled": False})


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _open_files() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None
