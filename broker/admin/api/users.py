"""Users, and what they may do: permissions in virtual hosts, and routing keys at topic exchanges."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse, await_sync, bad_request, not_found
from broker.admin.api.audit import HIDDEN_PATH
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.requests import Administrator, Asker, Body, Name
from broker.admin.json_documents import Fields, read_table, read_tags, read_text
from broker.admin.shapes import Shown, show_permission, show_topic, show_user
from broker.auth.passwords import NO_PASSWORD, RABBIT_SHA256, Password, hash_for_rabbitmq, import_hash
from broker.auth.user import USER_LIMITS, User, checked_limits

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["users"])

permissions = APIRouter(tags=["permissions"])


def read_password_hash(fields: Fields) -> Password | None:
    """Return the password whose hash the request has; None without a hash.

    Raises ApiError, PreconditionFailed.
    """
    if "password_hash" not in fields:
        return None
    value, hashing = fields["password_hash"], fields.get("hashing_algorithm", RABBIT_SHA256)
    if not isinstance(value, str) or not isinstance(hashing, str):
        raise bad_request("password_hash and hashing_algorithm are strings")
    return import_hash(value, hashing)


@router.get("/users")
async def list_users(management: Managed, visitor: Administrator, options: Options) -> Response:
    """Return all users."""
    users = management.users
    everyone = [users.require_user(name) for name in users.names()]
    return await answer_with_list(
        everyone, show_user, options, lambda user: (user.name,), lambda user: user.name
    )


@router.get("/users/without-permissions")
async def list_users_without_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return the users who may not open any virtual host."""
    users = management.users
    everyone = [users.require_user(name) for name in users.names()]
    return JSONResponse([show_user(user) for user in everyone if not user.permissions])


@router.post("/users/bulk-delete", status_code=CHANGED)
async def delete_users(management: Managed, visitor: Administrator, body: Body) -> Response:
    """Delete several users. Names of missing users are passed over."""
    names = body.get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users is not a list of names")
    for name in names:
        if management.users.get(name) is not None:
            management.users.delete(name)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/users/{user}")
