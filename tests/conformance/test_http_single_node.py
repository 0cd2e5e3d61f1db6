"""Requests of RabbitMQ's API about replicas, the stream protocol and Erlang, which amqpd does not have."""

from typing import Any

import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter

REFUSED = "service_unavailable"


@pytest.fixture
def node(api: Api) -> str:
    """The name of the only node."""
    return str(api.get("overview")["node"])


def test_a_quorum_queue_has_a_single_replica(api: Api, vhost: str, node: str) -> None:
    api.put("queues", vhost, "q", durable=True, arguments={"x-queue-type": "quorum"})
    (replica,) = api.get("queues", "quorum", vhost, "q", "status")
    assert (replica["Node Name"], replica["Raft State"], replica["Membership"]) == (node, "leader", "voter")
    assert {replica[name] for name in ("Term", "Commit Index", "Last Written", "Machine Version")} == {""}
    api.post("queues", "quorum", vhost, "q", "replicas", "add", status=204, body={"node": node})
    for method, action in (("POST", "add"), ("DELETE", "delete")):
        path = ("queues", "quorum", vhost, "q", "replicas", action)
        assert "x@y" in api.refused(400, method, *path, body={"node": "x@y"})["reason"]
        assert "node" in api.refused(400, method, *path, body={})["reason"]
    path = ("queues", "quorum", vhost, "q", "replicas", "delete")
    last = api.refused(503, "DELETE", *path, body={"node": node})
    assert (last["error"], "only replica" in last["reason"]) == (REFUSED, True)
    assert api.get("queues", vhost, "q")["members"] == [node]


def test_other_queues_have_no_replicas(api: Api, vhost: str, node: str) -> None:
    api.put("queues", vhost, "q")
    refused = api.refused(503, "GET", "queues", "quorum", vhost, "q", "status")
    assert (refused["error"], "type classic" in refused["reason"]) == (REFUSED, True)
    api.refused(503, "POST", "queues", "quorum", vhost, "q", "replicas", "add", body={"node": node})
    api.refused(404, "GET", "queues", "quorum", vhost, "none", "status")
    api.refused(404, "GET", "queues", "quorum", "nowhere", "q", "status")


def test_replicas_of_a_node(api: Api, node: str) -> None:
    patterns = {"vhost_pattern": ".*", "queue_pattern": ".*", "strategy": "all"}
    path = ("queues", "quorum", "replicas", "on")
    api.post(*path, node, "grow", status=204, body=patterns)
    refused = api.refused(400, "POST", *path, node, "grow", body=patterns | {"strategy": None})
    assert "strategy" in refused["reason"]
    api.refused(404, "POST", *path, "x@y", "grow", body=patterns)
    assert "only replica" in api.refused(503, "DELETE", *path, node, "shrink")["reason"]
    api.refused(404, "DELETE", *path, "x@y", "shrink")


def test_a_virtual_host_may_be_called_quorum(api: Api) -> None:
    api.put("vhosts", "quorum")
    try:
        api.put("queues", "quorum", "status")
        assert api.get("queues", "quorum", "status")["name"] == "status"
        assert api.get("queues", "quorum", "status", "messages")["messages"] == []
    finally:
        api.delete("vhosts", "quorum")


@pytest.mark.parametrize("path", ["connections", "publishers", "consumers"])
def test_no_client_has_the_stream_protocol(api: Api, vhost: str, path: str) -> None:
    assert api.get("stream", path) == api.get("stream", path, vhost) == []
    assert api.get("stream", path, page="1")["total_count"] == 0
    api.refused(404, "GET", "stream", path, "nowhere")


