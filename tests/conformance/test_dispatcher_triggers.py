"""Each trigger and each rule of the load of a real broker, with an HTTP server and with a real command."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, Protocol

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.dispatch.hook_server import HookServer, Received, Reply


class Target(Protocol):
    """An application: `fields` are those of a definition, `allowed` is the entry of the allow-list."""

    allowed: str
    fields: dict[str, object]

    def calls(self) -> list[str]:
        """The bodies of all calls that have ended, in order."""


class HttpTarget:
    def __init__(self, hook: HookServer) -> None:
        self.allowed = hook.url
        self.fields: dict[str, object] = {"url": f"{hook.url}/x"}
        self._hook = hook

    def calls(self) -> list[str]:
        return self._hook.bodies


class CommandTarget:
    """A command that keeps its input in a file, and then waits for `pause` seconds."""

    def __init__(self, folder: Path, pause: float = 0) -> None:
        self._kept = folder / "kept"
        self._kept.mkdir()
        command = folder / "command.sh"
        command.write_text(
            f"#!/bin/sh\nsleep {pause}\nname=$(date +%s%N).$$\n"
            f'cat > {folder}/"$name" && mv {folder}/"$name" {self._kept}/"$name"\n'
        )
        command.chmod(0o755)
        self.allowed = str(command)
        self.fields: dict[str, object] = {"command": [str(command)]}

    def calls(self) -> list[str]:
        return [path.read_text() for path in sorted(self._kept.iterdir())]


@pytest.fixture
def hook() -> Iterator[HookServer]:
    server = HookServer()
    yield server
    server.close()


@pytest.fixture(params=["http", "command"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An application of either kind."""
    if request.param == "http":
        return HttpTarget(request.getfixturevalue("hook"))
    return CommandTarget(tmp_path)


class Place:
    """A broker with a queue q, and with dispatchers."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.api = Api(daemon.admin)
        self.api.put("queues", "/", "q", durable=True)

    def set(self, target: Target, **fields: object) -> None:
        self.api.put("dispatchers", "/", "d", body={"queue": "q", **target.fields, **fields})

    def publish(self, *bodies: str, **properties: Any) -> None:
        with amqp(self.daemon.address, "/") as channel:
            given = pika.BasicProperties(delivery_mode=2, **properties)
            for body in bodies:
                channel.basic_publish("", "q", body.encode(), given)

    @property
    def status(self) -> dict[str, Any]:
        status = self.api.get("dispatchers", "/", "d")["status"]
        assert isinstance(status, dict)
        return status

    @property
    def messages(self) -> int:
        return int(self.api.get("queues", "/", "q")["messages"])


@pytest.fixture
def place(start_daemon: DaemonStarter) -> Iterator[Callable[[Target], Place]]:
    places: list[Place] = []

    def start(target: Target) -> Place:
        places.append(Place(start_daemon("--dispatch-allow", target.allowed)))
        return places[-1]

    yield start
    for each in places:
        each.api.close()


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE_S) -> None:
    """Wait for a state of the broker or of a file that no event tells of."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "the state did not come"
        time.sleep(0.02)


def payloads(call: str) -> list[str]:
    """The payloads of a call with a batch."""
    return [message["payload"] for message in json.loads(call)]


# ---- triggers


def test_every_message(place: Any, target: Target) -> None:
    here = place(target)
    here.set(target)
    here.publish("a", "b", "c")
    wait_until(lambda: here.messages == 0)

    assert target.calls() == ["a", "b", "c"]


def test_when_idle_by_http(place: Any, hook: HookServer) -> None:
    target = HttpTarget(hook)
    here = place(target)
    gate = threading.Event()
    hook.reply = lambda request: Reply(until=gate)
    here.set(target, trigger={"kind": "when-idle"}, batch=10)
    here.publish("a")
    hook.wait_for(1)
    here.publish("b", "c")
    gate.set()
    wait_until(lambda: here.messages == 0)

    assert [payloads(call) for call in target.calls()] == [["a"], ["b", "c"]]
    assert hook.most == 1


