"""Dispatchers of a real broker: calls to an HTTP server, commands, restarts and stops."""

import base64
import hashlib
import hmac
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.offline import export_definitions, import_definitions
from tests.support.admin.api import Api, amqp
from tests.support.daemon.amqpctl import Amqpctl
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.dispatch.hook_server import HookServer, Received, Reply
from tests.support.journal.daemon_journal import cat


@pytest.fixture
def hook() -> Iterator[HookServer]:
    """An HTTP server."""
    server = HookServer()
    yield server
    server.close()


@pytest.fixture
def start(start_daemon: DaemonStarter) -> Iterator[Callable[..., tuple[Daemon, Api]]]:
    """Start a broker whose dispatchers may call some targets."""
    apis: list[Api] = []

    def start(*allowed: str, environment: dict[str, str] | None = None) -> tuple[Daemon, Api]:
        options = ("--dispatch-allow", ",".join(allowed)) if allowed else ()
        daemon = start_daemon(*options, environment=environment) if environment else start_daemon(*options)
        apis.append(Api(daemon.admin))
        return daemon, apis[-1]

    yield start
    for api in apis:
        api.close()


def publish(daemon: Daemon, *bodies: str, queue: str = "q", **properties: Any) -> None:
    """Publish persistent messages, and wait for their confirms."""
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for body in bodies:
            channel.basic_publish(
                "", queue, body.encode(), pika.BasicProperties(delivery_mode=2, **properties)
            )


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a state of the broker that no event tells of."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the state did not come"
        time.sleep(0.02)


def wait_for_empty(api: Api, queue: str = "q") -> None:
    wait_until(lambda: api.get("queues", "/", queue)["messages"] == 0)


# ---- HTTP


def test_messages_are_posted_and_leave_the_queue(start: Any, hook: HookServer) -> None:
    daemon, api = start(f"{hook.url}/hooks")
    publish(daemon, "one", "", message_id="m1", content_type="text/plain", headers={"colour": "red"})
    api.put("dispatchers", "/", "d", queue="q", url=f"{hook.url}/hooks/orders?x=%20y", concurrency=2)
    first, second = sorted(hook.wait_for(2), key=lambda request: request.body, reverse=True)

    assert first.path == "/hooks/orders?x=%20y"
    assert first.body == b"one"
    assert second.body == b""
    assert first.headers["Content-Type"] == "text/plain"
    assert first.headers["Amqp-Message-Id"] == "m1"
    assert first.headers["Amqp-Header-colour"] == "red"
    assert first.headers["User-Agent"].startswith("amqpd/")
    assert "Accept-Encoding" not in first.headers
    wait_for_empty(api)
    shown = api.get("dispatchers", "/", "d")
    assert shown["status"]["state"] == "running"
    assert shown["status"]["total_calls"]["acknowledged"] == 2
    (consumer,) = api.get("consumers", "/")
    assert consumer["consumer_tag"] == "dispatcher d"
    assert consumer["arguments"] == {"dispatcher": "d"}
    assert consumer["prefetch_count"] == 2
    assert daemon.metric('amqpd_dispatcher_calls_total{dispatcher="d",result="acknowledged",vhost="/"}') == 2


def test_failed_calls_are_tried_again_and_answers_have_rules(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    seen: dict[bytes, int] = {}

    def reply(request: Received) -> Reply:
        seen[request.body] = seen.get(request.body, 0) + 1
        if request.body == b"bad":
            return Reply(422, b"no such order")
        return Reply(500 if seen[request.body] < 3 else 204)

    hook.reply = reply
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-retry-min": 20}
        channel.queue_declare("q", durable=True, arguments=arguments)
        for body in (b"good", b"bad"):
            channel.basic_publish("", "q", body)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, answers={"422": "dead-letter"})
    wait_for_empty(api)

    assert seen == {b"good": 3, b"bad": 1}
    assert api.get("queues", "/", "dead")["messages"] == 1
    assert [r.headers["Amqp-Redelivered"] for r in hook.requests if r.body == b"good"] == [
        "false",
        "true",
        "true",
    ]
    daemon.log.wait_for("call of a dispatcher failed")


def test_redirects_are_not_followed(start: Any, hook: HookServer) -> None:
    daemon, api = start(f"{hook.url}/a")
    hook.reply = lambda request: Reply(307, headers={"Location": f"{hook.url}/secret"})
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=f"{hook.url}/a", answers={"3xx": "reject"})
    publish(daemon, "one")
    wait_for_empty(api)

    assert [request.path for request in hook.requests] == ["/a"]


