"""Requests: the user and the user's rights, names in paths, and bodies. [RabbitMQ management tags]

A user is known by the password in the header `Authorization`, or by a session of the management page.

The password is checked by the same gate as for AMQP, with the same delays after failures.
"""

import asyncio
import base64
import binascii
import time
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

import structlog
from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.adapters.access import Origin, Rights, is_loopback
from broker.admin.api.answers import ApiError, PeerLeftError, bad_request, not_authorised, not_found
from broker.admin.api.audit import USER
from broker.admin.api.management import Management, managed
from broker.admin.http import PEER, Peer
from broker.admin.json_documents import Fields, JsonError, read_json
from broker.admin.sessions import cookie_name, is_of_page, token_of
from broker.admin.statistics import Span, Spans
from broker.auth.logins import refusal_reason
from broker.core.delivery.journal import Operator
from broker.core.vhosts.vhost import VirtualHost
from broker.journal.recorder import CURRENT
from broker.logs import SeldomEach

BYTES_MAX: Final = 256 * 2**10  # read as a whole
OF_MESSAGES_MAX: Final = 2 * 2**20

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = frozenset({ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT})

CREDENTIALS_MAX: Final = 4096  # the header's bytes: credentials are kept until the password is checked

SAMPLES_MAX: Final = 2000

_log = structlog.get_logger("amqpd.audit")
_seldom = SeldomEach(time.monotonic)

_OBJECT: Final = "User not authorised to access object"


class RawPaths:
    """Routes paths under `prefix` as they were sent, so that an encoded slash does not split a name."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request (ASGI)."""
        raw: Any = scope.get("raw_path")
        if scope["type"] == "http" and raw and scope["path"].startswith(self._prefix):
            path = raw.split(b"?", 1)[0].decode("ascii", "replace")
            if len(path) > len(self._prefix) and path.endswith("/"):
                path = path[:-1]  # RabbitMQ accepts both, and no name is empty
            scope = dict(scope) | {"path": path}
        await self._app(scope, receive, send)


def decode_name(text: str) -> str:
    """Return a percent-encoded name decoded. Raises ApiError if the name is not UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"'{text}' in the path is not valid UTF-8") from error


Name = Annotated[str, Path(), AfterValidator(decode_name)]
"""A name in the path."""


def _exchange(text: str) -> str:
    name = decode_name(text)
    return "" if name == "amq.default" else name


ExchangeName = Annotated[str, Path(), AfterValidator(_exchange)]
"""The name of an exchange in the path; `amq.default` is the default exchange, whose name is empty."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the body. Raises ApiError if the body has more than `most` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise ApiError(413, "payload_too_large", f"a body has at most {most} bytes here")
        pieces.append(piece)
    return b"".join(pieces)


