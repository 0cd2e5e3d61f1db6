"""A connection without a socket: frames that wait, frames that are written, and the end of the connection."""

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.amqp091.connection import CLOSES_MAX
from broker.adapters.amqp091.large import bodies_of
from broker.adapters.peers.connections import HELD_FOR_PEER, HELD_FOR_REPLY, UNREAD_BYTES_MAX
from broker.core.delivery.session import EARLY_MAX
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.amqp091.frames import frame_bytes, header_bytes, method_bytes, publish_bytes


def get(queue: str) -> bytes:
    """Return a basic.get and the return of its message."""
    return method_bytes(Basic.Get(queue=queue), 1) + method_bytes(Basic.Nack(0, multiple=True), 1)


def test_nothing_is_read_from_a_stranger_while_the_password_is_checked(bench: BrokerBench) -> None:
    bench.door.at_once = False
    client = bench.connect()
    client.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
    assert client.edge.holds == HELD_FOR_REPLY
    client.send(Connection.TuneOk(2047, 131072, 0))  # was on its way
    client.send(Connection.Open("/"))
    (answer,) = bench.door.asked
    answer(True)
    assert client.edge.holds == 0
    assert [type(frame) for frame in client.frames()] == [
        Connection.Start,
        Connection.Tune,
        Connection.OpenOk,
    ]


def test_an_answer_about_a_peer_that_has_left(bench: BrokerBench) -> None:
    bench.door.at_once = False
    client = bench.connect()
    client.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
    client.frames()
    client.connection.on_lost("reset")
    bench.door.asked[0](True)
    assert client.frames() == []


def test_frames_behind_a_durable_declare_wait_for_its_sync(bench: BrokerBench) -> None:
    client = bench.open()
    declare = method_bytes(Queue.Declare(queue="d", durable=True), 1)
    client.connection.receive(
        declare + publish_bytes("d") + method_bytes(Queue.Declare(queue="d", passive=True), 1)
    )
    assert client.frames() == []
    bench.store.complete()
    first, second = client.frames()
    assert isinstance(first, Queue.DeclareOk)
    assert isinstance(second, Queue.DeclareOk)
    assert (first.message_count, second.message_count) == (0, 1)


def test_a_mistake_behind_a_durable_change(bench: BrokerBench) -> None:
    client = bench.open()
    client.connection.receive(
        method_bytes(Queue.Declare(queue="d", durable=True), 1) + frame_bytes(3, 1, b"")
    )
    bench.store.complete()
    declared, close = client.frames()
    assert isinstance(declared, Queue.DeclareOk)
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 505


