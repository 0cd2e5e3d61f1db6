"""Users: shown, added, changed, deleted. Administrators see hashes, as in RabbitMQ; nobody sees passwords."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import JSONResponse
from broker.admin.api.body import Body
from broker.admin.api.durable import durable
from broker.admin.api.errors import bad_request, not_found
from broker.admin.api.lists import Options, answer_list
from broker.admin.api.management import Managed, Management
from broker.admin.api.paths import Name
from broker.admin.api.visitor import Administrator, Asker
from broker.admin.fields import Fields, table, tags_of
from broker.admin.shapes import shown_user
from broker.auth.passwords import NO_PASSWORD, RABBIT_SHA256, Password, imported
from broker.auth.user import USER_LIMITS, User, checked_limits

CREATED: Final = 201
CHANGED: Final = 204

router = APIRouter(tags=["users"])


def hashed_of(fields: Fields) -> Password | None:
    """The password that comes hashed, if it does. Raises ApiError, PreconditionFailed."""
    if "password_hash" not in fields:
        return None
    value, hashing = fields["password_hash"], fields.get("hashing_algorithm", RABBIT_SHA256)
    if not isinstance(value, str) or not isinstance(hashing, str):
        raise bad_request("password_hash and hashing_algorithm are strings")
    return imported(value, hashing)


@router.get("/users")
async def list_users(management: Managed, visitor: Administrator, options: Options) -> Response:
    """Return all users."""
    users = management.users
    found = [users.known(name) for name in users.names()]
    return await answer_list(found, shown_user, options, lambda user: (user.name,), lambda user: user.name)


@router.get("/users/without-permissions")
async def list_users_without_permissions(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return the users who may not open any virtual host."""
    users = management.users
    found = [users.known(name) for name in users.names()]
    return JSONResponse([shown_user(user) for user in found if not user.permissions])


@router.post("/users/bulk-delete", status_code=CHANGED)
async def delete_users(management: Managed, visitor: Administrator, body: Body) -> Response:
    """Delete several users. Names of missing users are passed over."""
    names = body.get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users is not a list of names")
    for name in names:
        if management.users.get(name) is not None:
            management.users.delete(name)
    await durable(management.store)
    return Response(status_code=CHANGED)


@router.get("/users/{user}")
async def get_user(management: Managed, visitor: Administrator, user: Name) -> JSONResponse:
    """Return a user."""
    return JSONResponse(shown_user(_existing(management, user)))


@router.put("/users/{user}", status_code=CREATED)
async def put_user(management: Managed, visitor: Administrator, user: Name, body: Body) -> Response:
    """Add a user, or change a user's password, tags and, if given, limits.

    Without a password and a hash, a present user keeps their password, and a new user has none and cannot log
    in with a password.
    """
    limits = checked_limits(table(body, "limits"), USER_LIMITS) if "limits" in body else None
    password = hashed_of(body)
    if password is None and body.get("password") is not None:
        if not isinstance(body["password"], str):
            raise bad_request("password is not a string")
        password = await management.make_password(body["password"])
    existed = management.users.get(user) is not None
    if password is None and not existed:
        password = NO_PASSWORD
    management.users.put(user, password, tags_of(body))
    if limits is not None:
        management.users.set_limits(user, limits)
    await durable(management.store)
    return Response(status_code=CHANGED if existed else CREATED)


@router.delete("/users/{user}", status_code=CHANGED)
async def delete_user(management: Managed, visitor: Administrator, user: Name) -> Response:
    """Delete a user with all permissions, and close the user's connections."""
    _existing(management, user)
    management.users.delete(user)
    await durable(management.store)
    return Response(status_code=CHANGED)


@router.get("/whoami")
async def whoami(visitor: Asker, management: Managed) -> JSONResponse:
    """Return the name and the tags of the user who sends the request."""
    user = management.users.known(visitor.name)
    return JSONResponse({"name": user.name, "tags": list(user.tags)})


def _existing(management: Management, name: str) -> User:
    user = management.users.get(name)
    if user is None:
        raise not_found(f"no user '{name}'")
    return user
