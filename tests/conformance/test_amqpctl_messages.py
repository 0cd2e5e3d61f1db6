"""Commands of `amqpctl` that publish, get and watch messages."""

import json
import subprocess
import sys
import time

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.amqpctl import PROGRAM, Amqpctl
from tests.support.daemon.daemon import PATIENCE_S, ROOT, Address


@pytest.fixture
def control(api: Api) -> Amqpctl:
    return Amqpctl(api.base)


def test_messages_are_published_peeked_and_taken(control: Amqpctl, api: Api, vhost: str) -> None:
    control("declare_queue", "q", "-p", vhost)
    properties = '{"priority": 3, "headers": {"a": 1}}'
    control("publish", "q", "hello", "--properties", properties, "--header", "b=2", "-p", vhost)
    control("publish", "q", "--header", "text=two words", "-p", vhost, stdin="from a pipe\n")
    shown = control("peek", "q", "--count", "5", "-p", vhost).stdout
    assert shown.count("message ") == 2
    for part in ("exchange: (default)", "priority: 3", 'headers: {"a": 1, "b": 2}', "hello", "from a pipe"):
        assert part in shown
    assert 'headers: {"text": "two words"}' in shown
    assert [each["payload"] for each in control.json("get", "q", "--count", "2", "-p", vhost)] == [
        "hello",
        "from a pipe\n",
    ]
    assert api.get("queues", vhost, "q")["messages"] == 2, "get leaves the messages unless it is to take them"
    take = ("get", "q", "--ackmode", "ack_requeue_false", "-p", vhost)
    (taken,) = control.json(*take)
    assert (taken["payload"], taken["properties"]["headers"]) == ("hello", {"a": 1, "b": 2})
    assert control(*take, form="tsv").stdout.splitlines()[1].endswith("from a pipe\\n")
    assert control.json("peek", "q", "-p", vhost) == []
    control("publish", "q", "x", "--header", "wrong", "-p", vhost, status=2)
    refused = control("publish", "none", "x", "-p", vhost, status=1)
    assert f"no queue took the message with routing key 'none' in vhost '{vhost}'" in refused.stderr


def test_messages_are_moved_and_redriven(control: Amqpctl, api: Api, vhost: str, address: Address) -> None:
    dead = '{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}'
    control("declare_queue", "work", "--arguments", dead, "-p", vhost)
    for queue in ("dead", "aside"):
        control("declare_queue", queue, "-p", vhost)
    with amqp(address, vhost) as channel:
        for number in range(3):
            properties = pika.BasicProperties(headers={"n": number})
            channel.basic_publish("", "work", b"%d" % number, properties)
        for _ in range(3):
            frame, _, _ = channel.basic_get("work")
            channel.basic_reject(frame.delivery_tag, requeue=False)
    deadline = time.monotonic() + PATIENCE_S
    while api.get("queues", vhost, "dead")["messages"] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert control("move", "dead", "aside", "--selector", "n = 0", "-p", vhost).stdout == "1\n"
    assert control("redrive", "dead", "-p", vhost).stdout == "2\n"
    assert [each["payload"] for each in control.json("peek", "work", "--count", "9", "-p", vhost)] == [
        "1",
        "2",
    ]
    assert control("move", "aside", "work", "-p", vhost).stdout == "1\n"


def start_tail(control: Amqpctl, api: Api, vhost: str, *options: str) -> subprocess.Popen[str]:
    """Start `amqpctl tail q`, and wait until its browser is attached."""
    environment = {"AMQPCTL_URL": control.url, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", PROGRAM, "tail", "q", "-p", vhost, *options]
    tail = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    deadline = time.monotonic() + PATIENCE_S
    while "follow" not in [row["consumer_tag"] for row in api.get("consumers", vhost)]:
        assert time.monotonic() < deadline
        assert tail.poll() is None, tail.communicate()
        time.sleep(0.01)
    return tail


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}, {"x-max-priority": 5}])
def test_tail_shows_messages_as_they_come(
    control: Amqpctl, api: Api, vhost: str, address: Address, arguments: dict[str, object]
) -> None:
    api.put("queues", vhost, "q", durable=True, arguments=arguments)
    api.post("exchanges", vhost, "amq.default", "publish", status=200, body=message("earlier"))
    tail = start_tail(control, api, vhost, "--format", "json", "--count", "2")
    with amqp(address, vhost) as channel:
        channel.basic_publish("", "q", b"one")
        channel.basic_publish("", "q", b"two")
    output, errors = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 0, errors
    assert [json.loads(line)["payload"] for line in output.splitlines()] == ["one", "two"]
    deadline = time.monotonic() + PATIENCE_S
    while api.get("queues", vhost, "q")["consumers"]:  # the browser ends with the connection
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert api.get("queues", vhost, "q")["messages"] == 3


def test_tail_shows_messages_that_consumers_take(
    control: Amqpctl, api: Api, vhost: str, address: Address
) -> None:
    api.put("queues", vhost, "q", durable=True)
    with amqp(address, vhost) as channel:
        channel.basic_consume("q", lambda *_: None, auto_ack=True)
        tail = start_tail(control, api, vhost, "--count", "1", "--selector", "n > 1")
        assert [row["consumer_tag"] for row in api.get("consumers", vhost)].count("follow") == 1
        for number in range(3):
            channel.basic_publish("", "q", b"body", pika.BasicProperties(headers={"n": number}))
    output, errors = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 0, errors
    assert 'headers: {"n": 2}' in output


def test_tail_is_no_consumer(control: Amqpctl, api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", auto_delete=True)
    tail = start_tail(control, api, vhost)
    assert api.get("queues", vhost, "q")["consumers"] == 0
    tail.kill()
    tail.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while api.get("consumers", vhost):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert api.get("queues", vhost, "q")["auto_delete"], "the end of a tail deletes nothing"


def test_tail_ends_when_its_user_may_not_read_any_more(control: Amqpctl, api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    api.put("users", "reader", password="r", tags="management")
    api.put("permissions", vhost, "reader", configure="", write="", read=".*")
    reader = Api(api.base, "reader", "r")
    with reader.client.stream("GET", reader.url("queues", vhost, "q", "messages", "follow")) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ""
        api.put("permissions", vhost, "reader", status=204, configure="", write="", read="")
        api.post("exchanges", vhost, "amq.default", "publish", status=200, body=message("secret"))
        assert "read access to queue 'q'" in json.loads(next(lines))["error"]
        assert list(lines) == []
    reader.close()
    api.delete("users", "reader")


def test_a_head_request_to_follow_ends(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    assert api.ask("HEAD", "queues", vhost, "q", "messages", "follow").status_code == 200
    deadline = time.monotonic() + PATIENCE_S
    while api.get("consumers", vhost):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_tail_ends_with_its_queue(control: Amqpctl, api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    tail = start_tail(control, api, vhost, "--from", "first")
    api.delete("queues", vhost, "q")
    _, errors = tail.communicate(timeout=PATIENCE_S)
    assert (tail.returncode, errors) == (1, f"amqpctl: queue 'q' in vhost '{vhost}' was deleted\n")
    refused = control("tail", "q", "-p", vhost, status=1)
    assert f"no queue 'q' in vhost '{vhost}'; " in refused.stderr


def message(payload: str) -> dict[str, object]:
    """Return the body of a request that publishes to the queue `q`."""
    return {"routing_key": "q", "payload": payload, "payload_encoding": "string", "properties": {}}
