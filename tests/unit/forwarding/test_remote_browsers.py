"""Browsers of remote queues between two brokers in memory."""

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm

from broker.core.remotes.remote import RemoteQueue, consumers_of, remote_of
from broker.core.vhosts.reroute import reroute, return_here
from protocol.amqp091.constants import BASIC_CANCEL
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import Client091
from tests.support.forwarding import Sites

CANCEL = BASIC_CANCEL.to_bytes(4, "big")
FAR = "amqp://guest:guest@other/%2F/far"


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def make_sites(mode: str = "direct", **far: Any) -> Sites:
    sites = Sites()
    sites.queue("far", "other", dedup_producers=10, **far)
    sites.queue("near", remote=FAR, remote_mode=mode)
    sites.run()
    return sites


@pytest.fixture
def sites() -> Sites:
    return make_sites()


def remote(sites: Sites, name: str = "near") -> RemoteQueue:
    found = remote_of(sites.vhost().topology.queues[name])
    assert found is not None
    return found


def browse(
    sites: Sites, how: Any = True, prefetch: int = 0, queue: str = "near", **arguments: object
) -> Client091:
    """Begin to browse. Without a prefetch the browser needs no acknowledgements."""
    client = sites.here.open()
    client.connection.client_capabilities = {"consumer_cancel_notify": True}
    client.send(Basic.Qos(0, prefetch, False), 1)
    named: dict[str, Any] = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.send(Basic.Consume(0, queue, "b", no_ack=prefetch == 0, arguments={"x-browse": how, **named}), 1)
    sites.run(1500)
    return client


def seen(client: Client091) -> tuple[list[bytes], bool]:
    """The bodies of the deliveries, and whether the browser was cancelled."""
    is_over = CANCEL in client.edge.written
    bodies = [body(content) for frame, content in client.contents() if isinstance(frame, Basic.Deliver)]
    return bodies, is_over


def test_a_browser_sees_every_message_there_and_takes_none(sites: Sites) -> None:
    sites.publish("far", numbered(5), "other")
    client = browse(sites)
    assert seen(client) == (numbered(5), False)
    sites.publish("near", numbered(2, 5))
    sites.run(100)
    assert seen(client) == (numbered(2, 5), False)
    far = sites.vhost("other").topology.queues["far"]
    assert (far.ready, far.unacked, far.redelivered) == (7, 0, 0)
    assert [consumer.tag for consumer in consumers_of(remote(sites).queue)] == ["b"]
    client.send(Basic.Cancel("b"), 1)
    sites.run(100)
    assert far.consumer_count == 0
    assert remote(sites).browsers == []
    assert remote(sites).consumer_count() == 0


def test_a_long_queue_is_browsed_as_the_browser_reads(sites: Sites) -> None:
    sites.publish("far", numbered(3000), "other")
    client = browse(sites, "snapshot", 7)
    found: list[bytes] = []
    is_over = False
    while not is_over:
        is_over = CANCEL in client.edge.written
        for frame, content in client.contents():
            if isinstance(frame, Basic.Deliver):
                found.append(body(content))
                client.send(Basic.Ack(int(frame.delivery_tag or 0)), 1)
        assert all(browser.inlet.depth <= 400 for browser in remote(sites).browsers)
        sites.run()
    assert found == numbered(3000)
    assert sites.vhost("other").topology.queues["far"].ready == 3000


def test_properties_and_large_bodies_are_those_of_the_messages(sites: Sites) -> None:
    large = bytes(range(256)) * 8000
    publisher = sites.here.open()
    publisher.connection.frame_max = 131072
    publisher.publish("near", large, persistent=True)
    publisher.publish("near", b"small", persistent=True)
    sites.run()
    client = browse(sites, "snapshot")
    pairs = [(frame, content) for frame, content in client.contents() if isinstance(frame, Basic.Deliver)]
    assert [body(content) for _, content in pairs] == [large, b"small"]
    assert "x-origin" not in Properties(pairs[1][1]).headers()


def test_a_selector_and_an_extent_are_passed_on(sites: Sites) -> None:
    sites.publish("far", numbered(10), "other")
    assert seen(browse(sites, "snapshot", browse_from=7)) == (numbered(3, 7), True)
    assert seen(browse(sites, "snapshot", browse_from="last")) == (numbered(1, 9), True)
    client = browse(sites, browse_from="next")
    sites.publish("near", [b"later"])
    sites.run(100)
    assert seen(client) == ([b"later"], False)
    empty: tuple[list[bytes], bool] = ([], True)
    assert seen(browse(sites, "snapshot", filter_jms_selector="color = 'red'")) == empty
    assert len(seen(browse(sites, "snapshot", filter_jms_selector="color IS NULL"))[0]) == 11


