"""Federation between broker processes, with a real client at each: exchanges, queues, restarts."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.federated_site import FederatedSite, numbered
from tests.support.admin.api import Api
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.rabbitmq import lasting_port

Maker = Callable[..., FederatedSite]


@pytest.fixture
def make(start_daemon: DaemonStarter, tmp_path: Path) -> Iterator[Maker]:
    """Start brokers, each with a name and a data folder of its own."""
    sites: list[FederatedSite] = []

    def make(name: str, port: int = 0) -> FederatedSite:
        daemon: Daemon = start_daemon(data_dir=tmp_path / name, port=port or lasting_port())
        site = FederatedSite(daemon.address, Api(daemon.load_api().admin))
        site.api.ask("PUT", "cluster-name", body={"name": name})
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.api.close()


def news(site: FederatedSite, key: str = "#") -> None:
    """Declare the exchange `news`, and bind the queue `q` to it."""
    with site.channel() as channel:
        channel.exchange_declare("news", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "news", key)


def test_a_chain_of_exchanges_passes_messages_on(make: Maker) -> None:
    a, b, c = make("a"), make("b"), make("c")
    for site, key in ((a, "a"), (b, "k.#"), (c, "k.#")):
        news(site, key)
    for site, before in ((b, a), (c, b)):
        site.upstream("before", before, max_hops=2)
        site.federate("^news$", "exchanges")
    for site in (b, c):
        site.wait_for_links()
    for site in (a, b):
        site.wait_for_bindings("news", {"k.#"})
    a.publish(*(("news", f"k.{body.decode()}", body) for body in numbered(1, 300)), ("news", "x", b"none"))
    assert b.bodies("q", 300) == numbered(1, 300)
    found = c.take("q", 300)
    assert [body for _, _, body in found] == numbered(1, 300)
    method, properties, _ = found[-1]
    assert (method.exchange, method.routing_key) == ("news", "k.300")
    passed = [(entry["cluster-name"], entry["uri"]) for entry in properties.headers["x-received-from"]]
    assert passed == [
        ("b", f"amqp://{b.address.host}:{b.address.port}/%2F"),
        ("a", f"amqp://{a.address.host}:{a.address.port}/%2F"),
    ]
    [link] = c.links()
    assert (link["exchange"], link["upstream_exchange"], link["type"]) == ("news", "news", "exchange")
    assert (link["status"], link["upstream"], link["vhost"]) == ("running", "before", "/")
    assert "guest" not in link["uri"]
    assert link["confirmed"] == 300


def test_a_ring_gives_each_message_to_each_broker_once(make: Maker) -> None:
    sites = [make(name) for name in ("a", "b", "c")]
    for site in sites:
        news(site)
    for number, site in enumerate(sites):
        site.upstream("before", sites[number - 1], max_hops=2)
        site.federate("^news$", "exchanges")
    for site in sites:
        site.wait_for_links()
        site.wait_for_bindings("news", {"#"})
    for number, site in enumerate(sites):
        site.publish(*(("news", "k", b"%d-%d" % (number, count)) for count in range(50)))
    wanted = sorted(b"%d-%d" % (number, count) for number in range(3) for count in range(50))
    for site in sites:
        assert sorted(site.bodies("q", 150)) == wanted
    for site in sites:
        assert site.ready("q") == 0


def test_bindings_change_under_load_and_no_message_of_a_lasting_binding_is_lost(make: Maker) -> None:
    up, down = make("up"), make("down")
    news(up)
    news(down, "steady")
    down.upstream("up", up)
    down.federate("^news$", "exchanges")
    down.wait_for_links()
    up.wait_for_bindings("news", {"steady"})
    bodies = numbered(1, 3000)
    loader = threading.Thread(target=up.publish, args=[("news", "steady", body) for body in bodies])
    loader.start()
    with down.channel() as channel:
        channel.queue_declare("q2", durable=True)
        for number in range(100):
            channel.queue_bind("q2", "news", f"k{number}")
            if number % 2:
                channel.queue_unbind("q2", "news", f"k{number}")
    loader.join()
    up.wait_for_bindings("news", {"steady", *(f"k{number}" for number in range(0, 100, 2))})
    assert down.bodies("q", 3000) == bodies
    with down.channel() as channel:
        channel.queue_delete("q2")
    up.wait_for_bindings("news", {"steady"})


def test_messages_wait_at_an_upstream_that_is_restarted(
    make: Maker, start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    port = lasting_port()
    down = make("down")
    daemon = start_daemon(data_dir=tmp_path / "up", port=port)
    up = FederatedSite(daemon.address, Api(daemon.load_api().admin))
    news(up)
    news(down, "k")
    down.upstream("up", up)
    down.federate("^news$", "exchanges")
    down.wait_for_links()
    up.wait_for_bindings("news", {"k"})
    up.api.close()
    daemon.kill()
    down.wait_for_links(status="error")
    [link] = down.api.get("federation-links", "/", "state", "down")
    assert link["error"].startswith(f"upstream {up.address.host}:{port}: ")
    again = make("up", port)
    again.publish(*(("news", "k", body) for body in numbered(1, 200)))
    assert down.bodies("q", 200) == numbered(1, 200)
    again.wait_for_bindings("news", {"k"})
    link_id, node = down.links()[0]["id"], down.links()[0]["node"]
    down.api.delete("federation-links", "vhost", "/", link_id, node, "restart")
    down.wait_for_links()
    again.publish(("news", "k", b"last"))
    assert down.bodies("q", 1) == [b"last"]
    down.api.refused(404, "DELETE", "federation-links", "vhost", "/", "none", node, "restart")


def test_a_restarted_broker_continues_with_its_definitions(
    make: Maker, start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    up = make("up")
    daemon = start_daemon(data_dir=tmp_path / "down")
    down = FederatedSite(daemon.address, Api(daemon.load_api().admin))
    down.api.ask("PUT", "cluster-name", body={"name": "down"})
    news(up)
    news(down, "k")
    down.upstream("up", up)
    down.federate("^news$", "exchanges")
    down.wait_for_links()
    up.wait_for_bindings("news", {"k"})
    down.api.close()
    daemon.stop()
    up.publish(*(("news", "k", body) for body in numbered(1, 100)))
    again = make("down")
    assert again.bodies("q", 100) == numbered(1, 100)


def test_messages_of_federated_queues_move_to_where_consumers_are(make: Maker) -> None:
    sites = [make("a"), make("b")]
    for site, other in zip(sites, reversed(sites), strict=True):
        with site.channel() as channel:
            channel.queue_declare("work", durable=True)
        site.upstream("other", other, prefetch_count=50)
        site.federate("^work$", "queues")
    for site in sites:
        site.wait_for_links()
    a, b = sites
    a.publish(*(("", "work", body) for body in numbered(1, 500)))
    assert (a.ready("work"), b.ready("work")) == (500, 0)
    assert b.bodies("work", 400) == numbered(1, 400)
    left = a.ready("work") + b.ready("work")
    assert left <= 100
    rest = [int(body) for body in a.bodies("work", 100)]
    assert sorted(rest) == list(range(401, 501))
    assert (a.ready("work"), b.ready("work")) == (0, 0)
    [link] = b.links()
    assert (link["queue"], link["upstream_queue"], link["type"]) == ("work", "work", "queue")
    assert link["consumer_tag"] == "federation-link-other"
    assert link["local_connection"].startswith("federation link of queue 'work'")
    counts = link["local_channel"]["message_stats"]
    assert counts["publish"] >= counts["confirm"] >= 300


def test_the_examples_of_rabbitmqs_documentation_are_imported_and_move_messages(make: Maker) -> None:
    """The upstream with a message limit of an hour, and the policy for the predeclared exchanges."""
    up, down = make("up"), make("down")
    with up.channel() as channel:
        channel.queue_declare("federated", durable=True)
    document: dict[str, list[dict[str, object]]] = {
        "parameters": [
            {
                "component": "federation-upstream",
                "vhost": "/",
                "name": "my-upstream",
                "value": {"uri": up.address.url(), "expires": 3600000},
            },
            {
                "component": "federation-upstream-set",
                "vhost": "/",
                "name": "my-set",
                "value": [{"upstream": "my-upstream", "queue": "federated"}],
            },
        ],
        "policies": [
            {
                "vhost": "/",
                "name": "federate-me",
                "pattern": r"^amq\.",
                "definition": {"federation-upstream-set": "all"},
                "priority": 0,
                "apply-to": "exchanges",
            },
            {
                "vhost": "/",
                "name": "queues",
                "pattern": "^federated",
                "definition": {"federation-upstream-set": "my-set"},
                "priority": 0,
                "apply-to": "queues",
            },
        ],
        "queues": [
            {"vhost": "/", "name": name, "durable": True, "auto_delete": False, "arguments": {}}
            for name in ("q", "federated.here")
        ],
        "bindings": [
            {
                "source": "amq.topic",
                "vhost": "/",
                "destination": "q",
                "destination_type": "queue",
                "routing_key": "a.#",
                "arguments": {},
            }
        ],
    }
    down.api.post("definitions", status=204, body=document)
    down.wait_for_links(6)
    up.wait_for_bindings("amq.topic", {"a.#"})
    up.publish(("amq.topic", "a.b", b"topic"), ("", "federated", b"queue"))
    assert down.bodies("q", 1) == [b"topic"]
    assert down.bodies("federated.here", 1) == [b"queue"]
    exported = down.api.get("definitions")
    assert [each["name"] for each in exported["parameters"]] == ["my-upstream", "my-set"]
    assert exported["parameters"][0]["value"] == document["parameters"][0]["value"]
    queue = up.api.get("queues", "/", "federation: amq.topic -> down")
    assert queue["arguments"]["x-expires"] == 3600000
