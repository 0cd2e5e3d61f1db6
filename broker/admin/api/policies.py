"""Policies and operator policies. [RabbitMQ policies]"""

import asyncio
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, not_found
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Name
from broker.admin.definitions.items import read_policy
from broker.admin.shapes import show_policy
from broker.core.policies.policy import Policy
from broker.core.vhosts.vhost import VirtualHost

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["policies"])


async def _list(vhosts: list[VirtualHost], operator: bool, options: Options) -> Response:
    policies = [
        (vhost.name, policy) for vhost in vhosts for policy in vhost.policies.named(operator).values()
    ]
    return await answer_with_list(
        policies,
        lambda item: show_policy(item[1], item[0]),
        options,
        lambda item: (item[0], item[1].name),
        lambda item: item[1].name,
    )


@router.get("/policies")
async def list_policies(visitor: Asker, options: Options) -> Response:
    """Return all policies in the virtual hosts that the user may open."""
    return await _list(visitor.vhosts(), False, options)


@router.get("/operator-policies")
async def list_operator_policies(visitor: Asker, options: Options) -> Response:
    """Return all operator policies in the virtual hosts that the user may open."""
    return await _list(visitor.vhosts(), True, options)


@router.get("/policies/{vhost}")
async def list_policies_in(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the policies of a virtual host."""
    return await _list([visitor.vhost(vhost)], False, options)


@router.get("/operator-policies/{vhost}")
async def list_operator_policies_in(visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the operator policies of a virtual host."""
    return await _list([visitor.vhost(vhost)], True, options)


@router.get("/policies/{vhost}/{name}")
async def get_policy(visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return a policy."""
    return _get(visitor.policy_vhost(vhost), name, False)


@router.get("/operator-policies/{vhost}/{name}")
async def get_operator_policy(visitor: Administrator, vhost: Name, name: Name) -> JSONResponse:
    """Return an operator policy."""
    return _get(visitor.vhost(vhost), name, True)


@router.put("/policies/{vhost}/{name}", status_code=CREATED)
async def put_policy(management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Set a policy. The answer comes when the policy holds for everything that it matches, and is on disk."""
    return await _put(management, visitor.policy_vhost(vhost), name, body, False)


@router.put("/operator-policies/{vhost}/{name}", status_code=CREATED)
async def put_operator_policy(
    management: Managed, visitor: Administrator, vhost: Name, name: Name, body: Body
) -> Response:
    """Set an operator policy.

    The answer comes when the policy holds for everything that it matches, and is on disk.
    """
    return await _put(management, visitor.vhost(vhost), name, body, True)


@router.delete("/policies/{vhost}/{name}", status_code=CHANGED)
async def delete_policy(management: Managed, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Delete a policy. The answer comes when the policy holds for nothing any more."""
    return await _delete(management, visitor.policy_vhost(vhost), name, False)


@router.delete("/operator-policies/{vhost}/{name}", status_code=CHANGED)
async def delete_operator_policy(
    management: Managed, visitor: Administrator, vhost: Name, name: Name
) -> Response:
    """Delete an operator policy. The answer comes when the policy holds for nothing any more."""
    return await _delete(management, visitor.vhost(vhost), name, True)


async def await_policies(vhost: VirtualHost) -> None:
    """Wait until all changes of policies apply to everything in a virtual host."""
    applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not applied.done():
            applied.set_result(None)

    vhost.policies.call_when_applied(tell)
    await applied


def _get(vhost: VirtualHost, name: str, operator: bool) -> JSONResponse:
    return JSONResponse(show_policy(_existing(vhost, name, operator), vhost.name))


async def _put(management: Management, vhost: VirtualHost, name: str, body: Body, operator: bool) -> Response:
    existed = name in vhost.policies.named(operator)
    vhost.policies.set(read_policy(vhost, name, body, operator))
    await await_policies(vhost)
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


async def _delete(management: Management, vhost: VirtualHost, name: str, operator: bool) -> Response:
    _existing(vhost, name, operator)
    vhost.policies.delete(name, operator)
    await await_policies(vhost)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _existing(vhost: VirtualHost, name: str, operator: bool) -> Policy:
    policy = vhost.policies.named(operator).get(name)
    if policy is None:
        kind = "operator policy" if operator else "policy"
        raise not_found(f"no {kind} '{name}' in vhost '{vhost.name}'")
    return policy
