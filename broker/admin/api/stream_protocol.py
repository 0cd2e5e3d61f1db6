"""Clients of RabbitMQ's stream protocol, of which there are none; offsets of streams; super streams.

amqpd does not speak the stream protocol: clients read streams over AMQP and HTTP. So the lists are empty.
A super stream is a direct exchange that routes to one stream for each key. [RabbitMQ stream management]
"""

from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from broker.adapters.access import QUEUE
from broker.admin.api.answers import ApiError, JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.connections import find_connection
from broker.admin.api.exchanges import declare_exchange
from broker.admin.api.lists import ListOptions, Options, answer_with_list
from broker.admin.api.management import Managed, require_memory
from broker.admin.api.queues import declare_queue, find_queue, find_readable_queue
from broker.admin.api.requests import Asker, Body, Name
from broker.admin.json_documents import Fields, read_table, read_text
from broker.core.arguments.queue import PARTITIONS_MAX
from broker.core.errors import BrokerError
from broker.core.names import one_line
from broker.core.queues.duplicates import memory_of
from broker.core.streams.stream import stream_of

OFFSET: Final = "offset"
WRITER: Final = "writer"

PARTITIONS: Final = "partitions"
BINDING_KEYS: Final = "binding-keys"
SUPER_STREAM: Final = "x-super-stream"
PARTITION_ORDER: Final = "x-stream-partition-order"
STREAM: Final = {"x-queue-type": "stream"}

Shown = dict[str, Any]

router = APIRouter(prefix="/stream", tags=["streams"])


async def _nothing(options: ListOptions) -> Response:
    empty: list[Shown] = []
    return await answer_with_list(empty, lambda item: item, options, lambda item: (), lambda item: "")


@router.get("/connections")
async def list_connections(visitor: Asker, options: Options) -> Response:
    """Return an empty list: no connection has the stream protocol."""
    return await _nothing(options)