async def _object(request: Request, most: int) -> Fields:
    content = await read_body(request, most)
    if not content or content.isspace():
        return {}
    try:
        document = read_json(content)
    except JsonError as error:
        raise bad_request(f"not_json: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise bad_request("the body is not a JSON object")
    return document


async def _body(request: Request) -> Fields:
    return await _object(request, BYTES_MAX)


async def _message(request: Request) -> Fields:
    return await _object(request, OF_MESSAGES_MAX)


Body = Annotated[Fields, Depends(_body)]
"""The body as a JSON object; an empty one if there is no body."""

MessageBody = Annotated[Fields, Depends(_message)]
"""The body as a JSON object, up to the size that messages may have."""


def _span(name: str, age: str | None, incr: str | None) -> Span | None:
    if age is None or incr is None:
        return None
    if not (age.isascii() and age.isdigit() and incr.isascii() and incr.isdigit()):
        raise bad_request(f"{name}_age and {name}_incr are whole numbers of seconds")
    span = Span(int(age[:9]), int(incr[:9]))
    if span.incr < 1 or span.age // span.incr > SAMPLES_MAX:
        raise bad_request(f"{name}_age={age} with {name}_incr={incr}: at most {SAMPLES_MAX} samples")
    return span


Seconds = Annotated[str | None, Query(description="For a history of the numbers: seconds. [RabbitMQ]")]


async def _spans(
    lengths_age: Seconds = None,
    lengths_incr: Seconds = None,
    msg_rates_age: Seconds = None,
    msg_rates_incr: Seconds = None,
    data_rates_age: Seconds = None,
    data_rates_incr: Seconds = None,
    node_stats_age: Seconds = None,
    node_stats_incr: Seconds = None,
) -> Spans:
    return Spans(
        _span("lengths", lengths_age, lengths_incr),
        _span("msg_rates", msg_rates_age, msg_rates_incr),
        _span("data_rates", data_rates_age, data_rates_incr),
        _span("node_stats", node_stats_age, node_stats_incr),
    )


Histories = Annotated[Spans, Depends(_spans)]
"""The histories that the request wants."""


class Visitor:
    """An authenticated user with one of the four tags."""

    def __init__(self, management: Management, name: str, tags: frozenset[str]) -> None:
        self.name = name
        self.tags = tags
        self._management = management

    @property
    def administers(self) -> bool:
        """Whether the user may do everything."""
        return ADMINISTRATOR in self.tags

    @property
    def monitors(self) -> bool:
        """Whether the user may see everything."""
        return bool(self.tags & {ADMINISTRATOR, MONITORING})

    @property
    def makes_policies(self) -> bool:
        """Whether the user may change policies in virtual hosts with access."""
        return bool(self.tags & {ADMINISTRATOR, POLICYMAKER})

    def may_enter(self, vhost: str) -> bool:
        """Whether the user has access to a virtual host."""
        return self._management.access.may_access(self.name, vhost)

    def vhosts(self) -> list[VirtualHost]:
        """Return the virtual hosts whose contents the user may see."""
        vhosts = list(self._management.broker.vhosts.values())
        return vhosts if self.administers else [vhost for vhost in vhosts if self.may_enter(vhost.name)]

    def vhost(self, name: str) -> VirtualHost:
        """Return a virtual host for work in it. Raises ApiError without access."""
        vhost = self._management.broker.vhosts.get(name)
        if vhost is None or not (self.administers or self.may_enter(name)):
            raise not_found(f"no vhost '{name}'")
        return vhost

    def visible_vhost(self, name: str) -> VirtualHost:
        """Return a virtual host to show it, as users with the tag monitoring may see all.

        Raises ApiError without access.
        """
        vhost = self._management.broker.vhosts.get(name)
        if vhost is None or not (self.monitors or self.may_enter(name)):
            raise not_found(f"no vhost '{name}'")
        return vhost

    def policy_vhost(self, name: str) -> VirtualHost:
        """Return a virtual host to change its policies or parameters. Raises ApiError without access."""
        if not self.makes_policies:
            raise not_authorised(_OBJECT)
        return self.vhost(name)

    def rights(self, vhost: VirtualHost) -> Rights:
        """Return the visitor's rights in a virtual host, as over AMQP."""
        return Rights(self._management.access, self.name, vhost.name)

    def require_administrator(self) -> None:
        """Raise ApiError unless the user is an administrator."""
        if not self.administers:
            raise not_authorised("Not administrator user")

    def require_monitor(self) -> None:
        """Raise ApiError unless the user may see everything."""
        if not self.monitors:
            raise not_authorised("Not monitor user")

    def require_policymaker(self) -> None:
        """Raise ApiError unless the user may change policies."""
        if not self.makes_policies:
            raise not_authorised(_OBJECT)

    def require_owner(self, user: str, to_change: bool) -> None:
        """Raise ApiError for an object of another user, unless the user may see or change all objects."""
        if user != self.name and not (self.administers if to_change else self.monitors):
            raise not_authorised(_OBJECT)


def origin_of(request: Request) -> Origin:
    """Return the address of the client."""
    host = request.client.host if request.client is not None else ""
    port = request.client.port if request.client is not None else 0
    return Origin(host, port, is_loopback(host))


def tags_of(management: Management, name: str) -> frozenset[str]:
    """Return the tags of a user that give rights over HTTP; none if there is no such user."""
    user = management.users.get(name)
    return TAGS.intersection(user.tags) if user is not None else frozenset[str]()


async def _visitor(request: Request, management: Annotated[Management, Depends(managed)]) -> Visitor:
    peer: Peer | None = request.scope.get("extensions", {}).get(PEER)
    header = request.headers.get("authorization", "")
    origin = origin_of(request)
    name = None if header else session_user(request, management)
    if name is None:
        name, password = _credentials(header)
        await check_password(request, management, name, password, "HTTP Basic")
    request.scope[USER] = name
    if peer is not None:
        peer.on_logged_in()
    tags = tags_of(management, name)
    if not tags:
        raise not_authorised("Not management user")
    CURRENT.set(Operator(name, origin.peer, f"{request.method} {_path_of(request)}"))
    return Visitor(management, name, tags)


def session_token(request: Request) -> str:
    """Return the token of the cookie that the page at the address of this request has; "" without one."""
    return token_of(request.headers.get("cookie", ""), cookie_name(request.url.netloc))


def session_user(request: Request, management: Management) -> str | None:
    """Return the user whose session on the management page sends a request; None if there is none.

    A user that may log in from this host only has no session elsewhere.
    """
    token = session_token(request)
    if not token or not is_of_page(request.headers.raw):
        return None
    name = management.sessions.user_of(token)
    if name is None or refusal_reason(management.users.get(name), origin_of(request)):
        return None
    return name


async def check_password(
    request: Request, management: Management, name: str, password: str, mechanism: str
) -> None:
    """Raise ApiError unless the password is right; `mechanism` is its name in the log.

    The password is checked by the same gate as for AMQP, with the same delays after failures.
    """
    peer: Peer | None = request.scope.get("extensions", {}).get(PEER)
    origin = origin_of(request)
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answered(right: bool) -> None:
        if not answer.done():
            answer.set_result(right)

    def left() -> None:
        check.abandon()
        if not answer.done():
            answer.set_exception(PeerLeftError())

    check = management.access.check(name, password, origin, answered)
    if not answer.done() and peer is not None:
        peer.when_gone(left)
    accepted = await answer
    management.broker.counters.count_login("http", accepted, is_lasting=False)
    if not accepted:
        reason = management.access.explain_refusal(check, origin)
        about = {"peer": origin.peer, "user": name, "mechanism": mechanism, "reason": reason}
        _seldom.warning(_log, "login refused", (name, origin.address), **about)
        raise _not_authorized("Not_Authorized")


def _path_of(request: Request) -> str:
    """Return the path as the client has sent it, without the query."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.decode(errors="replace")


Asker = Annotated[Visitor, Depends(_visitor)]
"""The user who sent the request."""


async def _administrator(visitor: Asker) -> Visitor:
    visitor.require_administrator()
    return visitor


Administrator = Annotated[Visitor, Depends(_administrator)]
"""The user who sent the request, an administrator."""


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise _not_authorized("HTTP access denied: no credentials")
    if len(encoded) > CREDENTIALS_MAX:
        raise _not_authorized(f"HTTP access denied: credentials of more than {CREDENTIALS_MAX} bytes")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise _not_authorized("HTTP access denied: credentials cannot be read") from error
    if not colon:
        raise _not_authorized("HTTP access denied: credentials cannot be read")
    return name, password


def _not_authorized(reason: str) -> ApiError:
    return ApiError(401, "not_authorized", reason)
