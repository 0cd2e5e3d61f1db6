"""Messages, connections, channels and consumers over HTTP."""

import base64
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address


def fill(api: Api, vhost: str, count: int, durable: bool = False) -> None:
    """A queue `q` with messages that are numbered."""
    api.put("queues", vhost, "q", durable=durable)
    for number in range(count):
        body = {
            "properties": {"delivery_mode": 2} if durable else {},
            "routing_key": "q",
            "payload": str(number),
            "payload_encoding": "string",
        }
        assert api.post("exchanges", vhost, "amq.default", "publish", status=200, body=body) == {
            "routed": True
        }


def take(api: Api, vhost: str, count: int, ackmode: str, **more: object) -> list[dict[str, object]]:
    """Messages of `q`."""
    body = {"count": count, "ackmode": ackmode, "encoding": "auto", **more}
    found = api.post("queues", vhost, "q", "get", status=200, body=body)
    assert isinstance(found, list)
    return found


def test_a_message_goes_in_with_all_its_properties_and_comes_out(
    api: Api, vhost: str, address: Address
) -> None:
    api.put("queues", vhost, "q")
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "timestamp": 1700000000,
        "type": "t",
        "app_id": "a",
        "headers": {"n": 1, "deep": {"list": [True, None, "x", 1.5]}},
    }
    body = {
        "properties": properties,
        "routing_key": "q",
        "payload": base64.b64encode(b"\xff\x00" * 100_000).decode(),
        "payload_encoding": "base64",
    }
    api.post("exchanges", vhost, "amq.default", "publish", status=200, body=body)
    (message,) = take(api, vhost, 5, "ack_requeue_true", truncate=4)
    assert message == {
        "payload_bytes": 200_000,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 0,
        "protocol": "amqp-0-9-1",
        "properties": properties,
        "payload": base64.b64encode(b"\xff\x00\xff\x00").decode(),
        "payload_encoding": "base64",
    }
    with amqp(address, vhost) as channel:
        _, found, payload = channel.basic_get("q", auto_ack=True)
        assert payload == b"\xff\x00" * 100_000
        assert (found.priority, found.type, found.headers["n"]) == (3, "t", 1)


def test_getting_messages_with_requeue_leaves_the_queue_unchanged(
    api: Api, vhost: str, address: Address
) -> None:
    fill(api, vhost, 4)
    for mode in ("ack_requeue_true", "reject_requeue_true"):
        found = take(api, vhost, 3, mode)
        assert [(message["payload"], message["message_count"]) for message in found] == [
            ("0", 3),
            ("1", 2),
            ("2", 1),
        ]
    with amqp(address, vhost) as channel:
        method, _, payload = channel.basic_get("q")
        assert (payload, method.redelivered) == (b"0", False)
        assert [message["payload"] for message in take(api, vhost, 9, "ack_requeue_true")] == ["1", "2", "3"]


@pytest.mark.parametrize("mode", ["ack_requeue_false", "reject_requeue_false"])
def test_taking_takes(api: Api, vhost: str, mode: str) -> None:
    fill(api, vhost, 3, durable=True)
    assert [message["payload"] for message in take(api, vhost, 2, mode)] == ["0", "1"]
    assert [message["payload"] for message in take(api, vhost, 9, mode)] == ["2"]
    assert take(api, vhost, 9, mode) == []
    queue = api.get("queues", vhost, "q")
    assert (queue["messages"], queue["message_stats"]["publish"]) == (0, 3)


