"""Requests of the exactly-once sink to its broker: bounded in size and in time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.connector.choices import Choices
from pipeline.connector.options import sink_options
from pipeline.connector.rows import OutgoingMessage
from pipeline.connector.server import Server, ServerError, close_idle, make_server
from pipeline.connector.sink import AmqpStagedWriter, Attempt, AttemptMade
from pipeline.errors import PipelineError
from protocol.streams.chunk import BODY, Chunk

MIB = 2**20
SLACK_S = 10.0  # for a machine that has other things to do
REQUEST_MAX = 8 * MIB


class Handler(BaseHTTPRequestHandler):
    """Takes rows, and has a commit wait for as long as it says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        peer = self.server
        assert isinstance(peer, Peer)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "/rows?" in self.path:
            peer.requests.append(body)
            self._answer(200, {"rows": sum(len(each) for each in rows_of(body))})
            return
        wait = json.loads(body)["wait"]
        peer.waits.append(wait)
        if peer.ended.wait(60 if peer.hangs else wait):
            return
        self._answer(202, {"moving_rows": 7, "blocked": "queue 'q' is full"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
        pass

    def _answer(self, status: int, fields: dict[str, Any]) -> None:
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Peer(ThreadingHTTPServer):
    """A broker that publishes nothing. `hangs`: nor does it answer a commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[bytes] = []
        self.waits: list[int] = []
        self.hangs = False
        self.ended = threading.Event()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    threading.Thread(target=peer.serve_forever, args=(0.05,), daemon=True).start()
    yield peer
    close_idle()
    peer.ended.set()
    peer.shutdown()
    peer.server_close()


def options_of(peer: Peer, **more: object) -> dict[str, str]:
    given_options = {"url": "amqp://127.0.0.1", "apiUrl": f"http://127.0.0.1:{peer.server_address[1]}"}
    return given_options | {name: str(value) for name, value in more.items()}


def server(peer: Peer, **more: object) -> Server:
    return make_server(Choices(options_of(peer, **more)))


def rows_of(request: bytes) -> list[list[int]]:
    """The lengths of the bodies in each chunk of a request."""
    found, position = [], 0
    while position < len(request):
        chunk = Chunk(request, position)
        found.append([len(chunk.value(BODY, row)) for row in range(chunk.rows)])
        position += chunk.header.size
    return found


def add(rows: Attempt, sizes: list[int]) -> None:
    for size in sizes:
        rows.add(OutgoingMessage("", "q", b"\x00\x00", bytes(size)))
    rows.flush()


@pytest.mark.parametrize(
    "sizes",
    [[100_000] * 40 + [9 * MIB // 2], [4 * MIB - 1] * 3, [10] * 2500, [REQUEST_MAX - 2000, 1]],
    ids=["a large one comes last", "just below what is wanted", "many", "a very large one"],
)
def test_requests_are_as_small_as_the_broker_wants(peer: Peer, sizes: list[int]) -> None:
    add(Attempt(server(peer), ("sink", "rows"), 0), sizes)

    assert all(len(request) <= REQUEST_MAX for request in peer.requests)
    assert [size for request in peer.requests for chunk in rows_of(request) for size in chunk] == sizes


def test_a_row_that_is_too_large_is_named(peer: Peer) -> None:
    rows = Attempt(server(peer), ("sink", "rows"), 0)

    with pytest.raises(PipelineError, match=r"row 1 of a task has 8388611 bytes; it has 8387584 at most"):
        add(rows, [1, REQUEST_MAX])


def commit(peer: Peer, **options: object) -> None:
    given_options = options_of(peer, guarantee="exactly-once", sinkName="s", routingKey="q", **options)
    schema = StructType([StructField("value", StringType())])
    writer = AmqpStagedWriter(sink_options(given_options, schema, overwrite=False, streaming=True), "s")
    writer.commit([AttemptMade("id", 1, 0, 1, 7)], 0)


@pytest.mark.parametrize(
    ("timeout", "confirm"), [(1000, 3000), (30_000, 2500)], ids=["less patient than asked for", "patient"]
)
def test_a_commit_that_is_not_published_says_why_and_keeps_to_its_time(
    peer: Peer, timeout: int, confirm: int
) -> None:
    begun = time.monotonic()
    with pytest.raises(ServerError, match="7 rows are not published yet: queue 'q' is full"):
        commit(peer, requestTimeoutMs=timeout, confirmTimeoutMs=confirm)
    assert time.monotonic() - begun < confirm / 1000 + SLACK_S
    assert all(0 <= wait < timeout / 1000 for wait in peer.waits)


def test_a_commit_that_is_not_answered_keeps_to_its_time_too(peer: Peer) -> None:
    peer.hangs = True
    begun = time.monotonic()
    with pytest.raises(ServerError, match="cannot reach"):
        commit(peer, requestTimeoutMs=1000, confirmTimeoutMs=60_000, retryTimeoutMs=1500)
    assert time.monotonic() - begun < 1.5 + SLACK_S, "the peer is silent for much longer"


def test_a_patient_task_is_patient_on_a_reused_connection_too(peer: Peer) -> None:
    server(peer, requestTimeoutMs=500).get("whoami")

    with pytest.raises(ServerError, match="queue 'q' is full"):
        commit(peer, requestTimeoutMs=30_000, confirmTimeoutMs=3000, retries=0)
