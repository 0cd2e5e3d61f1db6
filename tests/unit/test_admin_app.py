"""Health and the front page, asked as a client would."""

import httpx
import pytest
from fastapi import FastAPI

from broker.adapters.connections import Connections
from broker.adapters.shortage import Shortage
from broker.admin.app import create_app
from broker.admin.state import AdminState, Measured
from broker.core.counters import Counters
from broker.core.journal import Journal
from broker.net.resources import Resources
from tests.clock import HandClock


class Measures:
    """A histogram with nothing in it."""

    bounds = (0.1,)
    counts = (0, 0)
    sum = 0.0


class Log:
    """A log that may be told to have failed."""

    bytes_on_disk = 0
    segment_count = 1
    damaged_segments = 0
    sync_latency = Measures()

    def __init__(self) -> None:
        self.failure = ""


class NoQueue:
    """The type of what is not there."""

    ready = unacked = held = ready_bytes = unacked_bytes = consumer_count = 0
    memory = volatile = None


class NoQueues:
    """A virtual host without queues."""

    def __init__(self) -> None:
        self.queues: dict[str, NoQueue] = {}


class Broker:
    """A broker without anything."""

    def __init__(self) -> None:
        self.vhosts: dict[str, NoQueues] = {}
        self.counters = Counters()
        self.journal = Journal()


class Starting:
    """Says what the daemon still waits for."""

    reason = ""

    def __call__(self) -> str:
        return self.reason


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
def app(log: Log, starting: Starting, shortage: Shortage) -> FastAPI:
    measured = Measured(Broker(), log, Measures(), Resources(shortage, "", 0, 0))
    return create_app(AdminState("1.2.3", "compiled", measured, starting))


async def ask(app: FastAPI, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin") as client:
        return await client.request(method, path)


async def test_what_is_running(app: FastAPI) -> None:
    response = await ask(app, "/")
    assert response.status_code == 200
    assert response.json() == {"product": "amqpd", "version": "1.2.3", "flavour": "compiled"}


async def test_live_whatever_happens(app: FastAPI, log: Log, starting: Starting) -> None:
    log.failure, starting.reason = "disk full", "starting"
    response = await ask(app, "/health/live")
    assert (response.status_code, response.json()) == (200, {"status": "live"})


async def test_ready(app: FastAPI) -> None:
    response = await ask(app, "/health/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_not_ready_while_starting(app: FastAPI, starting: Starting) -> None:
    starting.reason = "the log is being read"
    response = await ask(app, "/health/ready")
    assert (response.status_code, response.json()["reason"]) == (503, "the log is being read")
    starting.reason = ""
    assert (await ask(app, "/health/ready")).status_code == 200


async def test_not_ready_once_the_log_has_failed(app: FastAPI, log: Log) -> None:
    log.failure = "sync: Input/output error"
    response = await ask(app, "/health/ready")
    assert response.status_code == 503
    assert response.json() == {
        "status": "not ready",
        "reason": "the log accepts nothing: sync: Input/output error",
    }


async def test_metrics(app: FastAPI) -> None:
    response = await ask(app, "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\namqpd_queues 0.0\n" in response.text
    assert response.text.endswith("\namqpd_consumers 0\n")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/nothing"])
async def test_nothing_else(app: FastAPI, path: str) -> None:
    assert (await ask(app, path)).status_code == 404


async def test_nothing_is_changed_from_here(app: FastAPI) -> None:
    for path in ("/", "/metrics", "/health/live", "/health/ready"):
        assert (await ask(app, path, "POST")).status_code == 405


async def test_alarms_say_what_publishers_wait_for(app: FastAPI, shortage: Shortage) -> None:
    answer = await ask(app, "/health/alarms")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    shortage.update(memory=True, disk=True)
    answer = await ask(app, "/health/alarms")
    assert answer.status_code == 503
    assert answer.json() == {"status": "alarm", "reason": "low on memory & disk", "publishers_held": 0}
    answer = await ask(app, "/health/ready")
    assert (answer.status_code, answer.json()["alarms"]) == (200, "low on memory & disk")
    shortage.update(memory=False, disk=False)
    assert (await ask(app, "/health/alarms")).status_code == 200
