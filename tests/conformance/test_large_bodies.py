"""Bodies of more than a mebibyte come and go in pieces: no client waits for a whole body."""

import socket
from base64 import b64decode
from pathlib import Path

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue, Tx
from pamqp.common import FieldTable

from tests.conformance.test_content import body_of
from tests.conformance.test_slow_readers import resident_bytes
from tests.conformance.test_uploads import begin
from tests.support.admin.api import Api
from tests.support.amqp091.frames import BODY, Message, decode_method
from tests.support.amqp091.peer import Connector
from tests.support.daemon.daemon import DaemonStarter

MIB = 1 << 20
PERSISTENT = Basic.Properties(delivery_mode=2, message_id="m", headers={"a": 1})
both = pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])


@both
def test_methods_sent_during_a_large_body_come_behind_it(connect: Connector, name: str, mode: int) -> None:
    """No other frame of the channel stands in a content. [amqp-0-9-1 4.2.6]"""
    peer = connect()
    channel = peer.channel()
    channel.declare(name, durable=True, auto_delete=True)
    channel.confirm_select()
    body = body_of(8 * MIB)
    channel.publish(body, name, properties=Basic.Properties(delivery_mode=mode))
    channel.expect_confirms(1)
    channel.consume(name, no_ack=True)
    peer.write(Channel.Flow(True), channel.number)
    channel.publish(b"small", name)
    assert channel.delivery().body == body
    channel.expect(Channel.FlowOk)
    channel.expect_confirms(2, 2)
    assert channel.delivery().body == b"small"


@both
def test_channels_do_not_share_the_wire_within_a_body(connect: Connector, name: str, mode: int) -> None:
    peer = connect()
    channels = [peer.channel(number) for number in (1, 2, 3)]
    channels[0].declare(name, durable=True)
    bodies = [body_of(3 * MIB + number, number) for number in range(6)]
    for body in bodies:
        channels[0].publish(body, name, properties=Basic.Properties(delivery_mode=mode))
    for channel in channels:
        channel.qos(1)
    for channel in channels:
        channel.write(Basic.Consume(queue=name, nowait=True))
    got: list[bytes] = []
    receiving = 0  # the channel whose content is coming
    parts: list[bytes] = []
    while len(got) < len(bodies):
        kind, number, payload = peer.receive()
        assert receiving in (0, number), "a content comes in one piece"
        receiving = number
        if kind == BODY:
            parts.append(payload)
        if kind == BODY and sum(map(len, parts)) >= 3 * MIB and len(payload) < 131064:
            got.append(b"".join(parts))
            parts, receiving = [], 0
            channels[number - 1].ack(0, multiple=True)
    assert sorted(got, key=len) == bodies
    channels[0].call(Queue.Delete(queue=name), Queue.DeleteOk)


