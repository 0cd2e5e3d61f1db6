"""Users, permissions and virtual hosts over HTTP, and their effect on connections."""

import base64
import hashlib
from collections.abc import Callable

import pika.exceptions
import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.daemon import Address


def rabbit_hash(password: str) -> str:
    """A password hash as RabbitMQ makes it."""
    salt = bytes([1, 2, 3, 4])
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def test_a_user_is_added_changed_and_deleted(api: Api, name: str) -> None:
    api.put("users", name, password="one", tags="management,monitoring")
    shown = api.get("users", name)
    assert (shown["name"], shown["tags"], shown["limits"]) == (name, ["management", "monitoring"], {})
    assert shown["password_hash"].startswith("$argon2id$")
    assert shown in api.get("users")
    assert shown in api.get("users", "without-permissions")
    assert may_ask(api, name, "one")
    api.put("users", name, status=204, password="two", tags=["management"])
    assert not may_ask(api, name, "one")
    assert may_ask(api, name, "two")
    api.put("users", name, status=204, tags="")
    assert api.get("users", name)["tags"] == []
    api.put("users", name, status=204, tags="management")
    assert may_ask(api, name, "two"), "without a password in the request it stays"
    api.delete("users", name)
    assert not may_ask(api, name, "two")
    api.refused(404, "GET", "users", name)
    api.refused(404, "DELETE", "users", name)


def test_limits_come_with_a_user(api: Api, name: str) -> None:
    api.put("users", name, password="one", tags="", limits={"max-connections": 3})
    assert api.get("users", name)["limits"] == {"max-connections": 3}
    api.put("users", name, status=204, tags="")
    assert api.get("users", name)["limits"] == {"max-connections": 3}, "those that are not given stay"
    api.put("users", name, status=204, tags="", limits=[])
    assert api.get("user-limits", name) == []
    api.delete("users", name)


def may_ask(api: Api, user: str, password: str) -> bool:
    """Whether a password is right."""
    return fetch(api.url("whoami"), auth=(user, password)).status_code == 200


def test_a_hash_that_rabbitmq_made_is_taken(api: Api, name: str) -> None:
    api.put("users", name, password_hash=rabbit_hash("secret"), tags="management")
    assert api.get("users", name)["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert may_ask(api, name, "secret")
    api.refused(400, "PUT", "users", name, body={"password_hash": "!", "tags": ""})
    wrong = {"password_hash": rabbit_hash("x"), "hashing_algorithm": "rot13", "tags": ""}
    assert "'rot13' is not known" in api.refused(400, "PUT", "users", name, body=wrong)["reason"]
    api.put("users", name, status=204, password_hash="", tags="management")
    assert not may_ask(api, name, ""), "no password is no way in"
    api.delete("users", name)


@pytest.mark.parametrize(
    "body",
    [
        {"password": "", "tags": ""},
        {"password": 1, "tags": ""},
        {"password": "p", "tags": 1},
        {"password": "p", "tags": "", "limits": {"max-shoes": 1}},
        {"password": "p", "tags": "", "limits": 1},
    ],
)
def test_users_that_are_refused(api: Api, name: str, body: object) -> None:
    api.refused(400, "PUT", "users", name, body=body)
    api.refused(404, "GET", "users", name)


def test_several_users_are_deleted_at_once(api: Api, name: str) -> None:
    for suffix in "ab":
        api.put("users", name + suffix, password="p", tags="")
    api.post("users", "bulk-delete", status=204, body={"users": [name + "a", name + "b", "absent"]})
    assert not [user for user in api.get("users") if user["name"].startswith(name)]
    api.refused(400, "POST", "users", "bulk-delete", body={"users": "x"})


def test_permissions(api: Api, vhost: str, name: str) -> None:
    api.put("users", name, password="p", tags="")
    wanted = {"configure": "^a", "write": "", "read": ".*"}
    api.put("permissions", vhost, name, body=wanted)
    shown = {"user": name, "vhost": vhost, **wanted}
    assert api.get("permissions", vhost, name) == shown
    assert shown in api.get("vhosts", vhost, "permissions")
    assert api.get("users", name, "permissions") == [shown]
    assert shown in api.get("permissions")
    api.put("permissions", vhost, name, status=204, body=wanted)
    wrong = wanted | {"read": "("}
    assert "regular expression" in api.refused(400, "PUT", "permissions", vhost, name, body=wrong)["reason"]
    api.refused(400, "PUT", "permissions", vhost, name, body={"configure": ""})
    api.refused(404, "PUT", "permissions", vhost, "nobody", body=wanted)
    api.refused(404, "PUT", "permissions", "nowhere", name, body=wanted)
    api.delete("permissions", vhost, name)
    api.refused(404, "DELETE", "permissions", vhost, name)
    api.refused(404, "GET", "permissions", vhost, name)
    api.delete("users", name)


def test_topic_permissions(api: Api, vhost: str, name: str) -> None:
    api.put("users", name, password="p", tags="")
    for exchange in ("amq.topic", "other"):
        api.put("topic-permissions", vhost, name, exchange=exchange, write="^w", read="^r")
    api.put("topic-permissions", vhost, name, status=204, exchange="other", write="^w", read="^s")
    shown = [
        {"user": name, "vhost": vhost, "exchange": "amq.topic", "write": "^w", "read": "^r"},
        {"user": name, "vhost": vhost, "exchange": "other", "write": "^w", "read": "^s"},
    ]
    assert api.get("topic-permissions", vhost, name) == shown
    assert api.get("vhosts", vhost, "topic-permissions") == shown
    assert api.get("users", name, "topic-permissions") == shown
    assert shown[0] in api.get("topic-permissions")
    api.delete("topic-permissions", vhost, name, "other")
    assert api.get("topic-permissions", vhost, name) == shown[:1]
    api.delete("topic-permissions", vhost, name)
    assert api.get("topic-permissions", vhost, name) == []
    api.delete("users", name)


def test_permissions_are_felt_by_clients(
    api: Api, vhost: str, user: Callable[..., Api], address: Address
) -> None:
    user("", permitted=False)
    somebody = f"{vhost}.0"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError), amqp(address, vhost, somebody, "secret"):
        pass
    api.put("permissions", vhost, somebody, configure="", write=".*", read=".*")
    with amqp(address, vhost, somebody, "secret") as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("q")
        assert refused.value.reply_code == 403


