"""Queues, exchanges and bindings over HTTP."""

import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.daemon import Address, DaemonStarter


def test_a_queue_is_declared_shown_and_deleted(api: Api, vhost: str) -> None:
    described = {"durable": True, "auto_delete": False, "arguments": {"x-max-priority": 3, "mine": ["x", 1]}}
    api.put("queues", vhost, "a/b", body=described)
    api.put("queues", vhost, "a/b", status=204, body=described)
    shown = api.get("queues", vhost, "a/b")
    assert {key: shown[key] for key in described} == described
    assert (shown["name"], shown["vhost"], shown["type"]) == ("a/b", vhost, "classic")
    assert (shown["exclusive"], shown["messages"], shown["consumers"]) == (False, 0, 0)
    assert shown["consumer_details"] == []
    assert api.get("queues", vhost, "a/b", columns="name,message_stats.publish") == {
        "name": "a/b",
        "message_stats": {"publish": 0},
    }
    api.delete("queues", vhost, "a/b")
    assert api.refused(404, "GET", "queues", vhost, "a/b") == {
        "error": "Object Not Found",
        "reason": f"no queue 'a/b' in vhost '{vhost}'",
    }
    api.refused(404, "DELETE", "queues", vhost, "a/b")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"durable": False}, "inequivalent arg 'durable' for queue 'q' in vhost"),
        ({"durable": True, "arguments": {"x-expires": 5}}, "inequivalent arg 'x-expires'"),
        ({"durable": 1}, "'durable' is not a boolean: 1"),
        ({"arguments": "x"}, "'arguments' is not an object: \"x\""),
        ({"arguments": {"": 1}}, "a name of not 1 to 255 bytes"),
        ({"arguments": {"n": 2**63}}, "does not fit into 64 bits"),
        ([], "the body is not a JSON object"),
    ],
)
def test_a_declaration_that_is_refused(api: Api, vhost: str, body: object, reason: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    refusal = api.refused(400, "PUT", "queues", vhost, "q", body=body)
    assert refusal["error"] == "bad_request"
    assert reason in refusal["reason"]


def test_bodies_that_are_no_json(api: Api, vhost: str) -> None:
    for content in (b"{", b"\xff", b"[" * 100_000):
        answer = api.client.put(api.url("queues", vhost, "q"), content=content)
        assert answer.status_code == 400
        assert answer.json()["reason"].startswith("not_json: ")


HALF = r'"\ud800"'


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("POST", "bindings/{v}/e/amq.topic/q/q", '{"routing_key": HALF}', "routing_key"),
        ("POST", "bindings/{v}/e/amq.topic/q/q", '{"arguments": {"a": HALF}}', "arguments.a"),
        ("PUT", "permissions/{v}/guest", '{"configure": "", "write": HALF, "read": ""}', "write"),
        ("PUT", "topic-permissions/{v}/guest", '{"exchange": HALF, "write": "", "read": ""}', "exchange"),
        ("PUT", "topic-permissions/{v}/guest", '{"exchange": "x", "write": HALF, "read": ""}', "write"),
        ("PUT", "vhosts/{v}", '{"description": HALF}', "description"),
        ("PUT", "vhosts/{v}", '{"tags": ["a", HALF]}', "tags[1]"),
        ("PUT", "policies/{v}/p", '{"pattern": HALF, "definition": {"expires": 1}}', "pattern"),
        (
            "PUT",
            "policies/{v}/p",
            '{"pattern": "", "definition": {"dead-letter-routing-key": HALF}}',
            "definition.dead-letter-routing-key",
        ),
        ("PUT", "global-parameters/{v}", '{"value": [NaN]}', "value[0]"),
        ("PUT", "global-parameters/{v}", '{"value": 1e999}', "value"),
        ("PUT", "queues/{v}/x", '{"arguments": {"n": Infinity}}', "arguments.n"),
        ("POST", "definitions", '{"queues": [{"name": HALF, "vhost": "/"}]}', "queues[0].name"),
        (
            "POST",
            "definitions/{v}",
            '{"queues": [{"name": "", "arguments": {HALF: 1}}]}',
            "a name in queues[0].arguments",
        ),
    ],
)
def test_values_that_the_log_cannot_keep_are_refused_by_their_place(
    api: Api, vhost: str, method: str, path: str, body: str, place: str
) -> None:
    api.put("queues", vhost, "q", durable=True)
    before = api.get("definitions")
    url = f"{api.base}/api/{path.replace('{v}', vhost)}"
    answer = api.client.request(method, url, content=body.replace("HALF", HALF))
    assert answer.status_code == 400, answer.text
    assert answer.json()["reason"].startswith(f"not_json: {place} ")
    assert api.get("definitions") == before
    api.put("queues", vhost, "r", durable=True)  # a durable queue must be logged


