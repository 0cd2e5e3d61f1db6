"""Shovels: their states and counts, their end and their restart. [RabbitMQ shovel management]

`PUT /api/parameters/shovel/{vhost}/{name}` defines a shovel.
"""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, await_sync
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Name, Visitor
from broker.core.errors import PreconditionFailed
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import SHOVEL, Definition, shown_value
from broker.forwarding.shovel import Shovel

Shown = dict[str, Any]

router = APIRouter(tags=["shovels"])


def show_shovel(shovel: Shovel, node: str) -> Shown:
    """Show the state of a shovel in RabbitMQ's form. No URI has a user or a password."""
    definition = shovel.definition
    source, destination = definition.source, definition.destination
    attempt = shovel.attempt
    source_uri = source.uris[0] if attempt is None else attempt.source_uri
    destination_uri = destination.uris[0] if attempt is None else attempt.destination_uri
    since = datetime.fromtimestamp(int(shovel.since) / 1000, UTC)
    shown = {
        "node": node,
        "timestamp": since.strftime("%Y-%m-%d %H:%M:%S"),
        "name": definition.name,
        "vhost": definition.vhost,
        "type": "dynamic",
        "state": shovel.shown_state,
        "src_uri": source_uri.shown,
        "src_protocol": source_uri.protocol,
        "dest_uri": destination_uri.shown,
        "dest_protocol": destination_uri.protocol,
        **_endpoints(definition),
        "forwarded": int(shovel.forwarded),
        "forwarded_bytes": int(shovel.forwarded_bytes),
        "confirmed": int(shovel.confirmed),
        "refused": int(shovel.refused),
        "unconfirmed": int(shovel.in_flight),
        "attempts": shovel.attempts,
        "remaining": "unlimited" if shovel.remaining < 0 else int(shovel.remaining),
    }
    if shovel.saved:
        shown["saved"] = shovel.saved
    if shovel.source_ready >= 0:
        shown["source_ready"] = shovel.source_ready
    if shovel.next_window:
        shown["next_window"] = datetime.fromtimestamp(shovel.next_window / 1000, UTC).isoformat()
    if shovel.reader:
        shown["reader"] = shovel.reader
    back = shovel.receipts
    if back is not None:
        receipts: Shown = {
            "queue": definition.destination.receipt_queue,
            "state": back.shown_state,
            "returned": int(back.confirmed),
        }
        shown["receipts"] = receipts | ({"reason": back.reason} if back.reason else {})
    if shovel.reason:
        shown["reason"] = shovel.reason
    if attempt is not None and attempt.blocked:
        shown["blocked_by"] = attempt.blocked
    return shown


def _endpoints(definition: Definition) -> Shown:
    source, destination = definition.source, definition.destination
    shown: Shown = {}
    if source.address:
        shown["src_address"] = source.address
    elif source.queue:
        shown["src_queue"] = source.queue
    else:
        shown |= {"src_exchange": source.exchange, "src_exchange_key": source.key}
    if destination.address:
        shown["dest_address"] = destination.address
    elif destination.queue:
        shown["dest_queue"] = destination.queue
    elif destination.exchange is not None:
        shown["dest_exchange"] = destination.exchange
    if destination.key is not None and not destination.queue:
        shown["dest_exchange_key"] = destination.key
    return shown


def _list(management: Managed, vhosts: list[VirtualHost]) -> JSONResponse:
    names = {vhost.name for vhost in vhosts}
    return JSONResponse(
        [
            show_shovel(shovel, management.node)
            for shovel in management.shovels.all()
            if shovel.definition.vhost in names
        ]
    )


@router.get("/shovels")
async def list_shovels(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the states of all shovels in the virtual hosts that the user may open."""
    visitor.require_monitor()
    return _list(management, visitor.vhosts())


@router.get("/shovels/{vhost}")
async def list_shovels_in(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the states of the shovels in a virtual host."""
    return _list(management, [_vhost(visitor, vhost)])


@router.get("/shovels/vhost/{vhost}/{name}")
async def get_shovel(management: Managed, visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return a shovel: its parameter, with URIs without log-ins, and its state as `status`."""
    virtual_host = _vhost(visitor, vhost)
    shovel = management.shovels.existing(vhost, name)
    value = shown_value(virtual_host.parameters.get(SHOVEL, name))
    status = show_shovel(shovel, management.node)
    return JSONResponse({"component": SHOVEL, "vhost": vhost, "name": name, "value": value, "status": status})


@router.delete("/shovels/vhost/{vhost}/{name}", status_code=204)
async def delete_shovel(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Delete a shovel and its parameter. Unacknowledged messages stay in the source."""
    visitor.require_administrator()
    management.shovels.existing(vhost, name)
    visitor.vhost(vhost).parameters.delete(SHOVEL, name)
    await await_sync(management.store)
    return Response(status_code=204)


@router.delete("/shovels/vhost/{vhost}/{name}/restart", status_code=204)
async def restart_shovel(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Close the connections of a shovel, and connect again at once."""
    visitor.require_administrator()
    visitor.vhost(vhost)
    management.shovels.existing(vhost, name).restart()
    return Response(status_code=204)


@router.post("/shovels/vhost/{vhost}/{name}/pause", status_code=204)
async def pause_shovel(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Pause a shovel, also over restarts of the broker; its messages stay in the source."""
    return await _set_paused(management, visitor, vhost, name, True)


@router.post("/shovels/vhost/{vhost}/{name}/resume", status_code=204)
async def resume_shovel(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Resume a shovel that was paused."""
    return await _set_paused(management, visitor, vhost, name, False)


async def _set_paused(
    management: Management, visitor: Visitor, vhost: str, name: str, paused: bool
) -> Response:
    visitor.require_administrator()
    visitor.vhost(vhost)
    try:
        management.shovels.set_paused(vhost, name, paused)
    except PreconditionFailed as error:
        raise ApiError(409, "conflict", error.text) from error
    await await_sync(management.store)
    return Response(status_code=204)


def _vhost(visitor: Visitor, name: str) -> VirtualHost:
    visitor.require_monitor()
    return visitor.visible_vhost(name)
