"""Queues and exchanges with more bindings than fit in a turn: still a single step for clients."""

import pytest
from pamqp.commands import Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.frames import method_bytes
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import bind_queue, drain
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

MANY = 5_000


def declare(channel: PeerChannel, exchange: str, arguments: FieldTable | None = None) -> None:
    """Declare a durable exchange that goes with its last binding."""
    command = Exchange.Declare(
        exchange=exchange, exchange_type="topic", durable=True, auto_delete=True, arguments=arguments
    )
    channel.call(command, Exchange.DeclareOk)


def bind_many(channel: PeerChannel, queue: str, exchange: str) -> None:
    """Bind a queue with the keys 0 to MANY."""
    binds = [
        Queue.Bind(queue=queue, exchange=exchange, routing_key=str(number), nowait=True)
        for number in range(MANY)
    ]
    channel.peer.send(b"".join(method_bytes(bind, channel.number) for bind in binds))
    bind_queue(channel, queue, exchange, str(MANY))


@both_endings
@pytest.mark.spec("amqp-0-9-1", "queue.delete")
def test_a_queue_is_gone_with_its_bindings_when_its_deletion_is_answered(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("many", durable=True)
    for exchange in ("goes", "stays"):
        declare(channel, exchange)
    channel.declare("other", durable=True)
    bind_queue(channel, "other", "stays", "other")
    for exchange in ("goes", "stays"):
        bind_many(channel, "many", exchange)
    channel.call(Queue.Delete(queue="many"), Queue.DeleteOk)
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    for exchange, key in (("stays", "other"), ("stays", "7")):
        channel.publish(key.encode(), key, exchange, mandatory=True)
    assert channel.returned().body == b"7"
    assert drain(channel, "other") == ["other"]
    channel.declare("many", durable=True)
    channel.publish(b"8", "8", "stays", mandatory=True)
    assert channel.returned().body == b"8"
    channel.refused(Exchange.Declare(exchange="goes", passive=True), 404)


@pytest.mark.spec("amqp-0-9-1", "queue.delete")
def test_the_name_can_be_used_at_once(channel: PeerChannel) -> None:
    name = "many-bindings"
    channel.declare(name, exclusive=True)
    channel.declare("many-alternate", exclusive=True)
    bind_queue(channel, "many-alternate", "amq.fanout")
    declare(channel, "many-topic", {"alternate-exchange": "amq.fanout"})
    bind_queue(channel, "many-alternate", "many-topic", "never")
    bind_many(channel, name, "many-topic")
    channel.publish(b"before", "7", "many-topic")
    assert channel.call(Queue.Delete(queue=name), Queue.DeleteOk).message_count == 1
    channel.declare(name, exclusive=True)
    bind_queue(channel, name, "many-topic", "7")
    for key in ("7", "8"):
        channel.publish(key.encode(), key, "many-topic")
    assert drain(channel, name) == ["7"]
    assert drain(channel, "many-alternate") == ["8"], "no old binding matches"


@pytest.mark.spec("amqp-0-9-1", "exchange.delete")
def test_an_exchange_with_many_bindings_can_be_deleted_and_declared_again(channel: PeerChannel) -> None:
    name = channel.declare(exclusive=True)
    declare(channel, "many-exchange")
    bind_many(channel, name, "many-exchange")
    channel.call(Exchange.Delete(exchange="many-exchange"), Exchange.DeleteOk)
    declare(channel, "many-exchange")
    bind_queue(channel, name, "many-exchange", "7")
    for key in ("7", "8"):
        channel.publish(key.encode(), key, "many-exchange")
    assert drain(channel, name) == ["7"]
    channel.call(Exchange.Delete(exchange="many-exchange"), Exchange.DeleteOk)
