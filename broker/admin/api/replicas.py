"""Replicas of quorum queues: the single node has the only one, and none can be added or removed.

[RabbitMQ queues/quorum]
"""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, bad_request
from broker.admin.api.management import Managed, Management
from broker.admin.api.queues import find_queue
from broker.admin.api.requests import Administrator, Asker, Body, Name, Visitor
from broker.admin.json_documents import Fields, read_text
from broker.core.arguments.queue import QUORUM
from broker.core.policies.policy import queue_type_of
from broker.core.queues.queue import Queue

DONE: Final = 204
RAFT_NUMBERS: Final = (
    "Last Log Index",
    "Last Written",
    "Last Applied",
    "Commit Index",
    "Snapshot Index",
    "Term",
    "Machine Version",
)
"""RabbitMQ's numbers of the Raft log of a replica."""

router = APIRouter(prefix="/queues/quorum", tags=["queues"])


def _unavailable(reason: str) -> ApiError:
    return ApiError(503, "service_unavailable", reason)


def _find_quorum_queue(visitor: Visitor, vhost: str, name: str) -> Queue:
    """Return a queue of the type quorum. Raises ApiError."""
    queue = find_queue(visitor.vhost(vhost), name)
    kind = queue_type_of(queue.arguments)
    if kind != QUORUM:
        raise _unavailable(f"queue '{name}' in vhost '{vhost}' has the type {kind}, expected: {QUORUM}")
    return queue


def _check_node(management: Management, body: Fields) -> None:
    """Raise ApiError if the request names another node than the single one."""
    node = read_text(body, "node")
    if node != management.node:
        raise bad_request(f"node '{node}' is not a member: the only node is '{management.node}'")


@router.get("/{vhost}/{name}/status")
async def get_replicas(management: Managed, visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return the only replica of a quorum queue. The numbers of its Raft log are empty: there is none."""
    _find_quorum_queue(visitor, vhost, name)
    replica = {"Node Name": management.node, "Raft State": "leader", "Membership": "voter"}
    return JSONResponse([replica | dict.fromkeys(RAFT_NUMBERS, "")])


@router.post("/{vhost}/{name}/replicas/add", status_code=DONE)
async def add_replica(
    management: Managed, visitor: Administrator, vhost: Name, name: Name, body: Body
) -> Response:
    """Accept RabbitMQ's request to add a replica on `node`, which has one already. Refuse other nodes."""
    _find_quorum_queue(visitor, vhost, name)
    _check_node(management, body)
    return Response(status_code=DONE)


@router.delete("/{vhost}/{name}/replicas/delete")
async def delete_replica(
    management: Managed, visitor: Administrator, vhost: Name, name: Name, body: Body
) -> Response:
    """Refuse to remove the only replica of a quorum queue."""
    _find_quorum_queue(visitor, vhost, name)
    _check_node(management, body)
    raise _unavailable(
        f"node '{management.node}' has the only replica of queue '{name}' in vhost '{vhost}'; to remove it, "
        "delete the queue"
    )


@router.post("/replicas/on/{node}/grow", status_code=DONE)
async def grow_replicas(management: Managed, visitor: Administrator, node: Name, body: Body) -> Response:
    """Accept RabbitMQ's request to add replicas on a node, which has one of each quorum queue already."""
    management.check_node(node)
    for field in ("vhost_pattern", "queue_pattern", "strategy"):
        read_text(body, field)
    return Response(status_code=DONE)


@router.delete("/replicas/on/{node}/shrink")
async def shrink_replicas(management: Managed, visitor: Administrator, node: Name) -> Response:
    """Refuse to remove the replicas of a node, which has the only ones."""
    management.check_node(node)
    raise _unavailable(f"node '{node}' has the only replica of each quorum queue")
