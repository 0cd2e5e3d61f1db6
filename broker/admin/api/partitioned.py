"""Partitioned queues: the mapping of keys to members, shown and changed while the queue is in use. [amqpd]"""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.adapters.access import QUEUE
from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed
from broker.admin.api.queues import find_queue
from broker.admin.api.requests import Asker, Body, Name
from broker.admin.json_documents import read_field_table, read_table, require_field
from broker.admin.shapes import Shown, show_mapping
from broker.auth.terms import CONFIGURE
from broker.core.arguments.partition import PARTITION_BY, PARTITION_MEMBERS
from broker.core.partitions.mapping import full_name, member_names
from broker.core.partitions.partitioned import partitions_of
from broker.core.queues.queue import Queue
from broker.core.values import to_json
from broker.core.vhosts.members import change_mapping, keep_logins
from broker.core.vhosts.vhost import VirtualHost

CHANGED: Final = 204
FIELDS: Final = ("members", "pins", "name", "vhost")

router = APIRouter(tags=["partitioned queues"])


async def _list(vhosts: list[VirtualHost], options: Options) -> Response:
    queues = [
        queue for vhost in vhosts for queue in vhost.topology.queues.values() if queue.partitions is not None
    ]
    return await answer_with_list(
        queues, _show, options, lambda queue: (queue.vhost, queue.name), lambda queue: queue.name
    )


@router.get("/partitioned")
async def list_partitioned(visitor: Asker, options: Options) -> Response:
    """Return the mappings of all partitioned queues in the virtual hosts that the user may open."""
    return await _list(visitor.vhosts(), options)


@router.get("/partitioned/{vhost}")
async def list_partitioned_in(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the mappings of all partitioned queues of a virtual host."""
    return await _list([visitor.vhost(vhost)], options)


@router.get("/partitioned/{vhost}/{name}")
async def get_partitioned(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return the mapping of a partitioned queue: its members, and the keys that are moving."""
    return JSONResponse(_show(_find(visitor.vhost(vhost), name)))


@router.put("/partitioned/{vhost}/{name}", status_code=CHANGED)
async def put_partitioned(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> Response:
    """Replace the members and the pinned values of a partitioned queue while it is in use.

    `members` has the form of `x-partition-members`, and `pins` that of `x-partition-pins`. A present member
    in another broker may have its address without a log-in, or the name of its queue here. No message moves.
    New messages of a key with another member wait until the former member has none of the key any more.
    """
    virtual_host = visitor.vhost(vhost)
    queue = _find(virtual_host, name)
    rights = visitor.rights(virtual_host)
    rights.require(CONFIGURE, QUEUE, name)
    for field in body:
        if field not in FIELDS:
            raise bad_request(f"unknown field '{field}', known: {', '.join(FIELDS)}")
    where = f"queue '{name}' in vhost '{vhost}'"
    members = read_field_table({"members": require_field(body, "members")}, where)["members"]
    pins = read_field_table(read_table(body, "pins"), where)
    kept, _ = keep_logins(virtual_host.topology, members, {}, name)
    known = [full_name(each, name) for each in member_names(queue.arguments)]
    named = member_names({PARTITION_MEMBERS: kept})
    rights.require_members(name, [each for each in named if full_name(each, name) not in known])
    change_mapping(virtual_host.topology, queue, members, pins)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _find(vhost: VirtualHost, name: str) -> Queue:
    """Return a partitioned queue by name. Raises ApiError."""
    queue = find_queue(vhost, name)
    if queue.partitions is None:
        raise not_found(f"queue '{name}' in vhost '{vhost.name}' is not partitioned")
    return queue


def _show(queue: Queue) -> Shown:
    partitions = partitions_of(queue)
    assert partitions is not None, "only partitioned queues are shown"
    return {
        "name": to_json(queue.name),
        "vhost": queue.vhost,
        "by": to_json(queue.arguments[PARTITION_BY]),
        **show_mapping(partitions),
    }
