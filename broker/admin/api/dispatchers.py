"""Dispatchers: set, shown, paused and deleted. [amqpd; Bernstein & Newcomer 4.5, Dispatcher]

Only administrators change dispatchers, because the broker calls the target and reads secrets in its own name.
"""

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, await_sync
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Name
from broker.dispatch.definition import Definition, TargetForbidden, definition_of

CREATED: Final = 201
CHANGED: Final = 204
FORBIDDEN: Final = 403

Shown = dict[str, Any]

router = APIRouter(tags=["dispatchers"])


def _show(management: Management, definition: Definition) -> Shown:
    return {
        "vhost": definition.vhost,
        "name": definition.name,
        **definition.shown(),
        "status": management.dispatchers.status(definition),
    }


async def _list(management: Management, definitions: list[Definition], options: Options) -> Response:
    return await answer_with_list(
        definitions,
        lambda definition: _show(management, definition),
        options,
        lambda definition: (definition.vhost, definition.name),
        lambda definition: definition.name,
    )


@router.get("/dispatchers")
async def list_dispatchers(management: Managed, visitor: Asker, options: Options) -> Response:
    """Return all dispatchers in the virtual hosts that the user may open."""
    vhosts = {vhost.name for vhost in visitor.vhosts()}
    definitions = [each for each in management.dispatchers.all() if each.vhost in vhosts]
    return await _list(management, definitions, options)


@router.get("/dispatchers/{vhost}")
async def list_dispatchers_in(management: Managed, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the dispatchers of a virtual host."""
    return await _list(management, management.dispatchers.all(visitor.vhost(vhost).name), options)


@router.get("/dispatchers/{vhost}/{name}")
async def get_dispatcher(management: Managed, visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return a dispatcher with its state. Secrets are shown as references."""
    definition = management.dispatchers.existing(visitor.vhost(vhost).name, name)
    return JSONResponse(_show(management, definition))


@router.put("/dispatchers/{vhost}/{name}", status_code=CREATED)
async def put_dispatcher(
    management: Managed, visitor: Administrator, vhost: Name, name: Name, body: Body
) -> Response:
    """Set a dispatcher, or replace its definition.

    The status is 403 if the setting `dispatch_allow` does not cover the target.
    """
    virtual_host = visitor.vhost(vhost)
    existed = management.dispatchers.get(virtual_host.name, name) is not None
    try:
        management.dispatchers.set(definition_of(virtual_host.name, name, body))
    except TargetForbidden as error:
        raise ApiError(FORBIDDEN, "forbidden", error.text) from error
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/dispatchers/{vhost}/{name}", status_code=CHANGED)
async def delete_dispatcher(management: Managed, visitor: Administrator, vhost: Name, name: Name) -> Response:
    """Delete a dispatcher. Calls in progress go on."""
    management.dispatchers.delete(visitor.vhost(vhost).name, name)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.post("/dispatchers/{vhost}/{name}/pause", status_code=CHANGED)
async def pause_dispatcher(management: Managed, visitor: Administrator, vhost: Name, name: Name) -> Response:
    """Pause a dispatcher: no call begins any more. Calls in progress go on."""
    return await _pause(management, visitor.vhost(vhost).name, name, True)


@router.post("/dispatchers/{vhost}/{name}/resume", status_code=CHANGED)
async def resume_dispatcher(management: Managed, visitor: Administrator, vhost: Name, name: Name) -> Response:
    """Resume a paused dispatcher."""
    return await _pause(management, visitor.vhost(vhost).name, name, False)


async def _pause(management: Management, vhost: str, name: str, paused: bool) -> Response:
    management.dispatchers.pause(vhost, name, paused)
    await await_sync(management.store)
    return Response(status_code=CHANGED)
