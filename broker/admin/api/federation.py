"""The links of federated exchanges and queues: their states, and their restart. [RabbitMQ federation]

`PUT /api/parameters/federation-upstream/{vhost}/{name}` defines an upstream.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Asker, Name
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.federation import ERROR, QUEUE, FederationLink
from broker.forwarding.shovel import RUNNING

Shown = dict[str, Any]

router = APIRouter(tags=["federation"])


def show_link(link: FederationLink, node: str) -> Shown:
    """Show the state of a link in RabbitMQ's form. The URI has neither user nor password."""
    kind = link.place.kind
    attempt = link.attempt
    uri = link.upstream.uris[0] if attempt is None else attempt.source_uri
    since = datetime.fromtimestamp(int(link.since) / 1000, UTC)
    shown: Shown = {
        "node": node,
        kind: link.place.name,
        f"upstream_{kind}": link.target,
        "type": kind,
        "vhost": link.place.vhost.name,
        "upstream": link.upstream.name,
        "id": link.id,
        "status": link.status,
        "uri": uri.shown,
        "timestamp": since.strftime("%Y-%m-%d %H:%M:%S"),
        "forwarded": int(link.forwarded),
        "confirmed": int(link.confirmed),
        "unconfirmed": int(link.in_flight),
        "attempts": link.attempts,
    }
    if kind == QUEUE:
        shown["consumer_tag"] = link.upstream.consumer_tag
    if link.status == RUNNING:
        shown["local_connection"] = f"{link.definition.where}, destination"
        shown["local_channel"] = _local_channel(link)
    if link.status == ERROR:
        shown["error"] = link.reason
    return shown


def _local_channel(link: FederationLink) -> Shown:
    """Show the counts of a link as RabbitMQ shows those of the channel by which it publishes."""
    return {
        "acks_uncommitted": 0,
        "confirm": True,
        "consumer_count": 0,
        "messages_unacknowledged": 0,
        "messages_uncommitted": 0,
        "messages_unconfirmed": int(link.in_flight),
        "message_stats": {
            "publish": int(link.forwarded),
            "confirm": int(link.confirmed),
            "return_unroutable": 0,
        },
    }


def _list(management: Management, vhosts: Iterable[VirtualHost], statuses: tuple[str, ...]) -> JSONResponse:
    names = {vhost.name for vhost in vhosts}
    return JSONResponse(
        [
            show_link(link, management.node)
            for link in management.federation.all()
            if link.place.vhost.name in names and (not statuses or link.status in statuses)
        ]
    )


@router.get("/federation-links")
async def list_links(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the states of all links in the virtual hosts that the user may open."""
    visitor.require_monitor()
    return _list(management, visitor.vhosts(), ())


@router.get("/federation-links/state/down")
async def list_failed_links(management: Managed, visitor: Asker) -> JSONResponse:
    """Return the links whose last attempt has failed, in the virtual hosts that the user may open."""
    visitor.require_monitor()
    return _list(management, visitor.vhosts(), (ERROR,))


@router.get("/federation-links/{vhost}")
async def list_links_in(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the states of the links in a virtual host."""
    visitor.require_monitor()
    return _list(management, [visitor.visible_vhost(vhost)], ())


@router.get("/federation-links/{vhost}/state/down")
async def list_failed_links_in(management: Managed, visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the links in a virtual host whose last attempt has failed."""
    visitor.require_monitor()
    return _list(management, [visitor.visible_vhost(vhost)], (ERROR,))


@router.delete("/federation-links/vhost/{vhost}/{name}/{node}/restart", status_code=204)
async def restart_link(management: Managed, visitor: Asker, vhost: Name, name: Name, node: Name) -> Response:
    """Close the connections of the link with this id, and connect again at once."""
    visitor.policy_vhost(vhost)
    management.check_node(node)
    management.federation.existing(vhost, name).restart()
    return Response(status_code=204)