def test_when_idle_with_a_command(place: Any, tmp_path: Path) -> None:
    target = CommandTarget(tmp_path, pause=1)
    here = place(target)
    here.set(target, trigger={"kind": "when-idle"}, batch=100)
    for number in range(10):
        here.publish(str(number))
    wait_until(lambda: here.messages == 0)
    calls = [payloads(call) for call in target.calls()]

    assert [payload for call in calls for payload in call] == [str(number) for number in range(10)]
    assert len(calls) < 10, "messages that come during a run are in one later run"


def test_a_length(place: Any, target: Target) -> None:
    here = place(target)
    here.set(target, trigger={"kind": "length", "length": 3}, batch=10)
    here.publish("a", "b")
    assert here.status["calls"] == 0
    assert here.api.get("queues", "/", "q")["messages_ready"] == 2
    here.publish("c")
    wait_until(lambda: here.messages == 0)

    assert [payloads(call) for call in target.calls()] == [["a", "b", "c"]]


def test_an_interval(place: Any, target: Target) -> None:
    here = place(target)
    here.publish("a", "b")
    began = time.monotonic()
    here.set(target, trigger={"kind": "interval", "every_ms": 1500}, batch=10)
    wait_until(lambda: here.messages == 0)

    assert time.monotonic() - began >= 1.5
    assert [payloads(call) for call in target.calls()] == [["a", "b"]]
    here.publish("c")
    wait_until(lambda: here.messages == 0)
    assert payloads(target.calls()[1]) == ["c"]


def test_a_length_with_an_interval(place: Any, target: Target) -> None:
    here = place(target)
    here.set(target, trigger={"kind": "length", "length": 100, "every_ms": 1000}, batch=10)
    here.publish("a", "b")
    wait_until(lambda: here.messages == 0)

    assert [payload for call in target.calls() for payload in payloads(call)] == ["a", "b"]


@pytest.mark.nightly  # a cron expression has no parts of a minute
def test_a_cron_expression(place: Any, target: Target) -> None:
    here = place(target)
    here.publish("a")
    here.set(target, trigger={"kind": "interval", "cron": "* * * * *"})
    minute = time.time() // 60
    wait_until(lambda: here.messages == 0, 60 + PATIENCE_S)

    assert time.time() // 60 > minute
    assert target.calls() == ["a"]


# ---- load


def test_a_rate(place: Any, target: Target) -> None:
    here = place(target)
    here.publish(*"abcdef")
    began = time.monotonic()
    here.set(target, rate=5, concurrency=10)
    wait_until(lambda: here.messages == 0)

    assert time.monotonic() - began >= 1, "five of the calls come 200 ms after each other"
    assert sorted(target.calls()) == list("abcdef")


def test_the_breaker_with_a_command(place: Any, tmp_path: Path) -> None:
    target = CommandTarget(tmp_path)
    working = Path(target.allowed)
    hidden = working.with_suffix(".hidden")
    working.rename(hidden)
    working.write_text("#!/bin/sh\nexit 1\n")
    working.chmod(0o755)
    here = place(target)
    here.set(target, breaker={"failures": 2, "wait_ms": 300, "wait_max_ms": 300})
    here.publish("a")
    wait_until(lambda: here.status["breaker_opened"] >= 2)
    here.daemon.log.wait_for("call of a dispatcher failed")
    hidden.rename(working)
    wait_until(lambda: here.messages == 0)

    assert target.calls() == ["a"]
    assert here.status["breaker"] == "closed"


def test_the_breaker_by_http_probes_with_a_single_call(place: Any, hook: HookServer) -> None:
    gate = threading.Event()
    probing = threading.Event()
    hook.reply = lambda request: Reply(until=gate) if probing.is_set() else Reply(500)
    target = HttpTarget(hook)
    here = place(target)
    here.publish(*"abcdef")
    here.set(target, concurrency=4, breaker={"failures": 4, "wait_ms": 1000, "wait_max_ms": 1000})
    wait_until(lambda: here.status["breaker"] == "open" and here.status["calls"] == 0)
    before = len(hook.bodies)
    probing.set()
    hook.wait_for(before + 1)
    status = here.status
    assert (status["breaker"], status["calls"], status["state"]) == ("half-open", 1, "waiting")
    assert len(hook.bodies) == before + 1
    gate.set()
    wait_until(lambda: here.messages == 0)

    assert here.status["breaker"] == "closed"
    assert here.status["breaker_opened"] == 1
    assert set(hook.bodies[before:]) == set("abcdef")


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_retry_after(place: Any, hook: HookServer, status: int, form: str) -> None:
    date = 0

    def reply(request: Received) -> Reply:
        nonlocal date
        if date:
            return Reply()
        date = int(time.time()) + 3
        wait = "2" if form == "seconds" else formatdate(date, usegmt=True)
        return Reply(status, headers={"Retry-After": wait})

    hook.reply = reply
    target = HttpTarget(hook)
    here = place(target)
    here.set(target)
    here.publish("a")
    hook.wait_for(2)

    assert time.time() >= (date - 1 if form == "seconds" else date)
    wait_until(lambda: here.messages == 0)
    assert here.status["total_calls"]["busy"] == 1


