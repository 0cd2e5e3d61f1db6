"""Health, the front page, and requests that other web sites make browsers send."""

import asyncio
import subprocess
import sys
from typing import Any

import httpx
import pytest

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.shortage import Shortage
from broker.admin.app import (
    ALL_METRICS,
    PAGES,
    AdminApp,
    Application,
    Message,
    Receive,
    Send,
    find_foreign_site,
    is_changing,
)
from broker.admin.state import AdminState, Measured
from broker.net.resources import Resources
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import new_broker


class Measures:
    """A histogram with nothing in it."""

    bounds = (0.1,)
    counts = (0, 0)
    sum = 0.0


class Log:
    """A log whose failure a test sets."""

    bytes_on_disk = 0
    segment_count = 1
    message_reads = 0
    damaged_segments = 0
    sync_latency = Measures()

    def __init__(self) -> None:
        self.failure = ""


class Starting:
    """The reason for which the daemon still waits."""

    reason = ""

    def __call__(self) -> str:
        return self.reason


class Dispatchers:
    def working(self) -> list[Any]:
        return []


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def starting() -> Starting:
    return Starting()


@pytest.fixture
def shortage() -> Shortage:
    return Shortage(Connections(HandClock().schedule))


@pytest.fixture
def app(log: Log, starting: Starting, shortage: Shortage) -> AdminApp:
    broker = new_broker()
    parts = log, Measures(), Resources(shortage, "", 0, 0), Dispatchers()
    measured = Measured(broker, Connections(broker.schedule), *parts)
    return AdminApp(AdminState("1.2.3", "compiled", measured, starting))