def test_getting_messages_with_a_selector_gets_only_matching_messages(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q")
    for number in range(6):
        body = {
            "properties": {"headers": {"n": number}, "app_id": "x" if number < 4 else "y"},
            "routing_key": "q",
            "payload": str(number),
            "payload_encoding": "string",
        }
        api.post("exchanges", vhost, "amq.default", "publish", status=200, body=body)
    selector = "app_id = 'x' AND n >= 2"
    for mode in ("ack_requeue_true", "ack_requeue_false"):
        found = take(api, vhost, 9, mode, selector=selector)
        assert [message["payload"] for message in found] == ["2", "3"]
    assert take(api, vhost, 9, "ack_requeue_false", selector=selector) == []
    left = take(api, vhost, 9, "reject_requeue_true", selector=" ")
    assert [message["payload"] for message in left] == ["0", "1", "4", "5"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"ackmode": "none"}, "ackmode 'none' is not known"),
        ({"count": 0}, "count 0 is not from 1 to"),
        ({"count": "many"}, "'count' is not a whole number: \"many\""),
        ({"encoding": "rot13"}, "encoding 'rot13' is not known"),
        ({"truncate": -1}, "truncate -1 is negative"),
        ({"selector": "n = = 1"}, "selector: position 5: expected a value"),
        ({"selector": 7}, "'selector' is not a string: 7"),
    ],
)
def test_how_messages_cannot_be_taken(api: Api, vhost: str, wrong: dict[str, object], reason: str) -> None:
    api.put("queues", vhost, "q")
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"} | wrong
    assert reason in api.refused(400, "POST", "queues", vhost, "q", "get", body=body)["reason"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"payload_encoding": "rot13"}, "payload_encoding 'rot13' is not known"),
        ({"payload_encoding": "base64", "payload": "!"}, "payload is not base 64"),
        ({"routing_key": "k" * 256}, "routing key"),
        ({"properties": {"mystery": 1}}, "property mystery is not known"),
        ({"properties": {"priority": 256}}, "property priority is not a number from 0 to 255"),
        ({"properties": {"content_type": 1}}, "property content_type is not a string"),
        ({"properties": {"app_id": "a" * 256}}, "cannot be encoded"),
        ({"properties": {"user_id": "somebody"}}, "user_id property set to 'somebody'"),
        ({"properties": {"expiration": "soon"}}, "invalid expiration 'soon'"),
        ({"properties": {"headers": {"CC": 1}}}, "unacceptable_type_in_header"),
    ],
)
def test_messages_that_are_refused(api: Api, vhost: str, wrong: dict[str, object], reason: str) -> None:
    api.put("queues", vhost, "q")
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"} | wrong
    refusal = api.refused(400, "POST", "exchanges", vhost, "amq.default", "publish", body=body)
    assert reason in refusal["reason"]
    assert api.get("queues", vhost, "q")["messages"] == 0


def test_requeue_does_for_ackmode(api: Api, vhost: str) -> None:
    fill(api, vhost, 1)
    messages, old = ("queues", vhost, "q", "get"), {"count": 1, "encoding": "auto"}
    for requeue, left in ((True, 1), (False, 0)):
        (message,) = api.post(*messages, status=200, body=old | {"requeue": requeue})
        assert message["payload"] == "0"
        assert api.get("queues", vhost, "q")["messages"] == left
    refusal = api.refused(400, "POST", *messages, body=old | {"requeue": "perhaps"})
    assert "'requeue' is not a boolean" in refusal["reason"]
    refusal = api.refused(400, "POST", *messages, body=old)
    assert "'ackmode' is missing" in refusal["reason"]


def test_unroutable_and_copied_messages(api: Api, vhost: str) -> None:
    fill(api, vhost, 0)
    body = {"properties": {}, "routing_key": "nowhere", "payload": "x", "payload_encoding": "string"}
    publish = ("exchanges", vhost, "amq.default", "publish")
    assert api.post(*publish, status=200, body=body) == {"routed": False}
    body["properties"] = {"headers": {"CC": ["q"]}}
    assert api.post(*publish, status=200, body=body) == {"routed": True}
    api.refused(404, "POST", "exchanges", vhost, "nope", "publish", body=body)


def test_a_message_that_was_answered_survives_a_kill(start_daemon: Callable[..., "object"]) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)  # type: ignore[attr-defined]
    fill(api, "/", 3, durable=True)
    take(api, "/", 1, "ack_requeue_false")
    daemon.kill()  # type: ignore[attr-defined]
    api.close()
    again = Api(start_daemon().admin)  # type: ignore[attr-defined]
    assert [message["payload"] for message in take(again, "/", 9, "ack_requeue_true")] == ["1", "2"]
    again.close()


def without_readings(shown: dict[str, Any]) -> dict[str, Any]:
    """An object as shown in a list or alone, without what a reading of the counters changes, and without
    the details that are shown of one object only."""
    left_out = {"message_stats", "consumer_details", "publishes", "deliveries"}
    return {
        key: value
        for key, value in shown.items()
        if key not in left_out and not (isinstance(value, dict) and "rate" in value)
    }


