"""Overview: the broker as a whole, its single node, its versions."""

import os
import platform
import ssl
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, not_found
from broker.admin.api.connections import visible_connections
from broker.admin.api.lists import Columns, select_columns
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Histories, Name
from broker.admin.json_documents import read_text
from broker.admin.node import NODE, files_max, threads_max
from broker.admin.shapes import ENTRY_BYTES, QUEUE_BYTES
from broker.admin.statistics import CHURN, COUNTERS, LENGTHS, MESSAGES, NO_SPANS, RETENTION, Spans
from broker.core.broker import CLUSTER_NAME
from broker.core.routing.federation import FEDERATION_UPSTREAM_KIND
from broker.core.routing.kinds import KINDS

CHANGED: Final = 204

MEMORY_USES: Final = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "metadata_store",
    "quorum_ets",
    "metadata_store_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)
"""RabbitMQ's names for the uses of memory."""

FEATURES: Final = {
    "classic_queue_type_delivery_support": "Deliveries of classic queues carry the type of the queue",
    "direct_exchange_routing_v2": "Direct exchanges route without a scan of their bindings",
    "feature_flags_v2": "Feature flags have a state of their own",
    "listener_records_in_ets": "Listeners are known to the whole node",
    "quorum_queue": "Queues of the type quorum",
    "stream_queue": "Queues of the type stream",
    "stream_filtering": "Consumers of streams may have a filter",
    "user_limits": "Limits of connections and channels of a user",
    "virtual_host_metadata": "Virtual hosts have a description, tags and a default type of queues",
    "message_containers": "Messages keep the form of their protocol",
    "detailed_queues_endpoint": "GET /api/queues/detailed",
    "rabbitmq_4.0.0": "AMQP 1.0 is a protocol of the core",
}
"""RabbitMQ's feature flags of what amqpd does, with their descriptions."""

ROWS: Final = 20
Rows = Annotated[int, Query(ge=0, description="The number of rows of RabbitMQ's tables.")]

Shown = dict[str, Any]

router = APIRouter(tags=["overview"])


@router.get("/overview")
async def overview(management: Managed, visitor: Asker, spans: Histories, columns: Columns) -> JSONResponse:
    """Return figures of the whole broker.

    A user without the tag `monitoring` or `administrator` sees only their own virtual hosts and connections.
    """
    broker, state, statistics = management.broker, management.state, management.statistics
    vhosts = list(broker.vhosts.values()) if visitor.monitors else visitor.vhosts()
    shown: Shown = {
        "management_version": state.rabbitmq_version,
        "rabbitmq_version": state.rabbitmq_version,
        "product_name": "amqpd",
        "product_version": state.version,
        "flavour": state.flavour,
        **_runtime(),
        "cluster_name": broker.cluster_name,
        "cluster_tags": {},
        "node_tags": {},
        "node": management.node,
        "default_queue_type": "classic",
        "release_series_support_status": "supported",
        "rates_mode": "basic",
        "sample_retention_policies": {name: [age for age, _ in kept] for name, kept in RETENTION.items()},
        "disable_stats": False,
        "enable_queue_totals": False,
        "is_op_policy_updating_enabled": True,
        "statistics_db_event_queue": 0,
        "exchange_types": _exchange_types(),
    }
    if visitor.monitors:
        counters = broker.counters
        connections = int(counters.connections_opened - counters.connections_closed)
        channels = int(counters.channels_opened - counters.channels_closed)
        sums = await statistics.of_broker()
        shown["message_stats"] = sums.show(MESSAGES, spans.msg_rates)
        shown["churn_rates"] = sums.show(CHURN, spans.msg_rates)
        shown["listeners"] = [
            {
                "node": management.node,
                "protocol": protocol,
                "ip_address": host,
                "port": port,
                "socket_opts": {},
            }
            for protocol, host, port in management.listeners
        ]
        shown["contexts"] = _contexts(management)
    else:
        own = visible_connections(management, visitor)
        connections, channels = len(own), sum(each.channels_open() for each in own)
        sums = await statistics.of_vhosts(vhosts)
        shown["message_stats"] = sums.show(COUNTERS, spans.msg_rates)
    shown["queue_totals"] = sums.show(LENGTHS, spans.lengths)
    shown["object_totals"] = {
        "queues": sum(len(vhost.topology.queues) for vhost in vhosts),
        "exchanges": sum(len(vhost.topology.exchanges) for vhost in vhosts),
        "consumers": sums.consumers,
        "connections": connections,
        "channels": channels,
    }
    return JSONResponse(select_columns(shown, columns))


