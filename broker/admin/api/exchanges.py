"""Exchanges: shown, declared, deleted."""

from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from broker.adapters.access import EXCHANGE, Rights
from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.lists import Columns, Options, answer_with_list, select_columns
from broker.admin.api.management import Managed, Management, require_memory
from broker.admin.api.requests import Asker, Body, ExchangeName, Histories, Name
from broker.admin.json_documents import Fields, read_field_table, read_flag, read_table, read_text
from broker.admin.shapes import Shown, show_binding, show_effective, show_exchange
from broker.admin.statistics import NO_SPANS, Spans
from broker.auth.terms import CONFIGURE
from broker.core.arguments.queue import ALTERNATE_EXCHANGE
from broker.core.names import DEFAULT_EXCHANGE, one_line
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Binding, Exchange
from broker.core.vhosts.vhost import VirtualHost

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["exchanges"])


def _shown(management: Management, exchange: Exchange, vhost: str, spans: Spans) -> Shown:
    return show_exchange(exchange, vhost, management.statistics.of_exchange(exchange, spans), spans)


async def _list(management: Management, vhosts: list[VirtualHost], options: Options) -> Response:
    exchanges = [(vhost.name, exchange) for vhost in vhosts for exchange in vhost.topology.exchanges.values()]
    return await answer_with_list(
        exchanges,
        lambda item: _shown(management, item[1], item[0], NO_SPANS),
        options,
        lambda item: (item[0], item[1].name),
        lambda item: item[1].name,
    )


@router.get("/exchanges")
async def list_exchanges(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all exchanges in the virtual hosts that the user may open."""
    return await _list(management, visitor.vhosts(), options)


@router.get("/exchanges/{vhost}")
async def list_exchanges_in(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return all exchanges of a virtual host."""
    return await _list(management, [visitor.vhost(vhost)], options)


@router.get("/exchanges/{vhost}/{name}")
async def get_exchange(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: ExchangeName,
    spans: Histories,
    columns: Columns,
) -> JSONResponse:
    """Return an exchange."""
    shown = _shown(management, find_exchange(visitor.vhost(vhost), name), vhost, spans)
    shown |= {"incoming": [], "outgoing": []}  # filled in RabbitMQ's mode `detailed`
    return JSONResponse(select_columns(shown, columns))


@router.put("/exchanges/{vhost}/{name}", status_code=CREATED)
async def put_exchange(
    management: Managed, visitor: Asker, vhost: Name, name: ExchangeName, body: Body
) -> Response:
    """Declare an exchange.

    The status is 201 for a new exchange and 204 for a present one of the same description.
    """
    virtual_host = visitor.vhost(vhost)
    name = one_line(name)
    existed = name in virtual_host.topology.exchanges
    if not existed:
        require_memory(management)
    declare_exchange(virtual_host, visitor.rights(virtual_host), name, body)
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/exchanges/{vhost}/{name}", status_code=CHANGED)
async def delete_exchange(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: ExchangeName,
    if_unused: Annotated[
        str, Query(alias="if-unused", description="`true`: fail if the exchange is a source of bindings.")
    ] = "false",
) -> Response:
    """Delete an exchange with its bindings."""
    virtual_host = visitor.vhost(vhost)
    find_exchange(virtual_host, name)
    visitor.rights(virtual_host).require(CONFIGURE, EXCHANGE, name)
    virtual_host.declarations.delete_exchange(name, if_unused == "true")
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/exchanges/{vhost}/{name}/bindings/source")
async def list_bindings_from(visitor: Asker, options: Options, vhost: Name, name: ExchangeName) -> Response:
    """Return the bindings whose source is the exchange."""
    virtual_host = visitor.vhost(vhost)
    exchange = find_exchange(virtual_host, name)
    if name == DEFAULT_EXCHANGE:
        return await _bindings(virtual_host.topology.queues.values(), vhost, options)
    return await _bindings(exchange.bindings(), vhost, options)


@router.get("/exchanges/{vhost}/{name}/bindings/destination")
async def list_bindings_to(visitor: Asker, options: Options, vhost: Name, name: ExchangeName) -> Response:
    """Return the bindings whose destination is the exchange."""
    virtual_host = visitor.vhost(vhost)
    return await _bindings(
        virtual_host.topology.bindings_to(find_exchange(virtual_host, name)), vhost, options
    )


@router.get("/exchanges/{vhost}/{name}/effective")
async def explain_exchange(visitor: Asker, vhost: Name, name: ExchangeName) -> JSONResponse:
    """Return the effective arguments of an exchange, each with its policy or declaration. [amqpd]"""
    virtual_host = visitor.vhost(vhost)
    return JSONResponse(
        show_effective(virtual_host.policies.explain_exchange(find_exchange(virtual_host, name)))
    )


async def _bindings(bindings: Iterable[Binding | Queue], vhost: str, options: Options) -> Response:
    def show(binding: Binding | Queue) -> Shown:
        return show_binding(binding, vhost)

    def rank(binding: Binding | Queue) -> tuple[str, ...]:
        shown = show(binding)
        return shown["source"], shown["destination"], shown["properties_key"]

    return await answer_with_list(
        bindings, show, options, rank, lambda binding: str(show(binding)["destination"])
    )


def find_exchange(vhost: VirtualHost, name: str) -> Exchange:
    """Return an exchange by name. Raises ApiError."""
    exchange = vhost.topology.exchanges.get(name)
    if exchange is None:
        raise not_found(f"no exchange '{name}' in vhost '{vhost.name}'")
    return exchange


def declare_exchange(vhost: VirtualHost, rights: Rights, name: str, fields: Fields) -> Exchange:
    """Declare an exchange as a request describes it. Raises ApiError and BrokerError."""
    if not name:
        raise bad_request("the default exchange cannot be declared")
    where = f"exchange '{name}' in vhost '{vhost.name}'"
    arguments = read_field_table(read_table(fields, "arguments"), where)
    kind = read_text(fields, "type", "direct")
    rights.require(CONFIGURE, EXCHANGE, name)
    if name not in vhost.topology.exchanges:
        rights.require_forwarding(EXCHANGE, name, arguments.get(ALTERNATE_EXCHANGE))
    return vhost.declarations.declare_exchange(
        name,
        kind,
        read_flag(fields, "durable"),
        read_flag(fields, "auto_delete"),
        read_flag(fields, "internal"),
        arguments,
    )
