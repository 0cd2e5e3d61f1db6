"""The overview and the health of a running broker."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.daemon import Address


def test_the_overview_counts(api: Api, vhost: str, address: Address) -> None:
    before = api.get("overview")
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        channel.basic_publish("", "nowhere", b"x")
        channel.basic_consume("q", lambda *_: None)
        after = api.get("overview")
    grown = {
        name: after["object_totals"][name] - before["object_totals"][name] for name in before["object_totals"]
    }
    assert grown == {"queues": 1, "exchanges": 0, "consumers": 1, "connections": 1, "channels": 1}
    assert after["queue_totals"]["messages"] - before["queue_totals"]["messages"] == 1
    stats = {
        name: after["message_stats"][name] - before["message_stats"][name] for name in ("publish", "confirm")
    }
    assert stats == {"publish": 2, "confirm": 2}
    assert after["product_name"] == "amqpd"
    assert {"topic", "headers"} <= {kind["name"] for kind in after["exchange_types"]}
    listened = {(listener["protocol"], listener["port"]) for listener in after["listeners"]}
    assert ("amqp", address.port) in listened


def test_the_overview_counts_only_objects_that_the_user_may_see(
    api: Api, vhost: str, user: Callable[..., Api], address: Address
) -> None:
    insider, outsider, monitor = (
        user("management"),
        user("management", permitted=False),
        user("monitoring", permitted=False),
    )
    with amqp(address, vhost, f"{vhost}.0", "secret") as channel, amqp(address, "/") as foreign:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        foreign.queue_declare("", exclusive=True)
        shown = insider.get("overview")
        objects = {"queues": 1, "exchanges": 6, "consumers": 0, "connections": 1, "channels": 1}
        assert shown["object_totals"] == objects | {"exchanges": len(api.get("exchanges", vhost))}
        assert (shown["queue_totals"]["messages"], shown["message_stats"]["publish"]) == (1, 1)
        assert "confirm" not in shown["message_stats"]
        assert "listeners" not in shown
        nothing = outsider.get("overview")
        assert set(nothing["object_totals"].values()) == {0}
        assert nothing["message_stats"]["publish"] == nothing["queue_totals"]["messages"] == 0
        everything, same = api.get("overview"), monitor.get("overview")
        for part in ("object_totals", "message_stats", "queue_totals", "listeners"):
            assert without_rates(everything[part]) == without_rates(same[part])


def without_rates(part: Any) -> Any:
    """Return an answer without rates, which are computed anew if 5 s have passed."""
    return (
        {key: part[key] for key in part if not key.endswith("_details")} if isinstance(part, dict) else part
    )


def test_the_node(api: Api) -> None:
    (node,) = api.get("nodes")
    assert node["name"] == api.get("overview")["node"]
    assert api.get("nodes", node["name"])["os_pid"] == node["os_pid"]
    assert node["uptime"] > 0
    assert node["mem_used"] > 10_000_000
    api.refused(404, "GET", "nodes", "elsewhere")


def test_the_name_of_the_broker(api: Api) -> None:
    api.put("cluster-name", status=204, name="test lab")
    assert api.get("cluster-name") == {"name": "test lab"}
    assert api.get("overview")["cluster_name"] == "test lab"
    api.delete("global-parameters", "cluster_name")
    assert api.get("cluster-name")["name"] == api.get("overview")["node"]


def test_extensions_are_the_script_that_starts_the_page_of_rabbitmq(api: Api) -> None:
    assert api.get("extensions") == [{"javascript": "dispatcher.js"}]


def test_no_feature_is_deprecated(api: Api) -> None:
    assert api.get("deprecated-features") == []


def test_versions(api: Api) -> None:
    assert re.match(r"\d+\.\d+", api.get("version")["product_version"])
    assert fetch(api.url("auth")).json() == {"oauth_enabled": False}


@pytest.mark.parametrize(
    "check",
    [
        "alarms",
        "local-alarms",
        "is-in-service",
        "ready-to-serve-clients",
        "virtual-hosts",
        "node-is-quorum-critical",
        "node-is-mirror-sync-critical",
        "metadata-store/initialized",
        "protocol-listener/amqp",
        "protocol-listener/http",
        "below-node-connection-limit",
        "quorum-queues-without-elected-leaders/all-vhosts/pattern/^q",
        "quorum-queues-without-elected-leaders/vhost/%2F/pattern/^q",
    ],
)
def test_a_broker_that_is_well(api: Api, check: str) -> None:
    assert api.get("health", "checks", *map(unquote, check.split("/")))["status"] == "ok"


def test_answers_about_features_that_a_single_node_lacks(api: Api, vhost: str, address: Address) -> None:
    assert api.get("deprecated-features", "used") == []
    api.post("rebalance", "queues", status=204, body={})
    with amqp(address, vhost):
        (connection,) = api.get("vhosts", vhost, "connections")
        assert api.get("connections", connection["name"], "sessions") == []
        assert api.get("health", "checks", "below-node-connection-limit")["current"] >= 1
    api.refused(404, "GET", "connections", connection["name"], "sessions")


def test_listeners_are_checked(api: Api, address: Address) -> None:
    assert api.get("health", "checks", "port-listener", str(address.port))["port"] == address.port
    refused = api.ask("GET", "health", "checks", "port-listener", "1")
    assert (refused.status_code, refused.json()["missing"]) == (503, 1)
    refused = api.ask("GET", "health", "checks", "protocol-listener", "mqtt")
    assert (refused.status_code, refused.json()["status"]) == (503, "failed")
    for wrong in ("x", "9" * 5000, "123456"):
        api.refused(400, "GET", "health", "checks", "port-listener", wrong)


def test_aliveness(api: Api, vhost: str) -> None:
    for _ in range(2):
        assert api.get("aliveness-test", vhost) == {"status": "ok"}
    assert api.get("queues", vhost, "aliveness-test")["messages"] == 0
    api.refused(404, "GET", "aliveness-test", "nowhere")


def test_unknown_paths_and_methods_are_refused_with_404_and_405(api: Api) -> None:
    assert api.refused(404, "GET", "shoes") == {"error": "Object Not Found", "reason": "Not Found"}
    assert api.refused(405, "DELETE", "overview")["error"] == "Method Not Allowed"


def test_the_api_describes_itself(api: Api) -> None:
    document = fetch(api.url("openapi.json")).json()
    assert "/api/queues/{vhost}/{name}" in document["paths"]
