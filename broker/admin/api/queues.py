"""Queues: shown, declared, deleted, purged."""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from broker.adapters.access import QUEUE, Rights
from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.connections import Open, connection_details
from broker.admin.api.consumers import show_consumers
from broker.admin.api.lists import Columns, Options, answer_with_list, select_columns
from broker.admin.api.management import Managed, Management, require_memory
from broker.admin.api.requests import Asker, Body, Histories, Name, Visitor
from broker.admin.api.slices import Slices
from broker.admin.json_documents import (
    Fields,
    read_field_table,
    read_flag,
    read_table,
    read_text,
    require_field,
)
from broker.admin.shapes import (
    Shown,
    show_binding,
    show_effective,
    show_queue,
    show_remote_queue,
)
from broker.admin.statistics import COUNTERS, NO_SPANS, OF_QUEUE, Spans
from broker.auth.terms import CONFIGURE, READ
from broker.core.arguments.queue import DEAD_LETTER_EXCHANGE
from broker.core.errors import PreconditionFailed
from broker.core.names import one_line
from broker.core.partitions.mapping import member_names
from broker.core.partitions.partitioned import refuse_partitioned, totals_of
from broker.core.policies.policy import keys_without_effect
from broker.core.publishing.delay import count_delayed
from broker.core.queues.purge import Purge, PurgeWaiter
from broker.core.queues.queue import Queue
from broker.core.queues.stops import DEQUEUE, ENQUEUE, OPERATIONS, stopped
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding
from broker.core.statistics import head_age, numbers_of
from broker.core.values import to_json
from broker.core.vhosts.alteration import alter_queue, merge_arguments, stop_queue
from broker.core.vhosts.reroute import reroute, return_here
from broker.core.vhosts.vhost import VirtualHost

CREATED: Final = 201
CHANGED: Final = 204
ACTIONS: Final = {
    "stop-enqueue": (ENQUEUE, True),
    "start-enqueue": (ENQUEUE, False),
    "stop-dequeue": (DEQUEUE, True),
    "start-dequeue": (DEQUEUE, False),
}

router = APIRouter(tags=["queues"])


def _shown(management: Management, queue: Queue, spans: Spans) -> Shown:
    totals = totals_of(queue)
    measurement = management.statistics.of_queue(queue, totals, spans)
    shown = show_queue(queue, totals, management.node, management.store, measurement, spans)
    shown["idle_since"] = management.idle_since(queue.reading)
    owner = queue.exclusive_owner
    if isinstance(owner, Open):
        shown["owner_pid_details"] = connection_details(owner)
    return shown


def _quick_fields() -> dict[str, Callable[[Queue], object]]:
    """Return the fields that queues are sorted by most, each with a function that reads only that field."""

    def number_at(index: int) -> Callable[[Queue], object]:
        return lambda queue: numbers_of(totals_of(queue))[index]

    def rate_at(index: int) -> Callable[[Queue], object]:
        return lambda queue: 0.0 if queue.reading is None else queue.reading.rates[index]

    fields: dict[str, Callable[[Queue], object]] = {
        "name": lambda queue: to_json(queue.name),
        "consumers": lambda queue: queue.consumer_count,
        "head_message_age": lambda queue: head_age(queue, time.monotonic()),
    }
    for index, name in enumerate(OF_QUEUE):
        place = f"message_stats.{name}" if name in COUNTERS else name
        fields[place] = number_at(index)
        fields[f"{place}_details.rate"] = rate_at(index)
    return fields


QUICK: Final = _quick_fields()


HAVING: Final[dict[str, Callable[[Queue], bool]]] = {
    "": lambda queue: True,
    "dead-letters": lambda queue: (
        queue.dead > 0 or (queue.limits is not None and bool(queue.limits.dead_letter_reasons))
    ),
    "delayed": lambda queue: count_delayed(queue) > 0,
    "remote": lambda queue: queue.remote is not None,
    "stream": lambda queue: queue.stream is not None,
}
"""Kinds of queues that a list may be restricted to."""


async def _having(
    kind: Annotated[
        str,
        Query(
            alias="having",
            description="Only queues that dead-letter (`dead-letters`), have delayed messages (`delayed`), "
            "are remote (`remote`) or streams (`stream`). [amqpd]",
        ),
    ] = "",
) -> Callable[[Queue], bool]:
    found = HAVING.get(kind)
    if found is None:
        raise bad_request(f"having '{kind}' is none of: {', '.join(filter(None, HAVING))}")
    return found


Having = Annotated[Callable[[Queue], bool], Depends(_having)]
"""Whether a list has a queue."""