def test_a_store_that_fails_refuses_the_durable_change(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    bench.store.fail("no disk")
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 506
    assert client.edge.holds == 0, "close-ok has to be read"


def test_a_durable_answer_to_a_connection_that_is_gone(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    client.connection.on_lost("")
    bench.store.complete()
    assert client.frames() == []


def test_a_message_that_cannot_be_read_costs_one_connection_and_no_message(bench: BrokerBench) -> None:
    client, other = bench.open(), bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    bench.store.complete()
    client.publish("d", b"first", persistent=True)
    bench.store.complete()
    bench.store.drop_contents()
    bench.store.unreadable = True
    client.frames()
    for command in (Basic.Consume(queue="d", no_ack=True), Basic.Get(queue="d")):
        victim = bench.open()
        victim.send(command, 1)
        bench.turns.run()
        closed = victim.frames()[-1]
        assert isinstance(closed, Connection.Close)
        assert closed.reply_code == 541
        assert bench.broker.vhosts["/"].topology.queues["d"].ready == 1
    bench.store.unreadable = False
    other.send(Basic.Get(queue="d"), 1)
    assert isinstance(other.frames()[0], Basic.GetOk)


REQUESTS = [
    Basic.Get(queue="d"),
    Basic.Cancel("t"),
    Queue.Declare(queue="d", passive=True),
    Queue.Purge(queue="d"),
    Queue.Delete(queue="d"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=[command.name for command in REQUESTS])
def test_a_failing_delivery_before_a_request_closes_the_connection(
    bench: BrokerBench, request_: base.Frame
) -> None:
    client, other = bench.open(), bench.open()
    client.send(Queue.Declare(queue="d", durable=True), 1)
    client.publish("d", b"first", persistent=True)
    bench.store.complete()
    bench.store.drop_contents()
    bench.store.unreadable = True
    client.send(Basic.Consume(queue="d", consumer_tag="t"), 1)
    client.frames()
    client.send(request_, 1)
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 541
    bench.turns.run()
    bench.store.unreadable = False
    assert bench.broker.vhosts["/"].topology.queues["d"].ready == 1
    other.send(Basic.Get(queue="d"), 1)
    assert isinstance(other.frames()[-1], Basic.GetOk)


def test_a_request_waits_for_a_bounded_number_of_deliveries(bench: BrokerBench) -> None:
    client, other = bench.open(), bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    for _ in range(2 * EARLY_MAX):
        client.publish("q", b"x")
    client.frames()
    client.send(Basic.Consume(queue="q", no_ack=True), 1)
    other.send(Basic.Get(queue="q", no_ack=True), 1)
    assert isinstance(other.frames()[-1], Basic.GetOk)
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == EARLY_MAX - 1
    bench.turns.run()
    assert len([frame for frame in client.frames() if isinstance(frame, Basic.Deliver)]) == 2 * EARLY_MAX - 1


def test_a_cancel_during_a_pause_goes_out_when_it_ends(bench: BrokerBench) -> None:
    client, other = bench.open(), bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q", consumer_tag="t"), 1)
    client.connection.set_blocked(True)
    client.frames()
    other.send(Queue.Delete(queue="q"), 1)
    bench.turns.run()
    assert client.frames() == []
    client.connection.set_blocked(False)
    (cancel,) = client.frames()
    assert isinstance(cancel, Basic.Cancel)


def test_consumers_of_deleted_queues_leave_the_session(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Basic.Qos(0, 10, True), 1)
    for _ in range(3):
        client.send(Queue.Declare(queue="q"), 1)
        client.send(Basic.Consume(queue="q", consumer_tag="t"), 1)
        client.send(Queue.Delete(queue="q"), 1)
    (session,) = client.connection.sessions
    assert len(session.targets) == 0


def test_a_peer_that_asks_and_does_not_read_is_not_listened_to(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.publish("q", bytes(1 << 20))
    client.frames()
    client.edge.room = 1 << 20
    client.connection.receive(get("q") * 40)
    rounds = answers = 0
    while client.edge.holds:
        assert client.edge.holds == HELD_FOR_PEER
        assert len(client.edge.written) < client.edge.room + UNREAD_BYTES_MAX + (2 << 20)
        answers += len(client.frames())
        client.connection.set_blocked(False)
        rounds += 1
    assert rounds >= 3
    assert answers + len(client.frames()) == 40


def test_a_peer_that_asks_for_large_bodies_and_does_not_read_is_not_listened_to(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.publish("q", bytes(WHOLE_BYTES_MAX + 1))
    client.frames()
    client.edge.room = 0
    client.connection.receive(get("q") * 64)
    assert client.edge.holds & HELD_FOR_PEER
    assert client.connection.bodies is not None
    assert len(bodies_of(client.connection)._unsent) <= UNREAD_BYTES_MAX // WHOLE_BYTES_MAX + 2
    answers = 0
    client.edge.room = 8 * WHOLE_BYTES_MAX
    while client.connection.blocked or bench.turns.waiting:
        client.connection.set_blocked(False)
        bench.turns.run()
        answers += len([frame for frame in client.frames() if isinstance(frame, Basic.GetOk)])
    assert answers == 64
    assert not client.edge.holds & HELD_FOR_PEER


def test_deliveries_do_not_keep_a_busy_publisher_from_being_read(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.send(Basic.Consume(queue="q", no_ack=True), 1)
    client.publish("q", bytes(2 * UNREAD_BYTES_MAX))
    bench.turns.run()
    client.connection.set_blocked(True)
    client.send(Channel.Flow(True), 1)
    assert client.edge.holds == 0


def test_an_error_during_a_pause_reads_the_close_ok(bench: BrokerBench) -> None:
    client = bench.open()
    client.connection.set_blocked(True)
    client.connection.hold(HELD_FOR_PEER)
    client.connection.force_close("broker shutting down")
    assert client.edge.holds == 0
    client.frames()
    client.send(Connection.CloseOk())
    assert client.edge.closed


@pytest.mark.parametrize("cut", range(1, 12))
def test_close_ok_is_found_wherever_it_is_cut(bench: BrokerBench, cut: int) -> None:
    client = bench.open()
    client.connection.force_close("broker shutting down")
    stream = b"\xff" * 20 + method_bytes(Connection.CloseOk()) + b"\x08\x00\x00\x00\x00\x00\x00\xce" * 3
    client.connection.receive(stream[: 20 + cut])
    assert not client.edge.closed
    client.connection.receive(stream[20 + cut :])
    assert client.edge.closed


def test_both_ends_close_at_the_same_time(bench: BrokerBench) -> None:
    client = bench.open()
    client.connection.force_close("broker shutting down")
    client.send(Connection.Close(200, "", 0, 0))
    assert [type(frame) for frame in client.frames()] == [Connection.Close, Connection.CloseOk]
    assert client.edge.hanging_up
    assert not client.edge.closed


CLOSE = method_bytes(Connection.Close(200, "", 0, 0))


@pytest.mark.parametrize("cut", range(0, 2 * len(CLOSE), 3))
def test_each_close_is_answered_wherever_the_stream_is_cut(bench: BrokerBench, cut: int) -> None:
    client = bench.open()
    stream = CLOSE * 3 + method_bytes(Connection.CloseOk())
    client.connection.receive(stream[:cut])
    client.connection.receive(stream[cut:])
    assert [type(frame) for frame in client.frames()] == [Connection.CloseOk] * 3
    assert client.edge.hanging_up
    assert not client.edge.closed


def test_a_flood_of_closes_is_not_answered_for_ever(bench: BrokerBench) -> None:
    client = bench.open()
    for _ in range(3):
        client.connection.receive(CLOSE * CLOSES_MAX)
    assert len(client.frames()) == CLOSES_MAX


def test_a_closed_channel_may_answer_a_close_that_crossed_its_own(bench: BrokerBench) -> None:
    client = bench.open()
    astray = method_bytes(Basic.Publish(exchange="nowhere"), 1) + header_bytes(0, None, 1)
    client.connection.receive(astray + method_bytes(Channel.Close(200, "", 0, 0), 1))
    client.send(Channel.CloseOk(), 1)
    client.send(Channel.Open(), 1)
    assert [type(frame) for frame in client.frames()] == [Channel.Close, Channel.CloseOk, Channel.OpenOk]


def test_a_closing_channel_drops_all_methods_before_close_ok(bench: BrokerBench) -> None:
    client = bench.open()
    client.connection.receive(method_bytes(Basic.Publish(exchange="nowhere"), 1) + header_bytes(0, None, 1))
    for command in (Channel.Open(), Basic.Ack(7), Queue.Declare(queue="q"), Basic.Publish()):
        client.send(command, 1)
    client.connection.receive(header_bytes(0, None, 1))
    assert [type(frame) for frame in client.frames()] == [Channel.Close]
    client.send(Channel.CloseOk(), 1)
    client.send(Channel.Open(), 1)
    assert [type(frame) for frame in client.frames()] == [Channel.OpenOk]


@pytest.mark.parametrize(
    "command", [Connection.CloseOk(), Connection.TuneOk(), Basic.CancelOk("t"), Queue.DeclareOk("q", 0, 0)]
)
def test_a_method_that_no_client_sends_on_a_channel(bench: BrokerBench, command: Channel.Open) -> None:
    client = bench.open()
    client.send(command, 1)
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 503
