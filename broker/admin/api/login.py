"""The log-in and log-out of the management page: a cookie instead of a password with each request."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response

from broker.adapters.access import Origin, is_loopback
from broker.admin.api.answers import JSONResponse, bad_request, not_authorised
from broker.admin.api.audit import USER
from broker.admin.api.management import Management, managed
from broker.admin.api.requests import TAGS, Body, check_password
from broker.admin.sessions import cookie_of, is_of_page, token_of

router = APIRouter(tags=["log-in"])

_log = structlog.get_logger("amqpd.audit")


@router.get("/login")
async def show_login(request: Request, management: Annotated[Management, Depends(managed)]) -> JSONResponse:
    """Return the user of the page's session with the user's tags; `name` is null without a session."""
    token = token_of(request.headers.get("cookie", ""))
    name = management.sessions.user_of(token) if is_of_page(request.headers.raw) else None
    user = None if name is None else management.users.get(name)
    return JSONResponse({"name": name, "tags": [] if user is None else sorted(TAGS.intersection(user.tags))})


@router.post("/login")
async def log_in(
    request: Request, management: Annotated[Management, Depends(managed)], body: Body
) -> JSONResponse:
    """Check a user's name and password, `username` and `password`, and begin a session of the page.

    The cookie counts only for requests of the page.
    """
    name, password = body.get("username"), body.get("password")
    if not isinstance(name, str) or not isinstance(password, str):
        raise bad_request("username and password are the user's name and password, as texts")
    host = request.client.host if request.client is not None else ""
    port = request.client.port if request.client is not None else 0
    origin = Origin(host, port, is_loopback(host))
    await check_password(request, management, name, password, origin, "form")
    user = management.users.get(name)
    tags = TAGS.intersection(user.tags) if user is not None else frozenset[str]()
    request.scope[USER] = name
    if not tags:
        raise not_authorised("Not management user")
    _log.info("session of the page opened", user=name, peer=origin.peer)
    answer = JSONResponse({"name": name, "tags": sorted(tags)})
    cookie = cookie_of(management.sessions.begin(name), request.url.scheme == "https")
    answer.headers["set-cookie"] = cookie
    return answer


@router.delete("/login", status_code=204)
async def log_out(request: Request, management: Annotated[Management, Depends(managed)]) -> Response:
    """End the session of the page, and make the browser forget its cookie."""
    token = token_of(request.headers.get("cookie", ""))
    user = management.sessions.user_of(token)
    if user is not None:
        management.sessions.end(token)
        host = request.client.host if request.client is not None else ""
        _log.info("session of the page closed", user=user, peer=host)
    answer = Response(status_code=204)
    answer.headers["set-cookie"] = cookie_of("", request.url.scheme == "https")
    return answer
