"""Health checks: 200 and `{"status": "ok"}`, or 503 and the fault. [RabbitMQ health checks]"""

import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter

from broker.adapters.access import QUEUE
from broker.admin.api.answers import ApiError, JSONResponse, bad_request
from broker.admin.api.connections import visible_connections
from broker.admin.api.management import Managed, Management
from broker.admin.api.publish import make_channel, publish_message
from broker.admin.api.requests import Asker, Name
from broker.auth.certificates import expiry_of
from broker.auth.terms import CONFIGURE, READ
from broker.core.publishing.publisher import ROUTED
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import make_holder

FAILED: Final = 503
ALIVENESS_QUEUE: Final = "aliveness-test"

DAY_SECONDS: Final = 86_400
UNIT_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}

SHORT: Final = {
    "amqp091": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
    "web-amqp": "http/web-amqp",
    "web-amqps": "https/web-amqp",
}
"""Short names for the protocols of listeners."""

router = APIRouter(prefix="/health/checks", tags=["health"])
aliveness = APIRouter(tags=["health"])


def _ok(**more: Any) -> JSONResponse:
    return JSONResponse({"status": "ok", **more})


def _failed(reason: str, **more: Any) -> JSONResponse:
    return JSONResponse({"status": "failed", "reason": reason, **more}, status_code=FAILED)


def _trouble(management: Management) -> JSONResponse:
    reason = management.store.failure or management.state.not_ready()
    return _failed(reason) if reason else _ok()


def _alarms(management: Management) -> JSONResponse:
    failure = management.store.failure
    if failure:
        alarm = {"node": management.node, "resource": "disk"}
        return _failed(f"the log accepts nothing: {failure}", alarms=[alarm])
    shortage = management.server.shortage
    if shortage.reason:
        short = [
            name for name, is_short in (("memory", shortage.memory), ("disk", shortage.disk)) if is_short
        ]
        alarms = [{"node": management.node, "resource": name} for name in short]
        return _failed(shortage.reason, alarms=alarms)
    return _ok()


