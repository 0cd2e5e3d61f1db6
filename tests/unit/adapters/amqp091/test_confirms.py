"""Confirms against a store whose batches are made durable by hand."""

import pytest
from pamqp.commands import Basic, Channel, Confirm, Queue

from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import header_bytes, method_bytes, publish_bytes


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    """A publisher in confirm mode; `d` is a durable queue, `t` a transient one."""
    client = bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    bench.store.complete()
    client.send(Queue.Declare(queue="t"), 1)
    client.send(Confirm.Select(), 1)
    client.frames()
    return client


def test_transient_messages_are_confirmed_at_the_end_of_the_turn(client: Client091) -> None:
    client.connection.receive(publish_bytes("t") * 3)
    assert client.confirms() == [("Ack", 3, True)]
    client.publish("t")
    assert client.confirms() == [("Ack", 4, False)]


def test_persistent_messages_are_confirmed_when_their_batch_is_synced(
    client: Client091, bench: BrokerBench
) -> None:
    client.publish("d", persistent=True)
    assert client.confirms() == []
    bench.store.seal()
    client.publish("d", persistent=True)
    assert client.confirms() == []
    bench.store.sync()
    assert client.confirms() == [("Ack", 1, False)]
    bench.store.complete()
    assert client.confirms() == [("Ack", 2, False)]


def test_a_transient_message_does_not_overtake(client: Client091, bench: BrokerBench) -> None:
    client.publish("d", persistent=True)
    client.publish("t")
    assert client.confirms() == []
    bench.store.complete()
    assert client.confirms() == [("Ack", 2, True)]


def test_a_turn_during_the_sync_belongs_to_the_next_batch(client: Client091, bench: BrokerBench) -> None:
    client.connection.receive(publish_bytes("d", persistent=True) * 2)
    bench.store.seal()
    client.publish("t")
    client.publish("d", persistent=True)
    client.publish("t")
    bench.store.sync()
    confirms = client.confirms()
    assert confirms == [("Ack", 3, True)], "the transient one waited for the first batch only"
    bench.store.complete()
    assert client.confirms() == [("Ack", 5, True)]


def test_channels_are_confirmed_by_themselves(client: Client091, bench: BrokerBench) -> None:
    client.send(Channel.Open(), 2)
    client.send(Confirm.Select(), 2)
    client.frames()
    client.connection.receive(
        publish_bytes("d", persistent=True)
        + publish_bytes("t", channel=2)
        + publish_bytes("d", persistent=True, channel=2)
    )
    assert client.confirms() == []
    bench.store.complete()
    assert client.confirms() == [("Ack", 1, False), ("Ack", 2, True)]


def test_a_failing_store_nacks_unconfirmed_messages(client: Client091, bench: BrokerBench) -> None:
    client.publish("d", persistent=True)
    bench.store.seal()
    client.publish("d", persistent=True)
    bench.store.fail("no disk")
    assert client.confirms() == [("Nack", 2, True)]


def test_each_message_after_a_store_failure_is_confirmed_or_nacked_once(
    client: Client091, bench: BrokerBench
) -> None:
    bench.store.fail("no disk")
    client.connection.receive(
        publish_bytes("t") + publish_bytes("d", persistent=True) + publish_bytes("t") + publish_bytes("t")
    )
    assert client.confirms() == [("Ack", 1, False), ("Nack", 2, False), ("Ack", 4, True)]
    assert bench.server.counters.confirmed == 3
    assert bench.server.counters.refused == 1


def test_a_store_failure_within_the_turn_nacks_appended_messages(
    client: Client091, bench: BrokerBench
) -> None:
    client.publish("d", persistent=True)
    bench.store.failure = "the disk is full"  # waiting publishers learn of the failure in a moment
    client.publish("d", persistent=True)
    assert client.confirms() == [("Nack", 1, False), ("Nack", 2, False)]
    bench.store.fail("the disk is full")
    assert client.confirms() == []


def test_a_store_that_works_again_confirms_again(client: Client091, bench: BrokerBench) -> None:
    client.publish("d", persistent=True)
    bench.store.fail("the disk is full")
    bench.store.failure = ""
    client.publish("d", persistent=True)
    assert client.confirms() == [("Nack", 1, False)]
    bench.store.complete()
    assert client.confirms() == [("Ack", 2, False)]


def test_without_confirms_a_refused_publish_ends_the_channel(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    bench.store.complete()
    bench.store.fail("no disk")
    client.frames()
    client.publish("d", persistent=True)
    (close,) = client.frames()
    assert isinstance(close, Channel.Close)
    assert close.reply_code == 406


def test_a_closed_channel_gets_no_confirms(client: Client091, bench: BrokerBench) -> None:
    client.publish("d", persistent=True)
    client.send(Channel.Close(200, "", 0, 0), 1)
    client.send(Channel.Open(), 1)
    assert [type(frame) for frame in client.frames()] == [Channel.CloseOk, Channel.OpenOk]
    bench.store.complete()
    assert client.frames() == []


def test_publishes_before_channel_close_are_confirmed_before_close_ok(client: Client091) -> None:
    close = method_bytes(Channel.Close(200, "", 0, 0), 1)
    client.connection.receive(publish_bytes("t") + close)
    assert [type(frame) for frame in client.frames()] == [Basic.Ack, Channel.CloseOk]


def test_publishes_before_an_error_are_confirmed_before_the_close(client: Client091) -> None:
    astray = method_bytes(Basic.Publish(exchange="nowhere"), 1) + header_bytes(0, None, 1)
    client.connection.receive(publish_bytes("t") + astray)
    assert [type(frame) for frame in client.frames()] == [Basic.Ack, Channel.Close]


def test_a_return_comes_before_its_ack(client: Client091, bench: BrokerBench) -> None:
    client.publish("nowhere", mandatory=True)
    assert [type(frame) for frame in client.frames()] == [Basic.Return, Basic.Ack]


def test_a_lost_connection_gets_no_confirms(client: Client091, bench: BrokerBench) -> None:
    client.publish("d", persistent=True)
    client.connection.on_lost("")
    client.frames()
    bench.store.complete()
    assert client.frames() == []


def test_a_duplicate_waits_for_what_another_channel_has_published(
    client: Client091, bench: BrokerBench
) -> None:
    client.send(Queue.Declare(queue="once", durable=True, arguments={"x-dedup-window": 60_000}), 1)
    bench.store.complete()
    client.send(Channel.Open(), 2)
    client.send(Confirm.Select(), 2)
    client.frames()
    properties = Basic.Properties(delivery_mode=2, message_id="a")
    for channel in (1, 2):
        command = method_bytes(Basic.Publish(routing_key="once"), channel)
        client.connection.receive(command + header_bytes(0, properties, channel))
    assert client.confirms() == []
    assert bench.broker.vhosts["/"].topology.queues["once"].ready == 1
    bench.store.complete()
    assert client.confirms() == [("Ack", 1, False), ("Ack", 1, False)]
