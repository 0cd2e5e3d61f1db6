"""Messages of a queue examined and operated on over HTTP."""

from typing import Any

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(address: Address, vhost: str, queue: str, count: int, first: int = 0, **more: Any) -> None:
    """Persistent messages that are numbered, in their bodies and in the header `n`."""
    with amqp(address, vhost) as channel:
        for number in range(first, first + count):
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": number}, **more)
            channel.basic_publish("", queue, b"%d" % number, properties)


def operate(api: Api, vhost: str, queue: str, what: str, **fields: Any) -> dict[str, Any]:
    """Do something to messages."""
    answer = api.post("queues", vhost, queue, "messages", what, status=200, body=fields)
    assert isinstance(answer, dict)
    return answer


def refused(api: Api, status: int, vhost: str, queue: str, what: str, **fields: Any) -> str:
    """Why something is not done to messages."""
    return api.refused(status, "POST", "queues", vhost, queue, "messages", what, body=fields)["reason"]


def messages(api: Api, vhost: str, queue: str, **query: str) -> list[dict[str, Any]]:
    """A list of messages."""
    found = api.get("queues", vhost, queue, "messages", **query)["messages"]
    assert isinstance(found, list)
    return found


def bodies(api: Api, vhost: str, queue: str, **query: str) -> list[str]:
    """The bodies of messages."""
    return [message["payload"] for message in messages(api, vhost, queue, **query)]


def test_listing_messages_is_paged_and_leaves_the_queue_unchanged(
    api: Api, vhost: str, address: Address
) -> None:
    api.put("queues", vhost, "q", durable=True)
    assert api.get("queues", vhost, "q", "messages", "count") == {"count": 0, "empty": True}
    publish(address, vhost, "q", 5)
    first = api.get("queues", vhost, "q", "messages", count="2")
    assert [(each["place"], each["payload"]) for each in first["messages"]] == [(0, "0"), (1, "1")]
    second = api.get("queues", vhost, "q", "messages", count="2", **{"from": first["next"]})
    assert [(each["place"], each["payload"]) for each in second["messages"]] == [(2, "2"), (3, "3")]
    last = api.get("queues", vhost, "q", "messages", **{"from": "4"})
    assert [(each["place"], each["payload"]) for each in last["messages"]] == [(4, "4")]
    assert last["next"] is None
    selected = api.get("queues", vhost, "q", "messages", selector="n > 1", count="1", **{"from": "1"})
    assert [each["payload"] for each in selected["messages"]] == ["3"]
    selected = api.get("queues", vhost, "q", "messages", selector="n > 1", **{"from": selected["next"]})
    assert [(each["place"], each["payload"]) for each in selected["messages"]] == [(2, "4")]
    assert api.get("queues", vhost, "q", "messages", "count", selector="n > 1") == {
        "count": 3,
        "empty": False,
    }
    (found,) = messages(api, vhost, "q", selector="n = 3", truncate="0")
    assert found == {
        "id": found["id"],
        "place": 0,
        "state": "ready",
        "delivery_count": 0,
        "payload_bytes": 1,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "protocol": "amqp-0-9-1",
        "properties": {"delivery_mode": 2, "headers": {"n": 3}},
        "payload": "",
        "payload_encoding": "string",
    }
    assert api.get("queues", vhost, "q", "messages", found["id"])["payload"] == "3"
    api.refused(404, "GET", "queues", vhost, "q", "messages", "log-0")
    with amqp(address, vhost) as channel:
        method, _, body = channel.basic_get("q")
        assert (body, method.redelivered, method.message_count) == (b"0", False, 4)
        assert bodies(api, vhost, "q", state="ready") == ["1", "2", "3", "4"]
        (held,) = messages(api, vhost, "q", state="unacknowledged")
        assert (held["payload"], held["place"], held["delivery_count"]) == ("0", 0, 1)
        assert held["holder"]["channel_details"]["user"] == "guest"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-max-priority": 3},
        {"x-queue-kind": "sorted", "x-sort-key": "n"},
        {"x-queue-kind": "last-value", "x-last-value-key": "n"},
    ],
    ids=["standard", "priority", "sorted", "last-value"],
)
def test_a_scan_of_a_live_queue_shows_every_message_that_stays(
    api: Api, vhost: str, address: Address, arguments: dict[str, Any]
) -> None:
    api.put("queues", vhost, "q", arguments=arguments)
    publish(address, vhost, "q", 60)
    seen: list[str] = []
    following: str | None = "0"
    with amqp(address, vhost) as channel:
        while following is not None:
            page = api.get("queues", vhost, "q", "messages", count="10", **{"from": following})
            following = page["next"]
            seen += [each["payload"] for each in page["messages"]]
            for _ in range(7 if following is not None else 0):  # consumers go on meanwhile
                channel.basic_get("q", auto_ack=True)
        stay = bodies(api, vhost, "q")
    assert seen == [str(number) for number in range(60)]
    assert stay == [str(number) for number in range(35, 60)]
    assert bodies(api, vhost, "q", **{"from": "20"}) == ["55", "56", "57", "58", "59"]
    assert bodies(api, vhost, "q", **{"from": "25"}) == []
    for wrong in ("third", "after:1:", "after:x:1", "after:1:9.9", "-1"):
        text = api.refused(400, "GET", "queues", vhost, "q", "messages", **{"from": wrong})
        assert wrong in text["reason"]


