"""Federated exchanges of brokers in memory, by the hand clock: bindings, headers, hops, cycles, failures."""

import struct
from itertools import pairwise

import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable
from structlog.testing import capture_logs

from broker.forwarding.federated_source import decoded_header
from broker.forwarding.shovel import RUNNING, TERMINATED
from protocol.amqp091.constants import BASIC_CONSUME
from protocol.amqp091.methods import method_frame, short_string
from protocol.amqp091.properties import Properties
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from tests.support.amqp091.frames import frame_bytes
from tests.support.federation import Federations


@pytest.fixture
def pair() -> Federations:
    """The broker `down` has the upstream `up`; both have the topic exchange `news`."""
    pair = Federations("up", "down")
    pair.exchange("up", "news")
    pair.exchange("down", "news")
    pair.queue("down", "q")
    pair.upstream("down", "up")
    pair.policy("down", "^news$", "exchanges")
    pair.run()
    return pair


def chain(*names: str, hops: int = 1) -> Federations:
    """Brokers of which each has the one before as its upstream."""
    brokers = Federations(*names)
    for name in names:
        brokers.exchange(name, "news")
        brokers.queue(name, "q")
    for before, name in pairwise(names):
        brokers.upstream(name, before, max_hops=hops)
        brokers.policy(name, "^news$")
    brokers.run()
    return brokers


def test_messages_come_that_a_local_binding_asks_for(pair: Federations) -> None:
    pair.bind("down", "q", "news", "sport.#")
    pair.run()
    pair.publish("up", "news", "sport.chess", b"1")
    pair.publish("up", "news", "weather", b"2")
    assert pair.bodies("down", "q") == [b"1"]
    assert pair.headers("down", "q") == {
        "x-received-from": [
            {
                "uri": "amqp://up/%2F",
                "exchange": "news",
                "redelivered": False,
                "vhost": "/",
                "cluster-name": "up",
            }
        ]
    }
    assert pair.bodies("up", "federation: news -> down") == []
    [link] = pair.links("down")
    assert (link.status, link.confirmed) == (RUNNING, 1)
    assert (link.labels, link.source_ready) == (("news", "exchange", "up", "/"), -1)


def test_the_upstream_has_a_durable_queue_and_an_internal_exchange(pair: Federations) -> None:
    topology = pair.vhost("up").topology
    queue = topology.queues["federation: news -> down"]
    assert queue.durable
    assert queue.arguments == {"x-internal-purpose": "federation", "x-queue-type": "classic"}
    exchange = topology.exchanges["federation: news -> down A"]
    assert (exchange.kind, exchange.durable, exchange.internal, exchange.auto_delete) == (
        "x-federation-upstream",
        True,
        True,
        True,
    )
    assert exchange.arguments == {
        "x-downstream-name": "down",
        "x-downstream-vhost": "/",
        "x-internal-purpose": "federation",
        "x-max-hops": 1,
    }


def test_limits_of_the_upstream_queue_are_its_arguments(pair: Federations) -> None:
    pair.upstream("down", "up", expires=3_600_000, message_ttl=1000, queue_type="quorum")
    pair.run()
    assert pair.vhost("up").topology.queues["federation: news -> down"].arguments == {
        "x-internal-purpose": "federation",
        "x-queue-type": "quorum",
        "x-expires": 3_600_000,
        "x-message-ttl": 1000,
    }


@pytest.mark.parametrize("nowait", [False, True])
def test_bindings_follow_the_local_bindings(pair: Federations, nowait: bool) -> None:
    pair.upstream("down", "up", bind_nowait=nowait)
    pair.run()
    pair.queue("down", "q2")
    assert pair.bound("up", "news") == []
    pair.bind("down", "q", "news", "a")
    pair.bind("down", "q2", "news", "a")
    pair.bind("down", "q2", "news", "b")
    pair.run()
    assert pair.bound("up", "news") == ["a", "b"]
    pair.unbind("down", "q", "news", "a")
    pair.run()
    assert pair.bound("up", "news") == ["a", "b"]
    pair.vhost("down").declarations.delete_queue("q2", False, False)
    pair.run()
    assert pair.bound("up", "news") == []
    assert [link.status for link in pair.links("down")] == [RUNNING]