def test_a_body_that_is_too_long(api: Api, vhost: str) -> None:
    answer = api.client.put(api.url("queues", vhost, "q"), content=b" " * (2**18 + 1))
    assert (answer.status_code, answer.json()["reason"]) == (413, "a body has at most 262144 bytes here")


def test_a_body_of_another_type_is_read_all_the_same(api: Api, vhost: str) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}  # the default of curl with -d
    answer = api.client.put(api.url("queues", vhost, "q"), content=b'{"durable": true}', headers=headers)
    assert answer.status_code == 201
    assert api.get("queues", vhost, "q")["durable"] is True


def test_reserved_names_and_names_that_are_too_long(api: Api, vhost: str) -> None:
    assert "reserved prefix" in api.refused(401, "PUT", "queues", vhost, "amq.q", body={})["reason"]
    assert "256 bytes" in api.refused(400, "PUT", "queues", vhost, "q" * 256, body={})["reason"]
    answer = api.client.put(f"{api.base}/api/queues/{vhost}/%FF", json={})
    assert (answer.status_code, answer.json()["reason"]) == (400, "'%FF' in the path is not valid UTF-8")


def test_line_breaks_are_removed_from_declared_names(api: Api, vhost: str) -> None:
    for kind in ("queues", "exchanges"):
        api.put(kind, vhost, "two\r\nlines", body={"type": "fanout"})
        api.put(kind, vhost, "twolines", status=204, body={"type": "fanout"})
        assert api.get(kind, vhost, "twolines")["name"] == "twolines"