def test_messages_are_got_by_position_and_by_id(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 6)

    def got(ackmode: str, **asked: Any) -> list[str]:
        found = api.post("queues", vhost, "q", "get", status=200, body={"ackmode": ackmode} | asked)
        return [each["payload"] for each in found]

    look, take = "ack_requeue_true", "ack_requeue_false"
    assert got(look, position=3) == ["2"]
    assert got(look, position=5, count=10) == ["4", "5"]
    assert got(take, position=3) == ["2"]
    assert got(take, position=3, count=2) == ["3", "4"]
    ids = {each["payload"]: each["id"] for each in messages(api, vhost, "q")}
    assert list(ids) == ["0", "1", "5"]
    assert got(look, id=ids["1"]) == got(take, id=ids["1"]) == ["1"]
    with amqp(address, vhost) as channel:
        channel.basic_publish("", "q", b"named", pika.BasicProperties(message_id="it's"))
        assert got(take, id="it's") == ["named"]
        channel.basic_get("q")
        shown = api.get("queues", vhost, "q", "messages", ids["0"])
        assert (shown["state"], shown["payload"]) == ("unacknowledged", "0")
        for asked in ({"position": 2}, {"id": ids["0"]}, {"id": ids["1"]}, {"id": "none"}):
            for mode in (look, take):
                body = {"ackmode": mode} | asked
                assert (
                    "is ready" in api.refused(404, "POST", "queues", vhost, "q", "get", body=body)["reason"]
                )
        for wrong in ({"position": 0}, {"position": 1, "id": "x"}, {"id": "x", "count": 2}):
            api.refused(400, "POST", "queues", vhost, "q", "get", body={"ackmode": look} | wrong)


