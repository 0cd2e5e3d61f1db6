"""The log-in and log-out of the management page: a cookie instead of a password with each request."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response

from broker.admin.api.answers import JSONResponse, bad_request, not_authorised
from broker.admin.api.audit import USER
from broker.admin.api.management import Management, managed
from broker.admin.api.requests import Body, check_password, origin_of, session_token, session_user, tags_of
from broker.admin.sessions import PAGE_HEADER, cookie_name, cookie_of, is_of_page

router = APIRouter(tags=["log-in"])

_log = structlog.get_logger("amqpd.audit")


async def _require_page(request: Request) -> None:
    if not is_of_page(request.headers.raw):
        raise bad_request(
            f"sessions are for the management page, whose requests have the header {PAGE_HEADER}; "
            "a program sends its password with each request"
        )


def _set_cookie(request: Request, answer: Response, token: str) -> None:
    """Set the cookie of the page; with an empty token the browser forgets the cookie."""
    name = cookie_name(request.url.netloc)
    answer.headers["set-cookie"] = cookie_of(name, token, request.url.scheme == "https")


@router.get("/login")
async def show_login(request: Request, management: Annotated[Management, Depends(managed)]) -> JSONResponse:
    """Return the user of the page's session with the user's tags; `name` is null without a session."""
    name = session_user(request, management)
    return JSONResponse({"name": name, "tags": [] if name is None else sorted(tags_of(management, name))})


@router.post("/login", dependencies=[Depends(_require_page)])
async def log_in(
    request: Request, management: Annotated[Management, Depends(managed)], body: Body
) -> JSONResponse:
    """Check a user's name and password, `username` and `password`, and begin a session of the page.

    The session that the browser had before ends. The cookie counts only for requests of the page.
    """
    name, password = body.get("username"), body.get("password")
    if not isinstance(name, str) or not isinstance(password, str):
        raise bad_request("username and password are the user's name and password, as texts")
    await check_password(request, management, name, password, "form")
    tags = tags_of(management, name)
    request.scope[USER] = name
    if not tags:
        raise not_authorised("Not management user")
    _end_session(request, management)
    _log.info("session of the page opened", user=name, peer=origin_of(request).peer)
    answer = JSONResponse({"name": name, "tags": sorted(tags)})
    _set_cookie(request, answer, management.sessions.begin(name))
    return answer


@router.delete("/login", status_code=204, dependencies=[Depends(_require_page)])
async def log_out(request: Request, management: Annotated[Management, Depends(managed)]) -> Response:
    """End the session of the page, and make the browser forget its cookie."""
    _end_session(request, management)
    answer = Response(status_code=204)
    _set_cookie(request, answer, "")
    return answer


def _end_session(request: Request, management: Management) -> None:
    """End the session that the cookie of a request belongs to, if there is one."""
    token = session_token(request)
    user = management.sessions.user_of(token)
    if user is not None:
        management.sessions.end(token)
        _log.info("session of the page closed", user=user, peer=origin_of(request).peer)