def _runtime() -> Shown:
    """Return RabbitMQ's fields about Erlang, which amqpd does not run on."""
    python = f"none: amqpd runs on {platform.python_implementation()} {platform.python_version()}"
    return {
        "erlang_version": "none",
        "erlang_full_version": python,
        "crypto_lib_version": ssl.OPENSSL_VERSION,
    }


def _exchange_types() -> list[Shown]:
    """Return the types of exchanges. Pages offer those without `internal_purpose` for new exchanges."""
    types: list[Shown] = [{"name": kind, "description": "", "enabled": True} for kind in KINDS]
    for shown in types:
        if shown["name"] == FEDERATION_UPSTREAM_KIND:
            shown["internal_purpose"] = "federation"
    return types


def _contexts(management: Management) -> list[Shown]:
    """Return the listeners of HTTP as RabbitMQ's page shows its own."""
    return [
        {
            "node": management.node,
            "description": "amqpd management",
            "path": "/",
            "ip": host,
            "port": str(port),
            "ssl_opts": [],
            "cowboy_opts": "[]",
        }
        for protocol, host, port in management.listeners
        if protocol in ("http", "https")
    ]


@router.get("/version")
async def version(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the version of amqpd."""
    return JSONResponse({"product_name": "amqpd", "product_version": management.state.version})


@router.get("/cluster-name")
async def get_cluster_name(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the broker's name."""
    return JSONResponse({"name": management.broker.cluster_name})


@router.put("/cluster-name", status_code=CHANGED)
async def put_cluster_name(management: Managed, visitor: Administrator, body: Body) -> Response:
    """Set the broker's name."""
    management.broker.parameters.set(CLUSTER_NAME, read_text(body, "name"))
    await await_sync(management.store)
    return Response(status_code=CHANGED)


async def _node(management: Management, spans: Spans = NO_SPANS) -> Shown:
    state, resources = management.state, management.state.measured.resources
    measurement = await management.statistics.of_broker()
    return {
        "name": management.node,
        "type": "disc",
        "running": True,
        "being_drained": False,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count(),
        "run_queue": 0,
        "uptime": int((time.monotonic() - management.state.started) * 1000),
        "fd_total": files_max(),
        "sockets_total": files_max(),
        "proc_total": threads_max(),
        "mem_limit": resources.memory_max,
        "mem_alarm": resources.shortage.memory,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": resources.disk_free_min,
        "disk_free_alarm": resources.shortage.disk or bool(management.store.failure),
        "rates_mode": "basic",
        "rabbitmq_version": state.rabbitmq_version,
        **_runtime(),
        "python": platform.python_version(),
        "exchange_types": _exchange_types(),
        "auth_mechanisms": [
            {"name": mechanism, "description": "", "enabled": True} for mechanism in state.mechanisms
        ],
        "applications": [
            {"name": "amqpd", "description": "amqpd", "version": state.version},
            {"name": "rabbit", "description": "RabbitMQ's HTTP API", "version": state.rabbitmq_version},
        ],
        "contexts": _contexts(management),
        "config_files": [],
        "log_files": ["<stderr>"],
        "db_dir": state.data_folder,
        "net_ticktime": 60,
        "enabled_plugins": [],
        "cluster_links": [],
        "partitions": [],
        "metrics_gc_queue_length": {},
        "ra_open_file_metrics": {},
        **measurement.show(NODE, spans.node_stats),
        **measurement.show(CHURN, spans.node_stats),
    }


@router.get("/nodes")
async def list_nodes(management: Managed, visitor: Asker, columns: Columns) -> JSONResponse:
    """Return the single node, as a list."""
    visitor.require_monitor()
    return JSONResponse(select_columns([await _node(management)], columns))


@router.get("/nodes/{node}")
async def get_node(
    management: Managed, visitor: Asker, node: Name, spans: Histories, columns: Columns
) -> JSONResponse:
    """Return the single node, by its name."""
    visitor.require_monitor()
    management.check_node(node)
    return JSONResponse(select_columns(await _node(management, spans), columns))


async def _memory(management: Management) -> dict[str, int]:
    """Return the resident memory by its uses under RabbitMQ's names, in bytes.

    `queue_procs` and `binary`, queues and bodies of messages, are estimates. `other_system` is the rest.
    """
    sums = await management.statistics.of_broker()
    queues = sum(len(vhost.topology.queues) for vhost in management.broker.vhosts.values())
    uses = dict.fromkeys(MEMORY_USES, 0)
    uses["queue_procs"] = queues * QUEUE_BYTES + sums.number("messages") * ENTRY_BYTES
    uses["binary"] = sums.bytes
    uses["other_system"] = max(0, _resident(management) - sum(uses.values()))
    return uses


def _resident(management: Management) -> int:
    return management.state.measured.resources.memory


def _totals(management: Management, uses: dict[str, int]) -> Shown:
    resident = _resident(management)
    return {
        "strategy": "rss",
        "total": {"erlang": sum(uses.values()), "rss": resident, "allocated": resident},
    }


@router.get("/nodes/{node}/memory")
async def get_memory(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return the use of memory of the single node, in bytes."""
    visitor.require_monitor()
    management.check_node(node)
    uses = await _memory(management)
    return JSONResponse({"memory": uses | _totals(management, uses)})


@router.get("/nodes/{node}/memory/relative")
async def get_relative_memory(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return the use of memory of the single node, in per cent, rounded up as RabbitMQ does."""
    visitor.require_monitor()
    management.check_node(node)
    uses = await _memory(management)
    whole = max(1, sum(uses.values()))
    shares = {name: -(-100 * size // whole) for name, size in uses.items()}
    return JSONResponse({"memory": shares | {"total": 100}})


@router.get("/nodes/{node}/memory/ets")
@router.get("/nodes/{node}/memory/ets/relative")
@router.get("/nodes/{node}/memory/ets/{part}")
@router.get("/nodes/{node}/memory/ets/{part}/relative")
async def get_table_memory(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return no tables: tables of Erlang (ETS) do not exist here."""
    visitor.require_monitor()
    management.check_node(node)
    return JSONResponse({"ets": "no tables"})


@router.delete("/reset", status_code=CHANGED)
async def reset_statistics(management: Managed, visitor: Administrator) -> Response:
    """Forget the histories of the statistics. The counts and the metrics continue."""
    management.statistics.forget_histories()
    return Response(status_code=CHANGED)


@router.delete("/reset/{node}", status_code=CHANGED)
async def reset_statistics_of(management: Managed, visitor: Administrator, node: Name) -> Response:
    """Forget the histories of the statistics of the single node."""
    management.check_node(node)
    management.statistics.forget_histories()
    return Response(status_code=CHANGED)


@router.get("/top/{node}")
async def list_processes(
    management: Managed, visitor: Administrator, node: Name, row_count: Rows = ROWS
) -> JSONResponse:
    """Return no processes: processes of Erlang do not exist here."""
    management.check_node(node)
    return JSONResponse({"node": node, "row_count": row_count, "processes": []})


@router.get("/top/ets/{node}")
async def list_tables(
    management: Managed, visitor: Administrator, node: Name, row_count: Rows = ROWS
) -> JSONResponse:
    """Return no tables: tables of Erlang (ETS) do not exist here."""
    management.check_node(node)
    return JSONResponse({"node": node, "row_count": row_count, "ets_tables": []})


@router.get("/extensions")
async def list_extensions(visitor: Asker) -> JSONResponse:
    """Return the script with the views of RabbitMQ's page, which starts when its extensions are loaded."""
    return JSONResponse([{"javascript": "dispatcher.js"}])


@router.get("/feature-flags")
async def list_feature_flags(visitor: Asker) -> JSONResponse:
    """Return RabbitMQ's features that amqpd has. No feature can be switched off."""
    return JSONResponse(
        [
            {
                "name": name,
                "desc": text,
                "doc_url": "",
                "state": "enabled",
                "stability": "required",
                "provided_by": "amqpd",
            }
            for name, text in FEATURES.items()
        ]
    )


@router.put("/feature-flags/{name}/enable", status_code=CHANGED)
async def enable_feature(visitor: Administrator, name: Name) -> Response:
    """Accept RabbitMQ's request to enable a feature, which is enabled already."""
    if name not in FEATURES:
        raise not_found(f"no feature flag '{name}'")
    return Response(status_code=CHANGED)


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