async def _list(
    management: Management, vhosts: list[VirtualHost], options: Options, having: Having
) -> Response:
    queues: list[Queue] = []
    slices = Slices()
    for vhost in vhosts:
        async for part in slices.parts(list(vhost.topology.queues.values())):
            queues += filter(having, part)

    def show(queue: Queue) -> Shown:
        return _shown(management, queue, NO_SPANS)

    return await answer_with_list(
        queues, show, options, lambda queue: (queue.vhost, queue.name), lambda queue: queue.name, QUICK
    )


@router.get("/queues")
async def list_queues(management: Managed, visitor: Asker, options: Options, having: Having) -> Response:
    """Return all queues in the virtual hosts that the user may open."""
    return await _list(management, visitor.vhosts(), options, having)


@router.get("/queues/detailed")
async def list_detailed_queues(
    management: Managed, visitor: Asker, options: Options, having: Having
) -> Response:
    """Return the same list as `/api/queues`, which has all details."""
    return await _list(management, visitor.vhosts(), options, having)


@router.get("/queues/{vhost}")
async def list_queues_in(
    management: Managed, visitor: Asker, options: Options, having: Having, vhost: Name
) -> Response:
    """Return all queues of a virtual host."""
    return await _list(management, [visitor.vhost(vhost)], options, having)


@router.get("/queues/{vhost}/{name}")
async def get_queue(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    spans: Histories,
    columns: Columns,
) -> JSONResponse:
    """Return a queue with its consumers."""
    queue = find_queue(visitor.vhost(vhost), name)
    shown = _shown(management, queue, spans)
    shown["consumer_details"] = show_consumers(queue, management.node)
    shown["incoming"] = []  # RabbitMQ fills these two where its rates mode is `detailed`
    shown["deliveries"] = []
    return JSONResponse(select_columns(shown, columns))


