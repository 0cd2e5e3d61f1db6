"""What clients and operators can ask for in one step that is a lot of work: how long the longest turn is."""

from typing import Final

from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.common import FieldTable

from tests.bench.loop import Figure, Site
from tests.support.adapters.connection_without_socket import CAPABILITIES, Wired
from tests.support.amqp091.frames import method_bytes, publish_bytes

VHOST: Final = "leaving"


def vhost(scale: float) -> list[Figure]:
    """A virtual host with 10,000 queues is deleted, each with two bindings, a consumer and ten messages."""
    count = int(10_000 * scale)
    figures = []
    for clients in (1, 1000):
        site = Site()
        opened = _fill(site, count, clients)
        what = f"deleting a vhost of {count:,} queues, {clients:,} clients"
        site.loop.restart()
        taken = site.loop.turn(lambda broker=site.broker: broker.delete_vhost(VHOST))  # type: ignore[misc]
        figures.append(Figure(f"{what}: answer", taken * 1e3, "ms", 10))
        site.loop.run()
        assert all(client.edge.written.count(b"CONNECTION_FORCED") == 1 for client in opened)
        figures.append(_longest(site, what))
    return figures


def _fill(site: Site, count: int, clients: int) -> list[Wired]:
    """Make the virtual host; returns its clients, who share the consumers."""
    broker = site.broker
    broker.leaving.append(site.server.connections.vhost_deleted)
    broker.left.append(site.server.connections.vhost_released)
    there = broker.declare_vhost(VHOST)
    there.declare_exchange("x", "topic", True, False, False, {})
    opened = [_open(site) for _ in range(clients)]
    for number in range(count):
        arguments: dict[str, object] = {"x-message-ttl": 3_600_000} if number % 2 else {}
        name = f"q{number}"
        there.declare_queue(name, True, None, False, arguments)
        for key in (name, "all"):
            there.bind_queue(name, "x", key, {})
        client = opened[number % clients]
        client.connection.receive(publish_bytes(name, b"x" * 10) * 10)
        client.send(Basic.Consume(queue=name, consumer_tag=name), 1)
    site.loop.run()
    for client in opened:
        client.edge.written.clear()
    return opened


def _open(site: Site) -> Wired:
    client = site.connect()
    client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, 131072, 0))
    client.send(Connection.Open(VHOST))
    client.send(Channel.Open(), 1)
    return client


def declarations(scale: float) -> list[Figure]:
    """6,000 queues are declared by one write of a client, then bound, then deleted."""
    count = int(6000 * scale)
    site = Site()
    client = site.open()
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
        site.loop.restart()
        site.loop.turn(lambda data=data: client.connection.receive(data))  # type: ignore[misc]
        site.loop.run()
        answers = [answer for answer in client.frames() if not isinstance(answer, Basic.Cancel)]
        assert len(answers) == count, (what, len(answers))
        figures.append(_longest(site, f"{count:,} {what} in one write"))
    return figures


def receipts(scale: float) -> list[Figure]:
    """10,000 acknowledgements in one write, each of a message that wants a receipt; rejections, too."""
    count = int(10_000 * scale)
    asks: FieldTable = {"x-receipt-to": "told", "x-receipt-on": "consumed"}
    acks = b"".join(method_bytes(Basic.Ack(tag), 1) for tag in range(1, count + 1))
    rejects = b"".join(method_bytes(Basic.Reject(tag, False), 1) for tag in range(1, count + 1))
    return [
        _settled(f"{count:,} acknowledgements with receipts", count, asks, acks),
        _settled(f"{count:,} messages rejected and dead-lettered", count, {}, rejects),
    ]


def _settled(what: str, count: int, headers: FieldTable, data: bytes) -> Figure:
    """A client settles all that it has by one write; each of them has another message come."""
    site = Site()
    site.declare("q", dead_letter_exchange="", dead_letter_routing_key="told")
    told = site.declare("told")
    site.fill(site.open(), "q", count, lambda n: headers)
    client = site.consumer("q")
    site.loop.run()
    site.loop.restart()
    site.loop.turn(lambda: client.connection.receive(data))
    site.loop.run()
    assert told.ready == count
    return _longest(site, f"{what} in one write")


def _longest(site: Site, what: str) -> Figure:
    return Figure(f"{what}: longest of {site.loop.turns} turns", site.loop.longest * 1e3, "ms", 10)