def test_a_virtual_host(api: Api, name: str) -> None:
    api.put("vhosts", name, description="for tests", tags="a,b")
    shown = api.get("vhosts", name)
    assert (shown["name"], shown["description"], shown["tags"]) == (name, "for tests", ["a", "b"])
    assert shown["metadata"] == {"description": "for tests", "tags": ["a", "b"]}
    assert (shown["messages"], shown["tracing"]) == (0, False)
    assert api.get("permissions", name, "guest")["configure"] == ".*", "who makes it may use it"
    api.put("vhosts", name, status=204, default_queue_type="quorum")
    shown = api.get("vhosts", name)
    assert (shown["description"], shown["default_queue_type"]) == ("for tests", "quorum")
    api.put("queues", name, "q", durable=True)
    assert api.get("queues", name, "q")["type"] == "quorum"
    api.put("queues", name, "transient")
    assert api.get("queues", name, "transient")["type"] == "classic"
    api.put("queues", name, "q", status=204, durable=True)
    api.refused(400, "PUT", "vhosts", name, body={"default_queue_type": "shoes"})
    api.refused(400, "PUT", "vhosts", name, body={"tracing": True})
    api.delete("vhosts", name)
    api.refused(404, "DELETE", "vhosts", name)
    assert not [found for found in api.get("permissions") if found["vhost"] == name]


@pytest.mark.parametrize(
    "wrong",
    [
        {"description": 1},
        {"tags": 1},
        {"tags": [1]},
        {"default_queue_type": "shoes"},
        {"default_queue_type": 1},
        {"tracing": True},
    ],
)
def test_a_virtual_host_that_is_refused_is_not_made(api: Api, name: str, wrong: dict[str, object]) -> None:
    api.refused(400, "PUT", "vhosts", name, body=wrong)
    api.refused(404, "GET", "vhosts", name)


def test_connections_of_a_deleted_user_or_virtual_host_are_closed(
    api: Api, vhost: str, user: Callable[..., Api], address: Address
) -> None:
    user("")
    name = f"{vhost}.0"
    close_reason = closed(address, vhost, name, "secret", lambda: api.delete("users", name))
    assert close_reason == f"320 CONNECTION_FORCED - user '{name}' is deleted"
    close_reason = closed(address, vhost, "guest", "guest", lambda: api.delete("vhosts", vhost))
    assert close_reason == f"320 CONNECTION_FORCED - vhost '{vhost}' is deleted"


def closed(address: Address, vhost: str, name: str, password: str, by: Callable[[], None]) -> str:
    """Return the reply text of a connection that is closed by `by`."""
    try:
        with amqp(address, vhost, name, password) as channel:
            by()
            channel.connection.sleep(60)
    except pika.exceptions.ConnectionClosedByBroker as gone:
        return f"{gone.reply_code} {gone.reply_text}"
    raise AssertionError("still open")