def test_more_bindings_than_a_turn_sends_are_all_repeated() -> None:
    pair = Federations("up", "down")
    pair.exchange("up", "news")
    pair.exchange("down", "news")
    pair.queue("down", "q")
    for number in range(1200):
        pair.bind("down", "q", "news", f"k{number}")
    pair.upstream("down", "up")
    pair.policy("down", "^news$")
    pair.run()
    assert len(pair.bound("up", "news")) == 1200
    pair.vhost("down").declarations.delete_queue("q", False, False)
    pair.run()
    assert pair.bound("up", "news") == []


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_missing_exchange_is_declared_like_the_local_one(kind: str) -> None:
    pair = Federations("up", "down")
    pair.exchange("down", "x", kind)
    pair.queue("down", "q")
    pair.bind("down", "q", "x", "k", x_match="all", h=1)
    pair.upstream("down", "up")
    pair.policy("down", "^x$")
    pair.run()
    exchange = pair.vhost("up").topology.exchanges["x"]
    assert (exchange.kind, exchange.durable) == (kind, True)
    pair.publish("up", "x", "k", b"1", Basic.Properties(headers={"h": 1}))
    assert pair.bodies("down", "q") == [b"1"]


def test_bindings_that_count_all_headers_match_at_the_upstream(
    pair: Federations,
) -> None:
    pair.exchange("up", "h", "headers")
    pair.exchange("down", "h", "headers")
    pair.bind("down", "q", "h", x_match="all-with-x", x_n=1)
    pair.policy("down", "^h$", name="h")
    pair.run()
    pair.publish("up", "h", "", b"1", Basic.Properties(headers={"x-n": 1}))
    pair.publish("up", "h", "", b"2", Basic.Properties(headers={"x-n": 2}))
    assert pair.bodies("down", "q") == [b"1"]


def test_another_name_and_virtual_host_are_in_the_names_of_queue_and_exchange() -> None:
    pair = Federations("up", "down")
    pair.exchange("up", "theirs")
    pair.exchange("down", "ours", vhost="v")
    pair.queue("down", "q", "v")
    pair.bind("down", "q", "ours", "k", "v")
    pair.upstream("down", "up", "v", exchange="theirs")
    pair.policy("down", "^ours$", vhost="v")
    pair.run()
    assert "federation: theirs -> down:v:ours" in pair.vhost("up").topology.queues
    assert pair.internal("up") == ["federation: theirs -> down:v:ours A"]
    pair.publish("up", "theirs", "k", b"1")
    assert pair.bodies("down", "q", "v") == [b"1"]


def test_a_chain_passes_messages_as_far_as_the_hops_allow() -> None:
    near = chain("a", "b", "c", "d")
    far = chain("a", "b", "c", "d", hops=2)
    for brokers in (near, far):
        for name in ("b", "c", "d"):
            brokers.bind(name, "q", "news", "k")
        brokers.run()
        brokers.publish("a", "news", "k", b"1")
    assert [len(near.bodies(name, "q")) for name in ("b", "c", "d")] == [1, 0, 0]
    assert [len(far.bodies(name, "q")) for name in ("b", "c", "d")] == [1, 1, 0]
    passed = [entry["cluster-name"] for entry in far.headers("c", "q")["x-received-from"]]
    assert passed == ["b", "a"]


def test_bindings_travel_as_far_as_messages_do() -> None:
    brokers = chain("a", "b", "c", "d", hops=2)
    brokers.bind("d", "q", "news", "k")
    brokers.run()
    assert [brokers.bound(name, "news") for name in ("a", "b", "c")] == [[], ["k"], ["k"]]
    brokers.unbind("d", "q", "news", "k")
    brokers.run()
    assert [brokers.bound(name, "news") for name in ("a", "b", "c")] == [[], [], []]