def test_deletion_may_have_conditions(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q")
    api.put("exchanges", vhost, "x", type="fanout")
    api.post("bindings", vhost, "e", "x", "q", "q", status=201, body={})
    api.refused(400, "DELETE", "exchanges", vhost, "x", condition="if-unused")
    with amqp(address, vhost) as channel:
        channel.basic_publish("", "q", b"x")
    api.refused(400, "DELETE", "queues", vhost, "q", condition="if-empty")
    api.delete("queues", vhost, "q", "contents")
    api.delete("queues", vhost, "q", condition="if-empty")
    api.delete("exchanges", vhost, "x", condition="if-unused")


def test_exclusive_queues_are_seen_and_deleted_by_operators(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("mine", exclusive=True)
        assert api.get("queues", vhost, "mine")["exclusive"] is True
        refusal = api.refused(400, "PUT", "queues", vhost, "mine", body={})
        assert "cannot obtain exclusive access to locked queue 'mine'" in refusal["reason"]
        api.delete("queues", vhost, "mine", "contents")
        api.delete("queues", vhost, "mine")


def test_an_exchange_is_declared_shown_and_deleted(api: Api, vhost: str) -> None:
    described = {
        "type": "topic",
        "durable": True,
        "auto_delete": True,
        "internal": True,
        "arguments": {"alternate-exchange": "amq.fanout"},
    }
    api.put("exchanges", vhost, "x", body=described)
    api.put("exchanges", vhost, "x", status=204, body=described)
    shown = api.get("exchanges", vhost, "x")
    assert {key: shown[key] for key in described} == described
    names = [exchange["name"] for exchange in api.get("exchanges", vhost)]
    assert names == sorted(names)
    assert {"", "amq.direct", "amq.topic", "amq.headers", "amq.fanout", "amq.match", "x"} == set(names)
    assert (
        "unknown exchange type"
        in api.refused(400, "PUT", "exchanges", vhost, "y", body={"type": "z"})["reason"]
    )
    api.delete("exchanges", vhost, "x")
    api.refused(404, "DELETE", "exchanges", vhost, "x")
    api.refused(401, "DELETE", "exchanges", vhost, "amq.direct")


def test_the_default_exchange_is_called_amq_default(api: Api, vhost: str) -> None:
    assert api.get("exchanges", vhost, "amq.default")["name"] == ""
    api.refused(400, "PUT", "exchanges", vhost, "amq.default", body={"type": "direct"})
    api.put("queues", vhost, "q")
    implied = {
        "source": "",
        "vhost": vhost,
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "q",
        "arguments": {},
        "properties_key": "q",
    }
    assert api.get("exchanges", vhost, "amq.default", "bindings", "source") == [implied]
    assert api.get("bindings", vhost, "e", "amq.default", "q", "q") == [implied]
    api.refused(401, "DELETE", "bindings", vhost, "e", "amq.default", "q", "q", "q")
    api.refused(401, "POST", "bindings", vhost, "e", "amq.default", "q", "q", body={})


@pytest.mark.parametrize("key", ["", "k", "a.b~c", "a%7Ec", "a~c", "ü/ö?&=+ #", "~"])
@pytest.mark.parametrize("arguments", [{}, {"x-match": "any", "k": 1}])
def test_a_binding_is_found_by_its_location(
    api: Api, vhost: str, key: str, arguments: dict[str, object]
) -> None:
    """RabbitMQ 3.10 fails with 500 for a key with `~` and arguments, and then for every list that has it."""
    api.put("queues", vhost, "q/1")
    api.put("exchanges", vhost, "x/1", type="headers")
    for other in ("other", "a~c", "a%7Ec"):
        api.post("bindings", vhost, "e", "x/1", "q", "q/1", status=201, body={"routing_key": other})
    body = {"routing_key": key, "arguments": arguments}
    answer = api.ask("POST", "bindings", vhost, "e", "x/1", "q", "q/1", body=body)
    assert answer.status_code == 201
    url = answer.request.url.join(answer.headers["location"])
    assert str(url).startswith(str(answer.request.url) + "/")
    document = api.client.get(url).json()
    assert (document["routing_key"], document["arguments"]) == (key, arguments)
    assert document in api.get("bindings", vhost, "e", "x/1", "q", "q/1")
    assert document in api.get("queues", vhost, "q/1", "bindings")
    assert document in api.get("exchanges", vhost, "x/1", "bindings", "source")
    assert document in api.get("bindings", vhost)
    by_key = api.get("bindings", vhost, "e", "x/1", "q", "q/1", document["properties_key"])
    assert by_key == document
    assert api.client.delete(url).status_code == 204
    assert api.client.delete(url).status_code == 404
    assert document not in api.get("bindings", vhost)


def test_exchanges_are_bound_to_exchanges(api: Api, vhost: str) -> None:
    api.put("exchanges", vhost, "x", type="fanout")
    api.post("bindings", vhost, "e", "x", "e", "amq.topic", status=201, body={"routing_key": "k"})
    binding = api.get("bindings", vhost, "e", "x", "e", "amq.topic", "k")
    assert binding["destination_type"] == "exchange"
    assert api.get("exchanges", vhost, "amq.topic", "bindings", "destination") == [binding]
    api.delete("bindings", vhost, "e", "x", "e", "amq.topic", "k")
    api.refused(404, "POST", "bindings", vhost, "e", "x", "e", "nope", body={})
    api.refused(404, "POST", "bindings", vhost, "e", "x", "q", "nope", body={})
    api.refused(404, "GET", "bindings", vhost, "e", "nope", "q", "nope")
    api.refused(400, "GET", "bindings", vhost, "e", "x", "z", "nope")


def test_answered_changes_survive_a_kill(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("vhosts", "v", description="d", tags="a,b", default_queue_type="quorum")
    api.put("queues", "v", "q", durable=True)
    api.put("exchanges", "v", "x", type="fanout", durable=True)
    api.post("bindings", "v", "e", "x", "q", "q", status=201, body={"routing_key": "k"})
    api.put("policies", "v", "p", pattern="", definition={"max-length": 5})
    api.put("global-parameters", "g", value={"a": 1})
    api.put("users", "u", password="p", tags="management")
    daemon.kill()
    api.close()
    again = Api(start_daemon().admin)
    vhost = again.get("vhosts", "v")
    assert (vhost["description"], vhost["tags"], vhost["default_queue_type"]) == ("d", ["a", "b"], "quorum")
    queue = again.get("queues", "v", "q")
    assert (queue["type"], queue["effective_policy_definition"]) == ("quorum", {"max-length": 5})
    assert again.get("bindings", "v", "e", "x", "q", "q", "k")["routing_key"] == "k"
    assert again.get("global-parameters", "g") == {"name": "g", "value": {"a": 1}}
    assert fetch(again.url("whoami"), auth=("u", "p")).json()["name"] == "u"
    again.close()
