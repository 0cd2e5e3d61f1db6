"""A client that asks for very much at once has it done in turns, in its order; others have theirs between."""

from collections.abc import Sequence

from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.common import FieldTable

from broker.adapters.peers.connections import HELD_FOR_STEP
from broker.core.schedule import METHOD, QUEUES, RECEIPT, TURN
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import header_bytes, method_bytes, publish_bytes

MANY = 5 * int(TURN // METHOD)  # methods that take some turns
ASKS: FieldTable = {"x-receipt-to": "told", "x-receipt-on": "consumed"}


def write(client: Client091, commands: Sequence[base.Frame], channel: int = 1) -> None:
    """Send all methods in a single piece."""
    client.connection.receive(b"".join(method_bytes(command, channel) for command in commands))


def declarations(prefix: str = "q") -> list[base.Frame]:
    """Very many."""
    return [Queue.Declare(queue=f"{prefix}{number}") for number in range(MANY)]


def declared(client: Client091) -> list[str | None]:
    """Return the queues of the DeclareOk methods that a client received."""
    return [frame.queue for frame in client.frames() if isinstance(frame, Queue.DeclareOk)]


def test_requests_are_answered_in_order_over_several_turns(bench: BrokerBench) -> None:
    client = bench.open()
    write(client, declarations())
    answers = [declared(client)]
    while client.connection.wire.suspended:
        bench.clock.schedule.run()
        answers.append(declared(client))
    assert [name for turn in answers for name in turn] == [f"q{number}" for number in range(MANY)]
    assert max(len(turn) for turn in answers) <= TURN // METHOD + 1 < MANY
    assert len(answers) >= 5


def test_two_clients_take_turns(bench: BrokerBench) -> None:
    clients = [bench.open(), bench.open()]
    for number, client in enumerate(clients):
        write(client, declarations(f"{number}."))
    seen = []
    for _ in range(3):
        seen.append([len(declared(client)) for client in clients])
        bench.clock.schedule.run()
    assert all(count > 0 for turn in seen for count in turn)
    other = bench.open()
    write(other, [Queue.Declare(queue="other")])
    assert declared(other) == ["other"], "an ordinary client waits for nobody"
    bench.clock.advance(0)
    assert len(bench.broker.vhosts["/"].topology.queues) == 2 * MANY + 1


def test_publishes_keep_their_place_between_requests(bench: BrokerBench) -> None:
    client = bench.open()
    piece = b"".join(
        method_bytes(Queue.Declare(queue=f"q{number}"), 1)
        + publish_bytes(f"q{number}", b"%d" % number)
        + method_bytes(Basic.Get(queue=f"q{number}", no_ack=True), 1)
        for number in range(MANY)
    )
    client.connection.receive(piece[:-10])
    bench.clock.advance(0)
    client.connection.receive(piece[-10:])
    bench.clock.advance(0)
    names = [frame.name for frame in client.frames()]
    assert names == ["Queue.DeclareOk", "Basic.GetOk"] * MANY


def test_publishing_and_settling_ordinary_messages_takes_one_turn(bench: BrokerBench) -> None:
    client = bench.open()
    write(client, [Queue.Declare(queue="q")])
    client.connection.receive(publish_bytes("q", b"") * 3000)
    write(client, [Basic.Consume(queue="q")])
    bench.turns.run()
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert queue.unacked == 3000
    write(client, [Basic.Ack(tag) for tag in range(1, 3001)])
    assert (queue.unacked, client.connection.wire.suspended) == (0, False)


def test_receipts_count(bench: BrokerBench) -> None:
    client = bench.open()
    write(client, [Queue.Declare(queue=name) for name in ("q", "told")])
    count = 3 * int(TURN // RECEIPT)
    one = publish_bytes("q", b"", properties=Basic.Properties(headers=ASKS))
    client.connection.receive(one * count)
    assert client.connection.wire.suspended, "their headers were looked at"
    bench.clock.advance(0)
    write(client, [Basic.Consume(queue="q")])
    bench.turns.run()
    queues = bench.broker.vhosts["/"].topology.queues
    assert queues["q"].unacked == count
    write(client, [Basic.Ack(tag) for tag in range(1, count + 1)])
    assert 0 < queues["q"].unacked < count
    bench.clock.advance(0)
    assert (queues["q"].unacked, queues["told"].ready) == (0, count)


def test_a_message_for_very_many_queues_counts(bench: BrokerBench) -> None:
    client = bench.open()
    for number in range(100):
        client.send(Queue.Declare(queue=f"q{number}"), 1)
        client.send(Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), 1)
    count = 2 * int(TURN // (100 // QUEUES))
    one = method_bytes(Basic.Publish(exchange="amq.fanout"), 1) + header_bytes(0, None, 1)
    client.connection.receive(one * count)
    queue = bench.broker.vhosts["/"].topology.queues["q99"]
    assert 0 < queue.ready < count
    bench.clock.advance(0)
    assert queue.ready == count


def test_dead_letters_count(bench: BrokerBench) -> None:
    client = bench.open()
    dead: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    write(client, [Queue.Declare(queue="q", arguments=dead), Queue.Declare(queue="dead")])
    client.connection.receive(publish_bytes("q", b"") * 1000)
    write(client, [Basic.Consume(queue="q")])
    bench.turns.run()
    write(client, [Basic.Reject(tag, False) for tag in range(1, 1001)])
    queues = bench.broker.vhosts["/"].topology.queues
    assert 0 < queues["dead"].ready < TURN // METHOD
    bench.clock.advance(0)
    assert queues["dead"].ready == 1000


def test_large_queues_that_are_deleted_or_purged_count(bench: BrokerBench) -> None:
    client = bench.open()
    names = [f"q{number}" for number in range(8)]
    for command in (Queue.Purge, Queue.Delete):
        write(client, [Queue.Declare(queue=name) for name in names])
        for name in names:
            client.connection.receive(publish_bytes(name, b"") * 4000)
        client.frames()
        write(client, [command(queue=name) for name in names])
        assert 0 < len(client.frames()) < len(names)
        bench.clock.advance(0)
        assert 0 < len(client.frames()) < len(names)


def test_a_refusal_ends_the_channel_and_no_other(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Channel.Open(), 2)
    client.frames()
    commands = declarations()
    commands[MANY // 2] = Queue.Declare(queue="absent", passive=True)
    piece = [method_bytes(command, 1) for command in commands]
    piece += [method_bytes(Queue.Declare(queue="last"), 2)]
    client.connection.receive(b"".join(piece))
    bench.clock.advance(0)
    names = [frame.name for frame in client.frames()]
    assert names == ["Queue.DeclareOk"] * (MANY // 2) + ["Channel.Close", "Queue.DeclareOk"]


def test_bytes_behind_a_long_request_are_read_up_to_a_limit(bench: BrokerBench) -> None:
    client = bench.open()
    write(client, declarations("more"))
    client.connection.receive(publish_bytes("more", b"x" * 100_000) * 8)
    bench.clock.schedule.run()
    assert (client.connection.wire.suspended, client.edge.holds) == (True, 0)
    client.connection.receive(publish_bytes("more", b"x" * 100_000) * 8)
    bench.clock.schedule.run()
    assert client.edge.holds == HELD_FOR_STEP
    bench.clock.advance(0)
    assert (client.connection.wire.suspended, client.edge.holds) == (False, 0)


def test_requests_received_before_the_socket_is_lost_are_done(bench: BrokerBench) -> None:
    client = bench.open()
    write(client, declarations("lost"))
    client.connection.on_lost("reset")
    assert client.connection.is_open()
    bench.clock.advance(0)
    assert len(bench.broker.vhosts["/"].topology.queues) == len(declarations("lost"))
    assert not client.connection.is_open()


def test_a_connection_that_ends_does_not_run_the_rest(bench: BrokerBench) -> None:
    for end in ("closed", "broken"):
        client = bench.open()
        write(client, declarations(end))
        there = len(bench.broker.vhosts["/"].topology.queues)
        if end == "closed":
            client.connection.force_close("enough")
        else:
            client.connection.internal_error()
        client.edge.written.clear()
        bench.clock.advance(0)
        assert len(bench.broker.vhosts["/"].topology.queues) == there
        assert not client.edge.written


def test_connection_close_behind_long_requests_is_answered_last(bench: BrokerBench) -> None:
    client = bench.open()
    ending = method_bytes(Connection.Close(200, "bye", 0, 0))
    client.connection.receive(b"".join(method_bytes(each, 1) for each in declarations()) + ending)
    bench.clock.advance(0)
    frames = client.frames()
    assert len(frames) == MANY + 1
    assert isinstance(frames[-1], Connection.CloseOk)


def test_a_get_that_waits_keeps_its_place(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Channel.Open(), 2)
    write(client, [Queue.Declare(queue="empty", arguments={"x-get-wait": 1})])
    client.frames()
    piece = [method_bytes(Basic.Get(queue="empty"), 1), method_bytes(Queue.Declare(queue="behind"), 1)]
    piece += [method_bytes(command, 2) for command in declarations()]
    piece += [method_bytes(Queue.Declare(queue="last"), 1)]
    client.connection.receive(b"".join(piece))
    bench.clock.now += 1
    bench.clock.advance(0)
    frames = client.frames()
    first = [frame.name for frame in frames].index("Basic.GetEmpty")
    behind = [frame.queue for frame in frames[first:] if isinstance(frame, Queue.DeclareOk)]
    assert (behind[0], behind[-1], len(frames)) == ("behind", "last", MANY + 3)


def test_frames_behind_the_handshake_share_the_limit_of_one_turn(bench: BrokerBench) -> None:
    client = bench.connect()
    client.frames()
    steps = [
        Connection.StartOk({}, "PLAIN", "\0guest\0guest"),
        Connection.TuneOk(2047, 131072, 0),
        Connection.Open("/"),
    ]
    piece = [method_bytes(step) for step in steps] + [method_bytes(Channel.Open(), 1)]
    piece += [method_bytes(command, 1) for command in declarations()]
    client.connection.receive(b"".join(piece))
    assert 0 < len(bench.broker.vhosts["/"].topology.queues) < MANY
    bench.clock.advance(0)
    assert len(bench.broker.vhosts["/"].topology.queues) == MANY
