"""Exchanges that are deleted or replaced while a transaction has publishes to them.

A publish is routed at the commit, by the exchange for which the permission was checked.
[docs/applications/transactions.md]
"""

import pytest
from pamqp.commands import Basic, Exchange, Queue, Tx

from tests.support.amqp091.peer import Connector, PeerChannel

pytestmark = pytest.mark.amqpd_only("RabbitMQ routes when it takes a publish")


@pytest.fixture
def tx(connect: Connector) -> PeerChannel:
    """A channel in transactional mode."""
    channel = connect().channel()
    channel.call(Tx.Select(), Tx.SelectOk)
    return channel


@pytest.fixture
def queue(channel: PeerChannel, exchange: str) -> str:
    """A queue with a message, bound to a direct exchange with the key k."""
    queue = channel.declare()
    become(channel, exchange, "direct", queue)
    channel.publish(b"held", queue)
    channel.round_trip()
    return queue


def become(channel: PeerChannel, exchange: str, kind: str, queue: str, internal: bool = False) -> None:
    """Replace an exchange by another one of the same name, bound to the queue."""
    channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
    declare = Exchange.Declare(exchange=exchange, exchange_type=kind, internal=internal)
    channel.call(declare, Exchange.DeclareOk)
    channel.call(Queue.Bind(queue=queue, exchange=exchange, routing_key="k"), Queue.BindOk)


def hold(tx: PeerChannel, exchange: str, queue: str) -> None:
    """Put an ack and two publishes, the second one to the exchange, into a transaction."""
    tx.ack(tx.take(queue).tag)
    tx.publish(b"first", queue)
    tx.publish(b"second", "k", exchange=exchange)
    tx.round_trip()


def expect_nothing_done(channel: PeerChannel, queue: str) -> None:
    """Check that the queue has its returned message, and no other."""
    back = channel.take(queue)
    assert (back.body, back.redelivered) == (b"held", True)
    assert channel.get(queue) is None
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_an_exchange_deleted_before_the_commit(
    tx: PeerChannel, channel: PeerChannel, exchange: str, queue: str
) -> None:
    hold(tx, exchange, queue)
    channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
    why = f"publish 2 of 2 in the transaction: no exchange '{exchange}' in vhost '/'"
    assert tx.refused(Tx.Commit(), 404) == f"NOT_FOUND - {why}"
    expect_nothing_done(channel, queue)


@pytest.mark.parametrize("kind", ["direct", "fanout", "headers"])
def test_commit_fails_if_the_exchange_was_replaced_by_one_of_its_name(
    tx: PeerChannel, channel: PeerChannel, exchange: str, queue: str, kind: str
) -> None:
    hold(tx, exchange, queue)
    become(channel, exchange, kind, queue)
    why = f"publish 2 of 2 in the transaction: exchange '{exchange}' in vhost '/' is another one now"
    assert tx.refused(Tx.Commit(), 406) == f"PRECONDITION_FAILED - {why}"
    expect_nothing_done(channel, queue)


def test_commit_fails_if_the_exchange_was_replaced_by_an_internal_exchange(
    tx: PeerChannel, channel: PeerChannel, exchange: str, queue: str
) -> None:
    hold(tx, exchange, queue)
    become(channel, exchange, "direct", queue, internal=True)
    why = f"publish 2 of 2 in the transaction: cannot publish to internal exchange '{exchange}' in vhost '/'"
    assert tx.refused(Tx.Commit(), 403) == f"ACCESS_REFUSED - {why}"
    expect_nothing_done(channel, queue)


@pytest.mark.parametrize("properties", [None, Basic.Properties(headers={"CC": ["k2"]})], ids=["key", "CC"])
def test_publishes_to_another_exchange_are_routed(
    tx: PeerChannel, channel: PeerChannel, exchange: str, queue: str, properties: Basic.Properties | None
) -> None:
    tx.publish(b"before", "k", exchange=exchange, properties=properties)
    tx.call(Tx.Commit(), Tx.CommitOk)
    become(channel, exchange, "fanout", queue)
    tx.publish(b"after", "k", exchange=exchange, properties=properties)
    tx.call(Tx.Commit(), Tx.CommitOk)
    assert [channel.take(queue).body for _ in range(3)] == [b"held", b"before", b"after"]
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_publishes_to_a_deleted_exchange_are_refused_at_once(
    tx: PeerChannel, channel: PeerChannel, exchange: str, queue: str
) -> None:
    tx.publish(b"before", "k", exchange=exchange)
    tx.call(Tx.Commit(), Tx.CommitOk)
    channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
    tx.publish(b"after", "k", exchange=exchange)
    assert tx.expect_close(404) == f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