async def ask(app: AdminApp, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin") as client:
        return await client.request(method, path)


async def test_the_front_page_shows_the_running_broker(app: AdminApp) -> None:
    response = await ask(app, "/")
    assert response.status_code == 200
    assert response.json() == {"product": "amqpd", "version": "1.2.3", "flavour": "compiled"}


async def test_the_live_check_succeeds_before_the_start_and_after_a_store_failure(
    app: AdminApp, log: Log, starting: Starting
) -> None:
    log.failure, starting.reason = "disk full", "starting"
    response = await ask(app, "/health/live")
    assert (response.status_code, response.json()) == (200, {"status": "live"})


async def test_ready(app: AdminApp) -> None:
    response = await ask(app, "/health/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_not_ready_while_starting(app: AdminApp, starting: Starting) -> None:
    starting.reason = "the log is being read"
    response = await ask(app, "/health/ready")
    assert (response.status_code, response.json()["reason"]) == (503, "the log is being read")
    starting.reason = ""
    assert (await ask(app, "/health/ready")).status_code == 200


async def test_not_ready_once_the_log_has_failed(app: AdminApp, log: Log) -> None:
    log.failure = "sync: Input/output error"
    response = await ask(app, "/health/ready")
    assert response.status_code == 503
    assert response.json() == {
        "status": "not ready",
        "reason": "the log accepts nothing: sync: Input/output error",
    }


async def test_metrics(app: AdminApp) -> None:
    response = await ask(app, "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\namqpd_queues 0.0\n" in response.text
    assert "\namqpd_consumers 0.0\n" in response.text


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/nothing"])
async def test_unknown_paths_are_answered_with_404(app: AdminApp, path: str) -> None:
    assert (await ask(app, path)).status_code == 404


async def test_each_page_is_described(app: AdminApp) -> None:
    assert set(PAGES) == {*app._pages, *ALL_METRICS}
    for path in PAGES:
        assert (await ask(app, path)).status_code == 200


async def test_post_to_the_pages_is_answered_with_405(app: AdminApp) -> None:
    for path in PAGES:
        assert (await ask(app, path, "POST")).status_code == 405


async def test_the_alarms_check_names_the_resources_that_block_publishers(
    app: AdminApp, shortage: Shortage
) -> None:
    answer = await ask(app, "/health/alarms")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    shortage.set_shortages(memory=True, disk=True)
    answer = await ask(app, "/health/alarms")
    assert answer.status_code == 503
    assert answer.json() == {"status": "alarm", "reason": "low on memory & disk", "publishers_held": 0}
    answer = await ask(app, "/health/ready")
    assert (answer.status_code, answer.json()["alarms"]) == (200, "low on memory & disk")
    shortage.set_shortages(memory=False, disk=False)
    assert (await ask(app, "/health/alarms")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/health/live", "/nothing"])
async def test_head_has_the_headers_of_get_and_no_body(app: AdminApp, path: str) -> None:
    got, head = await ask(app, path), await ask(app, path, "HEAD")
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers == got.headers


class Loading:
    """Loads an API that answers every request with its path; the first loads may fail."""

    def __init__(self, failures: int = 0) -> None:
        self.loads = 0
        self._failures = failures

    def __call__(self) -> Application:
        self.loads += 1
        if self.loads <= self._failures:
            raise ImportError("no module")

        async def api(scope: Message, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": scope["path"].encode()})

        return api


def with_api(app: AdminApp, load: Loading) -> AdminApp:
    return AdminApp(app._state, load)


async def test_the_api_is_loaded_once_when_first_requested(app: AdminApp) -> None:
    load = Loading()
    served = with_api(app, load)
    for path in ("/", "/metrics", "/health/ready", "/nothing", "/apish"):
        await ask(served, path)
    assert load.loads == 0
    paths = ["/api/overview", "/api", "/api/queues"]
    answers = await asyncio.gather(*(ask(served, path) for path in paths))
    assert [answer.text for answer in answers] == paths
    assert load.loads == 1


async def test_a_load_that_fails_is_tried_again_by_the_next_request(app: AdminApp) -> None:
    load = Loading(failures=1)
    served = with_api(app, load)
    with pytest.raises(ImportError):
        await ask(served, "/api/overview")
    assert (await ask(served, "/api/overview")).text == "/api/overview"
    assert load.loads == 2


async def test_a_requester_that_leaves_does_not_stop_the_load(app: AdminApp) -> None:
    load = Loading()
    served = with_api(app, load)
    leaving = asyncio.create_task(ask(served, "/api/overview"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await ask(served, "/api/queues")).text == "/api/queues"
    assert load.loads == 1


def test_the_start_does_not_import_rarely_used_libraries() -> None:
    program = (
        "import sys, broker.daemon, broker.admin.server\n"
        "print([name for name in ('fastapi', 'starlette', 'wsproto') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/health/ready"])
async def test_a_slash_at_the_end_is_no_other_page(app: AdminApp, path: str) -> None:
    got = await ask(app, f"{path}/")
    assert (got.status_code, got.headers["content-type"]) == (
        200,
        (await ask(app, path)).headers["content-type"],
    )


HOST = (b"host", b"broker.example:15672")


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ([], ""),
        ([(b"origin", b"http://broker.example:15672"), (b"sec-fetch-site", b"same-origin")], ""),
        ([(b"origin", b"https://broker.example:15672")], ""),  # TLS may end at a proxy
        ([(b"origin", b"HTTP://Broker.Example:15672")], ""),
        ([(b"sec-fetch-site", b"none")], ""),
        ([(b"origin", b"http://evil.example"), (b"sec-fetch-site", b"cross-site")], "http://evil.example"),
        ([(b"origin", b"http://evil.example:15672")], "http://evil.example:15672"),
        ([(b"origin", b"http://broker.example")], "http://broker.example"),
        ([(b"origin", b"http://broker.example:1")], "http://broker.example:1"),
        ([(b"origin", b"null")], "null"),
        ([(b"origin", b"")], ""),
        ([(b"origin", b""), (b"origin", b"http://evil.example")], "http://evil.example"),
        ([(b"origin", b""), (b"sec-fetch-site", b"cross-site")], "a cross-site origin"),
        ([(b"origin", b"http://[::1")], "http://[::1"),
        ([(b"origin", b"http://broker.example:15672@evil.example")], "http://broker.example:15672@evil.example"),
        ([(b"origin", b"http://broker.example:15672"), (b"origin", b"http://evil.example")], "http://evil.example"),
        ([(b"sec-fetch-site", b"cross-site")], "a cross-site origin"),
        ([(b"sec-fetch-site", b"same-site")], "a same-site origin"),
        (
            [(b"origin", b"http://broker.example:15672"), (b"sec-fetch-site", b"cross-site")],
            "a cross-site origin",
        ),
    ],
)  # fmt: skip
def test_for_whose_page_a_request_is(headers: list[tuple[bytes, bytes]], foreign: str) -> None:
    assert find_foreign_site([HOST, *headers], ()) == foreign


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (b"http://h", b"h"),
        (b"http://h", b"h:80"),
        (b"http://h:80", b"h"),
        (b"https://h", b"h:443"),
        (b"https://h:443", b"h"),
        (b"http://[::1]:1", b"[::1]:1"),
        (b"http://[::1]", b"[::1]"),
    ],
)
def test_the_port_that_a_scheme_implies(origin: bytes, host: bytes) -> None:
    assert find_foreign_site([(b"host", host), (b"origin", origin)], ()) == ""


def test_origins_that_are_welcome() -> None:
    there = [HOST, (b"origin", b"https://console.example"), (b"sec-fetch-site", b"cross-site")]
    assert find_foreign_site(there, ("https://console.example",)) == ""
    assert find_foreign_site(there, ("any",)) == ""
    assert find_foreign_site(there, ("https://other.example",)) == "https://console.example"
    assert find_foreign_site([(b"origin", b"http://h")], ()) == "http://h", "a request without Host"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "get", "TRACE", "X"])