@router.put("/queues/{vhost}/{name}", status_code=CREATED)
async def put_queue(management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Declare a queue.

    The status is 201 for a new queue and 204 for a present one of the same description.
    """
    virtual_host = visitor.vhost(vhost)
    name = one_line(name)
    existed = name in virtual_host.topology.queues
    if not existed:
        require_memory(management)
    declare_queue(virtual_host, visitor.rights(virtual_host), name, body)
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.patch("/queues/{vhost}/{name}", status_code=CHANGED)
async def alter(management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Alter the arguments or the name of a queue, or share an exclusive queue: all or nothing. [amqpd]

    A null argument is removed. Permissions follow the name, so a new name counts for publishers and consumers
    at once.
    """
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    rights = visitor.rights(virtual_host)
    called = read_text(body, "name", name)
    if called != name:
        called = one_line(called)
    if not called:
        raise bad_request("a queue needs a name")
    for each in {name, called}:
        rights.require(CONFIGURE, QUEUE, each)
    changes = read_field_table(read_table(body, "arguments"), f"queue '{name}' in vhost '{vhost}'")
    arguments = merge_arguments(queue, changes)
    if DEAD_LETTER_EXCHANGE in changes:
        rights.require_forwarding(QUEUE, called, arguments.get(DEAD_LETTER_EXCHANGE))
    alter_queue(virtual_host.topology, queue, called, arguments, _is_shared(queue, body))
    if called != name:
        management.dispatchers.rename_queue(vhost, name, called)
        slices = Slices()
        for connection in management.connections.in_vhost(vhost):
            connection.on_rights_changed()
            await slices.breathe()
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _is_shared(queue: Queue, body: Fields) -> bool:
    """Whether a request makes an exclusive queue shared.

    Raises ApiError if it makes a shared queue exclusive.
    """
    exclusive = read_flag(body, "exclusive", queue.exclusive_owner is not None)
    if exclusive and queue.exclusive_owner is None:
        raise bad_request(f"queue '{queue.name}' cannot become exclusive: no connection would own it")
    return not exclusive


@router.delete("/queues/{vhost}/{name}", status_code=CHANGED)
async def delete_queue(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    if_empty: Annotated[
        str, Query(alias="if-empty", description="`true`: fail if the queue has messages.")
    ] = "false",
    if_unused: Annotated[
        str, Query(alias="if-unused", description="`true`: fail if the queue has consumers.")
    ] = "false",
) -> Response:
    """Delete a queue with its messages."""
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    visitor.rights(virtual_host).require(CONFIGURE, QUEUE, name)
    # An operator may delete an exclusive queue too; other clients may not.
    virtual_host.declarations.delete_queue(
        name, if_unused == "true", if_empty == "true", queue.exclusive_owner
    )
    await await_sync(management.store)
    return Response(status_code=CHANGED)


class _Purged(PurgeWaiter):
    """Resolves a future when a purge ends, with the failure of the purge, "" without one."""

    def __init__(self, purge: Purge) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        purge.set_waiter(self)

    def on_purged(self, purge: Purge) -> None:
        """Resolve the future."""
        if not self.future.done():
            self.future.set_result(purge.failure)


@router.delete("/queues/{vhost}/{name}/contents", status_code=CHANGED)
async def purge_queue(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Purge the ready messages of a queue."""
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    visitor.rights(virtual_host).require(READ, QUEUE, name)
    failure = await _Purged(virtual_host.declarations.purge_queue(name, queue.exclusive_owner)).future
    if failure:
        raise PreconditionFailed(failure)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/queues/{vhost}/{name}/bindings")
async def list_queue_bindings(visitor: Asker, options: Options, vhost: Name, name: Name) -> Response:
    """Return the bindings whose destination is the queue."""
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    bindings: list[Binding | Queue] = [queue, *virtual_host.topology.bindings_to(queue)]

    def show(binding: Binding | Queue) -> Shown:
        return show_binding(binding, vhost)

    def rank(binding: Binding | Queue) -> tuple[str, ...]:
        shown = show(binding)
        return shown["source"], shown["properties_key"]

    return await answer_with_list(bindings, show, options, rank, lambda binding: str(show(binding)["source"]))


@router.get("/queues/{vhost}/{name}/effective")
async def explain_queue(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return the effective arguments of a queue, each with its policy or declaration. [amqpd]"""
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    idle = keys_without_effect(queue.arguments)
    return JSONResponse(show_effective(virtual_host.policies.explain_queue(queue), idle))


@router.post("/queues/{vhost}/{name}/actions", status_code=CHANGED)
async def act_on_queue(management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Stop or start enqueue or dequeue of a queue. [amqpd; RabbitMQ synchronised mirrors here]"""
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    action = ACTIONS.get(read_text(body, "action"))
    if action is None:
        raise bad_request(f"unknown action: {body.get('action')}, allowed: {', '.join(ACTIONS)}")
    visitor.rights(virtual_host).require(CONFIGURE, QUEUE, name)
    operation, off = action
    off_now = set(stopped(queue)) - {operation} | ({operation} if off else set())
    stop_queue(virtual_host.topology, queue, [each for each in OPERATIONS if each in off_now])
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/queues/{vhost}/{name}/reroute")
async def show_reroute(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return the reroute of a queue: `to` is the other broker without a log-in, null without a reroute."""
    remote = remote_of(find_queue(visitor.vhost(vhost), name))
    if remote is None or not remote.is_rerouted:
        return JSONResponse({"to": None})
    return JSONResponse(
        {"to": remote.shown_address, "returns": remote.is_returning, **show_remote_queue(remote)}
    )


@router.post("/queues/{vhost}/{name}/reroute", status_code=CHANGED)
async def reroute_queue(management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Move the flow of a queue to another broker (`to`: a URI), or back (`to`: null). [amqpd]

    `to` has the form of `x-remote`. Clients stay connected. Policymakers and administrators move queues.
    """
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    visitor.require_policymaker()
    visitor.rights(virtual_host).require(CONFIGURE, QUEUE, name)
    to = require_field(body, "to")
    if any(each.queue == name for each in management.dispatchers.all(virtual_host.name)):
        raise bad_request(f"queue '{name}' in vhost '{vhost}' has a dispatcher, and cannot be rerouted")
    if to is None:
        return_here(virtual_host.topology, queue)
    elif isinstance(to, str):
        reroute(virtual_host.topology, queue, to)
    else:
        raise bad_request("'to' is neither a URI nor null")
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def find_queue(vhost: VirtualHost, name: str) -> Queue:
    """Return a queue by name. Raises ApiError."""
    queue = vhost.topology.queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost.name}'")
    return queue


def find_readable_queue(visitor: Visitor, vhost: str, name: str) -> tuple[VirtualHost, Queue]:
    """Return a queue that the visitor may read, and its virtual host, for work on single messages.

    Raises ApiError and BrokerError, also for a partitioned queue, whose members have the messages.
    """
    virtual_host = visitor.vhost(vhost)
    queue = find_queue(virtual_host, name)
    refuse_partitioned(queue, "used message by message")
    visitor.rights(virtual_host).require(READ, QUEUE, name)
    virtual_host.declarations.check_owner(queue, None)
    return virtual_host, queue


def declare_queue(vhost: VirtualHost, rights: Rights, name: str, fields: Fields) -> Queue:
    """Declare a queue as a request describes it. Raises ApiError and BrokerError."""
    if not name:
        raise bad_request("a queue needs a name")
    arguments = read_field_table(read_table(fields, "arguments"), f"queue '{name}' in vhost '{vhost.name}'")
    rights.require(CONFIGURE, QUEUE, name)
    if name not in vhost.topology.queues:
        rights.require_forwarding(QUEUE, name, arguments.get(DEAD_LETTER_EXCHANGE))
        rights.require_members(name, member_names(arguments))
        rights.require_remote(name, arguments)
    return vhost.declarations.declare_queue(
        name, read_flag(fields, "durable"), None, read_flag(fields, "auto_delete"), arguments
    )
