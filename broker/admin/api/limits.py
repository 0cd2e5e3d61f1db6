"""Limits of virtual hosts and users. [RabbitMQ vhost limits, user limits]"""

from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, bad_request
from broker.admin.api.management import Managed
from broker.admin.api.requests import Administrator, Asker, Body, Name
from broker.admin.json_documents import Fields, require_field
from broker.admin.shapes import LIMITS_OF_VHOSTS, Shown, set_vhost_limits, vhost_limits
from broker.auth.user import USER_LIMITS

CHANGED: Final = 204

router = APIRouter(tags=["limits"])


def limit_value(fields: Fields) -> int:
    """Return the number in a request; a negative number means no limit. Raises ApiError."""
    value = require_field(fields, "value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"value is not a whole number: {value!r}")
    return value


def _check(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise bad_request(f"limit '{name}' is not known, allowed: {', '.join(names)}")


@router.get("/vhost-limits")
async def list_vhost_limits(visitor: Asker) -> JSONResponse:
    """Return the limits of all virtual hosts that the user may see and that have limits."""
    return JSONResponse(_shown((vhost.name, vhost_limits(vhost)) for vhost in visitor.vhosts()))


@router.get("/vhost-limits/{vhost}")
async def get_vhost_limits(visitor: Asker, vhost: Name) -> JSONResponse:
    """Return the limits of a virtual host, as a list that is empty without limits."""
    virtual_host = visitor.visible_vhost(vhost)
    return JSONResponse(_shown([(vhost, vhost_limits(virtual_host))]))


@router.put("/vhost-limits/{vhost}/{name}", status_code=CHANGED)
async def put_vhost_limit(
    management: Managed, visitor: Administrator, vhost: Name, name: Name, body: Body
) -> Response:
    """Set a limit of a virtual host. A negative number removes the limit."""
    virtual_host = visitor.vhost(vhost)
    _check(name, LIMITS_OF_VHOSTS)
    set_vhost_limits(management.broker, virtual_host, vhost_limits(virtual_host) | {name: limit_value(body)})
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.delete("/vhost-limits/{vhost}/{name}", status_code=CHANGED)
async def delete_vhost_limit(
    management: Managed, visitor: Administrator, vhost: Name, name: Name
) -> Response:
    """Remove a limit of a virtual host."""
    virtual_host = visitor.vhost(vhost)
    _check(name, LIMITS_OF_VHOSTS)
    limits = vhost_limits(virtual_host)
    limits.pop(name, None)
    set_vhost_limits(management.broker, virtual_host, limits)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/user-limits")
async def list_user_limits(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return the limits of all users that have limits."""
    users = management.users
    user_limits = [(name, users.require_user(name).limits) for name in users.names()]
    return JSONResponse([{"user": name, "value": limits} for name, limits in user_limits if limits])


@router.get("/user-limits/{user}")
async def get_user_limits(management: Managed, visitor: Asker, user: Name) -> JSONResponse:
    """Return the limits of a user, as a list that is empty without limits."""
    if user != visitor.name:
        visitor.require_administrator()
    limits = management.users.require_user(user).limits
    return JSONResponse([{"user": user, "value": limits}] if limits else [])


@router.put("/user-limits/{user}/{name}", status_code=CHANGED)
async def put_user_limit(
    management: Managed, visitor: Administrator, user: Name, name: Name, body: Body
) -> Response:
    """Set a limit of a user. A negative number removes the limit."""
    limits = management.users.require_user(user).limits
    _check(name, USER_LIMITS)
    management.users.set_limits(user, limits | {name: limit_value(body)})
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.delete("/user-limits/{user}/{name}", status_code=CHANGED)
async def delete_user_limit(management: Managed, visitor: Administrator, user: Name, name: Name) -> Response:
    """Remove a limit of a user."""
    limits = dict(management.users.require_user(user).limits)
    _check(name, USER_LIMITS)
    limits.pop(name, None)
    management.users.set_limits(user, limits)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _shown(limits: Iterable[tuple[str, dict[str, int]]]) -> list[Shown]:
    return [{"vhost": name, "value": found} for name, found in limits if found]
