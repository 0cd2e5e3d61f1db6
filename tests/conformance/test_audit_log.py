"""The audit log: who logged in, who changed what, and who was refused."""

import json
import time
from contextlib import closing
from typing import Any

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter


def lines(daemon: Daemon, event: str, count: int = 1) -> list[dict[str, Any]]:
    """The lines of the log about an event, once there are `count`: a line may follow the answer."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = [json.loads(line) for line in daemon.log.text().splitlines() if line.startswith("{")]
        about = [line for line in found if line["event"] == event]
        if len(about) >= count or time.monotonic() > until:
            return about
        time.sleep(0.05)


@pytest.fixture
def daemon(start_daemon: DaemonStarter) -> Daemon:
    """A daemon whose log is in JSON."""
    return start_daemon("--log-format", "json")


def test_log_ins_and_log_outs(daemon: Daemon) -> None:
    with amqp(daemon.address, "/"):
        pass
    (opened,) = lines(daemon, "connection opened")
    (closed,) = lines(daemon, "connection closed")
    assert opened["user"] == closed["user"] == "guest"
    assert opened["peer"] == closed["peer"]
    assert opened["peer"].startswith("127.0.0.1:")


def test_the_reason_of_a_refused_log_in_is_in_the_log_only(daemon: Daemon) -> None:
    with closing(Api(daemon.admin)) as api:
        api.put("users", "blank", tags="")
    refusals = []
    for user, password in (("nobody", "x"), ("guest", "wrong"), ("blank", "x")):
        with (
            pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused,
            amqp(daemon.address, "/", user, password),
        ):
            pass
        refusals.append(str(refused.value))
        with closing(Api(daemon.admin, user, password)) as stranger:
            assert stranger.refused(401, "GET", "whoami")["reason"] == "Not_Authorized"
    assert len(set(refusals)) == 1
    found = {(line["mechanism"], line["user"]): line["reason"] for line in lines(daemon, "login refused", 6)}
    expected = {
        "nobody": "there is no such user",
        "guest": "wrong password",
        "blank": "the user has no password",
    }
    assert found == {
        (mechanism, user): reason
        for mechanism in ("PLAIN", "HTTP Basic")
        for user, reason in expected.items()
    }


def test_changes_by_operators(daemon: Daemon) -> None:
    with closing(Api(daemon.admin)) as api:
        api.put("vhosts", "shop")
        api.put("queues", "shop", "q", durable=True)
        publish = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        api.post("exchanges", "shop", "amq.default", "publish", status=200, body=publish)
        api.get("queues", "shop", "q")
        api.refused(404, "DELETE", "queues", "shop", "absent")
        api.delete("queues", "shop", "q", "contents")
        api.post("definitions", status=204, body={"users": []})
        api.delete("vhosts", "shop")
    changes = [
        (line["user"], line["method"], line["path"], line["status"])
        for line in lines(daemon, "changed by an operator", 5)
    ]
    assert changes == [
        ("guest", "PUT", "/api/vhosts/shop", 201),
        ("guest", "PUT", "/api/queues/shop/q", 201),
        ("guest", "DELETE", "/api/queues/shop/q/contents", 204),
        ("guest", "POST", "/api/definitions", 204),
        ("guest", "DELETE", "/api/vhosts/shop", 204),
    ]


def test_refused_requests(daemon: Daemon) -> None:
    with closing(Api(daemon.admin)) as api:
        api.put("users", "reader", password="secret", tags="management")
    with closing(Api(daemon.admin, "reader", "secret")) as reader:
        for _ in range(3):
            reader.refused(401, "PUT", "users", "other", body={"password": "x", "tags": ""})
    (line,) = lines(daemon, "request refused")
    assert (line["user"], line["method"], line["path"]) == ("reader", "PUT", "/api/users/other")
    assert line["reason"] == "Not administrator user"


def test_purges_by_clients(daemon: Daemon) -> None:
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("q")
        channel.queue_purge("q")
    (line,) = lines(daemon, "queue purged")
    assert (line["user"], line["vhost"], line["queue"]) == ("guest", "/", "q")


def test_a_password_in_a_path_is_not_logged(daemon: Daemon) -> None:
    with closing(Api(daemon.admin)) as api:
        api.put("users", "reader", password="secret", tags="management")
    with closing(Api(daemon.admin, "reader", "secret")) as reader:
        reader.refused(401, "GET", "auth", "hash_password", "open sesame")
    (line,) = lines(daemon, "request refused")
    assert line["path"].endswith("/auth/hash_password/{password}")
    assert "sesame" not in daemon.log.text()