async def get_user(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return a user."""
    return JSONResponse(show_user(_existing(management, user)))


@router.put("/users/{user}", status_code=CREATED)
async def put_user(management: Managed, visitor: Administrator, user: Name, body: Body) -> Response:
    """Add a user, or change a user's password, tags and, if given, limits.

    Without a password and a hash, a present user keeps their password, and a new user has none and cannot log
    in with a password.
    """
    limits = checked_limits(read_table(body, "limits"), USER_LIMITS) if "limits" in body else None
    password = read_password_hash(body)
    if password is None and body.get("password") is not None:
        if not isinstance(body["password"], str):
            raise bad_request("password is not a string")
        password = await management.make_password(body["password"])
    existed = management.users.get(user) is not None
    if password is None and not existed:
        password = NO_PASSWORD
    management.users.put(user, password, read_tags(body))
    if limits is not None:
        management.users.set_limits(user, limits)
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/users/{user}", status_code=CHANGED)
async def delete_user(management: Managed, visitor: Administrator, user: Name) -> Response:
    """Delete a user with all permissions, and close the user's connections."""
    _existing(management, user)
    management.users.delete(user)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@router.get("/users/{user}/queues")
async def list_queues_of(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return an empty list: queues of amqpd have no owners among users."""
    _existing(management, user)
    return JSONResponse([])


@router.get("/auth/hash_password/{password}", tags=[HIDDEN_PATH])
async def hash_password(management: Managed, visitor: Administrator, password: Name) -> JSONResponse:
    """Return a salted hash of a password, which `PUT /api/users/NAME` and RabbitMQ take."""
    return JSONResponse({"ok": hash_for_rabbitmq(password)})


@router.get("/auth/attempts/{node}")
async def list_attempts(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return the numbers of log-ins by protocol since the start, or since they were reset."""
    visitor.require_monitor()
    management.check_node(node)
    return JSONResponse(
        [
            {
                "protocol": protocol,
                "auth_attempts": accepted + refused,
                "auth_attempts_succeeded": accepted,
                "auth_attempts_failed": refused,
            }
            for protocol, (accepted, refused) in sorted(management.broker.counters.attempts.items())
        ]
    )


@router.delete("/auth/attempts/{node}", status_code=CHANGED)
async def reset_attempts(management: Managed, visitor: Administrator, node: Name) -> Response:
    """Reset the numbers of log-ins by protocol. The metrics count on."""
    management.check_node(node)
    management.broker.counters.forget_attempts()
    return Response(status_code=CHANGED)


@router.get("/auth/attempts/{node}/source")
async def list_attempts_by_source(management: Managed, visitor: Asker, node: Name) -> JSONResponse:
    """Return an empty list, as RabbitMQ does unless it tracks the sources. The log has them."""
    visitor.require_monitor()
    management.check_node(node)
    return JSONResponse([])


@router.delete("/auth/attempts/{node}/source", status_code=CHANGED)
async def reset_attempts_by_source(management: Managed, visitor: Administrator, node: Name) -> Response:
    """Reset nothing: log-ins are not counted by their sources."""
    management.check_node(node)
    return Response(status_code=CHANGED)


@router.get("/whoami")
async def whoami(visitor: Asker, management: Managed) -> JSONResponse:
    """Return the name and the tags of the user who sends the request."""
    user = management.users.require_user(visitor.name)
    return JSONResponse({"name": user.name, "tags": list(user.tags)})


def _existing(management: Management, name: str) -> User:
    user = management.users.get(name)
    if user is None:
        raise not_found(f"no user '{name}'")
    return user


def find_permissions(management: Management, name: str) -> list[Shown]:
    """Return a user's permissions by virtual host. Raises NotFound."""
    user = management.users.require_user(name)
    return [
        show_permission(name, vhost, permission) for vhost, permission in sorted(user.permissions.items())
    ]


def find_topic_permissions(management: Management, name: str) -> list[Shown]:
    """Return a user's topic permissions: routing keys, where they are limited. Raises NotFound."""
    user = management.users.require_user(name)
    permissions = sorted(user.topics.items(), key=lambda item: item[0])
    return [show_topic(name, vhost, exchange, topic) for (vhost, exchange), topic in permissions]


def _of_all(management: Management, topics: bool) -> list[Shown]:
    one = find_topic_permissions if topics else find_permissions
    return [shown for name in management.users.names() for shown in one(management, name)]


@permissions.get("/permissions")
async def list_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return all permissions of all users."""
    return JSONResponse(_of_all(management, topics=False))


@permissions.get("/topic-permissions")
async def list_topic_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return all topic permissions of all users."""
    return JSONResponse(_of_all(management, topics=True))


@permissions.get("/users/{user}/permissions")
async def list_permissions_of(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return all permissions of a user."""
    return JSONResponse(find_permissions(management, user))


@permissions.get("/users/{user}/topic-permissions")
async def list_topics_of(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return all topic permissions of a user."""
    return JSONResponse(find_topic_permissions(management, user))


@permissions.get("/vhosts/{vhost}/permissions")
async def list_permissions_in(management: Managed, visitor: Administrator, vhost: Name) -> JSONResponse:
    """Return the permissions of all users in a virtual host."""
    visitor.vhost(vhost)
    permissions = management.users.permissions_in(vhost)
    return JSONResponse([show_permission(name, vhost, permission) for name, permission in permissions])


@permissions.get("/vhosts/{vhost}/topic-permissions")
async def list_topics_in(management: Managed, visitor: Administrator, vhost: Name) -> JSONResponse:
    """Return the topic permissions of all users in a virtual host."""
    visitor.vhost(vhost)
    permissions = management.users.topics_in(vhost)
    return JSONResponse([show_topic(name, vhost, exchange, topic) for name, exchange, topic in permissions])


@permissions.get("/permissions/{vhost}/{user}")
async def get_permission(
    management: Managed, visitor: Administrator, vhost: Name, user: Name
) -> JSONResponse:
    """Return the permissions of a user in a virtual host."""
    visitor.vhost(vhost)
    permission = management.users.require_user(user).permissions.get(vhost)
    if permission is None:
        raise _no_permission(user, vhost)
    return JSONResponse(show_permission(user, vhost, permission))


@permissions.put("/permissions/{vhost}/{user}", status_code=CREATED)
async def put_permission(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, body: Body
) -> Response:
    """Set the permissions of a user in a virtual host: `configure`, `write` and `read`.

    Each is a regular expression over names.
    """
    visitor.vhost(vhost)
    existed = vhost in management.users.require_user(user).permissions
    expressions = [read_text(body, what) for what in ("configure", "write", "read")]
    management.users.permit(user, vhost, *expressions)
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@permissions.delete("/permissions/{vhost}/{user}", status_code=CHANGED)
async def delete_permission(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> Response:
    """Delete the permissions of a user in a virtual host, so that the user can no longer open it."""
    visitor.vhost(vhost)
    if vhost not in management.users.require_user(user).permissions:
        raise _no_permission(user, vhost)
    management.users.forbid(user, vhost)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@permissions.get("/topic-permissions/{vhost}/{user}")
async def get_topics(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> JSONResponse:
    """Return the topic permissions of a user in a virtual host, by exchange."""
    visitor.vhost(vhost)
    return JSONResponse(
        [shown for shown in find_topic_permissions(management, user) if shown["vhost"] == vhost]
    )


@permissions.get("/topic-permissions/{vhost}/{user}/{exchange}")
async def get_topic(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, exchange: Name
) -> JSONResponse:
    """Return the topic permissions of a user for one exchange."""
    visitor.vhost(vhost)
    topic = management.users.require_user(user).topics.get((vhost, exchange))
    if topic is None:
        raise not_found(
            f"user '{user}' has no topic permissions for exchange '{exchange}' in vhost '{vhost}'"
        )
    return JSONResponse(show_topic(user, vhost, exchange, topic))


@permissions.put("/topic-permissions/{vhost}/{user}", status_code=CREATED)
async def put_topic(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, body: Body
) -> Response:
    """Set the regular expressions for the routing keys that a user may use with a topic exchange."""
    visitor.vhost(vhost)
    exchange = read_text(body, "exchange")
    existed = (vhost, exchange) in management.users.require_user(user).topics
    management.users.permit_topic(user, vhost, exchange, read_text(body, "write"), read_text(body, "read"))
    await await_sync(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@permissions.put("/topic-permissions/{vhost}/{user}/{exchange}", status_code=CREATED)
async def put_topic_of_exchange(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, exchange: Name, body: Body
) -> Response:
    """Set the topic permissions of a user for one exchange, which the body may name too."""
    named = read_text(body, "exchange", exchange)
    if named != exchange:
        raise bad_request(f"the path names exchange '{exchange}', and the body exchange '{named}'")
    return await put_topic(management, visitor, vhost, user, {**body, "exchange": exchange})


@permissions.delete("/topic-permissions/{vhost}/{user}", status_code=CHANGED)
async def delete_topics(management: Managed, visitor: Administrator, vhost: Name, user: Name) -> Response:
    """Delete all topic permissions of a user in a virtual host, so that the user may use all routing keys."""
    visitor.vhost(vhost)
    management.users.forget_topic(user, vhost)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


@permissions.delete("/topic-permissions/{vhost}/{user}/{exchange}", status_code=CHANGED)
async def delete_topic(
    management: Managed, visitor: Administrator, vhost: Name, user: Name, exchange: Name
) -> Response:
    """Delete the topic permissions of a user for one exchange."""
    visitor.vhost(vhost)
    management.users.forget_topic(user, vhost, exchange)
    await await_sync(management.store)
    return Response(status_code=CHANGED)


def _no_permission(user: str, vhost: str) -> Exception:
    return not_found(f"user '{user}' has no permissions in vhost '{vhost}'")
