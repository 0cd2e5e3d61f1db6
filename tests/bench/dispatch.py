"""`python -m tests.bench.dispatch`: the rate at which a dispatcher calls a small HTTP server.

Durable messages wait in a queue while the dispatcher is paused. The time runs from its resumption until the
last message is acknowledged. The server is a process of its own on the last core; the broker runs on the
first one. The CPU time of the broker's process for a call is printed too.

`--client` measures the bound: the same requests by the HTTP client alone, without a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, cast

import uvloop
from pamqp.commands import Confirm, Queue

from broker.bench.cpu import cpu_seconds
from broker.dispatch.answers import ACKNOWLEDGED
from broker.dispatch.definition import definition_of
from broker.dispatch.payload import OCTETS, HttpRequest
from broker.flavour import FLAVOUR
from broker.net.http_calls import HttpCalls
from tests.support.admin.api import Api
from tests.support.amqp091.frames import publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon

GOAL: Final = 3_000  # calls in a second
WINDOW: Final = 1000
ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
MODULE: Final = "tests.bench.dispatch"


class Answering(asyncio.Protocol):
    """A connection of the server, which answers each request as soon as its whole body has come."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        assert self._transport is not None
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.index(b"content-length:") + len(b"content-length:")
            size = int(head[at:].split(b"\r\n", 1)[0])
            if len(self._data) < end + 4 + size:
                return
            self._data = self._data[end + 4 + size :]
            self._transport.write(ANSWER)


async def serve() -> None:
    """Serve until the process is killed; the first line of the output is the port."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def start_server(core: int) -> tuple[subprocess.Popen[str], str]:
    """Start the server in a process on a core; return the process and the URL."""
    command = [sys.executable, "-m", MODULE, "--serve"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {core})
    assert process.stdout is not None
    return process, f"http://localhost:{int(process.stdout.readline())}"


async def call_alone(url: str, calls: int, size: int, concurrency: int) -> float:
    """Make requests with the client of the dispatchers and nothing else; return their rate in a second."""
    definition = definition_of("/", "d", {"queue": "q", "url": url})
    request = HttpRequest([("Content-Type", OCTETS)], b"x" * size)
    http = HttpCalls()
    left = calls

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            answer = await http.post(definition, request)
            assert answer.result == ACKNOWLEDGED, answer

    await http.post(definition, request)  # the library is imported
    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    rate = calls / (time.perf_counter() - began)
    await http.close()
    return rate


class Work:
    """Rounds of calls by a single dispatcher."""

    def __init__(self, daemon: Daemon, url: str, size: int, concurrency: int) -> None:
        self.daemon = daemon
        self.data = publish_bytes("q", b"x" * size, persistent=True) * WINDOW
        self.peer = Peer(daemon.address).open()
        self.channel = self.peer.channel(1)
        self.channel.call(Queue.Declare(queue="q", durable=True), Queue.DeclareOk)
        self.channel.call(Confirm.Select(), Confirm.SelectOk)
        self.api = Api(daemon.admin)
        self.published = 0
        self.api.put("dispatchers", "/", "d", queue="q", url=url, concurrency=concurrency, paused=True)

    def run(self, calls: int) -> tuple[float, float]:
        """Make calls; return their rate in a second, and the broker's CPU for each in microseconds."""
        for _ in range(calls // WINDOW):
            self.peer.send(self.data)
            self.published += WINDOW
            self.channel.expect_confirms(self.published)
        began, cpu = time.perf_counter(), cpu_seconds(self.daemon.pid)
        self.api.post("dispatchers", "/", "d", "resume", status=204, body={})
        while self._acknowledged() < self.published:
            time.sleep(0.05)
        seconds, spent = time.perf_counter() - began, cpu_seconds(self.daemon.pid) - cpu
        self.api.post("dispatchers", "/", "d", "pause", status=204, body={})
        done = calls // WINDOW * WINDOW
        return done / seconds, spent / done * 1e6

    def _acknowledged(self) -> int:
        status = self.api.get("dispatchers", "/", "d")["status"]
        assert sum(status["total_calls"].values()) == status["total_calls"]["acknowledged"], status
        return int(status["total_messages"]["acknowledged"])


def main() -> int:
    """Run the benchmark, or its server."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help="run the server only")
    parser.add_argument("--client", action="store_true", help="measure the HTTP client alone")
    chosen = parser.parse_args()
    if chosen.serve:
        uvloop.run(serve())
        return 0
    cores = sorted(os.sched_getaffinity(0))
    print(f"broker: {FLAVOUR}")
    server, url = start_server(cores[-1])
    try:
        if chosen.client:
            os.sched_setaffinity(0, {cores[0]})
            call = (url, chosen.calls, chosen.size, chosen.concurrency)
            alone = [uvloop.run(call_alone(*call)) for _ in range(chosen.times)]
            print(f"calls/s of the client alone: best {max(alone):,.0f}, {1e6 / max(alone):.1f} us each")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            daemon = Daemon(Path(folder), ("--dispatch-allow", url)).wait_until_ready()
            os.sched_setaffinity(daemon.pid, {cores[0]})
            work = Work(daemon, url, chosen.size, chosen.concurrency)
            work.run(WINDOW)  # the library is imported, and connections are opened
            rounds = [work.run(chosen.calls) for _ in range(chosen.times)]
            work.api.close()
            work.peer.close()
            daemon.stop()
    finally:
        server.kill()
        server.wait()
    rates = [rate for rate, _ in rounds]
    print(f"calls/s: best {max(rates):,.0f}, median {statistics.median(rates):,.0f}")
    print(f"broker CPU per call: {statistics.median(cpu for _, cpu in rounds):.1f} us")
    return 0 if max(rates) >= GOAL else 2


if __name__ == "__main__":
    sys.exit(main())