@router.get("/alarms")
async def alarms(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that no publisher waits for memory or disk space, and that the log has not failed."""
    return _alarms(management)


@router.get("/local-alarms")
async def local_alarms(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that no publisher waits for memory or disk space, and that the log has not failed."""
    return _alarms(management)


@router.get("/is-in-service")
async def is_in_service(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that clients can publish and consume."""
    return _trouble(management)


@router.get("/ready-to-serve-clients")
async def ready_to_serve_clients(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that clients can publish and consume."""
    return _trouble(management)


@router.get("/metadata-store/initialized")
async def metadata_store_initialized(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that definitions are read: always true, because the broker listens after that."""
    return _ok()


@router.get("/virtual-hosts")
async def virtual_hosts(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that all virtual hosts run: always true."""
    return _ok()


@router.get("/node-is-quorum-critical")
async def node_is_quorum_critical(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that no queue needs a majority of nodes: always true with one node."""
    return _ok()


@router.get("/node-is-mirror-sync-critical")
async def node_is_mirror_sync_critical(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that no queue waits for a mirror: always true, because there are no mirrors."""
    return _ok()


@router.get("/below-node-connection-limit")
async def below_node_connection_limit(management: Managed, visitor: Asker) -> JSONResponse:
    """Check the node's limit of connections: always true, as only users and virtual hosts have limits."""
    return _ok(current=len(visible_connections(management, visitor)), limit="infinity")


@router.get("/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}")
async def queues_without_leaders(management: Managed, visitor: Asker, pattern: Name) -> JSONResponse:
    """Check that all quorum queues have a leader: always true with one node."""
    return _ok()


@router.get("/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}")
async def queues_without_leaders_in(
    management: Managed, visitor: Asker, vhost: Name, pattern: Name
) -> JSONResponse:
    """Check that all quorum queues of a virtual host have a leader: always true with one node."""
    visitor.vhost(vhost)
    return _ok()


@router.get("/port-listener/{port}")
async def port_listener(management: Managed, visitor: Asker, port: Name) -> JSONResponse:
    """Check that the broker listens on a port."""
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        raise bad_request(f"'{port}' is not a port")
    ports = sorted({listener[2] for listener in management.listeners})
    if int(port) in ports:
        return _ok(port=int(port))
    return _failed("No active listener", missing=int(port), ports=ports)


@router.get("/protocol-listener/{protocol}")
async def protocol_listener(management: Managed, visitor: Asker, protocol: Name) -> JSONResponse:
    """Check that the broker listens for a protocol: amqp, amqps, web-amqp, http or https."""
    protocols = sorted({listener[0] for listener in management.listeners})
    wanted = SHORT.get(protocol.lower(), protocol)
    if wanted in protocols:
        return _ok(protocol=protocol)
    return _failed("No active listener", missing=protocol, protocols=protocols)


@router.get("/metadata-store/initialized/with-data")
async def metadata_store_has_data(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that there is a user and a virtual host."""
    if management.broker.vhosts and management.users.names():
        return _ok()
    return _failed("there is no virtual host, or no user")


@router.get("/quorum-queues-without-elected-leaders/all-vhosts")
async def queues_without_leaders_anywhere(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that all quorum queues have a leader: always true with one node."""
    return _ok()


@router.get("/quorum-queues-without-elected-leaders/vhost/{vhost}")
async def queues_without_leaders_at(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Check that all quorum queues of a virtual host have a leader: always true with one node."""
    visitor.vhost(vhost)
    return _ok()


@router.get("/reached-target-cluster-size")
async def reached_target_cluster_size(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that all nodes have joined: always true with one node."""
    return _ok()


@router.get("/certificate-expiration/{within}/{unit}")
async def certificate_expiration(
    management: Managed, visitor: Asker, within: Name, unit: Name
) -> JSONResponse:
    """Check that no certificate of a listener expires within a time: `days`, `weeks`, `months` or `years`."""
    if unit not in UNIT_DAYS:
        raise bad_request(f"invalid unit '{unit}', allowed: {', '.join(UNIT_DAYS)}")
    if not (within.isascii() and within.isdigit() and 0 < len(within) <= 5):
        raise bad_request(f"'{within}' is not a number of {unit}")
    limit = time.time() + int(within) * UNIT_DAYS[unit] * DAY_SECONDS
    expired = []
    for protocol, host, port in management.listeners:
        file = management.state.certificate_files.get(protocol)
        expiry = None if file is None else _expiry(file)
        if expiry is not None and expiry.timestamp() < limit:
            found = {"node": management.node, "protocol": protocol, "interface": host, "port": str(port)}
            expired.append(found | {"certfile": str(file), "certfile_expires_on": expiry.isoformat()})
    if expired:
        return _failed("Certificates expiring", expired=expired)
    return _ok()


def _expiry(file: Path) -> datetime:
    """Return when the certificate in a file expires. Raises ApiError: the file cannot be read."""
    try:
        return expiry_of(file.read_text("ascii", "replace"))
    except (OSError, ValueError) as error:
        raise ApiError(503, "service_unavailable", f"certificate file '{file}': {error}") from error


@aliveness.get("/healthchecks/node")
async def node_health(management: Managed, visitor: Asker) -> JSONResponse:
    """Check that the node serves clients and has no alarm. [RabbitMQ node health check]"""
    visitor.require_monitor()
    return _node_health(management)


@aliveness.get("/healthchecks/node/{node}")
async def node_health_of(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Check that a node serves clients and has no alarm. [RabbitMQ node health check]"""
    visitor.require_monitor()
    management.check_node(node)
    return _node_health(management)


def _node_health(management: Management) -> JSONResponse:
    reason = management.store.failure or management.state.not_ready() or management.server.shortage.reason
    return JSONResponse({"status": "failed", "reason": reason} if reason else {"status": "ok"})


@aliveness.get("/aliveness-test/{vhost}")
async def aliveness_test(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Publish a message to RabbitMQ's queue `aliveness-test` and get it back."""
    virtual_host = visitor.vhost(vhost)
    rights = visitor.rights(virtual_host)
    rights.require(CONFIGURE, QUEUE, ALIVENESS_QUEUE)
    rights.require(READ, QUEUE, ALIVENESS_QUEUE)
    queue = virtual_host.declarations.declare_queue(ALIVENESS_QUEUE, False, None, False, {})
    outcome = publish_message(
        make_channel(management.server, rights, virtual_host), "", ALIVENESS_QUEUE, {}, b"test_message"
    )
    consumer = make_holder(queue)
    entry = get_one(queue, consumer)
    if entry is not None:
        queue.settle(entry)
    if outcome is not ROUTED or entry is None:
        return _failed("a message that was published did not arrive")
    return _trouble(management)
