"""The admin HTTP application: health and metrics at once; the HTTP API from the first request for the API on.

Browsers name the page that sends a request: `Origin` [RFC 6454] in each request that may change something,
and `Sec-Fetch-Site` [Fetch Metadata]. Other clients send neither header, and pass the check.

The HTTP API needs FastAPI. Import and routes cost more CPU time than the rest of the broker's start.
A broker that is only probed and scraped never pays for the API.
"""

import asyncio
import json
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any, Final, final
from urllib.parse import parse_qs, urlsplit

import structlog

from broker.admin.metrics.exposition import (
    CHOSEN,
    FAMILIES,
    OTHER_FAMILIES,
    PER_OBJECT,
    Exposition,
    View,
)
from broker.admin.metrics.text import CONTENT_TYPE
from broker.admin.page import PREFIX as PAGE_FILES
from broker.admin.page import File, Page, wants_page
from broker.admin.state import AdminState
from broker.logs import Seldom

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
CHANGING: Final = "/api/aliveness-test"  # declares a queue and publishes, by GET
OWN_SITES: Final = frozenset({"same-origin", "none"})
PORTS: Final = {"http": 80, "https": 443}
ANY: Final = "any"

TURN_SECONDS: Final = 0.01

PREFIX: Final = "/api"
METHODS: Final = ("GET", "HEAD", "OPTIONS")
METRICS: Final = "/metrics"
METRICS_PER_OBJECT: Final = "/metrics/per-object"
METRICS_DETAILED: Final = "/metrics/detailed"
ALL_METRICS: Final = (METRICS, METRICS_PER_OBJECT, METRICS_DETAILED)
PAGES: Final = {
    "/": "Return the management page to browsers, and to other clients the product, its version and its "
    "flavour.",
    "/health/live": "Return 200 as long as the event loop runs.",
    "/health/ready": "Return 200 if clients can connect, consume, and publish or wait to publish, else 503 "
    "with the reason.",
    "/health/alarms": "Return 200 while no publisher is blocked, and 503 with the reason while publishers "
    "wait for memory or disk space.",
    METRICS: "Return all metrics in Prometheus's text format; those of objects as sums over all objects.",
    METRICS_PER_OBJECT: "Return all metrics, those of objects for each object.",
    METRICS_DETAILED: "Return the metrics of the families in the parameters `family`, for each object; "
    "with parameters `vhost` only those of objects in these virtual hosts.",
}
"""The paths beside the HTTP API, which need no user, and their answers."""

_log = structlog.get_logger("amqpd.admin")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
"""An ASGI application."""

Answer = tuple[int, dict[str, object]]
"""A status and the JSON object of the body."""


GZIP: Final = 16 + zlib.MAX_WBITS
"""The window of zlib with the header of gzip. [zlib manual, deflateInit2]"""


def accepts_gzip(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the client of a request reads gzip. `headers` have lower-case names. [RFC 9110 12.5.3]"""
    for name, value in headers:
        if name == b"accept-encoding":
            for item in value.decode("latin-1").lower().split(","):
                coding, _, weight = item.partition(";")
                if coding.strip() == "gzip" and _weight(weight) > 0:
                    return True
    return False


def _weight(text: str) -> float:
    """Return the weight of a coding, as `q=0.5`: 1 without one, and 0 for one that makes no sense."""
    name, _, value = text.replace(" ", "").partition("=")
    if not name:
        return 1.0
    try:
        return float(value) if name == "q" else 0.0
    except ValueError:
        return 0.0


def is_changing(method: str, path: str) -> bool:
    """Whether a request may change something."""
    return method not in SAFE or path.startswith(CHANGING)


def find_foreign_site(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str]) -> str:
    """Return the foreign origin or site whose page sent a request; "" if no foreign page did.

    `headers` have lower-case names. Pages of `origins` may send requests, and pages of any origin if `any` is
    among them.
    """
    by_name: dict[bytes, list[str]] = {b"origin": [], b"host": [], b"sec-fetch-site": []}
    for name, value in headers:
        if name in by_name:
            by_name[name].append(value.decode("latin-1").strip().lower())
    origin_headers = by_name[b"origin"]
    if ANY in origins or (origin_headers and all(origin in origins for origin in origin_headers)):
        return ""
    host = ",".join(by_name[b"host"])
    for origin in origin_headers:
        if origin and not _is_at(origin, host):
            return origin
    return next((f"a {site} origin" for site in by_name[b"sec-fetch-site"] if site not in OWN_SITES), "")


def _is_at(origin: str, host: str) -> bool:
    """Whether `origin` is served at `host`, with or without the port that its scheme implies."""
    try:
        parts = urlsplit(origin)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return False
    name = parts.netloc.rpartition("@")[2]
    bare = name.removesuffix(f":{port}") if port == PORTS.get(parts.scheme) else name
    return bool(bare) and host in (name, bare, f"{bare}:{port}")


@final
class Turns:
    """Lets requests begin in the order of their arrival, a few in each turn of the event loop.

    A thousand requests that arrive together would otherwise be answered in one turn of the event loop, and
    clients of AMQP wait for all of them. Requests begin for TURN_SECONDS in one turn of the loop. From then
    on one request begins in each turn, until no request waits.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._end = 0.0
        self._armed = False

    async def take(self) -> None:
        """Return when a request may begin."""
        if not self._armed:
            self._armed = True
            self._end = self._clock() + TURN_SECONDS
            asyncio.get_running_loop().call_soon(self._turn)
        elif self._waiting or self._clock() >= self._end:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _turn(self) -> None:
        self._armed = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._turn)


