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
from broker.forwarding.ends import EndHost
from broker.forwarding.remote_queues import RUNNING, WAITING, Link, RemoteQueues, link_of
from protocol.amqp091.constants import HEARTBEAT_FRAME
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


def test_a_return_waits_while_the_log_takes_nothing(sites: Sites) -> None:
    client = consumer(sites)
    move(sites)
    sites.publish("q", numbered(1))
    assert taken(sites, client, 1) == numbered(1)
    move_back(sites)
    sites.here.store.failure = "no space"
    sites.run(2000)
    remote = remote_of(queue(sites))
    assert remote is not None, "the end of the return would not be durable"
    assert isinstance(remote.link, Link)
    assert (remote.link.attempts, remote.link.reason) == (1, "")
    sites.here.store.failure = ""
    sites.run(2000)
    assert remote_of(queue(sites)) is None


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


# -- messages that may come back to the other queue


def link(sites: Sites, name: str = "q") -> Link:
    remote = remote_of(queue(sites, name))
    assert remote is not None
    found = link_of(remote)
    assert found is not None
    return found


def lose_line(sites: Sites) -> None:
    """End the consuming connection here alone, as when a firewall forgets it."""
    attempt = link(sites).attempt
    assert attempt is not None
    attempt.intake.on_lost("no route to host")
    sites.run(1000)
    assert link(sites).state == RUNNING


def end_connections(sites: Sites) -> None:
    for connection in list(sites.there.server.connections.all):
        connection.force_close("missed heartbeats")
    sites.run(1000)


def forget_capability(sites: Sites, name: str = "queue_links") -> None:
    capabilities = sites.there.server.properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities[name]


def bodies_of(client: Client091) -> list[bytes]:
    return [body(content) for _, content in client.contents()]


def test_a_return_waits_for_deliveries_of_a_lost_connection(sites: Sites) -> None:
    move(sites)
    sites.publish("q", numbered(3))
    client = consumer(sites, 10)
    assert bodies_of(client) == numbered(3)
    lose_line(sites)
    move_back(sites)
    sites.publish("q", numbered(1, 3))
    sites.run(60_000)
    assert remote_of(queue(sites)) is not None, "the other broker has three unacknowledged messages"
    end_connections(sites)
    assert sorted(bodies_of(client)) == numbered(3)
    for tag in range(4, 7):
        client.send(Basic.Ack(tag), 1)
    sites.run(2000)
    assert remote_of(queue(sites)) is None
    assert sites.vhost("other").topology.queues["far"].messages == 0
    assert taken(sites, client, 1) == numbered(1, 3)


def test_a_return_waits_for_a_get_of_a_lost_connection(sites: Sites) -> None:
    move(sites)
    sites.publish("q", numbered(1))
    client = sites.here.open()
    client.send(Basic.Get(0, "q"), 1)
    sites.run()
    assert bodies_of(client) == numbered(1)
    lose_line(sites)
    move_back(sites)
    sites.run(60_000)
    assert remote_of(queue(sites)) is not None
    end_connections(sites)
    assert taken(sites, consumer(sites), 1) == numbered(1)
    sites.run(2000)
    assert remote_of(queue(sites)) is None


def test_a_return_waits_for_messages_that_wait_for_a_retry() -> None:
    sites = Sites()
    sites.queue("far", "other", retry_min=30_000)
    sites.queue("q")
    move(sites)
    sites.publish("q", numbered(1))
    client = consumer(sites)
    assert bodies_of(client) == numbered(1)
    client.send(Basic.Nack(1, False, True), 1)
    sites.run()
    move_back(sites)
    sites.run(10_000)
    assert remote_of(queue(sites)) is not None
    assert taken(sites, client, 1) == numbered(1)
    sites.run(2000)
    assert remote_of(queue(sites)) is None


def test_a_return_ends_although_a_requeue_came_in_the_last_moment(sites: Sites) -> None:
    """The requeue is known here when the counts are requested, and has not been sent."""
    move(sites)
    sites.publish("q", numbered(1))
    client = consumer(sites)
    assert bodies_of(client) == numbered(1)
    move_back(sites)
    attempt = link(sites).attempt
    assert attempt is not None
    client.send(Basic.Cancel("c"), 1)
    client.send(Basic.Nack(1, False, True), 1)
    attempt.intake.refresh()
    sites.run(2000)
    assert remote_of(queue(sites)) is not None
    assert sites.bodies("far", "other") == numbered(1)