def test_a_target_that_asks_to_wait_is_left_alone(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    answers = iter([Reply(503, headers={"Retry-After": "1"})])
    hook.reply = lambda request: next(answers, Reply())
    api.put("dispatchers", "/", "d", queue="q", url=hook.url)
    publish(daemon, "one")
    wait_until(lambda: api.get("dispatchers", "/", "d")["status"]["state"] == "waiting")
    wait_for_empty(api)

    assert len(hook.requests) == 2
    assert api.get("dispatchers", "/", "d")["status"]["total_calls"]["busy"] == 1


def test_a_call_that_takes_too_long_is_broken_off(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    never = threading.Event()
    replies = iter([Reply(until=never)])
    hook.reply = lambda request: next(replies, Reply())
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, timeout_ms=4000)
    publish(daemon, "one")
    wait_for_empty(api)
    never.set()

    assert len(hook.requests) >= 2
    assert api.get("dispatchers", "/", "d")["status"]["total_calls"]["timed-out"] >= 1


def test_no_more_calls_at_once_than_the_concurrency(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    gate = threading.Event()
    hook.reply = lambda request: Reply(until=gate)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, concurrency=3)
    publish(daemon, *map(str, range(10)))
    hook.wait_for(3)
    assert api.get("dispatchers", "/", "d")["status"]["calls"] == 3
    assert api.get("queues", "/", "q")["messages_ready"] == 7
    gate.set()
    wait_for_empty(api)

    assert hook.most == 3
    assert len(hook.requests) == 10


def test_an_unreachable_target_gets_the_messages_when_it_comes(start: Any) -> None:
    server = HookServer()
    port = int(server.url.rpartition(":")[2])
    server.close()
    daemon, api = start(server.url)
    api.put("queues", "/", "q", durable=True, arguments={"x-delivery-limit": 1})
    breaker = {"failures": 1, "wait_ms": 100, "wait_max_ms": 100}
    api.put("dispatchers", "/", "d", queue="q", url=server.url, breaker=breaker)
    publish_to = api.post(
        "exchanges",
        "/",
        "amq.default",
        "publish",
        status=200,
        body={"routing_key": "q", "properties": {}, "payload": "one", "payload_encoding": "string"},
    )
    assert publish_to == {"routed": True}
    wait_until(lambda: api.get("dispatchers", "/", "d")["status"]["total_calls"]["unreached"] >= 3)
    late = HookServer(port=port)
    assert late.wait_for(1)[0].body == b"one"
    wait_for_empty(api)
    late.close()
    assert daemon.alive


def test_a_message_of_many_megabytes(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, size_max=10_000_000)
    body = "0123456789abcdef" * 400_000
    publish(daemon, body)
    (request,) = hook.wait_for(1)

    assert request.body == body.encode()
    assert request.headers["Content-Length"] == str(len(body))


def test_a_signed_event_with_secrets_from_file_and_environment(
    start: Any, hook: HookServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer abc\n")
    daemon, api = start(hook.url, environment={"HOOK_KEY": "topsecret"})
    api.put("queues", "/", "q", durable=True)
    api.put(
        "dispatchers",
        "/",
        "d",
        queue="q",
        url=hook.url,
        format="cloudevents-structured",
        secret={"env": "HOOK_KEY"},
        headers={"Authorization": {"file": str(token)}},
    )
    publish(daemon, '{"n": 1}', content_type="application/json", type="order.created")
    (request,) = hook.wait_for(1)
    signed = (
        f"{request.headers['Webhook-Id']}.{request.headers['Webhook-Timestamp']}.".encode() + request.body
    )
    digest = base64.b64encode(hmac.new(b"topsecret", signed, hashlib.sha256).digest()).decode()

    assert request.headers["Webhook-Signature"] == f"v1,{digest}"
    assert request.headers["Authorization"] == "Bearer abc"
    assert json.loads(request.body)["data"] == {"n": 1}
    shown = json.dumps([api.get("dispatchers"), api.get("definitions"), daemon.log.text()])
    assert "topsecret" not in shown
    assert "Bearer abc" not in shown


def test_an_event_in_binary_mode(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, format="cloudevents-binary")
    publish(daemon, "one", message_id="m1", type="order.created", headers={"cloudEvents:colour": "red"})
    (request,) = hook.wait_for(1)
    headers = {name: value for name, value in request.headers.items() if name.startswith("ce-")}

    assert request.body == b"one"
    assert request.headers["Content-Length"] == "3"
    assert headers["ce-id"] == "m1"
    assert headers["ce-type"] == "order.created"
    assert headers["ce-source"] == "/vhosts/%252F/queues/q", "a percent sign is encoded in headers"
    assert headers["ce-colour"] == "red"


def test_a_batch_is_one_request(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    publish(daemon, "a", "b", "c")
    batch = {"queue": "q", "url": hook.url, "batch": 10, "format": "cloudevents-structured"}
    api.put("dispatchers", "/", "d", body=batch)
    (request,) = hook.wait_for(1)
    wait_for_empty(api)

    assert request.headers["Content-Type"] == "application/cloudevents-batch+json"
    events = json.loads(request.body)
    assert [base64.b64decode(event["data_base64"]) for event in events] == [b"a", b"b", b"c"]
    assert len(hook.requests) == 1


def test_https_needs_a_certificate_of_a_known_authority(start: Any, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    server = HookServer(context)
    daemon, api = start(server.url)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=server.url, breaker={"failures": 1, "wait_ms": 50})
    publish(daemon, "one")
    wait_until(lambda: api.get("dispatchers", "/", "d")["status"]["total_calls"]["unreached"] > 0)
    assert "certificate" in api.get("dispatchers", "/", "d")["status"]["last_failure"]
    api.put(
        "dispatchers", "/", "d", status=204, queue="q", url=server.url, ca=str(certificates.folder / "ca.pem")
    )

    assert server.wait_for(1)[0].body == b"one"
    server.close()


# ---- commands


def script(folder: Path, text: str) -> str:
    """Write a command."""
    path = folder / "command.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_command_gets_each_message(start: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = script(tmp_path, f'{{ cat; echo " $AMQP_ROUTING_KEY $AMQP_HEADER_N $1 $SECRET"; }} >> {out}')
    daemon, api = start(command, environment={"SECRET": "of-the-broker"})
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=[command, "argument"])
    publish(daemon, "one", "two", headers={"n": 7})
    wait_for_empty(api)

    assert out.read_text() == "one q 7 argument \ntwo q 7 argument \n"


def test_the_exit_status_of_a_command_decides(start: Any, tmp_path: Path) -> None:
    command = script(tmp_path, 'read -r word; case "$word" in bad) echo "not good" >&2; exit 65;; esac')
    daemon, api = start(command)
    api.put("queues", "/", "dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put("queues", "/", "q", durable=True, arguments=arguments)
    api.put("dispatchers", "/", "d", queue="q", command=command, answers={"65": "reject"})
    with amqp(daemon.address, "/") as channel:
        for body in (b"good", b"bad", b"good"):
            channel.basic_publish("", "q", body)
    wait_for_empty(api)

    assert api.get("queues", "/", "dead")["messages"] == 1
    status = api.get("dispatchers", "/", "d")["status"]
    assert status["total_calls"]["acknowledged"] == 2
    assert status["last_failure"] == "65: not good"


def test_a_batch_of_messages_starts_one_command(start: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = script(tmp_path, f"cat >> {out}; echo >> {out}")
    daemon, api = start(command)
    api.put("queues", "/", "q", durable=True)
    trigger = {"kind": "length", "length": 3}
    api.put("dispatchers", "/", "d", queue="q", command=command, batch=3, trigger=trigger)
    publish(daemon, "a", "b")
    publish(daemon, "c")
    wait_for_empty(api)
    (line,) = out.read_text().splitlines()

    assert [message["payload"] for message in json.loads(line)] == ["a", "b", "c"]


def test_all_processes_of_a_command_are_killed_at_the_timeout(start: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(tmp_path, f"echo $$ >> {pids}; sleep 1000 & echo $! >> {pids}; wait")
    daemon, api = start(command)
    api.put("queues", "/", "q", durable=True)
    answers = {"timeout": "reject"}
    api.put("dispatchers", "/", "d", queue="q", command=command, timeout_ms=4000, answers=answers)
    publish(daemon, "one")
    wait_for_empty(api)

    wait_until(lambda: not any(_runs(int(pid)) for pid in pids.read_text().split()))
    assert len(pids.read_text().split()) == 2


def test_no_process_of_a_command_outlives_it(start: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(tmp_path, f"sleep 1000 & echo $! >> {pids}; exit 0")
    daemon, api = start(command)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=command)
    publish(daemon, "one")
    wait_for_empty(api)

    wait_until(lambda: not any(_runs(int(pid)) for pid in pids.read_text().split()))
    assert daemon.alive


def test_a_process_that_leaves_the_group_keeps_nothing_open_in_the_broker(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    # the process holds the output, and an input that it does not read
    begin = """setsid sh -c 'echo $$ > "$0"; exec sleep 1000' "$file" <&0 &"""
    until = 'until [ -s "$file" ]; do sleep 0.01; done'
    command = script(tmp_path, f"file=$(mktemp -p {folder})\n{begin}\n{until}")
    daemon, api = start(command)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=command, concurrency=5)
    descriptors = Path(f"/proc/{daemon.pid}/fd")
    try:
        publish(daemon, "x")
        wait_for_empty(api)
        before = len(list(descriptors.iterdir()))
        publish(daemon, *["x" * 3_000_000] * 10)
        wait_for_empty(api)
        pids = [int(path.read_text()) for path in folder.iterdir()]

        assert len(pids) == 11
        wait_until(lambda: len(list(descriptors.iterdir())) <= before + 3)
        assert all(_runs(pid) for pid in pids), "the processes are out of the broker's reach"
    finally:
        for path in folder.iterdir():
            os.kill(int(path.read_text()), signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_command_need_not_read_its_input_and_may_write_much(start: Any, tmp_path: Path) -> None:
    command = script(tmp_path, "head -c 3000000 /dev/zero; exit 1")
    daemon, api = start(command)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=command, answers={"1": "reject"})
    publish(daemon, "x" * 1_000_000)
    wait_for_empty(api)

    assert len(api.get("dispatchers", "/", "d")["status"]["last_failure"]) <= 500


def test_a_command_that_cannot_be_started_loses_nothing(start: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    daemon, api = start(missing)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=missing, answers={"other": "reject"})
    publish(daemon, "one")
    wait_until(lambda: api.get("dispatchers", "/", "d")["status"]["total_calls"]["unreached"] > 0)
    assert f"{missing} cannot be started" in api.get("dispatchers", "/", "d")["status"]["last_failure"]
    script(tmp_path, "exit 0")
    os.rename(tmp_path / "command.sh", missing)
    wait_for_empty(api)


# ---- the resource


def test_without_the_setting_no_dispatcher_can_be_set(api: Api, name: str) -> None:
    api.put("queues", "/", name)
    reason = api.refused(
        403, "PUT", "dispatchers", "/", "d", body={"queue": name, "url": "http://localhost/"}
    )["reason"]

    assert "the setting dispatch_allow does not cover, because the setting is empty" in reason
    api.delete("queues", "/", name)


def test_dispatchers_are_shown_paused_resumed_and_deleted(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    api.refused(404, "GET", "dispatchers", "/", "d")
    api.refused(403, "PUT", "dispatchers", "/", "d", body={"queue": "q", "url": "http://localhost:1/"})
    api.refused(400, "PUT", "dispatchers", "/", "d", body={"queue": "q", "url": hook.url, "batch": 0})
    api.refused(404, "PUT", "dispatchers", "/", "d", body={"queue": "nowhere", "url": hook.url})
    api.put("dispatchers", "/", "d", queue="q", url=hook.url)
    api.put("dispatchers", "/", "d", status=204, queue="q", url=hook.url, concurrency=2)
    api.post("dispatchers", "/", "d", "pause", status=204, body={})
    publish(daemon, "one")
    (shown,) = api.get("dispatchers")
    assert (shown["vhost"], shown["name"], shown["paused"]) == ("/", "d", True)
    assert shown["status"]["state"] == "paused"
    assert api.get("dispatchers", "/") == [shown]
    assert api.get("queues", "/", "q")["consumers"] == 0
    api.post("dispatchers", "/", "d", "resume", status=204, body={})
    assert hook.wait_for(1)[0].body == b"one"
    api.delete("dispatchers", "/", "d")
    assert api.get("dispatchers") == []
    api.refused(404, "DELETE", "dispatchers", "/", "d")


def test_only_administrators_change_dispatchers(start: Any, hook: HookServer) -> None:
    daemon, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url)
    api.put("users", "u", password="p", tags="policymaker")
    api.put("permissions", "/", "u", configure=".*", write=".*", read=".*")
    other = Api(daemon.admin, "u", "p")
    assert other.get("dispatchers", "/", "d")["queue"] == "q"
    for method, *path in (("PUT",), ("DELETE",), ("POST", "pause"), ("POST", "resume")):
        other.refused(401, method, "dispatchers", "/", "d", *path, body={"queue": "q", "url": hook.url})
    other.close()


def test_amqpctl_has_dispatchers(start: Any, hook: HookServer, tmp_path: Path) -> None:
    daemon, api = start(hook.url)
    control = Amqpctl(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    control("set_dispatcher", "d", json.dumps({"queue": "q", "url": hook.url}))
    control("pause_dispatcher", "d")
    shown = control("list_dispatchers").stdout
    assert "d     q" in shown
    assert "every-message" in shown
    assert "paused" in shown
    control("resume_dispatcher", "d")
    assert api.get("dispatchers", "/", "d")["paused"] is False
    control("delete_dispatcher", "d")
    assert api.get("dispatchers") == []


# ---- durability


def test_dispatchers_outlive_a_crash_and_their_calls_are_made_again(
    start_daemon: DaemonStarter, hook: HookServer
) -> None:
    gate = threading.Event()
    hook.reply = lambda request: Reply(until=gate)
    options = ("--dispatch-allow", hook.url)
    daemon = start_daemon(*options)
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url)
    publish(daemon, "one", "two")
    hook.wait_for(1)
    daemon.kill()
    api.close()
    gate.set()
    api = Api(start_daemon(*options).admin)
    wait_for_empty(api)

    assert hook.bodies == ["one", "one", "two"]
    assert hook.requests[1].headers["Amqp-Redelivered"] == "true"
    api.close()


def test_a_stop_waits_for_running_calls(start_daemon: DaemonStarter, hook: HookServer) -> None:
    gate = threading.Event()
    hook.reply = lambda request: Reply(until=gate)
    daemon = start_daemon("--dispatch-allow", hook.url)
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url)
    publish(daemon, "one", "two")
    hook.wait_for(1)
    api.close()
    daemon.terminate()
    daemon.log.wait_for("stopping")
    gate.set()
    daemon.expect_exit(0)
    api = Api(start_daemon().admin)

    assert api.get("queues", "/", "q")["messages"] == 1
    assert api.get("dispatchers", "/", "d")["status"]["state"] == "forbidden"
    api.close()


def test_a_stop_breaks_off_calls_that_take_too_long(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(tmp_path, f"echo $$ >> {pids}; sleep 1000")
    daemon = start_daemon("--dispatch-allow", command)
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", command=command)
    publish(daemon, "one")
    wait_until(pids.exists)
    api.close()
    daemon.stop()
    assert not _runs(int(pids.read_text()))
    api = Api(start_daemon().admin)

    assert api.get("queues", "/", "q")["messages_ready"] == 1
    api.close()


def test_definitions_have_dispatchers(start: Any, hook: HookServer) -> None:
    _, api = start(hook.url)
    api.put("queues", "/", "q", durable=True)
    assert "dispatchers" not in api.get("definitions")
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, concurrency=3)
    exported = api.get("definitions")
    (shown,) = exported["dispatchers"]
    assert (shown["vhost"], shown["name"], shown["concurrency"]) == ("/", "d", 3)
    api.delete("dispatchers", "/", "d")
    api.post("definitions", status=204, body=exported)
    assert api.get("dispatchers", "/", "d")["concurrency"] == 3
    of_vhost = api.get("definitions", "/")
    api.delete("dispatchers", "/", "d")
    api.post("definitions", "/", status=204, body=of_vhost)
    assert api.get("dispatchers", "/", "d")["concurrency"] == 3
    exported["dispatchers"][0]["url"] = "http://localhost:1/"
    reason = api.refused(400, "POST", "definitions", body=exported)["reason"]
    assert "dispatcher 'd' in vhost '/': " in reason
    assert "dispatch_allow" in reason


def test_definitions_of_a_stopped_broker_have_dispatchers(
    start_daemon: DaemonStarter, hook: HookServer, tmp_path: Path
) -> None:
    daemon = start_daemon("--dispatch-allow", hook.url)
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, concurrency=3)
    online = api.get("definitions")
    api.close()
    daemon.stop()
    offline = json.loads("".join(export_definitions(tmp_path / "data", None)))
    assert offline["dispatchers"] == online["dispatchers"]
    import_definitions(tmp_path / "copy", json.dumps(online).encode(), None, "copy.json")

    copy = json.loads("".join(export_definitions(tmp_path / "copy", None)))
    assert copy["dispatchers"] == online["dispatchers"]


def test_the_journal_has_the_changes_and_the_consumer(start_daemon: DaemonStarter, hook: HookServer) -> None:
    daemon = start_daemon("--dispatch-allow", hook.url, "--journal", "full")
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.put("dispatchers", "/", "d", queue="q", url=hook.url, headers={"X-Key": "k3y"})
    publish(daemon, "one")
    wait_for_empty(api)
    api.close()
    daemon.stop()
    events = cat(daemon.folder.parent / "data" / "journal", "change", "deliver", "ack")
    changes = [event for event in events if event["op"] == "change"]
    steps = [event for event in events if event["op"] != "change"]
    assert any(hook.url in json.dumps(event) for event in changes)
    assert "k3y" not in json.dumps(events)
    assert [event["op"] for event in steps] == ["deliver", "ack"]
    assert {event["consumer"] for event in steps} == {"dispatcher d"}