def test_changing_requests_from_the_same_site_are_allowed(method: str) -> None:
    assert is_changing(method, "/api/queues")


def test_reading_requests_from_any_site_are_allowed() -> None:
    assert not any(is_changing(method, "/api/queues") for method in ("GET", "HEAD", "OPTIONS"))
    assert is_changing("GET", "/api/aliveness-test/%2F")


async def test_a_scrape_is_compressed_for_clients_that_read_gzip(app: AdminApp) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin") as client:
        accepting = ("gzip", "br, gzip; q=0.5")
        refusing = ("gzip;q=0.000", "gzip;q=x", "gzip;x=1", "")
        for accepted in (*accepting, *refusing):
            coding = "gzip" if accepted in accepting else ""
            response = await client.get("/metrics", headers={"accept-encoding": accepted})
            assert response.headers.get("content-encoding", "") == coding, accepted
            assert response.headers["vary"] == "accept-encoding"
            assert "\namqpd_queues 0.0\n" in response.text


async def test_an_unknown_family_is_refused_by_name(app: AdminApp) -> None:
    response = await ask(app, "/metrics/detailed?family=ra_metrics&family=queue_coarse")
    assert response.status_code == 400
    assert response.json()["reason"].startswith("family 'queue_coarse' is none of: auth_attempt_metrics, ")
    response = await ask(app, "/metrics/detailed?family=ra_metrics&vhost=/")
    assert (response.status_code, 'rabbitmq_endpoint="detailed"' in response.text) == (200, True)


async def test_metrics_show_each_object_if_the_setting_says_so(app: AdminApp) -> None:
    whole = AdminApp(app._state, metrics_per_object=True)
    for path, each, seen in (
        ("/metrics", app, "aggregated"),
        ("/metrics", whole, "per-object"),
        ("/metrics/per-object", app, "per-object"),
    ):
        assert f'rabbitmq_endpoint="{seen}"' in (await ask(each, path)).text
