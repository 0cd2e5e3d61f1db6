"""What users may do: permissions in virtual hosts, and routing keys at topic exchanges."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse
from broker.admin.api.body import Body
from broker.admin.api.durable import durable
from broker.admin.api.errors import not_found
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.visitor import Administrator
from broker.admin.fields import text
from broker.admin.shapes import Shown, shown_permission, shown_topic

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["permissions"])


def permissions_of(management: Management, name: str) -> list[Shown]:
    """What a user may do, by virtual host. Raises NotFound."""
    user = management.users.known(name)
    return [shown_permission(name, vhost, found) for vhost, found in sorted(user.permissions.items())]


def topics_of(management: Management, name: str) -> list[Shown]:
    """Which routing keys a user may use, where that is limited. Raises NotFound."""
    user = management.users.known(name)
    found = sorted(user.topics.items(), key=lambda item: item[0])
    return [shown_topic(name, vhost, exchange, topic) for (vhost, exchange), topic in found]


def _of_all(management: Management, topics: bool) -> list[Shown]:
    one = topics_of if topics else permissions_of
    return [shown for name in management.users.names() for shown in one(management, name)]


@router.get("/permissions")
async def list_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return all permissions of all users."""
    return JSONResponse(_of_all(management, topics=False))


@router.get("/topic-permissions")
async def list_topic_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return all topic permissions of all users."""
    return JSONResponse(_of_all(management, topics=True))


@router.get("/users/{user}/permissions")
async def list_permissions_of(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return all permissions of a user."""
    return JSONResponse(permissions_of(management, user))


@router.get("/users/{user}/topic-permissions")
async def list_topics_of(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return all topic permissions of a user."""
    return JSONResponse(topics_of(management, user))


@router.get("/vhosts/{vhost}/permissions")
async def list_permissions_in(management: Managed, visitor: Administrator, vhost: Name) -> JSONResponse:
    """Return the permissions of all users in a virtual host."""
    visitor.vhost(vhost)
    found = management.users.permissions_in(vhost)
    return JSONResponse([shown_permission(name, vhost, permission) for name, permission in found])


@router.get("/vhosts/{vhost}/topic-permissions")
async def list_topics_in(management: Managed, visitor: Administrator, vhost: Name) -> JSONResponse:
    """Return the topic permissions of all users in a virtual host."""
    visitor.vhost(vhost)
    found = management.users.topics_in(vhost)
    return JSONResponse([shown_topic(name, vhost, exchange, topic) for name, exchange, topic in found])


@router.get("/permissions/{vhost}/{user}")
async def get_permission(
    management: Managed, visitor: Administrator, vhost: Name, user: Name
) -> JSONResponse:
    """Return the permissions of a user in a virtual host."""
    visitor.vhost(vhost)
    permission = management.users.known(user).permissions.get(vhost)
    if permission is None:
        raise _no_permission(user, vhost)
    return JSONResponse(shown_permission(user, vhost, permission))


@router.put("/permissions/{vhost}/{user}", status_code=CREATED)
async def put_permission(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, body: Body
) -> Response:
    """Set the permissions of a user in a virtual host: `configure`, `write` and `read`.

    Each is a regular expression over names.
    """
    visitor.vhost(vhost)
    existed = vhost in management.users.known(user).permissions
    expressions = [text(body, what) for what in ("configure", "write", "read")]
    management.users.permit(user, vhost, *expressions)
    await durable(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/permissions/{vhost}/{user}", status_code=CHANGED)
async def delete_permission(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> Response:
    """Delete the permissions of a user in a virtual host, so that the user can no longer open it."""
    visitor.vhost(vhost)
    if vhost not in management.users.known(user).permissions:
        raise _no_permission(user, vhost)
    management.users.forbid(user, vhost)
    await durable(management.store)
    return Response(status_code=CHANGED)


@router.get("/topic-permissions/{vhost}/{user}")
async def get_topics(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> JSONResponse:
    """Return the topic permissions of a user in a virtual host, by exchange."""
    visitor.vhost(vhost)
    return JSONResponse([shown for shown in topics_of(management, user) if shown["vhost"] == vhost])


@router.put("/topic-permissions/{vhost}/{user}", status_code=CREATED)
async def put_topic(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, body: Body
) -> Response:
    """Set the regular expressions for the routing keys that a user may use with a topic exchange."""
    visitor.vhost(vhost)
    exchange = text(body, "exchange")
    existed = (vhost, exchange) in management.users.known(user).topics
    management.users.permit_topic(user, vhost, exchange, text(body, "write"), text(body, "read"))
    await durable(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/topic-permissions/{vhost}/{user}", status_code=CHANGED)
async def delete_topics(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> Response:
    """Delete all topic permissions of a user in a virtual host, so that the user may use all routing keys."""
    visitor.vhost(vhost)
    management.users.forget_topic(user, vhost)
    await durable(management.store)
    return Response(status_code=CHANGED)


@router.delete("/topic-permissions/{vhost}/{user}/{exchange}", status_code=CHANGED)
async def delete_topic(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, exchange: Name
) -> Response:
    """Delete the topic permissions of a user for one exchange."""
    visitor.vhost(vhost)
    management.users.forget_topic(user, vhost, exchange)
    await durable(management.store)
    return Response(status_code=CHANGED)


def _no_permission(user: str, vhost: str) -> Exception:
    return not_found(f"user '{user}' has no permissions in vhost '{vhost}'")