def test_bindings_do_not_return_to_their_broker() -> None:
    brokers = chain("a", "b", hops=9)
    brokers.upstream("a", "b", max_hops=9)
    brokers.policy("a", "^news$")
    brokers.run()
    brokers.bind("a", "q", "news", "k")
    brokers.run()
    assert (brokers.bound("a", "news"), brokers.bound("b", "news")) == ([], ["k"])


def test_the_upstream_passes_on_no_message_that_the_link_would_drop(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.of["down"].stop()
    pair.run()
    for passed in ("down", "other"):
        headers: FieldTable = {"x-received-from": [{"cluster-name": passed, "vhost": "/"}]}
        pair.publish("up", "news", "k", b"1", Basic.Properties(headers=headers))
    pair.publish("up", "news", "k", b"2")
    assert pair.bodies("up", "federation: news -> down") == [b"2"]


def test_an_upstream_with_the_name_of_this_broker_is_warned_of() -> None:
    pair = Federations("up", "down")
    pair.brokers["up"].broker.node = "down"
    pair.exchange("down", "news")
    pair.upstream("down", "up")
    pair.policy("down", "^news$")
    with capture_logs() as logs:
        pair.run()
    [warning] = [each for each in logs if each["event"].startswith("upstream has the name of this broker")]
    assert (warning["upstream"], warning["cluster_name"]) == ("up", "down")


@pytest.mark.parametrize("hops", [1, 2, 9])
def test_a_ring_delivers_a_message_once_to_each_broker_within_the_hops(hops: int) -> None:
    names = ("a", "b", "c")
    brokers = chain(*names, hops=hops)
    brokers.upstream("a", "c", max_hops=hops)
    brokers.policy("a", "^news$")
    for name in names:
        brokers.bind(name, "q", "news", "#")
    brokers.run()
    brokers.publish("a", "news", "k", b"1")
    expected = [1, 1, 1 if hops > 1 else 0]
    assert [len(brokers.bodies(name, "q")) for name in names] == expected


def test_a_link_drops_a_message_that_has_been_here(pair: Federations) -> None:
    """Upstreams without the type of exchanges for federation pass such messages on."""
    [link] = pair.links("down")
    link._memory.fans_out = True
    link.restart()
    pair.bind("down", "q", "news", "#")
    pair.run()
    kinds = [pair.vhost("up").topology.exchanges[name].kind for name in pair.internal("up")]
    assert kinds == ["fanout"]
    here = Basic.Properties(headers={"x-received-from": [{"cluster-name": "down", "vhost": "/"}]})
    large = b"x" * 3_000_000
    passing, returning = [b"1", b"22", large, b"4444"], [b"22", large]
    for body in passing:
        pair.publish("up", "news", "k", body)
        if body in returning:
            pair.publish("up", "news", "k", body, here)
    found = [int(entry.message.size) for entry in pair.vhost("down").topology.queues["q"].entries]
    assert found == [1, 2, 3_000_000, 4]
    assert pair.bodies("up", "federation: news -> down") == []
    assert pair.vhost("up").topology.queues["federation: news -> down"].unacked == 0
    assert link.status == RUNNING


def test_the_publisher_of_a_message_is_kept_if_the_upstream_is_trusted(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    mine = Basic.Properties(user_id="guest", message_id="m")
    pair.publish("up", "news", "k", b"1", mine)
    pair.upstream("down", "up", trust_user_id=True)
    pair.run()
    pair.publish("up", "news", "k", b"2", mine)
    contents = [entry.message.content or b"" for entry in pair.vhost("down").topology.queues["q"].entries]
    assert [b"guest" in content for content in contents] == [False, True]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_each_mode_of_acknowledgement_forwards(pair: Federations, mode: str) -> None:
    pair.upstream("down", "up", ack_mode=mode)
    pair.bind("down", "q", "news", "#")
    pair.run()
    for number in range(5):
        pair.publish("up", "news", "k", b"%d" % number)
    assert pair.bodies("down", "q") == [b"%d" % number for number in range(5)]
    assert pair.bodies("up", "federation: news -> down") == []


def test_messages_wait_while_the_upstream_cannot_be_reached(pair: Federations) -> None:
    pair.bind("down", "q", "news", "old")
    pair.bind("down", "q", "news", "both")
    pair.run()
    pair.cut("up")
    [link] = pair.links("down")
    assert (link.status, link.reason) == ("error", "upstream up:5672: reset")
    pair.publish("up", "news", "both", b"1")
    pair.publish("up", "news", "both", b"2")
    pair.unbind("down", "q", "news", "old")
    pair.bind("down", "q", "news", "new")
    pair.down.clear()
    pair.run(5000)
    assert link.status == RUNNING
    assert pair.bodies("down", "q") == [b"1", b"2"]
    assert pair.bound("up", "news") == ["both", "new"]
    assert pair.internal("up") == ["federation: news -> down B"]
    for key in ("old", "both", "new"):
        pair.publish("up", "news", key, key.encode())
    assert pair.bodies("down", "q") == [b"1", b"2", b"both", b"new"]


def test_links_follow_policies_upstreams_sets_and_exchanges(pair: Federations) -> None:
    assert len(pair.links("down")) == 1
    pair.exchange("down", "newsroom")
    pair.policy("down", "^news", federation_upstream="up")
    pair.run()
    assert sorted(link.place.name for link in pair.links("down")) == ["news", "newsroom"]
    pair.policy("down", "^news", federation_upstream_set="s")
    pair.run()
    assert pair.links("down") == []
    pair.set(
        "down", "federation-upstream-set", "s", [{"upstream": "up", "exchange": "x"}, {"upstream": "none"}]
    )
    pair.run()
    assert sorted(link.target for link in pair.links("down")) == ["x", "x"]
    pair.policy("down", "^news", federation_upstream_pattern="^u")
    pair.run()
    assert sorted(link.target for link in pair.links("down")) == ["news", "newsroom"]
    pair.vhost("down").declarations.delete_exchange("newsroom", False)
    pair.run()
    assert [link.place.name for link in pair.links("down")] == ["news"]
    pair.vhost("down").parameters.delete("federation-upstream", "up")
    pair.run()
    assert pair.links("down") == []
    pair.upstream("down", "up")
    pair.run()
    assert [link.status for link in pair.links("down")] == [RUNNING]
    pair.vhost("down").policies.delete("p")
    pair.run()
    assert pair.links("down") == []


def test_a_deleted_link_deletes_its_objects_at_the_upstream(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.vhost("down").policies.delete("p")
    pair.run()
    assert pair.internal("up") == []
    assert list(pair.vhost("up").topology.queues) == []


def test_a_deleted_link_keeps_its_objects_at_the_upstream_if_so_defined(pair: Federations) -> None:
    pair.upstream("down", "up", resource_cleanup_mode="never")
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.vhost("down").policies.delete("p")
    pair.run()
    assert pair.internal("up") != []
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("up", "federation: news -> down") == [b"1"]


def test_a_changed_upstream_and_a_stopped_broker_lose_no_waiting_message(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.of["down"].stop()
    pair.run()
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("up", "federation: news -> down") == [b"1"]
    pair.of["down"].start()
    pair.upstream("down", "up", prefetch_count=7)
    pair.run()
    pair.upstream("down", "up", prefetch_count=8)
    pair.publish("up", "news", "k", b"2")
    assert pair.bodies("down", "q") == [b"1", b"2"]


def test_internal_exchanges_and_the_default_exchange_are_not_federated(pair: Federations) -> None:
    pair.vhost("down").declarations.declare_exchange("inner", "topic", True, False, True, {})
    pair.policy("down", ".*", "exchanges")
    pair.run()
    names = {link.place.name for link in pair.links("down")}
    assert "inner" not in names
    assert "" not in names
    assert "news" in names


def test_an_upstream_without_the_right_queue_is_an_error(pair: Federations) -> None:
    pair.cut("up")
    pair.upstream("down", "up", expires=1000)
    pair.down.clear()
    pair.run(5000)
    [link] = pair.links("down")
    assert link.state == TERMINATED
    assert "inequivalent arg 'x-expires' for queue 'federation: news -> down'" in link.reason


def test_a_name_that_is_too_long_is_an_error(pair: Federations) -> None:
    long = "n" * 240
    pair.exchange("down", long)
    pair.policy("down", "^n+$", name="long")
    pair.run()
    [link] = [link for link in pair.links("down") if link.place.name == long]
    assert link.reason.endswith("is longer than 255 bytes")


def test_a_virtual_host_ends_with_its_links(pair: Federations) -> None:
    pair.exchange("down", "x", vhost="v")
    pair.upstream("down", "up", "v")
    pair.policy("down", "x", vhost="v")
    pair.run()
    assert len(pair.links("down")) == 2
    pair.brokers["down"].broker.delete_vhost("v")
    pair.run()
    assert len(pair.links("down")) == 1


def test_the_local_virtual_host_may_be_the_upstream() -> None:
    brokers = Federations("here")
    brokers.exchange("here", "news")
    brokers.exchange("here", "news", vhost="v")
    brokers.queue("here", "q", "v")
    brokers.bind("here", "q", "news", "#", "v")
    brokers.upstream("here", "own", "v", uri="amqp:///%2F")
    brokers.policy("here", "^news$", vhost="v")
    brokers.run()
    brokers.publish("here", "news", "k", b"1")
    assert brokers.bodies("here", "q", "v") == [b"1"]


QUEUE = "federation: news -> down"


@pytest.fixture
def waiting(pair: Federations) -> Federations:
    """A message waits at the upstream, which cannot be reached."""
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.cut("up")
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("up", QUEUE) == [b"1"]
    pair.down.clear()
    return pair


def test_another_uri_of_the_same_broker_keeps_the_waiting_messages(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.brokers["up"].open().publish(QUEUE, b"1", persistent=True)
    pair.upstream("down", "up", uri=["amqp://up?heartbeat=5", "amqp://up:5673"])
    pair.run(10_000)
    assert pair.bodies("down", "q") == [b"1"]
    assert pair.bodies("up", QUEUE) == []


def test_an_upstream_keeps_the_waiting_messages_under_another_name(waiting: Federations) -> None:
    with capture_logs() as logs:
        waiting.upstream("down", "head-office", uri="amqp://up")
        waiting.run()
    assert [log["same_as"] for log in logs if log["event"] == "federation link not started"] != []
    waiting.vhost("down").parameters.delete("federation-upstream", "up")
    waiting.run(10_000)
    [link] = waiting.links("down")
    assert (link.upstream.name, link.status) == ("head-office", RUNNING)
    assert waiting.bodies("down", "q") == [b"1"]


def test_upstreams_that_are_the_same_exchange_have_a_single_link(pair: Federations) -> None:
    pair.upstream("down", "twin", uri="amqp://up")
    pair.bind("down", "q", "news", "#")
    pair.run()
    assert len(pair.links("down")) == 1
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("down", "q") == [b"1"]


def test_a_header_that_does_not_decode_does_not_hide_the_way_of_a_message() -> None:
    way = [{"uri": "amqp://down/%2F", "exchange": "news", "cluster-name": "down", "vhost": "/"}]
    table = encode_table({"x-received-from": way})[4:] + b"\x04dateT" + b"\xff" * 8  # as RabbitMQ takes it
    octets = len(table).to_bytes(4, "big") + table
    content = frame_bytes(2, 1, struct.pack(">HHQH", 60, 0, 0, 1 << 13) + octets)
    fields = Properties(content).fields()
    assert [name for name, _ in fields] == [b"x-received-from", b"date"]
    assert decoded_header(fields) == way
    assert decoded_header([(b"x-received-from", b"T" + b"\xff" * 8)]) is None


def rename(federations: Federations, broker: str, name: str) -> None:
    """Give a broker another name, as the API does."""
    federations.brokers[broker].broker.parameters.set("cluster_name", name)
    federations.run(5000)


def stored_names(federations: Federations) -> object:
    return federations.brokers["down"].broker.parameters.get("internal_federation_names")


def test_a_link_follows_the_name_of_the_broker(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    rename(pair, "down", "branch")
    assert list(pair.vhost("up").topology.queues) == ["federation: news -> branch"]
    assert pair.internal("up") == ["federation: news -> branch A"]
    exchange = pair.vhost("up").topology.exchanges["federation: news -> branch A"]
    assert exchange.arguments["x-downstream-name"] == "branch"
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("down", "q") == [b"1"]
    assert stored_names(pair) == ["branch"]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_that_wait_under_a_former_name_come_first(pair: Federations, mode: str) -> None:
    pair.upstream("down", "up", ack_mode=mode, prefetch_count=3)
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.cut("up")
    for number in range(10):
        pair.publish("up", "news", "k", b"%d" % number)
    rename(pair, "down", "branch")
    rename(pair, "down", "office")
    pair.publish("up", "news", "k", b"10")
    assert pair.bodies("up", QUEUE) == [b"%d" % number for number in range(11)]
    assert stored_names(pair) == ["office", "branch", "down"]
    pair.down.clear()
    pair.run(10_000)
    assert pair.bodies("down", "q") == [b"%d" % number for number in range(11)]
    assert list(pair.vhost("up").topology.queues) == ["federation: news -> office"]
    assert pair.internal("up") == ["federation: news -> office A"]
    assert stored_names(pair) == ["office"]


def test_a_name_that_has_changed_while_the_broker_was_down_is_a_former_name(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    pair.of["down"].stop()
    pair.run()
    pair.publish("up", "news", "k", b"1")
    pair.brokers["down"].broker.node = "other-host"
    pair.of["down"].start()
    pair.run(5000)
    assert pair.bodies("down", "q") == [b"1"]
    assert list(pair.vhost("up").topology.queues) == ["federation: news -> other-host"]


def test_a_message_that_is_refused_stays_in_the_queue_of_the_former_name(waiting: Federations) -> None:
    waiting.queue("down", "full", max_length=0, overflow="reject-publish")
    waiting.bind("down", "full", "news", "#")
    rename(waiting, "down", "branch")
    waiting.run(10_000)
    assert QUEUE in waiting.vhost("up").topology.queues
    assert stored_names(waiting) == ["branch", "down"]
    waiting.vhost("down").declarations.delete_queue("full", False, False)
    waiting.run(10_000)
    assert waiting.bodies("down", "q")[-1] == b"1"
    assert QUEUE not in waiting.vhost("up").topology.queues


def test_a_queue_that_another_broker_consumes_is_not_taken_over(pair: Federations) -> None:
    pair.bind("down", "q", "news", "#")
    pair.run()
    namesake = pair.brokers["up"].open()
    request = b"\0\0" + short_string(QUEUE) + short_string("namesake") + b"\0" + EMPTY_TABLE
    namesake.connection.receive(method_frame(1, BASIC_CONSUME, request))
    pair.run()
    with capture_logs() as logs:
        rename(pair, "down", "branch")
    assert [log["queue"] for log in logs if "another broker consumes" in log["event"]] == [QUEUE]
    assert [link.status for link in pair.links("down")] == [RUNNING]
    assert stored_names(pair) == ["branch", "down"]
    pair.publish("up", "news", "k", b"1")
    assert pair.bodies("down", "q") == [b"1"]
    namesake.connection.on_lost("")
    pair.run()
    assert pair.bodies("up", QUEUE) == [b"1"]