def run_with_heartbeats(sites: Sites, milliseconds: int) -> None:
    """Let time pass. The brokers of the tests send no heartbeats, so the link gets them here."""
    for _ in range(milliseconds // 1000):
        attempt = link(sites).attempt
        assert attempt is not None
        attempt.intake.client.receive(HEARTBEAT_FRAME)
        attempt.destination.client.receive(HEARTBEAT_FRAME)
        sites.run(1000)
        if remote_of(queue(sites)) is None:
            return


def test_with_another_broker_a_return_waits_for_other_consumers_and_for_the_heartbeats(sites: Sites) -> None:
    forget_capability(sites)
    move(sites)
    sites.publish("q", numbered(1))
    client = consumer(sites, 10)
    assert bodies_of(client) == numbered(1)
    lose_line(sites)
    move_back(sites)
    run_with_heartbeats(sites, 100_000)
    assert remote_of(queue(sites)) is not None, "the lost connection is a consumer"
    end_connections(sites)
    assert taken(sites, client, 1) == numbered(1)
    heartbeat = link(sites).uri.heartbeat
    assert heartbeat > 0
    run_with_heartbeats(sites, 2 * heartbeat * 1000)
    assert remote_of(queue(sites)) is not None, "the lost connection may have got messages with basic.get"
    run_with_heartbeats(sites, 2 * heartbeat * 1000)
    assert remote_of(queue(sites)) is None


def test_a_queue_that_is_read_exactly_once_cannot_be_rerouted(sites: Sites) -> None:
    sites.queue("in", "other", dedup_producers=10)
    sites.define(src_queue="q", ack_mode="exactly-once")
    with pytest.raises(PreconditionFailed, match="is read exactly once by shovel 's' in vhost '/'"):
        move(sites)
    sites.run()
    with pytest.raises(PreconditionFailed, match="is read exactly once by shovel 's' in vhost '/'"):
        move(sites)
    sites.vhost().parameters.delete("shovel", "s")
    sites.here.broker.staging.attach(queue(sites), "reports", 1)
    with pytest.raises(PreconditionFailed, match="is read exactly once by reader 'reports': delete"):
        move(sites)
    staging = sites.here.broker.staging
    staging.release(staging.existing(queue(sites), "reports"))
    sites.publish("q", numbered(2))
    move(sites)
    assert sites.bodies("far", "other") == numbered(2)


# -- circles


def distant(sites: Sites) -> RemoteQueues:
    """Give the other broker links, which reach this one as the host `here`."""
    sites.hosts["here"] = sites.here
    sites.syncs["here"] = True
    broker = sites.there.broker
    ends = EndHost(
        sites, sites.clock.schedule, "1.0", sites.there.server.conversions, lambda: broker.cluster_name
    )
    links = RemoteQueues(ends, sites.staging["distant"])
    links.start()
    return links


@pytest.mark.parametrize("mode", ["direct", "hybrid"])
def test_two_remote_queues_that_name_each_other_move_nothing(sites: Sites, mode: str) -> None:
    distant(sites)
    sites.queue("a", remote="amqp://guest:guest@other/%2F/b", remote_mode=mode)
    sites.queue("b", "other", remote="amqp://guest:guest@here/%2F/a", remote_mode=mode)
    sites.run(20_000)
    there = remote_of(sites.vhost("other").topology.queues["b"])
    assert there is not None
    links = [link(sites, "a"), link_of(there)]
    [broken] = [each for each in links if each is not None and each.state == WAITING]
    assert "406" in broken.reason
    assert "go round in a circle: " in broken.reason
    assert "origin/%2F/a" in broken.reason
    assert "distant/%2F/b" in broken.reason
    before = len(sites.here.store.appended) + len(sites.there.store.appended)
    sites.publish("a", [b"1"])
    sites.run(60_000)
    after = len(sites.here.store.appended) + len(sites.there.store.appended)
    assert after - before < 20, "the message waits"
    assert len(sites.bodies("a") + sites.bodies("b", "other")) == 1
    sites.vhost("other").declarations.delete_queue("b", False, False)
    sites.queue("b", "other")
    sites.run(30_000)
    assert link(sites, "a").state == RUNNING


def test_a_reroute_that_closes_a_circle_is_found(sites: Sites) -> None:
    distant(sites)
    sites.queue("b", "other", remote="amqp://guest:guest@here/%2F/q", remote_mode="hybrid")
    sites.run(1000)
    reroute(sites.vhost().topology, queue(sites), "amqp://guest:guest@other/%2F/b")
    sites.run(20_000)
    there = remote_of(sites.vhost("other").topology.queues["b"])
    assert there is not None
    links = [link(sites), link_of(there)]
    assert any(each is not None and "in a circle" in each.reason for each in links)


def test_a_queue_cannot_be_remote_in_itself(sites: Sites) -> None:
    sites.hosts["here"] = sites.here
    sites.syncs["here"] = True
    sites.queue("a", remote="amqp://guest:guest@here/%2F/a", remote_mode="hybrid")
    sites.publish("a", [b"1"])
    sites.run(5000)
    assert "in a circle: origin/%2F/a to origin/%2F/a" in link(sites, "a").reason
    assert sites.bodies("a") == [b"1"]


def test_a_chain_of_remote_queues_is_no_circle(sites: Sites) -> None:
    distant(sites)
    sites.queue("end")
    sites.queue("b", "other", remote="amqp://guest:guest@here/%2F/end")
    sites.queue("a", remote="amqp://guest:guest@other/%2F/b")
    sites.run(20_000)
    sites.publish("a", [b"1"])
    assert sites.bodies("end") == [b"1"]