def test_every_way_out(connect: Connector, api: Api, name: str) -> None:
    """basic.get, a dead letter, recover, a return, a direct reply, HTTP: each has the whole body."""
    channel = connect().channel()
    body = body_of(2 * MIB + 77)
    channel.call(Queue.Declare(queue=f"{name}.dead", durable=True), Queue.DeclareOk)
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.declare(name, durable=True, arguments=arguments)

    channel.publish(body, name, properties=PERSISTENT)
    first = channel.take(name)
    assert (first.body, first.properties.headers) == (body, {"a": 1})
    channel.nack(first.tag)
    again = channel.take(name)
    assert (again.body, again.redelivered) == (body, True)
    channel.reject(again.tag, requeue=False)
    dead = channel.take(f"{name}.dead")
    assert dead.body == body
    assert dead.properties.headers is not None
    assert dead.properties.headers["x-first-death-reason"] == "rejected"
    assert dead.properties.headers["a"] == 1
    channel.nack(dead.tag)
    channel.round_trip()

    for limit in (MIB + 5, 50_000_000):
        wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": limit}
        (shown,) = api.post("queues", "/", f"{name}.dead", "get", status=200, body=wanted)
        assert shown["payload_bytes"] == len(body)
        assert b64decode(shown["payload"]) == body[:limit]

    channel.publish(body, "nowhere.at.all", mandatory=True)
    assert channel.returned().body == body

    consumer = channel.consume(f"{name}.dead")
    assert channel.delivery().body == body
    channel.recover()
    assert channel.delivery().body == body
    channel.cancel(consumer)
    channel.close()

    asking, answering = connect().channel(), connect().channel()
    asking.consume("amq.rabbitmq.reply-to", no_ack=True)
    asking.publish(b"?", f"{name}.dead", properties=Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    answering.take(f"{name}.dead")
    request = answering.take(f"{name}.dead")
    assert request.properties.reply_to is not None
    answering.publish(body, request.properties.reply_to)
    assert asking.delivery().body == body
    for queue in (name, f"{name}.dead"):
        answering.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_transaction_commits_and_rolls_back_large_bodies(connect: Connector, durable_queue: str) -> None:
    channel = connect().channel()
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(body_of(2 * MIB, 1), durable_queue, properties=PERSISTENT)
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.publish(body_of(2 * MIB, 2), durable_queue, properties=PERSISTENT)
    assert channel.counts(durable_queue)[0] == 0
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert channel.take(durable_queue).body == body_of(2 * MIB, 2)


@pytest.mark.parametrize("flavour", ["clean", "crash"])
def test_large_bodies_survive_a_restart(
    start_daemon: DaemonStarter, connect: Connector, flavour: str
) -> None:
    daemon = start_daemon("--memory-budget", "1MiB")
    channel = connect(daemon.address).channel()
    channel.confirm_select()
    channel.declare("q", durable=True)
    bodies = [body_of(number * MIB + 1, number) for number in (1, 5, 2)]
    for body in bodies:
        channel.publish(body, "q", properties=PERSISTENT)
    channel.expect_confirms(3)
    begin(channel, "q", body_of(9 * MIB), 40)
    if flavour == "clean":
        daemon.stop()
    else:
        daemon.kill()
    daemon = start_daemon("--memory-budget", "1MiB")
    channel = connect(daemon.address).channel()
    for body in bodies:
        message = channel.take("q")
        assert (message.body, message.properties.message_id) == (body, "m")
        channel.ack(message.tag)
    assert channel.get("q") is None


def test_a_large_body_for_a_missing_exchange_closes_the_channel_with_404(connect: Connector) -> None:
    peer = connect()
    channel = peer.channel()
    channel.publish(body_of(2 * MIB), "q", exchange="no.such.exchange")
    assert "no exchange 'no.such.exchange'" in channel.expect_close(404)
    other = peer.channel(2)
    queue = other.declare(exclusive=True)
    other.publish(body_of(2 * MIB), queue)
    assert other.take(queue).body == body_of(2 * MIB)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_many_consumers_of_a_long_body_take_memory_for_pieces_only(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon("--memory-budget", "4MiB")
    publisher = connect(daemon.address).channel()
    publisher.confirm_select()
    publisher.call(Queue.Declare(queue="warm", durable=True), Queue.DeclareOk)
    publisher.publish(body_of(4 * MIB), "warm", properties=PERSISTENT)
    publisher.expect_confirms(1)
    before = resident_bytes(daemon)
    readers = []
    for number in range(8):
        reader = connect(daemon.address)
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        channel = reader.channel()
        channel.call(Queue.Declare(queue=f"q{number}", durable=True), Queue.DeclareOk)
        channel.call(Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), Queue.BindOk)
        channel.consume(f"q{number}", no_ack=number % 2 == 0)
        readers.append(channel)
    body = body_of(64 * MIB)
    publisher.publish(body, "", exchange="amq.fanout", properties=PERSISTENT)
    publisher.expect_confirms(2, 2)
    assert resident_bytes(daemon) - before < 64 * MIB, "less than the body once, for 8 consumers"
    for channel in readers:
        assert channel.delivery().body == body
    assert resident_bytes(daemon) - before < 64 * MIB


def test_the_connection_closes_in_the_middle_of_a_body(connect: Connector, durable_queue: str) -> None:
    """Close-ok does not wait for the rest of the body, and the message returns to its queue."""
    peer = connect()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    channel = peer.channel()
    channel.confirm_select()
    channel.publish(body_of(32 * MIB), durable_queue, properties=PERSISTENT)
    channel.expect_confirms(1)
    channel.consume(durable_queue)
    assert isinstance(decode_method(peer.next_frame(1)), Basic.Deliver)
    peer.write(Connection.Close(200, "", 0, 0))
    seen = 0
    while (frame := peer.receive()).channel != 0:
        seen += len(frame.payload) if frame.kind == BODY else 0
    assert isinstance(decode_method(frame), Connection.CloseOk)
    assert seen < 32 * MIB
    other = connect().channel()
    message: Message = other.take(durable_queue)
    assert (message.redelivered, message.body) == (True, body_of(32 * MIB))
