"""Parameters: operator policies, limits, shovels and upstreams; global parameters with any value."""

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.policies import await_policies
from broker.admin.api.requests import Asker, Body, Name, Visitor
from broker.admin.definitions.items import read_policy, set_component
from broker.admin.json_documents import read_stored_value, read_table, require_field
from broker.admin.shapes import (
    LIMITS_COMPONENT,
    LIMITS_OF_VHOSTS,
    LIMITS_PARAMETER,
    describe_policy,
    set_vhost_limits,
    vhost_limits,
)
from broker.auth.user import checked_limits
from broker.core.broker import CLUSTER_NAME, INTERNAL
from broker.core.policies.policy import OPERATOR_POLICY
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.upstream import COMPONENTS as FORWARDING

CREATED: Final = 201
CHANGED: Final = 204
COMPONENTS: Final = (OPERATOR_POLICY, LIMITS_COMPONENT, *FORWARDING)

Shown = dict[str, Any]

router = APIRouter(tags=["parameters"])


def _of(vhost: VirtualHost, component: str | None = None) -> list[Shown]:
    parameters: list[Shown] = []
    limits = vhost_limits(vhost)
    if limits:
        parameters.append(
            {"vhost": vhost.name, "component": LIMITS_COMPONENT, "name": LIMITS_PARAMETER, "value": limits}
        )
    for policy in vhost.policies.operator_policies.values():
        value = describe_policy(policy)
        del value["name"]
        parameters.append(
            {"vhost": vhost.name, "component": OPERATOR_POLICY, "name": policy.name, "value": value}
        )
    parameters += [
        {"vhost": vhost.name, "component": kind, "name": name, "value": value}
        for kind, name, value in vhost.parameters.items()
    ]
    return [shown for shown in parameters if component in (None, shown["component"])]


def _known(component: str) -> str:
    if component not in COMPONENTS:
        raise bad_request(f"component {component} not found; there are {', '.join(COMPONENTS)}")
    return component


@router.get("/parameters")
async def list_parameters(visitor: Asker) -> JSONResponse:
    """Return all parameters of the virtual hosts that the user may open."""
    visitor.require_policymaker()
    return JSONResponse([shown for vhost in visitor.vhosts() for shown in _of(vhost)])


@router.get("/parameters/{component}")
async def list_parameters_of(visitor: Asker, component: Name) -> JSONResponse:
    """Return all parameters of a component."""
    visitor.require_policymaker()
    return JSONResponse([shown for vhost in visitor.vhosts() for shown in _of(vhost, component)])


@router.get("/parameters/{component}/{vhost}")
async def list_parameters_in(visitor: Asker, component: Name, vhost: Name) -> JSONResponse:
    """Return the parameters of a component in a virtual host."""
    return JSONResponse(_of(visitor.policy_vhost(vhost), component))


@router.get("/parameters/{component}/{vhost}/{name}")
async def get_parameter(visitor: Asker, component: Name, vhost: Name, name: Name) -> JSONResponse:
    """Return a parameter."""
    return JSONResponse(_existing(visitor.policy_vhost(vhost), component, name))


@router.put("/parameters/{component}/{vhost}/{name}", status_code=CREATED)
async def put_parameter(
    management: Managed, visitor: Asker, component: Name, vhost: Name, name: Name, body: Body
) -> Response:
    """Set an operator policy, the limits of a virtual host, a shovel, an upstream or a set of these."""
    virtual_host = visitor.policy_vhost(vhost)
    visitor.require_administrator()
    _known(component)
    require_field(body, "value")
    value = {} if component in FORWARDING else read_table(body, "value")
    existed = any(shown["name"] == name for shown in _of(virtual_host, component))
    if component == OPERATOR_POLICY:
        virtual_host.policies.set(read_policy(virtual_host, name, value, operator=True))
        await await_policies(virtual_host)
    elif component in FORWARDING:
        set_component(virtual_host, component, name, body)
    else:
        if name != LIMITS_PARAMETER:
            raise bad_request(f"the limits of a vhost are called '{LIMITS_PARAMETER}', not '{name}'")
        set_vhost_limits(management.broker, virtual_host, checked_limits(value, LIMITS_OF_VHOSTS))
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/parameters/{component}/{vhost}/{name}", status_code=CHANGED)
async def delete_parameter(
    management: Managed, visitor: Asker, component: Name, vhost: Name, name: Name
) -> Response:
    """Delete an operator policy, the limits of a virtual host, a shovel, an upstream or a set."""
    virtual_host = visitor.policy_vhost(vhost)
    visitor.require_administrator()
    _existing(virtual_host, component, name)
    if component == OPERATOR_POLICY:
        virtual_host.policies.delete(name, operator=True)
        await await_policies(virtual_host)
    elif component in FORWARDING:
        virtual_host.parameters.delete(component, name)
    else:
        set_vhost_limits(management.broker, virtual_host, {})
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/global-parameters")
async def list_global_parameters(management: Managed, visitor: Asker) -> JSONResponse:
    """Return all global parameters."""
    visitor.require_policymaker()
    parameters = management.broker.parameters.items()
    return JSONResponse([{"name": name, "value": value} for name, value in parameters])


@router.get("/global-parameters/{name}")
async def get_global_parameter(management: Managed, visitor: Asker, name: Name) -> JSONResponse:
    """Return a global parameter."""
    visitor.require_policymaker()
    return JSONResponse({"name": name, "value": _global(management, name)})


@router.put("/global-parameters/{name}", status_code=CREATED)
async def put_global_parameter(management: Managed, visitor: Asker, name: Name, body: Body) -> Response:
    """Set a global parameter."""
    _require_global(visitor, name)
    existed = name in management.broker.parameters
    management.broker.parameters.set(name, read_stored_value(body, "value"))
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/global-parameters/{name}", status_code=CHANGED)
async def delete_global_parameter(management: Managed, visitor: Asker, name: Name) -> Response:
    """Delete a global parameter."""
    _require_global(visitor, name)
    _global(management, name)
    management.broker.parameters.delete(name)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _require_global(visitor: Visitor, name: str) -> None:
    """Refuse the broker's own parameters, and allow changes of its name to administrators only.

    Raises ApiError.
    """
    visitor.require_policymaker()
    if name.startswith(INTERNAL):
        raise bad_request(f"global parameter '{name}' is the broker's own: its name begins with '{INTERNAL}'")
    if name == CLUSTER_NAME:
        visitor.require_administrator()


def _global(management: Managed, name: str) -> Any:
    if name not in management.broker.parameters:
        raise not_found(f"no global parameter '{name}'")
    return management.broker.parameters.get(name)


def _existing(vhost: VirtualHost, component: str, name: str) -> Shown:
    for shown in _of(vhost, component):
        if shown["name"] == name:
            return shown
    raise not_found(f"no parameter '{name}' of {component} in vhost '{vhost.name}'")