def test_the_concurrency_shrinks_with_slow_calls_and_grows_again(place: Any, hook: HookServer) -> None:
    latency = 2.0
    slow = threading.Event()

    def reply(request: Received) -> Reply:
        time.sleep(1.25 * latency if slow.is_set() else 0.02)  # the latency of the application
        return Reply()

    hook.reply = reply
    target = HttpTarget(hook)
    here = place(target)
    here.set(target, concurrency=4, latency_ms=int(1000 * latency))
    here.publish(*map(str, range(100)))
    wait_until(lambda: here.messages == 0)
    assert here.status["calls_max"] == 4
    slow.set()
    here.publish(*"abcd")
    wait_until(lambda: here.messages == 0)
    assert here.status["calls_max"] < 4
    slow.clear()
    here.publish(*map(str, range(100)))
    wait_until(lambda: here.messages == 0)

    assert here.status["calls_max"] == 4


def test_a_slow_target_gets_one_call_at_once(place: Any, hook: HookServer) -> None:
    def reply(request: Received) -> Reply:
        time.sleep(0.05)  # the latency of the application
        return Reply()

    hook.reply = reply
    target = HttpTarget(hook)
    here = place(target)
    here.publish(*map(str, range(20)))
    here.set(target, concurrency=10, latency_ms=10)
    wait_until(lambda: here.messages == 0)

    assert hook.most == 1


def test_a_fast_target_gets_more_calls_at_once(place: Any, hook: HookServer) -> None:
    target = HttpTarget(hook)
    here = place(target)
    here.publish(*map(str, range(100)))
    here.set(target, concurrency=4, latency_ms=60_000)
    wait_until(lambda: here.messages == 0)

    assert here.status["calls_max"] == 4


def test_several_commands_at_once(place: Any, tmp_path: Path) -> None:
    target = CommandTarget(tmp_path, pause=2)
    here = place(target)
    here.set(target, concurrency=3)
    here.publish(*map(str, range(6)))
    wait_until(lambda: here.status["calls"] == 3)
    wait_until(lambda: here.messages == 0)

    assert sorted(target.calls()) == [str(number) for number in range(6)]


def test_message_groups_keep_their_order_while_calls_fail(place: Any, hook: HookServer) -> None:
    lock = threading.Lock()
    running: set[str] = set()
    failed: set[str] = set()
    together: list[str] = []

    def reply(request: Received) -> Reply:
        body = request.body.decode()
        with lock:
            if body[0] in running:
                together.append(body)
            running.add(body[0])
        time.sleep(0.01)  # the latency of the application
        with lock:
            running.remove(body[0])
            if int(body[1:]) % 3 == 0 and body not in failed:
                failed.add(body)
                return Reply(500)
        return Reply()

    hook.reply = reply
    target = HttpTarget(hook)
    here = place(target)
    with amqp(here.daemon.address, "/") as channel:
        channel.queue_delete("q")
        arguments = {"x-group-key": "g", "x-retry-min": 50}
        channel.queue_declare("q", durable=True, arguments=arguments)
        for number in range(20):
            for group in "abc":
                properties = pika.BasicProperties(headers={"g": group}, delivery_mode=2)
                channel.basic_publish("", "q", f"{group}{number}".encode(), properties)
    here.set(target, concurrency=8, breaker={"failures": 0})
    wait_until(lambda: here.messages == 0)

    assert together == []
    assert len(failed) == 21
    for group in "abc":
        calls = [int(body[1:]) for body in target.calls() if body[0] == group]
        assert calls == sorted(calls), "a later message waits for the retry"
        assert set(calls) == set(range(20))
