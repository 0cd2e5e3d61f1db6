"""A client that asks for very much at once has it done in turns, in its order; others have theirs between."""

from collections.abc import Sequence

from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.common import FieldTable

from broker.adapters.peers.connections import HELD_FOR_STEP
from broker.core.schedule import METHOD, QUEUES, RECEIPT, TURN
from tests.support.adapters.connection_without_socket import House, Wired
from tests.support.amqp091.frames import header_bytes, method_bytes, publish_bytes

MANY = 5 * int(TURN // METHOD)  # methods that take some turns
ASKS: FieldTable = {"x-receipt-to": "told", "x-receipt-on": "consumed"}


def write(client: Wired, commands: Sequence[base.Frame], channel: int = 1) -> None:
    """All of them in one piece."""
    client.connection.receive(b"".join(method_bytes(command, channel) for command in commands))


def declarations(prefix: str = "q") -> list[base.Frame]:
    """Very many."""
    return [Queue.Declare(queue=f"{prefix}{number}") for number in range(MANY)]


def declared(client: Wired) -> list[str | None]:
    """The queues of which a client has been told."""
    return [frame.queue for frame in client.frames() if isinstance(frame, Queue.DeclareOk)]


def test_they_are_answered_in_turns_and_in_order(house: House) -> None:
    client = house.open()
    write(client, declarations())
    answers = [declared(client)]
    while client.connection.wire.suspended:
        house.clock.schedule.run()
        answers.append(declared(client))
    assert [name for turn in answers for name in turn] == [f"q{number}" for number in range(MANY)]
    assert max(len(turn) for turn in answers) <= TURN // METHOD + 1 < MANY
    assert len(answers) >= 5


def test_two_clients_take_turns(house: House) -> None:
    clients = [house.open(), house.open()]
    for number, client in enumerate(clients):
        write(client, declarations(f"{number}."))
    seen = []
    for _ in range(3):
        seen.append([len(declared(client)) for client in clients])
        house.clock.schedule.run()
    assert all(count > 0 for turn in seen for count in turn)
    other = house.open()
    write(other, [Queue.Declare(queue="other")])
    assert declared(other) == ["other"], "an ordinary client waits for nobody"
    house.clock.advance(0)
    assert len(house.broker.vhosts["/"].queues) == 2 * MANY + 1


def test_what_is_published_stays_between(house: House) -> None:
    client = house.open()
    piece = b"".join(
        method_bytes(Queue.Declare(queue=f"q{number}"), 1)
        + publish_bytes(f"q{number}", b"%d" % number)
        + method_bytes(Basic.Get(queue=f"q{number}", no_ack=True), 1)
        for number in range(MANY)
    )
    client.connection.receive(piece[:-10])
    house.clock.advance(0)
    client.connection.receive(piece[-10:])
    house.clock.advance(0)
    names = [frame.name for frame in client.frames()]
    assert names == ["Queue.DeclareOk", "Basic.GetOk"] * MANY


def test_publishing_and_settling_ordinary_messages_takes_one_turn(house: House) -> None:
    client = house.open()
    write(client, [Queue.Declare(queue="q")])
    client.connection.receive(publish_bytes("q", b"") * 3000)
    write(client, [Basic.Consume(queue="q")])
    house.turns.run()
    queue = house.broker.vhosts["/"].queues["q"]
    assert queue.unacked == 3000
    write(client, [Basic.Ack(tag) for tag in range(1, 3001)])
    assert (queue.unacked, client.connection.wire.suspended) == (0, False)


def test_receipts_count(house: House) -> None:
    client = house.open()
    write(client, [Queue.Declare(queue=name) for name in ("q", "told")])
    count = 3 * int(TURN // RECEIPT)
    one = publish_bytes("q", b"", properties=Basic.Properties(headers=ASKS))
    client.connection.receive(one * count)
    assert client.connection.wire.suspended, "their headers were looked at"
    house.clock.advance(0)
    write(client, [Basic.Consume(queue="q")])
    house.turns.run()
    queues = house.broker.vhosts["/"].queues
    assert queues["q"].unacked == count
    write(client, [Basic.Ack(tag) for tag in range(1, count + 1)])
    assert 0 < queues["q"].unacked < count
    house.clock.advance(0)
    assert (queues["q"].unacked, queues["told"].ready) == (0, count)


def test_a_message_for_very_many_queues_counts(house: House) -> None:
    client = house.open()
    for number in range(100):
        client.send(Queue.Declare(queue=f"q{number}"), 1)
        client.send(Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), 1)
    count = 2 * int(TURN // (100 // QUEUES))
    one = method_bytes(Basic.Publish(exchange="amq.fanout"), 1) + header_bytes(0, None, 1)
    client.connection.receive(one * count)
    queue = house.broker.vhosts["/"].queues["q99"]
    assert 0 < queue.ready < count
    house.clock.advance(0)
    assert queue.ready == count


def test_dead_letters_count(house: House) -> None:
    client = house.open()
    dead: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    write(client, [Queue.Declare(queue="q", arguments=dead), Queue.Declare(queue="dead")])
    client.connection.receive(publish_bytes("q", b"") * 1000)
    write(client, [Basic.Consume(queue="q")])
    house.turns.run()
    write(client, [Basic.Reject(tag, False) for tag in range(1, 1001)])
    queues = house.broker.vhosts["/"].queues
    assert 0 < queues["dead"].ready < TURN // METHOD
    house.clock.advance(0)
    assert queues["dead"].ready == 1000


def test_large_queues_that_are_deleted_or_purged_count(house: House) -> None:
    client = house.open()
    names = [f"q{number}" for number in range(8)]
    for command in (Queue.Purge, Queue.Delete):
        write(client, [Queue.Declare(queue=name) for name in names])
        for name in names:
            client.connection.receive(publish_bytes(name, b"") * 4000)
        client.frames()
        write(client, [command(queue=name) for name in names])
        assert 0 < len(client.frames()) < len(names)
        house.clock.advance(0)
        assert 0 < len(client.frames()) < len(names)


def test_a_refusal_ends_the_channel_and_no_other(house: House) -> None:
    client = house.open()
    client.send(Channel.Open(), 2)
    client.frames()
    commands = declarations()
    commands[MANY // 2] = Queue.Declare(queue="absent", passive=True)
    piece = [method_bytes(command, 1) for command in commands]
    piece += [method_bytes(Queue.Declare(queue="last"), 2)]
    client.connection.receive(b"".join(piece))
    house.clock.advance(0)
    names = [frame.name for frame in client.frames()]
    assert names == ["Queue.DeclareOk"] * (MANY // 2) + ["Channel.Close", "Queue.DeclareOk"]


def test_what_is_behind_it_is_read_on_until_that_is_much(house: House) -> None:
    client = house.open()
    write(client, declarations("more"))
    client.connection.receive(publish_bytes("more", b"x" * 100_000) * 8)
    house.clock.schedule.run()
    assert (client.connection.wire.suspended, client.edge.holds) == (True, 0)
    client.connection.receive(publish_bytes("more", b"x" * 100_000) * 8)
    house.clock.schedule.run()
    assert client.edge.holds == HELD_FOR_STEP
    house.clock.advance(0)
    assert (client.connection.wire.suspended, client.edge.holds) == (False, 0)


def test_what_was_received_is_done_when_the_socket_has_gone(house: House) -> None:
    client = house.open()
    write(client, declarations("lost"))
    client.connection.lost("reset")
    assert client.connection.is_open()
    house.clock.advance(0)
    assert len(house.broker.vhosts["/"].queues) == len(declarations("lost"))
    assert not client.connection.is_open()


def test_a_connection_that_ends_does_not_run_the_rest(house: House) -> None:
    for end in ("closed", "broken"):
        client = house.open()
        write(client, declarations(end))
        there = len(house.broker.vhosts["/"].queues)
        if end == "closed":
            client.connection.force_close("enough")
        else:
            client.connection.internal_error()
        client.edge.written.clear()
        house.clock.advance(0)
        assert len(house.broker.vhosts["/"].queues) == there
        assert not client.edge.written


def test_a_client_that_closes_behind_it_is_answered_last(house: House) -> None:
    client = house.open()
    ending = method_bytes(Connection.Close(200, "bye", 0, 0))
    client.connection.receive(b"".join(method_bytes(each, 1) for each in declarations()) + ending)
    house.clock.advance(0)
    frames = client.frames()
    assert len(frames) == MANY + 1
    assert isinstance(frames[-1], Connection.CloseOk)


def test_a_get_that_waits_keeps_its_place(house: House) -> None:
    client = house.open()
    client.send(Channel.Open(), 2)
    write(client, [Queue.Declare(queue="empty", arguments={"x-get-wait": 1})])
    client.frames()
    piece = [method_bytes(Basic.Get(queue="empty"), 1), method_bytes(Queue.Declare(queue="behind"), 1)]
    piece += [method_bytes(command, 2) for command in declarations()]
    piece += [method_bytes(Queue.Declare(queue="last"), 1)]
    client.connection.receive(b"".join(piece))
    house.clock.now += 1
    house.clock.advance(0)
    frames = client.frames()
    first = [frame.name for frame in frames].index("Basic.GetEmpty")
    behind = [frame.queue for frame in frames[first:] if isinstance(frame, Queue.DeclareOk)]
    assert (behind[0], behind[-1], len(frames)) == ("behind", "last", MANY + 3)


def test_a_stranger_has_no_more_than_others(house: House) -> None:
    client = house.connect()
    client.frames()
    steps = [
        Connection.StartOk({}, "PLAIN", "\0guest\0guest"),
        Connection.TuneOk(2047, 131072, 0),
        Connection.Open("/"),
    ]
    piece = [method_bytes(step) for step in steps] + [method_bytes(Channel.Open(), 1)]
    piece += [method_bytes(command, 1) for command in declarations()]
    client.connection.receive(b"".join(piece))
    assert 0 < len(house.broker.vhosts["/"].queues) < MANY
    house.clock.advance(0)
    assert len(house.broker.vhosts["/"].queues) == MANY
