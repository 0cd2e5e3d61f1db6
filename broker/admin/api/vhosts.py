"""Virtual hosts: shown, made, described, deleted."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, bad_request
from broker.admin.api.lists import Columns, Options, answer_with_list, select_columns
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Histories, Name, Visitor
from broker.admin.json_documents import read_flag, read_tags, read_text
from broker.admin.shapes import Shown, describe_vhost
from broker.admin.statistics import COUNTERS, LENGTHS, NO_SPANS, Spans
from broker.core.vhosts.changes import check_queue_type
from broker.core.vhosts.vhost import VirtualHost

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["vhosts"])


async def _shown(management: Management, vhost: VirtualHost, spans: Spans = NO_SPANS) -> Shown:
    measurement = await management.statistics.of_vhosts([vhost])
    return describe_vhost(vhost) | {
        "default_queue_type": vhost.default_queue_type or "classic",
        "protected_from_deletion": vhost.protected,
        "tracing": False,
        "cluster_state": {management.node: "running"},
        **measurement.show(LENGTHS, spans.lengths),
        **measurement.show(("recv_oct", "send_oct"), spans.data_rates),
        "message_stats": measurement.show(COUNTERS, spans.msg_rates),
    }


def _visible(management: Management, visitor: Visitor) -> list[VirtualHost]:
    vhosts = list(management.broker.vhosts.values())
    return vhosts if visitor.monitors else [vhost for vhost in vhosts if visitor.may_enter(vhost.name)]


@router.get("/vhosts")
async def list_vhosts(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return the virtual hosts that the user may see."""
    items = [await _shown(management, vhost) for vhost in _visible(management, visitor)]
    return await answer_with_list(
        items, lambda shown: shown, options, lambda shown: (shown["name"],), lambda shown: str(shown["name"])
    )


@router.get("/vhosts/{vhost}")
async def get_vhost(
    management: Managed, visitor: Asker, vhost: Name, spans: Histories, columns: Columns
) -> JSONResponse:
    """Return a virtual host."""
    shown = await _shown(management, visitor.visible_vhost(vhost), spans)
    return JSONResponse(select_columns(shown, columns))


@router.put("/vhosts/{vhost}", status_code=CREATED)
async def put_vhost(management: Managed, visitor: Administrator, vhost: Name, body: Body) -> Response:
    """Create a virtual host, or change its description, tags or default queue type.

    The user who creates a virtual host gets all permissions in it.
    """
    if read_flag(body, "tracing"):
        raise bad_request("tracing is not known here")
    broker = management.broker
    there = broker.vhosts.get(vhost)
    description = read_text(body, "description", "" if there is None else there.description)
    tags = read_tags(body) if "tags" in body or there is None else there.tags
    queue_type = body.get("default_queue_type", body.get("defaultqueuetype"))
    if queue_type is None and there is not None:
        queue_type = there.default_queue_type
    if queue_type is not None and not isinstance(queue_type, str):
        raise bad_request("default_queue_type is not a string")
    queue_type = None if queue_type == "undefined" else queue_type
    check_queue_type(vhost, queue_type)
    broker.declare_vhost(vhost)
    broker.describe_vhost(vhost, description, tags, queue_type)
    if there is None:
        management.users.permit(visitor.name, vhost, ".*", ".*", ".*")
    await await_sync(management.store)
    return Response(status_code=CREATED if there is None else CHANGED)


@router.delete("/vhosts/{vhost}", status_code=CHANGED)
async def delete_vhost(management: Managed, visitor: Administrator, vhost: Name) -> Response:
    """Delete a virtual host with everything in it, and close its connections."""
    visitor.vhost(vhost)
    management.broker.delete_vhost(vhost)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.post("/vhosts/{vhost}/deletion/protection", status_code=CHANGED)
async def protect_vhost(management: Managed, visitor: Administrator, vhost: Name) -> Response:
    """Protect a virtual host from deletion."""
    return await _set_protection(management, visitor.vhost(vhost), True)


@router.delete("/vhosts/{vhost}/deletion/protection", status_code=CHANGED)
async def stop_protecting_vhost(management: Managed, visitor: Administrator, vhost: Name) -> Response:
    """Allow that a virtual host is deleted."""
    return await _set_protection(management, visitor.vhost(vhost), False)


async def _set_protection(management: Management, vhost: VirtualHost, protected: bool) -> Response:
    metadata = vhost.description, vhost.tags, vhost.default_queue_type
    management.broker.describe_vhost(vhost.name, *metadata, protected)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.post("/vhosts/{vhost}/start/{node}", status_code=CHANGED)
async def start_vhost(management: Managed, visitor: Administrator, vhost: Name, node: Name) -> Response:
    """Accept RabbitMQ's request to start a virtual host.

    Every virtual host runs, so the request has no effect.
    """
    visitor.vhost(vhost)
    management.check_node(node)
    return Response(status_code=CHANGED)
