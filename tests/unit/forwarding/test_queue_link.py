"""Federated queues of brokers in memory, by the hand clock: demand, headers, order, acknowledgement."""

from typing import Any

import pytest
from pamqp.commands import Basic

from protocol.amqp091.properties import Properties
from tests.support.adapters.connection_without_socket import Client091
from tests.support.federation import Federations


@pytest.fixture
def pair() -> Federations:
    """The broker `down` has the upstream `up`; both have the queue `work`."""
    pair = Federations("up", "down")
    pair.queue("up", "work")
    pair.queue("down", "work")
    pair.upstream("down", "up")
    pair.policy("down", "^work$", "queues")
    pair.run()
    return pair


def taken(client: Client091) -> list[bytes]:
    """The bodies that a consumer has got since the last call."""
    return [frames.rpartition(b"\x03\x00\x01")[2][4:-1] for _, frames in client.contents()]


def ready(brokers: Federations, *names: str) -> list[int]:
    """The ready messages in the queues `work`."""
    return [int(brokers.vhost(name).topology.queues["work"].ready) for name in names]


def publish(brokers: Federations, broker: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        brokers.publish(broker, "", "work", b"%d" % number)


def test_messages_stay_at_the_upstream_while_no_local_consumer_wants_them(pair: Federations) -> None:
    publish(pair, "up", 1, 3)
    assert ready(pair, "up", "down") == [3, 0]
    client = pair.consume("down", "work")
    assert taken(client) == [b"1", b"2", b"3"]
    assert ready(pair, "up", "down") == [0, 0]
    publish(pair, "up", 4, 5)
    assert taken(client) == [b"4", b"5"]
    client.connection.on_lost("")
    pair.run()
    publish(pair, "up", 6, 7)
    assert ready(pair, "up") == [2]


def test_local_messages_are_consumed_before_those_of_the_upstream(pair: Federations) -> None:
    publish(pair, "up", 1, 2)
    publish(pair, "down", 3, 4)
    client = pair.consume("down", "work", prefetch=1)
    assert taken(client) == [b"3"]
    assert ready(pair, "up", "down") == [2, 1]
    client.send(Basic.Ack(1), 1)
    pair.run()
    assert taken(client) == [b"4"]
    assert ready(pair, "up", "down") == [2, 0]
    client.send(Basic.Ack(2), 1)
    pair.run()
    assert taken(client) == [b"1"]


def test_a_busy_consumer_gets_no_more_from_the_upstream(pair: Federations) -> None:
    pair.upstream("down", "up", prefetch_count=1)
    client = pair.consume("down", "work", prefetch=2)
    publish(pair, "up", 1, 5)
    assert taken(client) == [b"1", b"2"]
    assert ready(pair, "up", "down") == [3, 0]


def test_the_consumers_of_the_upstream_are_served_first(pair: Federations) -> None:
    there = pair.consume("up", "work")
    here = pair.consume("down", "work")
    publish(pair, "up", 1, 3)
    assert (taken(there), taken(here)) == ([b"1", b"2", b"3"], [])


def test_the_header_names_the_upstream_and_the_publish(pair: Federations) -> None:
    pair.upstream("down", "up", prefetch_count=1)
    pair.exchange("up", "x", "direct")
    pair.bind("up", "work", "x", "k")
    properties = Basic.Properties(headers={"CC": ["other"], "a": 1}, user_id="guest")
    pair.publish("up", "x", "k", b"1", properties)
    client = pair.consume("down", "work")
    [(_, content)] = client.contents()
    assert Properties(content).headers() == {
        "a": 1,
        "x-original-cc": ["other"],
        "x-original-exchange": "x",
        "x-original-routing-key": "k",
        "x-received-from": [
            {"uri": "amqp://up/%2F", "queue": "work", "redelivered": False, "visit-count": 1}
        ],
    }
    assert Properties(content).text(11) == ""


def test_a_message_that_moves_to_and_fro_counts_its_visits() -> None:
    both = Federations("a", "b")
    for name, other in (("a", "b"), ("b", "a")):
        both.queue(name, "work")
        both.upstream(name, other)
        both.policy(name, "^work$")
    both.run()
    both.publish("a", "", "work", b"1")
    content = b""
    for place in ("b", "a", "b"):
        client = both.consume(place, "work")
        [(_, content)] = client.contents()
        client.connection.on_lost("")
        both.run()
        assert [ready(both, name) for name in ("a", "b")] == [[int(place == "a")], [int(place == "b")]]
    received = Properties(content).headers()["x-received-from"]
    assert isinstance(received, list)
    assert [(entry["uri"], entry["visit-count"]) for entry in received] == [
        ("amqp://a/%2F", 2),
        ("amqp://b/%2F", 1),
    ]


@pytest.mark.parametrize("count", [2**63 - 1, -1, "many"])
def test_a_count_of_visits_that_no_link_has_written_is_replaced(count: object) -> None:
    brokers = Federations("up", "down")
    for name in ("up", "down"):
        brokers.queue(name, "work")
    brokers.upstream("down", "up")
    brokers.policy("down", "^work$")
    brokers.run()
    entry: dict[str, Any] = {"uri": "amqp://up/%2F", "queue": "work", "visit-count": count}
    brokers.publish("up", "", "work", b"1", Basic.Properties(headers={"x-received-from": [entry]}))
    client = brokers.consume("down", "work")
    [(_, content)] = client.contents()
    received = Properties(content).headers()["x-received-from"]
    assert isinstance(received, list)
    assert [each["visit-count"] for each in received] == [1]


def test_consumers_of_links_are_no_demand() -> None:
    """A chain moves a message only as far as there are consumers that are no links."""
    brokers = Federations("a", "b", "c")
    for name in ("a", "b", "c"):
        brokers.queue(name, "work")
    for name, before in (("b", "a"), ("c", "b")):
        brokers.upstream(name, before)
        brokers.policy(name, "^work$")
    brokers.run()
    client = brokers.consume("c", "work")
    publish(brokers, "a", 1, 1)
    assert ready(brokers, "a", "b", "c") == [1, 0, 0]
    publish(brokers, "b", 2, 2)
    assert taken(client) == [b"2"]


def test_a_message_leaves_the_upstream_when_the_local_queue_has_stored_it(pair: Federations) -> None:
    store = pair.brokers["down"].store
    client = pair.consume("down", "work")
    complete, store.complete = store.complete, lambda: None  # type: ignore[method-assign]
    publish(pair, "up", 1, 1)
    queue = pair.vhost("up").topology.queues["work"]
    assert (queue.ready, queue.unacked) == (0, 1)
    store.complete = complete  # type: ignore[method-assign]
    pair.run()
    assert (queue.ready, queue.unacked) == (0, 0)
    assert taken(client) == [b"1"]


def test_messages_return_when_the_upstream_is_lost_and_come_again(pair: Federations) -> None:
    client = pair.consume("down", "work")
    pair.cut("up")
    [link] = pair.links("down")
    assert link.status == "error"
    pair.down.clear()
    publish(pair, "up", 1, 2)
    assert ready(pair, "up") == [2]
    pair.run(5000)
    assert taken(client) == [b"1", b"2"]


def test_a_missing_queue_is_declared_like_the_local_one() -> None:
    pair = Federations("up", "down")
    pair.queue("down", "q", max_length=9)
    pair.upstream("down", "up", queue="theirs")
    pair.policy("down", "^q$")
    pair.run()
    queue = pair.vhost("up").topology.queues["theirs"]
    assert (queue.durable, queue.arguments) == (True, {"x-max-length": 9})
    client = pair.consume("down", "q")
    pair.publish("up", "", "theirs", b"1")
    assert taken(client) == [b"1"]


def test_an_upstream_without_priorities_of_consumers_is_an_error() -> None:
    pair = Federations("up", "down")
    pair.brokers["up"].server.properties["capabilities"] = {"basic.nack": True}
    pair.queue("down", "q")
    pair.upstream("down", "up")
    pair.policy("down", "^q$")
    pair.run()
    [link] = pair.links("down")
    assert link.reason == (
        "upstream up:5672: the broker has no priorities of consumers: no capability 'consumer_priorities'"
    )


def test_streams_and_queues_of_links_are_not_federated() -> None:
    pair = Federations("up", "down")
    pair.queue("down", "q")
    pair.queue("down", "inner", internal_purpose="federation")
    pair.queue("down", "stream", queue_type="stream")
    pair.policy("down", ".*", "queues")
    pair.run()
    pair.upstream("down", "up")
    pair.run()
    assert [link.place.name for link in pair.links("down")] == ["q"]


def test_a_deleted_queue_ends_its_link_and_leaves_the_queue_at_the_upstream(pair: Federations) -> None:
    pair.vhost("down").declarations.delete_queue("work", False, False)
    pair.run()
    assert pair.links("down") == []
    assert "work" in pair.vhost("up").topology.queues


def test_a_renamed_queue_has_another_link(pair: Federations) -> None:
    pair.policy("down", "^(work|jobs)$", "queues")
    vhost = pair.vhost("down")
    queue = vhost.topology.queues["work"]
    vhost.topology.rename_queue(queue, "jobs")
    vhost.policies.cover_queue(queue)
    pair.run()
    assert [link.place.name for link in pair.links("down")] == ["jobs"]
    assert "jobs" in pair.vhost("up").topology.queues
