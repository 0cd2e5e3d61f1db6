"""rabbitmqadmin 3.10 of Debian's RabbitMQ, run as it is, with our broker."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.admin.api import Api
from tests.support.admin.estate import running_estate
from tests.support.daemon.daemon import PATIENCE_S

PLUGINS = Path("/usr/lib/rabbitmq/lib")
SCRIPT = next(
    PLUGINS.glob("rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"), None
)

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("is about amqpd's HTTP API"),
    pytest.mark.skipif(SCRIPT is None, reason="rabbitmq-server is not installed"),
]


class Admin(Protocol):
    """Run rabbitmqadmin; return its output. The exit status must be `status`."""

    def __call__(self, *arguments: str, status: int = 0, text: str = "") -> str: ...


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The HTTP API of a broker that has objects of all kinds, and clients that use them."""
    with running_estate(tmp_path_factory.mktemp("administered")) as daemon:
        api = Api(daemon.admin)
        yield api
        api.close()


@pytest.fixture
def admin(api: Api) -> Admin:
    """The tool, as the user guest."""

    def run(*arguments: str, status: int = 0, text: str = "") -> str:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), f"--base-uri={api.base}", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def rows(admin: Admin, *arguments: str) -> Any:
    """Return the rows of a table as JSON."""
    return json.loads(admin("--format=raw_json", *arguments))


LISTS = {
    "connections": "guest",
    "channels": "guest",
    "consumers": "ctag",
    "exchanges": "events",
    "queues": "quorum",
    "bindings": "a.#",
    "users": "seller",
    "vhosts": "/",
    "permissions": "seller",
    "nodes": "disc",
    "parameters": "federation-upstream",
    "policies": "federate",
    "operator_policies": "bound",
    "vhost_limits": "max-queues",
}
"""The commands `list`, with a cell of their tables."""


@pytest.mark.parametrize("kind", LISTS)
def test_lists(admin: Admin, kind: str) -> None:
    assert LISTS[kind] in admin("list", kind)
    assert LISTS[kind] in admin("--depth=3", "--format=long", "list", kind)
    names = [each.get("name") for each in rows(admin, "list", kind)]
    if kind in ("queues", "exchanges", "vhosts", "users"):
        ordered = [
            each["name"] for each in rows(admin, "--sort=name", "--sort-reverse", "list", kind, "name")
        ]
        assert ordered == sorted(names, reverse=True)


@pytest.mark.parametrize("form", ["table", "tsv", "long", "kvp", "bash", "pretty_json", "raw_json"])
def test_forms_of_output(admin: Admin, form: str) -> None:
    assert "quorum" in admin(f"--format={form}", "list", "queues", "name")


def test_the_overview(admin: Admin, api: Api) -> None:
    shown = api.get("overview")
    cells = admin("--format=tsv", "show", "overview").splitlines()[-1].split("\t")
    assert cells[:2] == [shown["rabbitmq_version"], shown["cluster_name"]]
    assert cells[3] == str(shown["object_totals"]["queues"])
    assert rows(admin, "show", "overview", "node") == [{"node": shown["node"]}]