def test_a_connection_of_amqp_is_none_of_the_stream_protocol(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        assert api.get("stream", "publishers", vhost, "s") == []
        (shown,) = api.get("vhosts", vhost, "connections")
        for method in ("GET", "DELETE"):
            api.refused(404, method, "stream", "connections", vhost, shown["name"])
        for kind in ("publishers", "consumers"):
            assert api.get("stream", "connections", vhost, shown["name"], kind) == []
            api.refused(404, "GET", "stream", "connections", vhost, "none", kind)
        assert api.get("connections", shown["name"])["state"] == "running"
    api.refused(404, "GET", "stream", "publishers", vhost, "none")


def test_the_offsets_and_producers_that_a_stream_knows(api: Api, vhost: str, address: Address) -> None:
    stream: dict[str, Any] = {"x-queue-type": "stream"}
    with amqp(address, vhost) as channel:
        channel.queue_declare("s", durable=True, arguments=stream)
        channel.queue_declare("wide", durable=True, arguments=stream | {"x-partitions": 2})
        channel.queue_declare("q")
        for _ in range(3):
            channel.basic_publish("", "s", b"")
    api.put("streams", vhost, "s", "consumers", "reader", status=204, offsets=[2])
    assert api.get("stream", vhost, "s", "tracking") == {"offsets": {"reader": 2}, "writers": {}}
    assert api.get("stream", vhost, "s", "tracking", type="offset") == {"offsets": {"reader": 2}}
    assert api.get("stream", vhost, "s", "tracking", type="writer") == {"writers": {}}
    assert "2 partitions" in api.refused(400, "GET", "stream", vhost, "wide", "tracking")["reason"]
    assert api.get("stream", vhost, "wide", "tracking", type="writer") == {"writers": {}}
    api.refused(404, "GET", "stream", vhost, "q", "tracking")
    api.refused(404, "GET", "stream", vhost, "none", "tracking")


def test_a_super_stream(api: Api, vhost: str, address: Address) -> None:
    path = ("stream", "super-streams", vhost)
    api.put(*path, "sales", status=204, partitions=3, arguments={"x-max-age": "1h"})
    assert api.get("exchanges", vhost, "sales")["arguments"] == {"x-super-stream": True}
    bound = api.get("exchanges", vhost, "sales", "bindings", "source")
    found = {each["destination"]: (each["routing_key"], each["arguments"]) for each in bound}
    assert found == {f"sales-{n}": (str(n), {"x-stream-partition-order": n}) for n in range(3)}
    first = api.get("queues", vhost, "sales-0")
    assert (first["type"], first["arguments"]["x-max-age"]) == ("stream", "1h")
    with amqp(address, vhost) as channel:
        channel.basic_publish("sales", "1", b"")
    assert [api.get("queues", vhost, f"sales-{n}")["messages"] for n in range(3)] == [0, 1, 0]
    api.put(*path, "named", status=204, body={"binding-keys": "eu, us,,"})
    assert {"named-eu", "named-us"} <= {queue["name"] for queue in api.get("queues", vhost)}
    api.put(*path, "text", status=204, partitions="1")
    assert api.get("queues", vhost, "text-0")["type"] == "stream"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "either 'partitions' or 'binding-keys'"),
        ({"partitions": 1, "binding-keys": "a"}, "either"),
        ({"partitions": 0}, "1 to 256"),
        ({"partitions": 257}, "1 to 256"),
        ({"partitions": "9" * 5000}, "1 to 256"),
        ({"partitions": "x"}, "1 to 256"),
        ({"binding-keys": " , "}, "1 to 256"),
        ({"binding-keys": 7}, "binding-keys"),
        ({"partitions": 2, "arguments": {"x-max-age": "soon"}}, "x-max-age"),
        ({"binding-keys": "other,taken"}, "'s-taken'"),
    ],
)
def test_a_super_stream_that_cannot_be(api: Api, vhost: str, body: object, words: str) -> None:
    api.put("queues", vhost, "s-taken")
    before = api.get("exchanges", vhost)
    assert words in api.refused(400, "PUT", "stream", "super-streams", vhost, "s", body=body)["reason"]
    assert [queue["name"] for queue in api.get("queues", vhost)] == ["s-taken"]
    assert api.get("exchanges", vhost) == before


def test_histories_are_forgotten(api: Api, vhost: str, node: str, address: Address) -> None:
    span = {"lengths_age": "60", "lengths_incr": "5"}
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"")
        before = api.get("queues", vhost, "q", **span)
        assert "samples" in before["messages_details"]
        for path in ("reset",), ("reset", node):
            assert api.ask("DELETE", *path).status_code == 204
            shown = api.get("vhosts", vhost, **span)
            assert shown["messages_details"]["samples"] == []
            assert (shown["messages"], shown["message_stats"]["publish"]) == (1, 1)
    api.refused(404, "DELETE", "reset", "x@y")


def test_there_are_no_processes_and_tables_of_erlang(api: Api, node: str) -> None:
    assert api.get("top", node) == {"node": node, "row_count": 20, "processes": []}
    assert api.get("top", "ets", node, row_count="5") == {"node": node, "row_count": 5, "ets_tables": []}
    api.refused(404, "GET", "top", "x@y")
    api.refused(400, "GET", "top", node, row_count="-1")


def test_topic_permissions_of_one_exchange(api: Api, vhost: str) -> None:
    path = ("topic-permissions", vhost, "guest", "amq.topic")
    api.put(*path, write="^a", read=".*")
    assert api.get(*path)["write"] == "^a"
    api.put(*path, status=204, exchange="amq.topic", write="^b", read=".*")
    assert [each["write"] for each in api.get("topic-permissions", vhost, "guest")] == ["^b"]
    other = {"exchange": "other", "write": "", "read": ""}
    assert "other" in api.refused(400, "PUT", *path, body=other)["reason"]
    api.delete(*path)
    api.refused(404, "GET", *path)


def test_tools_see_the_version_that_is_set(start_daemon: DaemonStarter) -> None:
    """NServiceBus makes its policies for quorum queues only from the version 4.0.0 on."""
    daemon = start_daemon("--compat-version", "4.2.0")
    daemon.load_api()
    api = Api(daemon.admin)
    (node,) = api.get("nodes")
    assert api.get("overview")["rabbitmq_version"] == node["rabbitmq_version"] == "4.2.0"
    api.close()