@router.get("/connections/{vhost}")
async def list_connections_to(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return an empty list: no connection to a virtual host has the stream protocol."""
    visitor.visible_vhost(vhost)
    return await _nothing(options)


@router.get("/connections/{vhost}/{connection}")
@router.delete("/connections/{vhost}/{connection}")
async def find_stream_connection(visitor: Asker, vhost: Name, connection: Name) -> Response:
    """Refuse each name with 404: no connection to a virtual host has the stream protocol."""
    visitor.visible_vhost(vhost)
    raise not_found(f"no connection '{connection}' of the stream protocol in vhost '{vhost}'")


@router.get("/connections/{vhost}/{connection}/publishers")
@router.get("/connections/{vhost}/{connection}/consumers")
async def list_clients_of(
    management: Managed, visitor: Asker, options: Options, vhost: Name, connection: Name
) -> Response:
    """Return an empty list: a connection of AMQP has no publishers and consumers of the stream protocol."""
    visitor.visible_vhost(vhost)
    visitor.require_owner(find_connection(management, connection).user, to_change=False)
    return await _nothing(options)


@router.get("/publishers")
@router.get("/consumers")
async def list_clients(visitor: Asker, options: Options) -> Response:
    """Return an empty list: no client has the stream protocol."""
    return await _nothing(options)


@router.get("/publishers/{vhost}")
@router.get("/consumers/{vhost}")
async def list_clients_in(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return an empty list: no client in a virtual host has the stream protocol."""
    visitor.visible_vhost(vhost)
    return await _nothing(options)


@router.get("/publishers/{vhost}/{name}")
async def list_publishers_to(visitor: Asker, options: Options, vhost: Name, name: Name) -> Response:
    """Return an empty list: no publisher to a stream has the stream protocol."""
    find_queue(visitor.visible_vhost(vhost), name)
    return await _nothing(options)


@router.get("/{vhost}/{name}/tracking")
async def get_tracking(
    visitor: Asker,
    vhost: Name,
    name: Name,
    kind: Annotated[
        str, Query(alias="type", description="`offset` or `writer`: only these numbers. By default both.")
    ] = "",
) -> JSONResponse:
    """Return the stored offset of each named consumer of a stream, and the last number of each producer.

    A stream with several partitions has an offset for each: `GET /api/streams/VHOST/NAME` shows them.
    """
    _, queue = find_readable_queue(visitor, vhost, name)
    stream = stream_of(queue)
    if stream is None:
        raise not_found(f"queue '{name}' in vhost '{vhost}' is no stream")
    shown: Shown = {}
    if kind != WRITER:
        if len(stream.partitions) > 1:
            raise bad_request(
                f"stream '{name}' in vhost '{vhost}' has {len(stream.partitions)} partitions with an offset "
                "each: see /api/streams"
            )
        shown["offsets"] = {consumer: int(offsets[0]) for consumer, offsets in stream.offsets.kept.items()}
    if kind != OFFSET:
        memory = memory_of(queue)
        producers = {} if memory is None else memory.producers
        shown["writers"] = {producer: int(progress.highest) for producer, progress in producers.items()}
    return JSONResponse(shown)


def _routing_keys(body: Fields) -> list[str]:
    """Return the keys of the streams of a super stream. Raises ApiError."""
    if (PARTITIONS in body) == (BINDING_KEYS in body):
        raise bad_request(f"a super stream needs either '{PARTITIONS}' or '{BINDING_KEYS}'")
    if BINDING_KEYS in body:
        found = [key.strip() for key in read_text(body, BINDING_KEYS).split(",")]
        keys = list(dict.fromkeys(filter(None, found)))
        count = len(keys)
    else:
        number = body[PARTITIONS]
        digits = number if isinstance(number, str) and number.isascii() and number.isdigit() else ""
        count = number if type(number) is int else int(digits[:9]) if digits else 0
        keys = [str(index) for index in range(count)] if count <= PARTITIONS_MAX else []
    if not 1 <= count <= PARTITIONS_MAX:
        raise bad_request(f"a super stream has 1 to {PARTITIONS_MAX} streams, not {count}")
    return keys


@router.put("/super-streams/{vhost}/{name}", status_code=204)
async def put_super_stream(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> Response:
    """Declare a direct exchange, and streams that are bound to it: all or none.

    `partitions` is the number of streams, whose keys are 0, 1 and so on. `binding-keys` names the keys
    instead, with commas between them. The streams have the names `NAME-KEY`, and the `arguments` of the body.
    """
    virtual_host = visitor.vhost(vhost)
    rights, declarations = visitor.rights(virtual_host), virtual_host.declarations
    name = one_line(name)
    keys = _routing_keys(body)
    require_memory(management)
    arguments = {**read_table(body, "arguments"), **STREAM}
    streams = [f"{name}-{key}" for key in keys]
    topology = virtual_host.topology
    for kind, others, wanted in (
        ("exchange", topology.exchanges, [name]),
        ("queue", topology.queues, streams),
    ):
        existing = next((each for each in wanted if each in others), None)
        if existing is not None:
            raise bad_request(f"{kind} '{existing}' in vhost '{vhost}' exists already")
    try:
        described = {"type": "direct", "durable": True, "arguments": {SUPER_STREAM: True}}
        exchange = declare_exchange(virtual_host, rights, name, described)
        for order, (stream, key) in enumerate(zip(streams, keys, strict=True)):
            declare_queue(virtual_host, rights, stream, {"durable": True, "arguments": arguments})
            rights.require_binding(QUEUE, stream, name, exchange, key)
            declarations.bind_queue(stream, name, key, {PARTITION_ORDER: order})
    except (ApiError, BrokerError):
        for stream in streams:
            with suppress(BrokerError):  # the first error is the one to report
                declarations.delete_queue(stream, False, False)
        if name in topology.exchanges:
            with suppress(BrokerError):
                declarations.delete_exchange(name, False)
        raise
    await await_sync(management.store)
    return Response(status_code=204)