@final
class AdminApp:
    """The ASGI application that serves one daemon's admin HTTP port.

    `load_api` makes the application that serves all paths under `/api`. `load_api` runs in a thread, once,
    when the first request for such a path arrives. Without `load_api` these paths are not found.

    Web pages of the host that a request is sent to, and of `origins`, may send requests that change
    something. `metrics_per_object`: `/metrics` shows what `/metrics/per-object` shows. `has_page`: browsers
    get the management page.
    """

    def __init__(
        self,
        state: AdminState,
        load_api: Callable[[], Application] | None = None,
        origins: Collection[str] = (),
        metrics_per_object: bool = False,
        has_page: bool = True,
    ) -> None:
        self._state = state
        self._page = Page() if has_page else None
        self._metrics = View(PER_OBJECT) if metrics_per_object else View()
        self._origins = origins
        self._seldom = Seldom(time.monotonic)
        self._exposition = Exposition(state)
        self._turns = Turns()
        self._load_api = load_api
        self._api: asyncio.Task[Application] | None = None
        self._pages: dict[str, Callable[[], Answer]] = {
            "/": self._product,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/health/alarms": self._alarms,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._turns.take()
        path = scope["path"].rstrip("/") or "/"
        if is_changing(scope["method"], path):
            foreign = find_foreign_site(scope["headers"], self._origins)
            if foreign:
                self._seldom.warning(
                    _log,
                    "cross-site request refused",
                    origin=foreign,
                    method=scope["method"],
                    path=scope["path"],
                )
                reason = f"a page of {foreign} may not change anything here; see the setting admin_origins"
                await _send_json(scope, send, 403, {"error": "forbidden", "reason": reason})
                return
        if self._load_api is not None and f"{path}/".startswith(f"{PREFIX}/"):
            api = await self._loaded(self._load_api)
            if scope["method"] == "HEAD":
                await api({**scope, "method": "GET"}, receive, _without_bodies(send))
            else:
                await api(scope, receive, send)
            return
        file = self._find_file(path, scope)
        if file is not None:
            await _send_file(file, scope, send)
            return
        page = self._pages.get(path)
        if scope["method"] == "OPTIONS" and (page is not None or path in ALL_METRICS or path == "*"):
            allow = (b"allow", ", ".join(METHODS).encode())
            await _send_start(send, 200, allow, (b"content-length", b"0"))
            await send({"type": "http.response.body", "body": b""})
        elif page is None and path not in ALL_METRICS:
            await _send_json(scope, send, 404, {"error": "Object Not Found", "reason": "Not Found"})
        elif scope["method"] not in METHODS:
            refusal: dict[str, object] = {"error": "Method Not Allowed", "reason": "Method Not Allowed"}
            await _send_json(scope, send, 405, refusal, (b"allow", ", ".join(METHODS).encode()))
        elif page is not None:
            await _send_json(scope, send, *page())
        else:
            await self._answer_scrape(path, scope, send)

    def _find_file(self, path: str, scope: Message) -> File | None:
        """Return the file of the management page that a request is for; None if it is for something else."""
        if self._page is None or scope["method"] not in ("GET", "HEAD"):
            return None
        if path.startswith(PAGE_FILES):
            return self._page.find(path)
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        return self._page.find(path) if path == "/" and wants_page(accept.decode("latin-1")) else None

    async def _loaded(self, load_api: Callable[[], Application]) -> Application:
        """Return the API. The first request loads the API; later requests wait for the same load."""
        if self._api is None:
            self._api = asyncio.create_task(asyncio.to_thread(load_api), name="load HTTP API")
        loading = self._api
        try:
            return await asyncio.shield(loading)  # a requester that disconnects must not stop the load
        except Exception:
            if self._api is loading:
                self._api = None  # the next request tries again
            raise

    def _product(self) -> Answer:
        state = self._state
        return 200, {"product": "amqpd", "version": state.version, "flavour": state.flavour}

    def _live(self) -> Answer:
        """Return 200 as long as the event loop runs."""
        return 200, {"status": "live"}

    def _ready(self) -> Answer:
        """Return 200 if clients can connect, consume, and publish or wait to publish.

        Otherwise return 503 and the reason.
        """
        reason = self._state.not_ready()
        if not reason and self._state.measured.log.failure:
            reason = f"the log accepts nothing: {self._state.measured.log.failure}"
        if reason:
            return 503, {"status": "not ready", "reason": reason}
        shortage = self._state.measured.resources.shortage.reason
        return 200, {"status": "ready", "alarms": shortage} if shortage else {"status": "ready"}

    def _alarms(self) -> Answer:
        """Return 200 while no publisher is blocked.

        While publishers wait for memory or disk, return 503 and the reason.
        """
        shortage = self._state.measured.resources.shortage
        if shortage.reason:
            return 503, {
                "status": "alarm",
                "reason": shortage.reason,
                "publishers_held": len(shortage.held),
            }
        return 200, {"status": "ok"}

    async def _answer_scrape(self, path: str, scope: Message, send: Send) -> None:
        if path == METRICS:
            view = self._metrics
        elif path == METRICS_PER_OBJECT:
            view = View(PER_OBJECT)
        else:
            query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            families = frozenset(query.get("family", ()))
            unknown = sorted(families - FAMILIES - OTHER_FAMILIES)
            if unknown:
                reason = f"family '{unknown[0]}' is none of: {', '.join(sorted(FAMILIES))}"
                await _send_json(scope, send, 400, {"error": "bad_request", "reason": reason})
                return
            vhosts = frozenset(query["vhost"]) if "vhost" in query else None
            view = View(CHOSEN, families, vhosts)
        await self._send_metrics(view, scope, send)

    async def _send_metrics(self, view: View, scope: Message, send: Send) -> None:
        """Send metrics in Prometheus's text format, compressed if the client reads that.

        Other work runs between the pieces.
        """
        packer = zlib.compressobj(1, zlib.DEFLATED, GZIP) if accepts_gzip(scope["headers"]) else None
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"vary", b"accept-encoding")]
        if packer is not None:
            headers.append((b"content-encoding", b"gzip"))
        await _send_start(send, 200, *headers)
        if scope["method"] != "HEAD":
            async for piece in self._exposition.write(view):
                body = piece if packer is None else packer.compress(piece)
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            if packer is not None:
                await send({"type": "http.response.body", "body": packer.flush(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _without_bodies(send: Send) -> Send:
    """Make the `send` for HEAD: the answer to GET without its body, however long that is. [RFC 9110 9.3.2]"""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return send_head


async def _send_file(file: File, scope: Message, send: Send) -> None:
    known = next((value for name, value in scope["headers"] if name == b"if-none-match"), b"")
    is_packed = accepts_gzip(scope["headers"])
    headers = file.headers(is_packed)
    if (b"etag", known) in headers:
        await _send_start(send, 304, *headers)
        await send({"type": "http.response.body", "body": b""})
        return
    body = file.packed if is_packed else file.body
    await _send_start(send, 200, *headers, (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _send_json(
    scope: Message, send: Send, status: int, content: dict[str, object], *headers: tuple[bytes, bytes]
) -> None:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    size = (b"content-length", str(len(body)).encode())
    await _send_start(send, status, (b"content-type", b"application/json"), size, *headers)
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _send_start(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
