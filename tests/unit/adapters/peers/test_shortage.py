"""Publishers that wait while the machine is short of something: who is held, when, and how it ends."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from broker.adapters.amqp091.shortage import KEPT_BYTES_MAX
from broker.adapters.peers.connections import HELD_FOR_REPLY, HELD_FOR_SHORTAGE
from broker.adapters.peers.shortage import MEASURE_BYTES
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import body_frames, frame_bytes, header_bytes, method_bytes, publish_bytes

TOLD: FieldTable = {"connection.blocked": True}
HEARTBEAT = frame_bytes(8, 0, b"")


@pytest.fixture
def bench() -> BrokerBench:
    bench = BrokerBench()
    bench.open().send(Queue.Declare(queue="q"), 1)
    return bench


def short(bench: BrokerBench, memory: bool = True, disk: bool = False) -> None:
    bench.server.shortage.set_shortages(memory, disk)


def enough(bench: BrokerBench) -> None:
    bench.server.shortage.set_shortages(memory=False, disk=False)


def client_of(bench: BrokerBench, capabilities: FieldTable | None = None) -> Client091:
    client = bench.connect()
    given = TOLD if capabilities is None else capabilities
    client.send(Connection.StartOk({"capabilities": given}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, 131072, 0))
    client.send(Connection.Open("/"))
    client.send(Channel.Open(), 1)
    client.frames()
    return client


def ready(bench: BrokerBench) -> int:
    return bench.broker.vhosts["/"].topology.queues["q"].ready


def test_a_publisher_is_held_with_its_next_publish_and_goes_on_afterwards(bench: BrokerBench) -> None:
    client = client_of(bench)
    client.publish("q")
    short(bench)
    assert client.frames() == []
    client.connection.receive(publish_bytes("q") * 10)
    (blocked,) = client.frames()
    assert isinstance(blocked, Connection.Blocked)
    assert blocked.reason == "low on memory"
    assert ready(bench) == 2
    assert list(bench.server.shortage.held) == [client.connection.held]
    client.publish("q")
    enough(bench)
    (unblocked,) = client.frames()
    assert isinstance(unblocked, Connection.Unblocked)
    assert ready(bench) == 12
    client.publish("q")
    assert ready(bench) == 13
    assert len(bench.server.shortage.held) == 0


def test_a_publisher_that_comes_later_is_held_too(bench: BrokerBench) -> None:
    short(bench, disk=True)
    client = client_of(bench)
    client.publish("q")
    (blocked,) = client.frames()
    assert isinstance(blocked, Connection.Blocked)
    assert blocked.reason == "low on memory & disk"
    client.publish("q")
    assert ready(bench) == 1
    short(bench, memory=False, disk=True)
    assert client.frames() == []
    enough(bench)
    assert ready(bench) == 2


def test_a_close_that_was_kept_back_for_another_reason_first_is_heard(bench: BrokerBench) -> None:
    short(bench, memory=False, disk=True)
    client = client_of(bench)
    declare = method_bytes(Queue.Declare(queue="durable", durable=True), 1)
    client.connection.receive(
        declare + publish_bytes("q") * 2 + method_bytes(Connection.Close(200, "", 0, 0), 0)
    )
    assert client.frames() == []
    bench.store.complete()
    assert [type(frame) for frame in client.frames()] == [
        Queue.DeclareOk,
        Connection.Blocked,
        Connection.CloseOk,
    ]
    assert ready(bench) == 2
    assert len(bench.server.shortage.held) == 0


def test_every_shortage_holds(bench: BrokerBench) -> None:
    client = client_of(bench)
    for number in range(3):
        short(bench)
        client.publish("q")
        client.publish("q")
        assert ready(bench) == 2 * number + 1
        enough(bench)
        assert [type(frame) for frame in client.frames()] == [Connection.Blocked, Connection.Unblocked]
        assert ready(bench) == 2 * number + 2


def test_a_client_without_the_capability_gets_no_connection_blocked(bench: BrokerBench) -> None:
    client = client_of(bench, {})
    short(bench)
    client.connection.receive(publish_bytes("q") * 2)
    assert ready(bench) == 1
    enough(bench)
    assert ready(bench) == 2
    assert client.frames() == []


def test_consumers_go_on(bench: BrokerBench) -> None:
    client = client_of(bench)
    publisher = client_of(bench)
    for _ in range(3):
        publisher.publish("q")
    short(bench)
    client.send(Basic.Qos(0, 1, False), 1)
    client.send(Basic.Consume(queue="q"), 1)
    for tag in (1, 2, 3):
        bench.turns.run()
        delivered = client.frames()[-1]
        assert isinstance(delivered, Basic.Deliver)
        client.send(Basic.Ack(tag), 1)
    assert bench.broker.vhosts["/"].topology.queues["q"].unacked == 0


def test_deliveries_to_a_held_publisher_go_on(bench: BrokerBench) -> None:
    client = client_of(bench)
    client.send(Basic.Consume(queue="q", no_ack=True), 1)
    short(bench)
    client.publish("q")
    client_of(bench).publish("q")
    bench.turns.run()
    delivered = [frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]
    assert len(delivered) == 2


def test_heartbeats_of_a_held_publisher_are_read(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench)
    client.publish("q")
    for _ in range(1000):
        client.connection.receive(HEARTBEAT)
    assert client.edge.holds == 0


def test_a_publisher_that_sends_on_is_not_read_from(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench)
    client.connection.receive(publish_bytes("q", bytes(1000)) * 20)
    assert client.edge.holds == HELD_FOR_SHORTAGE
    assert ready(bench) == 1
    enough(bench)
    assert client.edge.holds == 0
    assert ready(bench) == 20


def test_a_publisher_that_sends_little_by_little(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench)
    client.publish("q")
    sent = 0
    while client.edge.holds == 0:
        client.publish("q", bytes(500))
        sent += 1
        assert sent <= KEPT_BYTES_MAX // 500 + 1
    assert sent > 20
    enough(bench)
    assert ready(bench) == sent + 1


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_held_publisher_may_close_and_loses_nothing(bench: BrokerBench, pieces: int) -> None:
    client = client_of(bench)
    short(bench)
    client.publish("q")
    client.frames()
    close = method_bytes(Connection.Close(200, "", 0, 0))
    # bytes like a close in the body of a message are no close
    data = publish_bytes("q", close) + HEARTBEAT + publish_bytes("elsewhere") + publish_bytes("q") + close
    for at in range(0, len(data) - pieces, pieces):
        client.connection.receive(data[at : at + pieces])
        assert client.frames() == []
    rest = len(range(0, len(data) - pieces, pieces)) * pieces
    client.connection.receive(data[rest:])
    (answer,) = client.frames()
    assert isinstance(answer, Connection.CloseOk)
    assert ready(bench) == 3
    assert len(bench.server.shortage.held) == 0


def test_a_held_publisher_that_vanishes(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench)
    client.connection.receive(publish_bytes("q") * 3)
    client.connection.on_lost("reset")
    assert len(bench.server.shortage.held) == 0
    enough(bench)
    assert ready(bench) == 1


def test_a_held_publisher_is_told_that_the_broker_stops(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench)
    client.connection.receive(publish_bytes("q", bytes(1000)) * 30)
    client.frames()
    client.connection.force_close("broker shutting down")
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert client.edge.holds == 0, "close-ok has to be read"
    enough(bench)
    assert client.frames() == []
    assert ready(bench) == 1


def test_a_content_under_way_is_taken(bench: BrokerBench) -> None:
    client = client_of(bench)
    head = method_bytes(Basic.Publish(routing_key="q"), 1) + header_bytes(9000, None, 1)
    frames = body_frames(bytes(9000), 1, 4096)
    client.connection.receive(head + frames[0])
    short(bench)
    client.connection.receive(frames[1])
    assert client.frames() == []
    client.connection.receive(frames[2] + publish_bytes("q"))
    (blocked,) = client.frames()
    assert isinstance(blocked, Connection.Blocked)
    assert ready(bench) == 1


def test_a_transaction_is_held_and_committed_afterwards(bench: BrokerBench) -> None:
    client = client_of(bench)
    client.send(Tx.Select(), 1)
    short(bench)
    client.publish("q")
    client.publish("q")
    client.send(Tx.Commit(), 1)
    assert ready(bench) == 0
    enough(bench)
    assert ready(bench) == 2


def test_two_reasons_to_wait(bench: BrokerBench) -> None:
    client = client_of(bench)
    client.send(Queue.Declare(queue="d", durable=True), 1)
    assert client.edge.holds == HELD_FOR_REPLY
    client.connection.receive(publish_bytes("q") * 2)
    short(bench)
    bench.store.complete()
    assert [type(frame) for frame in client.frames()] == [Queue.DeclareOk, Connection.Blocked]
    assert ready(bench) == 1
    enough(bench)
    assert ready(bench) == 2


DECLARATIONS = [
    (Queue.Declare(queue="new"), Queue.DeclareOk),
    (Queue.Declare(queue="new", durable=True), Queue.DeclareOk),
    (Exchange.Declare(exchange="new"), Exchange.DeclareOk),
    (Queue.Bind(queue="q", exchange="amq.direct", routing_key="new"), Queue.BindOk),
    (Exchange.Bind(destination="amq.fanout", source="amq.direct"), Exchange.BindOk),
]


@pytest.mark.parametrize(("method", "answer"), DECLARATIONS)
def test_a_client_that_declares_a_new_object_is_blocked_after_the_answer(
    bench: BrokerBench, method: Queue.Declare, answer: type[object]
) -> None:
    client = client_of(bench)
    short(bench)
    client.send(method, 1)
    bench.store.complete()
    assert [type(frame) for frame in client.frames()] == [Connection.Blocked, answer]
    client.send(Queue.Declare(queue="q", passive=True), 1)
    assert client.frames() == []
    enough(bench)
    assert [type(frame) for frame in client.frames()] == [Connection.Unblocked, Queue.DeclareOk]


@pytest.mark.parametrize(("method", "answer"), DECLARATIONS)
def test_a_client_that_declares_an_existing_object_is_not_blocked(
    bench: BrokerBench, method: Queue.Declare, answer: type[object]
) -> None:
    client = client_of(bench)
    client.send(method, 1)
    bench.store.complete()
    client.frames()
    short(bench)
    client.send(method, 1)
    bench.store.complete()
    assert [type(frame) for frame in client.frames()] == [answer]
    assert len(bench.server.shortage.held) == 0


def test_a_client_that_declares_is_not_blocked_for_lack_of_disk_space(bench: BrokerBench) -> None:
    client = client_of(bench)
    short(bench, memory=False, disk=True)
    client.send(Queue.Declare(queue="new"), 1)
    assert [type(frame) for frame in client.frames()] == [Queue.DeclareOk]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_publisher_is_held_in_the_middle_of_a_large_body(bench: BrokerBench, persistent: bool) -> None:
    client = client_of(bench)
    size = 4 * 1048576
    properties = Basic.Properties(delivery_mode=2) if persistent else None
    frames = body_frames(bytes(size), 1, 131072)
    client.connection.receive(method_bytes(Basic.Publish(routing_key="q"), 1))
    client.connection.receive(header_bytes(size, properties, 1) + frames[0])
    short(bench)
    sent = 1
    while not (received := client.frames()):
        client.connection.receive(frames[sent])
        sent += 1
    assert [type(frame) for frame in received] == [Connection.Blocked]
    assert sent <= 9, "a piece is a mebibyte"
    assert (client.connection.part_bytes() > 1 << 20) is not persistent
    client.connection.receive(frames[sent])
    assert client.edge.holds == HELD_FOR_SHORTAGE
    enough(bench)
    for frame in frames[sent + 1 :]:
        client.connection.receive(frame)
    assert ready(bench) == 1
    assert client.connection.part_bytes() == 0


def test_a_publisher_is_held_in_the_middle_of_many_bodies(bench: BrokerBench) -> None:
    """None of them is large, and all together they would be."""
    client = client_of(bench)
    for number in range(2, 12):
        client.send(Channel.Open(), number)
    client.frames()
    short(bench)
    frames: list[bytes] = []
    for number in range(1, 12):
        assert client.frames() == []
        head, *frames = body_frames(bytes(240_000), number, 131072)
        client.connection.receive(
            method_bytes(Basic.Publish(routing_key="q"), number) + header_bytes(240_000, None, number) + head
        )
        if client.connection.held is not None:
            break
    assert number == 9
    (blocked,) = client.frames()
    assert isinstance(blocked, Connection.Blocked)
    assert client.connection.part_bytes() > 1 << 20
    client.connection.receive(frames[0])
    assert ready(bench) == 0
    enough(bench)
    assert ready(bench) == 1


def test_memory_is_looked_at_between_ticks_if_much_comes_in(bench: BrokerBench) -> None:
    client = client_of(bench)
    looks: list[int] = []

    def look() -> None:
        looks.append(ready(bench))
        short(bench)

    bench.server.shortage.measure = look
    body = bytes(120_000)
    sent = 0
    while not looks:
        client.publish("q", body)
        sent += 1
        assert sent <= 2 * MEASURE_BYTES // len(body)
    assert sent > MEASURE_BYTES // len(body) // 2
    assert looks == [sent - 1], "before the message is taken"
    assert ready(bench) == sent
    client.publish("q", body)
    assert (ready(bench), len(looks)) == (sent, 1)
