"""The flow of a queue moves to another broker and back, while its clients stay connected."""

from typing import Any

import pytest
from pamqp.commands import Basic, Confirm

from broker.core.errors import PreconditionFailed
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import remote_of
from broker.core.vhosts.changes import queue_change
from broker.core.vhosts.definitions import apply_change
from broker.core.vhosts.reroute import reroute, return_here
from protocol.amqp091.content import body
from tests.support.adapters.connection_without_socket import Client091
from tests.support.forwarding import Sites

FAR = "amqp://guest:guest@other/%2F/far"


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("far", "other", dedup_producers=10)
    sites.queue("q")
    return sites


def queue(sites: Sites, name: str = "q") -> Queue:
    return sites.vhost().topology.queues[name]


def move(sites: Sites, to: str = FAR) -> None:
    reroute(sites.vhost().topology, queue(sites), to)
    sites.run()


def move_back(sites: Sites) -> None:
    return_here(sites.vhost().topology, queue(sites))
    sites.run()


def consumer(sites: Sites, prefetch: int = 1) -> Client091:
    client = sites.here.open()
    client.send(Basic.Qos(0, prefetch, False), 1)
    client.send(Basic.Consume(0, "q", "c"), 1)
    sites.run()
    return client


def taken(sites: Sites, client: Client091, count: int) -> list[bytes]:
    """Take and acknowledge so many messages, one after the other."""
    found: list[bytes] = []
    while len(found) < count:
        got = [(frame, body(content)) for frame, content in client.contents()]
        if not got:
            sites.run(500)
            continue
        for frame, each in got:
            assert isinstance(frame, Basic.Deliver)
            found.append(each)
            client.send(Basic.Ack(int(frame.delivery_tag or 0)), 1)
        sites.run()
    return found


def test_what_waits_and_what_comes_follows_in_order(sites: Sites) -> None:
    sites.publish("q", numbered(5))
    move(sites)
    sites.publish("q", numbered(5, 5))
    assert sites.bodies("far", "other") == numbered(10)
    assert sites.bodies("q") == []


def test_consumers_stay_and_are_served_from_there(sites: Sites) -> None:
    client = consumer(sites)
    sites.publish("q", numbered(4))
    assert [body(content) for _, content in client.contents()] == [b"0"]
    move(sites)
    client.send(Basic.Ack(1), 1)
    sites.run()
    sites.publish("q", numbered(2, 4))
    assert taken(sites, client, 5) == numbered(5, 1)
    assert queue(sites).consumer_count == 1
    assert sites.vhost("other").topology.queues["far"].messages == 0


def test_a_delivery_from_before_the_move_that_is_returned_follows(sites: Sites) -> None:
    client = consumer(sites)
    sites.publish("q", numbered(1))
    move(sites)
    client.contents()
    client.send(Basic.Nack(1, False, True), 1)
    sites.run()
    assert taken(sites, client, 1) == numbered(1)


def test_on_the_way_back_consumers_first_get_what_is_there(sites: Sites) -> None:
    move(sites)
    sites.publish("q", numbered(5))
    move_back(sites)
    sites.publish("q", numbered(5, 5))
    assert sites.bodies("far", "other") == numbered(5), "later messages stay here"
    client = consumer(sites)
    assert taken(sites, client, 10) == numbered(10)
    sites.run(2000)
    assert remote_of(queue(sites)) is None
    sites.publish("q", numbered(1, 10))
    assert taken(sites, client, 1) == numbered(1, 10)
    assert sites.vhost("other").topology.queues["far"].messages == 0
    assert queue(sites).consumer_count == 1


def test_an_empty_queue_is_back_at_once_and_can_move_again(sites: Sites) -> None:
    client = consumer(sites, 3)
    for number in range(5):
        move(sites)
        sites.publish("q", numbered(1, number))
        assert taken(sites, client, 1) == numbered(1, number)
        move_back(sites)
        sites.run(2000)
        assert remote_of(queue(sites)) is None
        sites.publish("q", [b"here"])
        assert taken(sites, client, 1) == [b"here"]


