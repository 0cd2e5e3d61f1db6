"""Direct replies without a socket: clients that do not read, virtual hosts, and the end of a connection."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.amqp091.direct_reply import UNREAD_BYTES_MAX
from tests.support.adapters.connection_without_socket import CAPABILITIES, BrokerBench, Client091
from tests.support.amqp091.frames import body_frames, header_bytes, method_bytes, publish_bytes

REPLY_TO = "amq.rabbitmq.reply-to"


def requester(bench: BrokerBench, vhost: str = "/") -> tuple[Client091, str]:
    """A client that takes replies, and its name."""
    client = bench.connect()
    client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, 131072, 0))
    client.send(Connection.Open(vhost))
    client.send(Channel.Open(), 1)
    client.send(Basic.Consume(queue=REPLY_TO, consumer_tag="c", no_ack=True), 1)
    client.frames()
    (name,) = [name for (where, name) in bench.server.replies if where.name == vhost]
    return client, name[1:].decode()


def test_a_client_that_does_not_read_takes_a_bounded_amount_of_memory(bench: BrokerBench) -> None:
    client, name = requester(bench)
    responder = bench.open()
    client.connection.set_blocked(True)
    count = 20
    for _ in range(count):
        responder.publish(name, bytes(1 << 20))
    assert len(client.connection.out) < UNREAD_BYTES_MAX + (2 << 20)
    dropped = bench.broker.counters.replies_dropped
    assert 0 < dropped < count
    client.connection.set_blocked(False)
    assert len(client.frames()) == count - dropped


@pytest.mark.parametrize(
    ("header", "body", "count"), [(0, 1 << 20, 20), (100_000, 0, 200)], ids=["body", "header"]
)
def test_a_client_that_stops_deliveries_takes_a_bounded_amount_of_memory(
    bench: BrokerBench, header: int, body: int, count: int
) -> None:
    client, name = requester(bench)
    responder = bench.open()
    client.send(Channel.Flow(False), 1)
    client.frames()
    properties = Basic.Properties(headers={"h": "x" * header})
    reply = method_bytes(Basic.Publish(routing_key=name), 1) + header_bytes(body, properties, 1)
    reply += b"".join(body_frames(bytes(body), 1, 131072))
    for _ in range(count):
        responder.connection.receive(reply)
    dropped = bench.broker.counters.replies_dropped
    kept = count - dropped
    assert 0 < dropped < count
    assert kept * (header + body) < UNREAD_BYTES_MAX + (2 << 20)
    client.send(Channel.Flow(True), 1)
    assert len([frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]) == count - dropped


def test_a_reply_is_flushed_at_the_next_turn(bench: BrokerBench) -> None:
    client, name = requester(bench)
    responder = bench.open()
    responder.publish(name, b"1")
    responder.publish(name, b"2")
    assert client.frames() == []
    bench.turns.run()
    assert [type(frame) for frame in client.frames()] == [Basic.Deliver, Basic.Deliver]


def test_a_name_is_good_in_its_virtual_host_only(bench: BrokerBench) -> None:
    bench.broker.declare_vhost("other")
    client, name = requester(bench, "other")
    stranger = bench.open()
    stranger.publish(name, b"?", mandatory=True)
    stranger.send(Queue.Declare(queue=name, passive=True), 1)
    bench.turns.run()
    assert client.frames() == []
    (closed,) = stranger.frames()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 404


def test_a_client_that_is_gone_leaves_no_name_behind(bench: BrokerBench) -> None:
    client, name = requester(bench)
    responder = bench.open()
    responder.publish(name)  # and remembers where that goes
    client.connection.on_lost("reset")
    assert bench.server.replies == {}
    responder.publish(name)
    bench.turns.run()
    assert bench.broker.counters.replies_dropped == 1


def test_a_request_in_pieces(bench: BrokerBench) -> None:
    client, name = requester(bench)
    client.send(Queue.Declare(queue="q"), 1)
    asked = Basic.Properties(reply_to=REPLY_TO)
    data = method_bytes(Basic.Publish(routing_key="q"), 1) + header_bytes(9000, asked, 1)
    data += b"".join(body_frames(bytes(9000), 1, 4096))
    for at in range(0, len(data), 1000):
        client.connection.receive(data[at : at + 1000])
    (entry,) = bench.broker.vhosts["/"].topology.queues["q"].entries
    assert entry.message.content is not None
    assert name.encode() in entry.message.content
    assert entry.message.size == 9000


def test_many_names_do_not_pile_up(bench: BrokerBench) -> None:
    client, _ = requester(bench)
    responder = bench.open()
    for number in range(5000):
        responder.connection.receive(publish_bytes(f"{REPLY_TO}.x{number}"))
    assert bench.broker.counters.replies_dropped == 5000
    assert len(bench.server.replies) == 1
    assert client.frames() == []
