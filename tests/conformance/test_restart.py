"""Durable and transient state after a stop and after a crash."""

import pytest
from pamqp.commands import Basic, Exchange, Queue

from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp091.frames import METHOD, frame_bytes
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import bind_exchange, bind_queue, drain
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings, crash, stop

PERSISTENT = Basic.Properties(delivery_mode=2)


def declare(channel: PeerChannel, exchange: str, kind: str, durable: bool) -> None:
    """Declare an exchange."""
    command = Exchange.Declare(exchange=exchange, exchange_type=kind, durable=durable)
    channel.call(command, Exchange.DeclareOk)


@both_endings
@pytest.mark.spec("amqp-0-9-1", "queue.declare#durable")
def test_durable_topology_survives_and_transient_goes(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    for kind in ("direct", "fanout", "topic", "headers"):
        declare(channel, kind, kind, durable=True)
    declare(channel, "transient-exchange", "fanout", durable=False)
    channel.declare("durable", durable=True, arguments={"x-max-priority": 3})
    channel.declare("deleted", durable=True)
    channel.declare("transient")
    channel.declare("exclusive", durable=True, exclusive=True)
    bind_queue(channel, "durable", "direct", "kept")
    bind_queue(channel, "durable", "direct", "removed")
    bind_queue(channel, "durable", "transient-exchange")
    bind_exchange(channel, "fanout", "direct", "through")
    channel.call(Queue.Unbind(queue="durable", exchange="direct", routing_key="removed"), Queue.UnbindOk)
    channel.call(Queue.Delete(queue="deleted"), Queue.DeleteOk)
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    for kind in ("direct", "fanout", "topic", "headers"):
        declare(channel, kind, kind, durable=True)
    assert channel.declare("durable", durable=True, arguments={"x-max-priority": 3}) == "durable"
    for key in ("kept", "removed"):
        channel.publish(key.encode(), key, "direct")
    channel.publish(b"through", "through", "fanout")
    assert drain(channel, "durable") == ["kept"]
    for absent in ("deleted", "transient", "exclusive"):
        channel.refused(Queue.Declare(queue=absent, passive=True), 404)
        channel = channel.peer.channel(1)
    channel.refused(Exchange.Declare(exchange="transient-exchange", passive=True), 404)


@both_endings
@pytest.mark.spec("amqp-0-9-1", "basic.publish")
def test_only_persistent_messages_in_durable_queues_survive_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    for queue in ("one", "two"):
        channel.declare(queue, durable=True)
        bind_queue(channel, queue, "amq.fanout")
    channel.declare("transient")
    channel.confirm_select()
    for number in range(10):
        channel.publish(b"persistent %d" % number, "", "amq.fanout", PERSISTENT)
        channel.publish(b"transient %d" % number, "one")
        channel.publish(b"persistent, transient queue", "transient", properties=PERSISTENT)
    channel.expect_confirms(30)
    for _ in range(4):
        message = channel.get("two", no_ack=False)
        assert message is not None
        channel.ack(message.tag)
    dropped = channel.take("two")
    channel.reject(dropped.tag, requeue=False)
    channel.take("two")  # unacked at the end
    channel.publish(b"after", "one", properties=PERSISTENT)
    channel.expect_confirms(31, first=31)  # everything before is on disk with it
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    assert drain(channel, "one") == [*(f"persistent {number}" for number in range(10)), "after"]
    assert drain(channel, "two") == [f"persistent {number}" for number in range(5, 10)]


@both_endings
@pytest.mark.spec("amqp-0-9-1", "basic.deliver#redelivered")
def test_the_redelivered_flag_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("durable", durable=True)
    channel.confirm_select()
    for number in range(3):
        channel.publish(b"%d" % number, "durable", properties=PERSISTENT)
    channel.expect_confirms(3)
    channel.take("durable")
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    flags = [channel.take("durable").redelivered for _ in range(3)]
    # after a crash nobody knows any more what had been delivered
    assert flags == ([True, False, False] if end is stop else [True, True, True])


@both_endings
@pytest.mark.spec("amqp-0-9-1", "4.2.6")
def test_contents_come_back_unchanged(start_daemon: DaemonStarter, connect: Connector, end: Ending) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("durable", durable=True)
    channel.confirm_select()
    fields = b"".join(field(name.encode(), value) for name, value in FIELDS.items())
    encoded = b"\x30\x00" + long_string(fields) + b"\x02"
    bodies = [b"", b"x", bytes(131072 - 8), bytes(range(256)) * 3000, bytes(5 << 20)]
    for body in bodies:
        channel.publish(body, "durable", properties=encoded)
    channel.expect_confirms(len(bodies))
    end(daemon, channel.peer)

    channel = connect(start_daemon().address, frame_max=51200).channel()  # the header just fits
    for body in bodies:
        message = channel.take("durable")
        assert message.body == body
        assert message.header[12:] == encoded
        assert max(message.body_frames, default=0) <= 51200 - 8


@both_endings
@pytest.mark.spec("rabbitmq-extensions", "x-max-priority")
def test_the_order_of_a_priority_queue_survives(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("priorities", durable=True, arguments={"x-max-priority": 3})
    channel.confirm_select()
    for number in range(12):
        properties = Basic.Properties(delivery_mode=2, priority=number % 4)
        channel.publish(b"%d" % number, "priorities", properties=properties)
    channel.expect_confirms(12)
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    order = [int(body) for body in drain(channel, "priorities")]
    assert order == [3, 7, 11, 2, 6, 10, 1, 5, 9, 0, 4, 8]


@both_endings
@pytest.mark.spec("amqp-0-9-1", "queue.bind#arguments")
def test_binding_arguments_keep_their_types(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    """Only equal arguments remove a binding, so the recovered arguments must be equal."""
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    for value in FIELDS.values():
        channel.peer.send(binding(20, value))
        channel.expect(Queue.BindOk)
    end(daemon, channel.peer)

    channel = connect(start_daemon().address).channel()
    channel.confirm_select()
    for number, value in enumerate(FIELDS.values()):
        channel.publish(b"", "k", "amq.direct", mandatory=True)
        channel.expect_confirms(number + 1, first=number + 1)  # not returned: still bound
        channel.peer.send(binding(50, value))
        channel.expect(Queue.UnbindOk)
    channel.publish(b"", "k", "amq.direct", mandatory=True)
    channel.returned()


def binding(method_id: int, value: bytes) -> bytes:
    """Return queue.bind or queue.unbind of `q` to amq.direct by `k`, with a single argument."""
    payload = b"\x00\x32" + method_id.to_bytes(2, "big") + b"\x00\x00\x01q\x0aamq.direct\x01k"
    payload += (b"\x00" if method_id == 20 else b"") + long_string(field(b"argument", value))
    return frame_bytes(METHOD, 1, payload)


@pytest.mark.spec("amqp-0-9-1", "queue.declare#durable")
def test_a_reply_to_a_declaration_is_a_promise(start_daemon: DaemonStarter, connect: Connector) -> None:
    """After a kill right behind the reply the declared queue must exist."""
    for turn in range(5):
        daemon = start_daemon()
        channel = connect(daemon.address).channel()
        for earlier in range(turn):
            assert channel.counts(f"queue {earlier}") == (0, 0)
            channel.publish(b"", f"key {earlier}", "amq.direct", mandatory=True)
        channel.expect_silence()
        channel.declare(f"queue {turn}", durable=True)
        bind_queue(channel, f"queue {turn}", "amq.direct", f"key {turn}")
        daemon.kill()


def test_many_restarts_neither_lose_nor_duplicate_messages(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    expected: list[str] = []
    for turn in range(6):
        daemon = start_daemon(environment={"AMQPD_SEGMENT_BYTES": "64KiB"})
        channel = connect(daemon.address).channel()
        channel.declare("durable", durable=True)
        channel.declare("fence", durable=True)
        channel.confirm_select()
        for number in range(300):
            body = f"{turn} {number} " + "x" * 500
            channel.publish(body.encode(), "durable", properties=PERSISTENT)
            expected.append(body)
        channel.expect_confirms(300)
        for _ in range(200):
            message = channel.take("durable")
            assert message.body.decode() == expected.pop(0)
            channel.ack(message.tag)
        channel.publish(b"", "fence", properties=PERSISTENT)
        channel.expect_confirms(301, first=301)  # the acks were written before it
        (crash if turn % 3 == 2 else stop)(daemon, channel.peer)
    channel = connect(start_daemon().address).channel()
    assert drain(channel, "durable") == expected
    assert drain(channel, "fence") == [""] * 6