def test_a_queue_on_its_way_back_can_be_sent_there_again(sites: Sites) -> None:
    move(sites)
    sites.publish("q", numbered(2))
    move_back(sites)
    sites.publish("q", numbered(2, 2))
    assert sites.bodies("far", "other") == numbered(2)
    move(sites)
    assert sites.bodies("far", "other") == numbered(4)


def test_publishers_are_confirmed_while_the_other_broker_is_away(sites: Sites) -> None:
    sites.down["other"] = "connection refused"
    move(sites)
    client = sites.here.open()
    client.send(Confirm.Select(), 1)
    client.frames()
    client.publish("q", b"1", persistent=True)
    sites.run()
    assert client.confirms() == [("Ack", 1, False)]
    move_back(sites)
    sites.run(30_000)
    assert remote_of(queue(sites)) is not None, "the other broker may have messages"
    sites.down.clear()
    sites.run(30_000)
    assert remote_of(queue(sites)) is None
    assert sites.bodies("q") == [b"1"]


def test_the_definition_has_the_reroute(sites: Sites) -> None:
    move(sites)
    move_back(sites)
    change = queue_change("/", queue(sites))
    assert change["reroute"] == {"to": FAR, "returns": True}
    sites.there.broker.declare_vhost("copy")
    copy = sites.there.broker.vhosts["copy"]
    apply_change(copy, change | {"vhost": "copy", "number": 100})
    found = remote_of(copy.topology.queues["q"])
    assert found is not None
    assert (found.is_rerouted, found.is_returning, found.hybrid, found.address) == (True, True, True, FAR)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_priority": 5}, "is of the kind 'priority'"),
        ({"single_active_consumer": True}, "depends on its consumers"),
        ({"volatile": True}, "volatile"),
        ({"queue_type": "stream"}, "is a stream"),
        ({"remote": FAR}, "is remote already"),
    ],
)
def test_some_queues_cannot_be_rerouted(sites: Sites, arguments: dict[str, Any], text: str) -> None:
    sites.queue("p", **arguments)
    with pytest.raises(PreconditionFailed, match=text):
        reroute(sites.vhost().topology, queue(sites, "p"), FAR)


def test_wrong_requests_are_refused(sites: Sites) -> None:
    topology = sites.vhost().topology
    with pytest.raises(PreconditionFailed, match="is not rerouted"):
        return_here(topology, queue(sites))
    with pytest.raises(PreconditionFailed, match="not a valid URI"):
        reroute(topology, queue(sites), "s3cret")
    client = sites.here.open()
    client.send(Basic.Consume(0, "q", "b", arguments={"x-browse": True}), 1)
    with pytest.raises(PreconditionFailed, match="consumer 'b', which browses"):
        move(sites)
    client.send(Basic.Cancel("b"), 1)
    move(sites)
    with pytest.raises(PreconditionFailed, match="is rerouted to amqp://other/%2F/far already"):
        move(sites, "amqp://guest:guest@other/%2F/elsewhere")


def test_a_rerouted_queue_with_consumers_does_not_expire(sites: Sites) -> None:
    sites.queue("brief", expires=60_000)
    client = sites.here.open()
    client.send(Basic.Consume(0, "brief", "c"), 1)
    reroute(sites.vhost().topology, queue(sites, "brief"), FAR)
    sites.run()
    sites.down["other"] = "refused"
    for connection in list(sites.there.server.connections.all):
        connection.force_close("the broker stops")
    sites.run(70_000)
    assert "brief" in sites.vhost().topology.queues

    sites.down.clear()
    sites.run(20_000)
    return_here(sites.vhost().topology, queue(sites, "brief"))
    sites.run(1000)
    client.send(Basic.Cancel("c"), 1)
    sites.run(70_000)
    assert "brief" not in sites.vhost().topology.queues