def test_a_message_that_was_confirmed_here_is_seen_at_once() -> None:
    sites = make_sites("hybrid")
    client = sites.here.open()
    client.send(Confirm.Select(), 1)
    client.frames()
    for each in numbered(300):
        client.publish("near", each, persistent=True)
    assert seen(browse(sites, "snapshot")) == (numbered(300), True)


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [(0, numbered(8)), (1, numbered(7, 1)), (4, numbered(4, 4)), (9, []), ("last", numbered(1, 7))],
)
def test_the_messages_that_are_kept_here_follow(beginning: object, expected: list[bytes]) -> None:
    sites = make_sites("hybrid", max_length=2, overflow="reject-publish")
    sites.publish("near", numbered(8))
    sites.run(1000)
    assert sites.bodies("far", "other") == numbered(2)
    client = browse(sites, "snapshot", browse_from=beginning)
    sites.run(100)
    assert seen(client) == (expected, True)
    assert sites.bodies("near") == numbered(6, 2)


def test_a_message_on_its_way_is_seen_once() -> None:
    sites = make_sites("hybrid")
    sites.syncs["other"] = False
    sites.publish("near", numbered(3))
    assert len(sites.bodies("near")) == 3, "the other broker has not confirmed them"
    client = browse(sites, "snapshot")
    sites.run(2000)
    bodies, is_over = seen(client)
    assert (bodies, is_over) == (numbered(3), True)


def test_a_broken_connection_cancels_the_browser(sites: Sites) -> None:
    sites.publish("far", numbered(2), "other")
    client = browse(sites)
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run(2000)
    assert seen(client) == (numbered(2), True)
    assert seen(browse(sites, "snapshot")) == (numbered(2), True)


def test_a_deletion_cancels_the_browser(sites: Sites) -> None:
    client = browse(sites)
    sites.vhost().declarations.delete_queue("near", False, False)
    sites.run()
    assert seen(client) == ([], True)
    assert sites.vhost("other").topology.queues["far"].consumer_count == 0


def refusal(client: Client091) -> str:
    [close] = [frame for frame in client.frames() if isinstance(frame, Channel.Close)]
    assert close.reply_code == 406
    return str(close.reply_text)


def test_another_product_is_named_in_the_refusal(sites: Sites) -> None:
    properties = sites.there.server.properties
    properties["product"], properties["version"] = "RabbitMQ", "3.13.7"
    capabilities = properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities["queue_links"]
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run(1000)
    assert "other/%2F/far is RabbitMQ 3.13.7, and only amqpd has browsers" in refusal(browse(sites))
    assert remote(sites).browsers == []


def test_a_queue_that_cannot_be_reached_cannot_be_browsed(sites: Sites) -> None:
    sites.down["other"] = "connection refused"
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run()
    assert "cannot be browsed: amqp://other/%2F/far cannot be reached" in refusal(browse(sites))


def test_a_receiver_of_amqp_1_0_browses(sites: Sites) -> None:
    sites.publish("far", numbered(3), "other")
    client = Client10(sites.here)
    client.receives("near", credit=2, properties={"x-browse": True})
    sites.run(100)
    far = sites.vhost("other").topology.queues["far"]
    assert (far.ready, far.unacked) == (3, 0)
    [browser] = remote(sites).browsers
    assert browser.inlet.depth == 1, "two copies have been delivered"


def test_a_rerouted_queue_is_browsed_until_it_is_back(sites: Sites) -> None:
    sites.queue("q")
    queue = sites.vhost().topology.queues["q"]
    reroute(sites.vhost().topology, queue, FAR)
    sites.run()
    sites.publish("q", numbered(2))
    assert seen(browse(sites, "snapshot", queue="q")) == (numbered(2), True)
    return_here(sites.vhost().topology, queue)
    sites.run()
    sites.publish("q", numbered(2, 2))
    assert seen(browse(sites, "snapshot", queue="q")) == (numbered(4), True)
    client = browse(sites, queue="q")
    sites.empty("far", "other")
    sites.run(1000)
    assert remote_of(queue) is None
    assert seen(client) == (numbered(2), True)
    assert seen(browse(sites, "snapshot", queue="q")) == (numbered(2, 2), True)


def test_an_exclusive_consumer_and_a_browser_exclude_each_other(sites: Sites) -> None:
    def consume_alone() -> Client091:
        client = sites.here.open()
        client.send(Basic.Consume(0, "near", "c", exclusive=True), 1)
        sites.run()
        return client

    first = browse(sites)
    assert "exclusive use" in str([getattr(each, "reply_text", "") for each in consume_alone().frames()])
    first.connection.on_lost("")
    sites.run(100)
    consume_alone()
    assert "exclusive use" in str([getattr(each, "reply_text", "") for each in browse(sites).frames()])
