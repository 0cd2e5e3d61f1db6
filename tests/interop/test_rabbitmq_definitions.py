"""Definitions that a real RabbitMQ exports are imported: the server that Debian has, with its management."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.rabbitmq import running

pytestmark = pytest.mark.nightly


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[Api]:
    """The HTTP API of a RabbitMQ of the test's own."""
    with running(tmp_path) as (api, _):
        yield api


def fill(api: Api) -> None:
    """Make something of everything."""
    api.put("vhosts", "shop")
    api.put("users", "seller", password="secret", tags="management,policymaker")
    api.put("permissions", "shop", "seller", configure="^s", write=".*", read=".*")
    api.put("topic-permissions", "shop", "seller", exchange="amq.topic", write="^a", read=".*")
    api.put("queues", "shop", "classic", durable=True, arguments={"x-max-priority": 5, "x-expires": 60000})
    api.put("queues", "shop", "quorum", durable=True, arguments={"x-queue-type": "quorum"})
    api.put("queues", "shop", "transient", auto_delete=True)
    api.put("exchanges", "shop", "events", type="topic", durable=True)
    api.put(
        "exchanges", "shop", "lost", type="fanout", durable=True, arguments={"alternate-exchange": "events"}
    )
    bind = {"routing_key": "a.#", "arguments": {}}
    api.post("bindings", "shop", "e", "events", "q", "classic", status=201, body=bind)
    match = {"routing_key": "", "arguments": {"x-match": "any", "kind": "x", "count": 3}}
    api.post("bindings", "shop", "e", "amq.headers", "q", "quorum", status=201, body=match)
    api.post("bindings", "shop", "e", "events", "e", "lost", status=201, body={"routing_key": "b"})
    mirrored = {"ha-mode": "all", "max-length": 10}
    api.put("policies", "shop", "p", body={"pattern": "^c", "definition": mirrored, "apply-to": "queues"})
    api.put("operator-policies", "shop", "o", body={"pattern": "", "definition": {"max-length": 5}})
    api.put("vhost-limits", "shop", "max-queues", status=204, value=50)
    api.put("user-limits", "seller", "max-connections", status=204, value=9)
    api.put("global-parameters", "mine", value={"any": 1})


def comparable(document: Any) -> dict[str, set[str]]:
    """Return the comparable part of definitions. RabbitMQ leaves the type of queues to their arguments."""
    for queue in document["queues"]:
        queue.pop("type", None)
    wanted = ("permissions", "topic_permissions", "parameters", "policies", "queues", "exchanges", "bindings")
    return {
        category: {json.dumps(entry, sort_keys=True) for entry in document[category]} for category in wanted
    }


def test_definitions_of_rabbitmq_are_imported(rabbitmq: Api, start_daemon: DaemonStarter) -> None:
    fill(rabbitmq)
    exported = rabbitmq.get("definitions")
    daemon = start_daemon()
    with closing(Api(daemon.admin)) as api:
        api.post("definitions", status=204, body=exported)
        own = api.get("definitions")
        assert comparable(own) == comparable(exported)
        hashes = {user["name"]: user["password_hash"] for user in exported["users"]}
        assert {user["name"]: user["password_hash"] for user in own["users"]} == hashes
        assert fetch(api.url("whoami"), auth=("seller", "secret")).status_code == 200
        assert api.get("queues", "shop", "classic")["effective_policy_definition"]["max-length"] == 5
        with amqp(daemon.address, "shop", "seller", "secret") as channel:
            channel.basic_publish("events", "a.b", b"x")
            assert channel.basic_get("classic", auto_ack=True)[2] == b"x"
        api.post("definitions", "shop", status=204, body=rabbitmq.get("definitions", "shop"))
        assert comparable(api.get("definitions")) == comparable(exported)


def test_rabbitmq_imports_what_amqpd_exports_for_it(rabbitmq: Api, start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    with closing(Api(daemon.admin)) as api:
        fill(api)
        hashed = api.get("auth", "hash_password", "open sesame")["ok"]
        api.put("users", "buyer", password_hash=hashed, tags="management")
        api.put("permissions", "shop", "buyer", configure="", write=".*", read=".*")
        api.put("policies", "shop", "own", pattern="", definition={"retry-max": 5, "max-length": 7})
        exported = api.get("definitions", **{"for": "rabbitmq"})
        left_out = exported["left_out"]
        assert left_out[0].startswith("user 'guest': "), left_out
        assert left_out[1].startswith("user 'seller': "), left_out
        assert left_out[2:] == ["policy 'own' in vhost 'shop': retry-max"]
        rabbitmq.post("definitions", status=204, body=exported)
    own = rabbitmq.get("definitions")
    taken = comparable(own)
    for category, entries in comparable(exported).items():
        assert entries <= taken[category], category
    assert fetch(rabbitmq.url("whoami"), auth=("buyer", "open sesame")).status_code == 200