def test_ids_outlive_the_broker_if_the_messages_do(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    publish(daemon.address, "/", "q", 3)
    with amqp(daemon.address, "/") as channel:
        channel.basic_publish("", "q", b"transient")
    before = {each["payload"]: each["id"] for each in messages(api, "/", "q")}
    assert len(set(before.values())) == 4
    del before["transient"]
    daemon.kill()
    api.close()
    api = Api(start_daemon().admin)
    assert {each["payload"]: each["id"] for each in messages(api, "/", "q")} == before
    api.close()


def test_messages_are_deleted_by_id_and_by_selector(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    api.put("queues", vhost, "r")
    publish(address, vhost, "q", 10)
    ids = [message["id"] for message in messages(api, vhost, "q")]
    copied = operate(api, vhost, "q", "copy", ids=ids[2:5], limit=1, to={"queue": "r"})
    assert copied == {"done": 1, "more": True, "missing": []}
    assert operate(api, vhost, "q", "delete", ids=[ids[4], "log-0", ids[2]]) == {
        "done": 2,
        "more": False,
        "missing": ["log-0"],
    }
    assert operate(api, vhost, "q", "delete", selector="n < 6", limit=3) == {"done": 3, "more": True}
    assert bodies(api, vhost, "q") == ["5", "6", "7", "8", "9"]
    with amqp(address, vhost) as channel:
        channel.basic_get("q")  # a client's unacknowledged message is left alone
        assert operate(api, vhost, "q", "delete", all=True) == {"done": 4, "more": False}
    assert bodies(api, vhost, "q") == ["5"]
    stats = api.get("queues", vhost, "q")
    assert (stats["messages"], stats["message_stats"]["ack"]) == (1, 0)


def test_messages_move_as_they_are_or_through_an_exchange(api: Api, vhost: str, address: Address) -> None:
    for name in ("q", "r", "s"):
        api.put("queues", vhost, name, durable=True)
    api.post("bindings", vhost, "e", "amq.topic", "q", "s", status=201, body={"routing_key": "a.*"})
    publish(address, vhost, "q", 4, message_id="m")
    assert operate(api, vhost, "q", "move", selector="n = 1", to={"queue": "r"})["done"] == 1
    to = {"exchange": "amq.topic", "routing_key": "a.b"}
    assert operate(api, vhost, "q", "copy", selector="n = 2", to=to)["done"] == 1
    assert operate(api, vhost, "q", "move", selector="n = 3", to=to)["done"] == 1
    assert bodies(api, vhost, "q") == ["0", "2"]
    (moved,) = messages(api, vhost, "r")
    assert (moved["exchange"], moved["routing_key"], moved["payload"]) == ("", "q", "1")
    assert moved["properties"] == {"delivery_mode": 2, "message_id": "m", "headers": {"n": 1}}
    assert [(each["exchange"], each["routing_key"]) for each in messages(api, vhost, "s")] == [
        ("amq.topic", "a.b")
    ] * 2
    assert bodies(api, vhost, "s") == ["2", "3"]


def test_a_refused_operation_leaves_all_messages_in_place(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    api.put("queues", vhost, "full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    publish(address, vhost, "q", 3)
    before = messages(api, vhost, "q")
    for status, fields, why in (
        (400, {"all": True, "to": {"queue": "full"}}, "message 3 of 3: queue 'full' in vhost"),
        (404, {"all": True, "to": {"queue": "none"}}, "no queue 'none'"),
        (404, {"all": True, "to": {"exchange": "none"}}, "no exchange 'none'"),
        (400, {"all": True, "to": {"exchange": "amq.direct"}}, "leads nowhere with routing key 'q'"),
        (400, {"all": True, "to": {"exchange": "a", "queue": "b"}}, "'to' has either"),
        (400, {"to": {"queue": "q"}}, "no messages are selected"),
        (400, {"selector": "n =", "to": {"queue": "q"}}, "selector: "),
        (400, {"all": True, "limit": 2001, "to": {"queue": "q"}}, "limit 2001"),
        (400, {"ids": "1", "to": {"queue": "q"}}, "'ids' is not a list"),
    ):
        assert why in refused(api, status, vhost, "q", "move", **fields)
    assert messages(api, vhost, "q") == before
    assert api.get("queues", vhost, "full")["messages"] == 0
    with amqp(address, vhost) as channel:
        assert [channel.basic_get("q")[0].redelivered for _ in range(3)] == [False] * 3


def test_messages_are_edited(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 3, content_type="text/plain", app_id="a", expiration="3600000")
    properties = {"priority": 7, "app_id": None, "headers": {"n": None, "seen": True, "deep": {"x": [1]}}}
    assert operate(api, vhost, "q", "edit", selector="n = 0", properties=properties)["done"] == 1
    assert operate(api, vhost, "q", "edit", selector="n = 1", payload="other" * 40_000)["done"] == 1
    assert operate(api, vhost, "q", "edit", selector="n = 2", properties={"expiration": "0"})["done"] == 1
    with amqp(address, vhost) as channel:
        _, found, body = channel.basic_get("q", auto_ack=True)
        assert body == b"0"
        assert (found.priority, found.app_id, found.content_type) == (7, None, "text/plain")
        assert (found.headers, found.delivery_mode) == ({"seen": True, "deep": {"x": [1]}}, 2)
        _, found, body = channel.basic_get("q", auto_ack=True)
        assert (body, found.headers, found.app_id) == (b"other" * 40_000, {"n": 1}, "a")
        publish(address, vhost, "q", 1, app_id="a")
        assert operate(api, vhost, "q", "edit", all=True, properties={"headers": None})["done"] == 1
        _, found, body = channel.basic_get("q", auto_ack=True)
        assert (body, found.headers, found.app_id) == (b"0", None, "a")
        assert channel.basic_get("q", auto_ack=True)[0] is None  # the message must not wait any longer
    for fields, why in (
        ({}, "nothing to edit"),
        ({"properties": {"shoes": 1}}, "property shoes is not known"),
        ({"properties": {"priority": "x"}}, "property priority is not a number"),
        ({"properties": {"user_id": "somebody"}}, "user_id property set to 'somebody'"),
        ({"payload": "x", "payload_encoding": "y"}, "payload_encoding 'y'"),
    ):
        assert why in refused(api, 400, vhost, "q", "edit", all=True, **fields)


def test_dead_letters_are_redriven_to_where_they_came_from(api: Api, vhost: str, address: Address) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name in ("q", "r"):
        api.put("queues", vhost, name, durable=True, arguments=dead)
        api.post("bindings", vhost, "e", "amq.topic", "q", name, status=201, body={"routing_key": "a.*"})
    api.put("queues", vhost, "dead", durable=True)
    publish(address, vhost, "dead", 1)
    with amqp(address, vhost) as channel:
        for number in range(2):
            properties = pika.BasicProperties(delivery_mode=2, headers={"h": number})
            channel.basic_publish("amq.topic", "a.b", b"x", properties)
        for name in ("q", "r"):
            for _ in range(2):
                channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert len(messages(api, vhost, "dead")) == 5
    assert operate(api, vhost, "dead", "redrive", selector="h = 0") == {"done": 2, "more": False}
    for name in ("q", "r"):
        (back,) = messages(api, vhost, name)
        assert (back["exchange"], back["routing_key"]) == ("amq.topic", "a.b")
        assert back["properties"] == {"delivery_mode": 2, "headers": {"h": 0}}
    assert operate(api, vhost, "dead", "redrive", all=True, via="exchange", limit=1)["done"] == 1
    assert [len(messages(api, vhost, name)) for name in ("q", "r", "dead")] == [2, 2, 2]
    api.delete("queues", vhost, "r")
    assert "no queue 'r'" in refused(api, 404, vhost, "dead", "redrive", all=True)
    assert len(messages(api, vhost, "dead")) == 2  # the one that nobody rejected is none


def test_stopped_queues_are_operated_on_all_the_same(api: Api, vhost: str, address: Address) -> None:
    for name in ("q", "r"):
        api.put("queues", vhost, name, durable=True)
    publish(address, vhost, "q", 2)
    for name in ("q", "r"):
        for action in ("stop-enqueue", "stop-dequeue"):
            api.post("queues", vhost, name, "actions", status=204, body={"action": action})
    assert operate(api, vhost, "q", "move", all=True, to={"queue": "r"})["done"] == 2
    assert bodies(api, vhost, "r") == ["0", "1"]


def test_redriven_and_edited_messages_are_no_duplicates(api: Api, vhost: str, address: Address) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put("queues", vhost, "q", durable=True, arguments=dead | {"x-dedup-window": 600_000})
    api.put("queues", vhost, "dead", durable=True)
    with amqp(address, vhost) as channel:
        for _ in range(2):
            channel.basic_publish("", "q", b"once", pika.BasicProperties(message_id="m"))
        channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        assert channel.basic_get("q")[0] is None
    assert operate(api, vhost, "dead", "redrive", all=True)["done"] == 1
    assert operate(api, vhost, "q", "edit", all=True, payload="twice")["done"] == 1
    assert bodies(api, vhost, "q") == ["twice"]


def test_publishers_are_told_once_of_what_was_moved(api: Api, vhost: str, address: Address) -> None:
    for name in ("q", "moved", "copied", "receipts"):
        api.put("queues", vhost, name, durable=True)
    with amqp(address, vhost) as channel:
        headers = {"x-receipt-to": "receipts", "x-receipt-on": "arrival,consumed"}
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2, headers=headers))
        operate(api, vhost, "q", "copy", all=True, to={"queue": "copied"})
        operate(api, vhost, "q", "move", all=True, to={"queue": "moved"})
        for name in ("copied", "moved"):
            channel.basic_ack(channel.basic_get(name)[0].delivery_tag)
        channel.queue_declare("moved", durable=True)  # answered when what was before is on disk
    receipt_headers = [each["properties"]["headers"] for each in messages(api, vhost, "receipts")]
    assert [(each["what"], each["queue"]) for each in receipt_headers] == [
        ("arrival", "q"),
        ("consumed", "moved"),
    ]


def test_users_are_held_to_their_permissions(api: Api, vhost: str, name: str, address: Address) -> None:
    for queue in ("q", "other"):
        api.put("queues", vhost, queue, durable=True)
    publish(address, vhost, "q", 1)
    api.put("users", name, password="x", tags="management")
    api.put("permissions", vhost, name, configure="", write="^$", read="^q$")
    user = Api(api.base, name, "x")
    assert len(messages(user, vhost, "q")) == 1
    refusal = user.refused(401, "GET", "queues", vhost, "other", "messages")
    assert "read access to queue 'other'" in refusal["reason"]
    for what, fields in (("edit", {"payload": "x"}), ("move", {"to": {"queue": "q"}})):
        assert "write access to queue 'q'" in refused(user, 401, vhost, "q", what, all=True, **fields)
    to = {"exchange": "amq.topic"}
    assert "write access to exchange" in refused(user, 401, vhost, "q", "copy", all=True, to=to)
    assert operate(user, vhost, "q", "delete", all=True)["done"] == 1
    user.close()
    api.delete("users", name)


@pytest.mark.parametrize("what", ["move", "edit"])
def test_answered_operations_survive_a_crash(start_daemon: DaemonStarter, what: str) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    for name in ("q", "r"):
        api.put("queues", "/", name, durable=True)
    publish(daemon.address, "/", "q", 300)
    fields: dict[str, Any] = {"to": {"queue": "r"}} if what == "move" else {"payload": "edited"}
    assert operate(api, "/", "q", what, selector="n >= 100", **fields)["done"] == 200
    daemon.kill()
    api.close()
    api = Api(start_daemon().admin)
    numbers = [str(number) for number in range(300)]
    q, r = (bodies(api, "/", name, count="1000") for name in ("q", "r"))
    if what == "move":
        assert (q, r) == (numbers[:100], numbers[100:])
    else:
        assert (q, r) == (numbers[:100] + ["edited"] * 200, [])
    api.close()
