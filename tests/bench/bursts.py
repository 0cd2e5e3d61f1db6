"""The longest loop turn while clients or operators request much work in a single step."""

from typing import Final

from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.common import FieldTable

from tests.bench.loop import Figure, LoopBench
from tests.support.adapters.connection_without_socket import CAPABILITIES, Client091
from tests.support.amqp091.frames import method_bytes, publish_bytes

VHOST: Final = "leaving"


def vhost(scale: float) -> list[Figure]:
    """A virtual host with 10,000 queues is deleted, each with two bindings, a consumer and ten messages."""
    count = int(10_000 * scale)
    figures = []
    for clients in (1, 1000):
        bench = LoopBench()
        opened = _fill(bench, count, clients)
        what = f"deleting a vhost of {count:,} queues, {clients:,} clients"
        bench.loop.restart()
        taken = bench.loop.turn(lambda broker=bench.broker: broker.delete_vhost(VHOST))  # type: ignore[misc]
        figures.append(Figure(f"{what}: answer", taken * 1e3, "ms", 10))
        bench.loop.run()
        assert all(client.edge.written.count(b"CONNECTION_FORCED") == 1 for client in opened)
        figures.append(_longest(bench, what))
    return figures


def _fill(bench: LoopBench, count: int, clients: int) -> list[Client091]:
    """Make the virtual host; returns its clients, who share the consumers."""
    broker = bench.broker
    broker.leaving.append(bench.server.connections.on_vhost_deleted)
    broker.left.append(bench.server.connections.on_vhost_released)
    there = broker.declare_vhost(VHOST)
    there.declarations.declare_exchange("x", "topic", True, False, False, {})
    opened = [_open(bench) for _ in range(clients)]
    for number in range(count):
        arguments: dict[str, object] = {"x-message-ttl": 3_600_000} if number % 2 else {}
        name = f"q{number}"
        there.declarations.declare_queue(name, True, None, False, arguments)
        for key in (name, "all"):
            there.declarations.bind_queue(name, "x", key, {})
        client = opened[number % clients]
        client.connection.receive(publish_bytes(name, b"x" * 10) * 10)
        client.send(Basic.Consume(queue=name, consumer_tag=name), 1)
    bench.loop.run()
    for client in opened:
        client.edge.written.clear()
    return opened


def _open(bench: LoopBench) -> Client091:
    client = bench.connect()
    client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, 131072, 0))
    client.send(Connection.Open(VHOST))
    client.send(Channel.Open(), 1)
    return client


def declarations(scale: float) -> list[Figure]:
    """A client declares 6,000 queues in a single write, then binds and deletes them."""
    count = int(6000 * scale)
    bench = LoopBench()
    client = bench.open()
    figures = []
    for what, commands in (
        ("declarations", [Queue.Declare(queue=f"q{n}") for n in range(count)]),
        (
            "bindings",
            [Queue.Bind(queue=f"q{n}", exchange="amq.topic", routing_key=f"a.{n}") for n in range(count)],
        ),
        ("requests to get", [Basic.Get(queue=f"q{n}") for n in range(count)]),
        ("consumers", [Basic.Consume(queue=f"q{n}") for n in range(count)]),
        ("deletions", [Queue.Delete(queue=f"q{n}") for n in range(count)]),
    ):
        data = b"".join(method_bytes(command, 1) for command in commands)
        bench.loop.restart()
        bench.loop.turn(lambda data=data: client.connection.receive(data))  # type: ignore[misc]
        bench.loop.run()
        answers = [answer for answer in client.frames() if not isinstance(answer, Basic.Cancel)]
        assert len(answers) == count, (what, len(answers))
        figures.append(_longest(bench, f"{count:,} {what} in one write"))
    return figures


def receipts(scale: float) -> list[Figure]:
    """10,000 acknowledgements in a single write, each of a message with a receipt; rejections, too."""
    count = int(10_000 * scale)
    asks: FieldTable = {"x-receipt-to": "told", "x-receipt-on": "consumed"}
    acks = b"".join(method_bytes(Basic.Ack(tag), 1) for tag in range(1, count + 1))
    rejects = b"".join(method_bytes(Basic.Reject(tag, False), 1) for tag in range(1, count + 1))
    return [
        _settled(f"{count:,} acknowledgements with receipts", count, asks, acks),
        _settled(f"{count:,} messages rejected and dead-lettered", count, {}, rejects),
    ]


def _settled(what: str, count: int, headers: FieldTable, data: bytes) -> Figure:
    """A client settles all its deliveries in a single write; each settlement brings another message."""
    bench = LoopBench()
    bench.declare("q", dead_letter_exchange="", dead_letter_routing_key="told")
    notified = bench.declare("told")
    bench.fill(bench.open(), "q", count, lambda n: headers)
    client = bench.consumer("q")
    bench.loop.run()
    bench.loop.restart()
    bench.loop.turn(lambda: client.connection.receive(data))
    bench.loop.run()
    assert notified.ready == count
    return _longest(bench, f"{what} in one write")


def _longest(bench: LoopBench, what: str) -> Figure:
    return Figure(f"{what}: longest of {bench.loop.turns} turns", bench.loop.longest * 1e3, "ms", 10)