def test_objects_come_and_go(admin: Admin, api: Api) -> None:
    assert "declared" in admin("declare", "vhost", "name=shop")
    admin("declare", "permission", "vhost=shop", "user=guest", "configure=.*", "write=.*", "read=.*")
    shop = "--vhost=shop"
    admin(
        shop, "declare", "exchange", "name=x", "type=topic", 'arguments={"alternate-exchange": "amq.fanout"}'
    )
    admin(shop, "declare", "queue", "name=q", "queue_type=quorum", 'arguments={"x-max-length": 5}')
    admin(shop, "declare", "binding", "source=x", "destination=q", "routing_key=a.*")
    admin(shop, "declare", "binding", "source=x", "destination=amq.topic", "destination_type=exchange")
    admin("declare", "user", "name=buyer", "password=secret", "tags=management")
    permission = ("vhost=shop", "user=buyer")
    admin("declare", "permission", *permission, "configure=", "write=", "read=.*")
    admin(
        shop, "declare", "policy", "name=p", "pattern=^q", 'definition={"message-ttl": 60000}', "priority=3"
    )
    admin(shop, "declare", "operator_policy", "name=o", "pattern=", 'definition={"max-length": 9}')
    admin("declare", "vhost_limit", "vhost=shop", "name=max-queues", "value=7")
    upstream = 'value={"uri": "amqp://127.0.0.1:1"}'
    admin(shop, "declare", "parameter", "component=federation-upstream", "name=up", upstream)

    queue = api.get("queues", "shop", "q")
    assert (queue["type"], queue["arguments"]["x-max-length"], queue["policy"]) == ("quorum", 5, "p")
    assert {"q", "amq.topic"} <= {each["destination"] for each in rows(admin, shop, "list", "bindings")}
    assert [each["user"] for each in api.get("vhosts", "shop", "permissions")] == ["buyer", "guest"]
    assert api.get("vhost-limits", "shop")[0]["value"] == {"max-queues": 7}

    for kind, fields in (
        ("parameter", ("component=federation-upstream", "name=up")),
        ("operator_policy", ("name=o",)),
        ("policy", ("name=p",)),
        ("binding", ("source=x", "destination_type=queue", "destination=q", "properties_key=a.*")),
        ("binding", ("source=x", "destination_type=exchange", "destination=amq.topic")),
        ("queue", ("name=q",)),
        ("exchange", ("name=x",)),
    ):
        assert "deleted" in admin(shop, "delete", kind, *fields)
    admin("delete", "vhost_limit", "vhost=shop", "name=max-queues")
    admin("delete", "permission", *permission)
    admin("delete", "user", "name=buyer")
    admin("delete", "vhost", "name=shop")
    assert "shop" not in [each["name"] for each in api.get("vhosts")]


def test_messages_are_published_got_and_purged(admin: Admin, api: Api, tmp_path: Path) -> None:
    admin("declare", "queue", "name=letters")
    assert "published" in admin("publish", "routing_key=letters", "payload=one")
    admin("publish", "routing_key=letters", 'properties={"priority": 3}', text="typed ü")
    assert "NOT routed" in admin("publish", "exchange=amq.direct", "routing_key=nowhere", "payload=lost")
    first, second = rows(admin, "get", "queue=letters", "count=2")
    assert (first["payload"], first["message_count"], second["payload"]) == ("one", 1, "typed ü")
    assert second["properties"] == {"priority": 3}
    file = tmp_path / "payload"
    admin("get", "queue=letters", "ackmode=ack_requeue_false", f"payload_file={file}")
    assert file.read_text() == "one"
    assert api.get("queues", "/", "letters")["messages"] == 1
    assert "purged" in admin("purge", "queue", "name=letters")
    assert api.get("queues", "/", "letters")["messages"] == 0
    admin("delete", "queue", "name=letters")


def test_definitions_are_exported_and_imported(admin: Admin, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    api.put("queues", "/", "spare")
    admin("export", str(file))
    exported = json.loads(file.read_text())
    assert {"classic", "quorum", "stream"} <= {queue["name"] for queue in exported["queues"]}
    api.delete("queues", "/", "spare")
    admin("import", str(file))
    assert api.get("queues", "/", "spare")["durable"] is False
    one = tmp_path / "one.json"
    admin("--vhost=/", "export", str(one))
    assert "events" in [exchange["name"] for exchange in json.loads(one.read_text())["exchanges"]]
    admin("--vhost=/", "import", str(one))


def test_a_connection_is_closed(admin: Admin, api: Api) -> None:
    (name,) = [each["name"] for each in api.get("connections") if each["protocol"] == "AMQP 1-0"]
    assert "closed" in admin("close", "connection", f"name={name}")
    assert "Not found" in admin("close", "connection", "name=none", status=1)


def test_refusals_are_shown(admin: Admin) -> None:
    assert "no-such-type" in admin("declare", "exchange", "name=x", "type=no-such-type", status=1)
    assert "Not found" in admin("delete", "queue", "name=none", status=1)
    assert "Access refused" in admin("--username=guest", "--password=wrong", "list", "queues", status=1)