def test_a_connection_its_channels_and_consumers(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        arguments = {"x-priority": 4, "x-filter-jms-selector": "TRUE", "mine": [1, None]}
        for _ in channel.consume("q", arguments=arguments):
            break
        (connection,) = api.get("vhosts", vhost, "connections")
        assert (connection["user"], connection["vhost"], connection["state"]) == ("guest", vhost, "running")
        assert (connection["channels"], connection["protocol"]) == (1, "AMQP 0-9-1")
        assert connection["auth_mechanism"] == "PLAIN"
        assert connection["client_properties"]["product"] == "Pika Python Client Library"
        name = connection["name"]
        assert name == f"127.0.0.1:{connection['peer_port']} -> 127.0.0.1:{address.port}"
        assert without_readings(api.get("connections", name)) == without_readings(connection)
        for path in (["connections"], ["connections", "username", "guest"]):
            assert without_readings(connection) in [without_readings(each) for each in api.get(*path)]
        (shown,) = api.get("connections", name, "channels")
        assert (shown["name"], shown["number"], shown["confirm"]) == (f"{name} (1)", 1, True)
        assert (shown["prefetch_count"], shown["messages_unacknowledged"]) == (7, 1)
        assert (shown["consumer_count"], shown["transactional"]) == (1, False)
        alone = api.get("channels", f"{name} (1)")
        assert without_readings(alone) == without_readings(shown)
        for path in (["channels"], ["vhosts", vhost, "channels"]):
            assert without_readings(shown) in [without_readings(each) for each in api.get(*path)]
        (consumer,) = api.get("consumers", vhost)
        assert alone["consumer_details"] == [consumer]
        assert consumer in api.get("consumers")
        assert consumer["queue"] == {"name": "q", "vhost": vhost}
        assert (consumer["prefetch_count"], consumer["ack_required"]) == (7, True)
        assert consumer["arguments"] == arguments
        assert consumer["channel_details"]["connection_name"] == name
        assert api.get("queues", vhost, "q")["consumer_details"] == [consumer]
    api.refused(404, "GET", "connections", name)


def test_an_operator_closes_a_connection_and_says_why(api: Api, vhost: str, address: Address) -> None:
    def close() -> None:
        (connection,) = api.get("vhosts", vhost, "connections")
        url = api.url("connections", connection["name"])
        answer = api.client.delete(url, headers={"x-reason": "too loud"})
        assert answer.status_code == 204

    assert "too loud" in closed_by(address, vhost, close)
    assert "Closed via" in closed_by(address, vhost, lambda: api.delete("connections", "username", "guest"))
    api.refused(404, "DELETE", "connections", "nope")


def closed_by(address: Address, vhost: str, close: Callable[[], None], user: Api | None = None) -> str:
    """Return the reply text that a client receives when its connection is closed."""
    name, password = ("guest", "guest") if user is None else (user.get("whoami")["name"], "secret")
    try:
        with amqp(address, vhost, name, password) as channel:
            close()
            channel.connection.sleep(60)
    except pika.exceptions.ConnectionClosedByBroker as gone:
        return str(gone.reply_text)
    raise AssertionError("still open")


def test_users_see_and_close_their_own_connections(
    api: Api, vhost: str, user: Callable[..., Api], address: Address
) -> None:
    one, other, monitor = user("management"), user("management"), user("monitoring")
    with amqp(address, vhost, f"{vhost}.0", "secret"):
        (connection,) = one.get("connections")
        name = connection["name"]
        assert other.get("connections") == []
        assert other.get("channels") == []
        other.refused(401, "GET", "connections", name)
        assert [found["name"] for found in monitor.get("vhosts", vhost, "connections")] == [name]
        monitor.refused(401, "DELETE", "connections", name)
        other.refused(401, "DELETE", "connections", "username", f"{vhost}.0")
    closed_by(address, vhost, lambda: one.delete("connections", one.get("connections")[0]["name"]), one)


def test_an_exchange_tells_how_many_messages_it_holds(api: Api, vhost: str) -> None:
    arguments = {"x-delayed-type": "fanout"}
    api.put("exchanges", vhost, "later", body={"type": "x-delayed-message", "arguments": arguments})
    for delay in (60_000, 0):
        body = {
            "properties": {"headers": {"x-delay": delay}},
            "routing_key": "",
            "payload": "",
            "payload_encoding": "string",
        }
        routed = api.post("exchanges", vhost, "later", "publish", status=200, body=body)
        assert routed == {"routed": delay > 0}
    assert api.get("exchanges", vhost, "later")["messages_delayed"] == 1
    assert "messages_delayed" not in api.get("exchanges", vhost, "amq.fanout")
