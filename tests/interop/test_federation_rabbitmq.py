"""Federation of the broker with the RabbitMQ that Debian has, in both directions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.federated_site import FederatedSite, numbered
from tests.support.admin.api import Api
from tests.support.daemon.daemon import Address, DaemonStarter
from tests.support.daemon.rabbitmq import running

PLUGINS = ("rabbitmq_federation", "rabbitmq_federation_management")

Sites = tuple[FederatedSite, FederatedSite]


def start(start_daemon: DaemonStarter, folder: Path, plugins: tuple[str, ...]) -> Iterator[Sites]:
    folder.mkdir()
    with running(folder, *plugins) as (api, port):
        daemon = start_daemon()
        site = FederatedSite(daemon.address, Api(daemon.load_api().admin))
        yield site, FederatedSite(Address("127.0.0.1", port), api)
        site.api.close()


@pytest.fixture
def sites(start_daemon: DaemonStarter, tmp_path: Path) -> Iterator[Sites]:
    """This broker, and RabbitMQ with its plugin of federation."""
    yield from start(start_daemon, tmp_path / "rabbitmq", PLUGINS)


@pytest.fixture
def plain_sites(start_daemon: DaemonStarter, tmp_path: Path) -> Iterator[Sites]:
    """This broker, and RabbitMQ without the plugin."""
    yield from start(start_daemon, tmp_path / "rabbitmq", ())


def declare(site: FederatedSite, key: str) -> None:
    with site.channel() as channel:
        channel.exchange_declare("news", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_declare("work", durable=True)
        channel.queue_bind("q", "news", key)


def kinds(site: FederatedSite) -> list[str]:
    """The types of the exchanges that links have declared."""
    exchanges = site.api.get("exchanges", "/")
    return [each["type"] for each in exchanges if each["name"].startswith("federation:")]


def check_exchanges(up: FederatedSite, down: FederatedSite) -> None:
    """Messages come from one broker to the other, by bindings that change."""
    declare(up, "none")
    declare(down, "k.#")
    down.upstream("up", up)
    down.federate("^news$", "exchanges")
    down.wait_for_links()
    up.wait_for_bindings("news", {"k.#"})
    up.publish(*(("news", f"k.{body.decode()}", body) for body in numbered(1, 500)), ("news", "x", b"none"))
    found = down.take("q", 500)
    assert [body for _, _, body in found] == numbered(1, 500)
    for method, properties, body in found:
        assert (method.exchange, method.routing_key) == ("news", f"k.{body.decode()}")
        assert properties.headers["n"] == len(body)
        [entry] = properties.headers["x-received-from"]
        assert (entry["exchange"], entry["vhost"]) == ("news", "/")
    with down.channel() as channel:
        channel.queue_bind("q", "news", "other")
        channel.queue_unbind("q", "news", "k.#")
    up.wait_for_bindings("news", {"other"})
    up.publish(("news", "k.1", b"none"), ("news", "other", b"last"))
    assert down.bodies("q", 1) == [b"last"]


def check_queues(up: FederatedSite, down: FederatedSite) -> None:
    """Messages stay at one broker until the other one has a consumer."""
    declare(up, "none")
    declare(down, "none")
    down.upstream("up", up)
    down.federate("^work$", "queues")
    down.wait_for_links()
    up.publish(*(("", "work", body) for body in numbered(1, 500)))
    assert up.ready("work") == 500
    found = down.take("work", 500)
    assert [body for _, _, body in found] == numbered(1, 500)
    [entry] = found[0][1].headers["x-received-from"]
    assert (entry["queue"], entry["visit-count"]) == ("work", 1)


@pytest.mark.nightly
def test_rabbitmq_is_the_upstream_of_exchanges(sites: Sites) -> None:
    check_exchanges(sites[1], sites[0])
    kinds = {each["name"]: each["type"] for each in sites[1].api.get("exchanges", "/")}
    assert [kind for name, kind in kinds.items() if name.startswith("federation:")] == [
        "x-federation-upstream"
    ]


@pytest.mark.nightly
def test_a_broker_that_changes_its_name_loses_no_message_of_rabbitmq(sites: Sites) -> None:
    down, up = sites
    declare(up, "none")
    declare(down, "k.#")
    down.upstream("up", up, prefetch_count=7)
    down.federate("^news$", "exchanges")
    down.wait_for_links()
    up.wait_for_bindings("news", {"k.#"})
    bodies = numbered(1, 1000)
    for number in range(5):
        up.publish(*(("news", "k.1", body) for body in bodies[number * 200 : (number + 1) * 200]))
        down.api.put("cluster-name", status=204, name=f"branch-{number}")
    found: list[bytes] = []
    while len(set(found)) < len(bodies):
        found += down.bodies("q", len(bodies) - len(set(found)))  # some come twice
    assert set(found) == set(bodies)
    up.wait_for_federated_queues(["federation: news -> branch-4"])


@pytest.mark.nightly
def test_rabbitmq_is_the_downstream_of_exchanges(sites: Sites) -> None:
    check_exchanges(*sites)
    kinds = {each["name"]: each["type"] for each in sites[0].api.get("exchanges", "/")}
    assert [kind for name, kind in kinds.items() if name.startswith("federation:")] == [
        "x-federation-upstream"
    ]


@pytest.mark.nightly
def test_rabbitmq_without_its_plugin_is_an_upstream(plain_sites: Sites) -> None:
    check_exchanges(plain_sites[1], plain_sites[0])
    assert kinds(plain_sites[1]) == ["fanout"]


@pytest.mark.nightly
def test_rabbitmq_is_the_upstream_of_queues(sites: Sites) -> None:
    check_queues(sites[1], sites[0])


@pytest.mark.nightly
def test_rabbitmq_is_the_downstream_of_queues(sites: Sites) -> None:
    check_queues(*sites)


@pytest.mark.nightly
def test_two_brokers_that_are_each_others_upstream_give_a_message_once_to_each(sites: Sites) -> None:
    for site, other in zip(sites, reversed(sites), strict=True):
        declare(site, "#")
        site.upstream("other", other, max_hops=5)
        site.federate("^news$", "exchanges")
    for site in sites:
        site.wait_for_links()
        site.wait_for_bindings("news", {"#"})
    for number, site in enumerate(sites):
        site.publish(*(("news", "k", b"%d-%d" % (number, count)) for count in range(100)))
    wanted = sorted(b"%d-%d" % (number, count) for number in range(2) for count in range(100))
    for site in sites:
        assert sorted(site.bodies("q", 200)) == wanted
    for site in sites:
        assert site.ready("q") == 0
