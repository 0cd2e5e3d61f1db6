"""What clients and operators can ask for in one step that is a lot of work: how long the longest turn is."""

from typing import Final

from pamqp.commands import Basic, Channel, Connection

from tests.bench.loop import Figure, Site
from tests.frames import publish_bytes
from tests.wired import CAPABILITIES, Wired

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
    broker.left.append(site.server.connections.vhost_left)
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


def _longest(site: Site, what: str) -> Figure:
    return Figure(f"{what}: longest of {site.loop.turns} turns", site.loop.longest * 1e3, "ms", 10)
