"""Bindings: shown, made, removed.

The last segment of a path identifies one binding of a source and destination.
"""

from collections.abc import Iterator
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Path
from fastapi.responses import Response

from broker.adapters.access import EXCHANGE, QUEUE
from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.exchanges import find_exchange
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed, require_memory
from broker.admin.api.queues import find_queue
from broker.admin.api.requests import Asker, Body, ExchangeName, Name, Visitor
from broker.admin.api.slices import Slices
from broker.admin.json_documents import read_field_table, read_table, read_text
from broker.admin.shapes import BINDING_ORDER, Shown, properties_key, show_binding
from broker.core.names import DEFAULT_EXCHANGE, refuse_default_exchange
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding
from broker.core.vhosts.vhost import VirtualHost

CREATED: Final = 201
CHANGED: Final = 204
BETWEEN: Final = "/bindings/{vhost}/e/{source}/{kind}/{destination}"

Kind = Annotated[str, Path(pattern="^[qe]$")]
"""The kind of a binding's destination: q, a queue, or e, an exchange."""

router = APIRouter(tags=["bindings"])

Item = tuple[VirtualHost, Binding | Queue]
"""A binding, or the queue of a binding to the default exchange."""


def _all(vhosts: list[VirtualHost]) -> Iterator[Item]:
    for vhost in vhosts:
        for queue in vhost.topology.queues.values():
            yield vhost, queue
        for exchange in vhost.topology.exchanges.values():
            for binding in exchange.bindings():
                yield vhost, binding


def _show(item: Item) -> Shown:
    vhost, binding = item
    return show_binding(binding, vhost.name)


async def _list(items: Iterator[Item] | list[Item], options: Options) -> Response:
    def rank(item: Item) -> tuple[str, ...]:
        shown = _show(item)
        return tuple(str(shown[name]) for name in BINDING_ORDER)

    return await answer_with_list(items, _show, options, rank, lambda item: str(_show(item)["source"]))


@router.get("/bindings")
async def list_bindings(visitor: Asker, options: Options) -> Response:
    """Return all bindings in the virtual hosts that the user may open."""
    return await _list(_all(visitor.vhosts()), options)


@router.get("/bindings/{vhost}")
async def list_bindings_in(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return all bindings of a virtual host."""
    return await _list(_all([visitor.vhost(vhost)]), options)


@router.get(BETWEEN)
async def list_bindings_between(
    visitor: Asker, options: Options, vhost: Name, source: ExchangeName, kind: Kind, destination: Name
) -> Response:
    """Return the bindings between an exchange and a queue (`q`) or exchange (`e`)."""
    virtual_host = visitor.vhost(vhost)
    return await _list(_between(virtual_host, source, kind, destination), options)


@router.post(BETWEEN, status_code=CREATED)
async def post_binding(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    source: ExchangeName,
    kind: Kind,
    destination: Name,
    body: Body,
) -> Response:
    """Bind a queue (`q`) or exchange (`e`) to an exchange.

    The header `location` has the path of the binding.
    """
    virtual_host = visitor.vhost(vhost)
    key = read_text(body, "routing_key", "")
    where = f"a binding from exchange '{source}' to '{destination}' in vhost '{vhost}'"
    arguments = read_field_table(read_table(body, "arguments"), where)
    if kind == "e":
        destination = "" if destination == "amq.default" else destination
    _require(visitor, virtual_host, source, kind, destination, key)
    require_memory(management)
    if kind == "q":
        owner = (
            virtual_host.topology.queues[destination].exclusive_owner
            if destination in virtual_host.topology.queues
            else None
        )
        virtual_host.declarations.bind_queue(destination, source, key, arguments, owner)
    else:
        virtual_host.declarations.bind_exchange(destination, source, key, arguments)
    await await_sync(management.store)
    location = f"{quote(destination, safe='')}/{quote(properties_key(key, arguments), safe='')}"
    return Response(status_code=CREATED, headers={"location": location})


@router.get(BETWEEN + "/{props}")
async def get_binding(
    visitor: Asker, vhost: Name, source: ExchangeName, kind: Kind, destination: Name, props: Name
) -> JSONResponse:
    """Return a binding."""
    virtual_host = visitor.vhost(vhost)
    return JSONResponse(_show(await _existing(virtual_host, source, kind, destination, props)))


@router.delete(BETWEEN + "/{props}", status_code=CHANGED)
async def delete_binding(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    source: ExchangeName,
    kind: Kind,
    destination: Name,
    props: Name,
) -> Response:
    """Delete a binding."""
    virtual_host = visitor.vhost(vhost)
    _, binding = await _existing(virtual_host, source, kind, destination, props)
    if isinstance(binding, Queue):
        refuse_default_exchange(DEFAULT_EXCHANGE)
        raise AssertionError("the default exchange is always refused")
    _require(visitor, virtual_host, source, kind, destination, binding.routing_key)
    if binding.queue is not None:
        owner = binding.queue.exclusive_owner
        virtual_host.declarations.unbind_queue(
            destination, source, binding.routing_key, binding.arguments, owner
        )
    else:
        virtual_host.declarations.unbind_exchange(destination, source, binding.routing_key, binding.arguments)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _between(vhost: VirtualHost, source: str, kind: str, destination: str) -> list[Item]:
    exchange = find_exchange(vhost, source)
    if kind == "q":
        queue = find_queue(vhost, destination)
        if source == DEFAULT_EXCHANGE:
            return [(vhost, queue)]
        bindings = exchange.outgoing.get(queue, {})
    else:
        bindings = exchange.outgoing.get(find_exchange(vhost, destination), {})
    return [(vhost, binding) for binding in bindings.values()]


async def _existing(vhost: VirtualHost, source: str, kind: str, destination: str, props: str) -> Item:
    between = _between(vhost, source, kind, destination)
    slices = Slices()
    for item in between:
        if _show(item)["properties_key"] == props:
            return item
        await slices.breathe()
    if "~" in props:  # a proxy may have decoded the path once more
        for item in between:
            shown = _show(item)
            if shown["routing_key"] == props and not shown["arguments"]:
                return item
            await slices.breathe()
    raise not_found(
        f"no binding '{props}' from exchange '{source}' to '{destination}' in vhost '{vhost.name}'"
    )


def _require(
    visitor: Visitor, vhost: VirtualHost, source: str, kind: str, destination: str, key: str
) -> None:
    """Require the rights that a client needs to bind. Raises ApiError, AccessRefused."""
    if kind == "e" and not destination:
        raise bad_request("operation not permitted on the default exchange")
    of_kind = EXCHANGE if kind == "e" else QUEUE
    visitor.rights(vhost).require_binding(
        of_kind, destination, source, vhost.topology.exchanges.get(source), key
    )
