"""Brokers without sockets that are each other's upstreams, moved by a hand clock."""

from collections.abc import Callable
from typing import Any

from pamqp import frame, header
from pamqp.commands import Basic, Queue

from broker.core.policies.policy import parse_policy
from broker.core.queues.queue import Queue as CoreQueue
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.federation import Federation, FederationLink
from broker.forwarding.line import Line, Peer
from broker.forwarding.local import LocalLine
from broker.forwarding.staged import StagingHost
from broker.forwarding.upstream import COMPONENTS
from broker.forwarding.uri import Uri
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import BODY, frame_bytes, method_bytes
from tests.support.core.hand_clock import HandClock
from tests.support.forwarding import DeadLine


def url(host: str) -> str:
    return f"amqp://guest:guest@{host}/%2F"


class Dialing:
    """The dialer of one of the brokers."""

    def __init__(self, federations: "Federations", name: str) -> None:
        self._federations = federations
        self._name = name

    def dial(self, uri: Uri, peer: Peer, name: str) -> Line:
        federations = self._federations
        if uri.host in federations.down:
            return DeadLine(federations.clock, peer, federations.down[uri.host])
        bench = federations.brokers[uri.host or self._name]
        line = LocalLine(bench.server, bench.turns, uri, peer, name, federations.forget)
        federations.lines[line] = uri.host
        return line

    def make_nonce(self) -> str:
        return "nonce"

    def compute(self, work: Callable[[], bytes], done: Callable[[bytes], None]) -> None:
        done(work())


class Federations:
    """Brokers with the given names, and the federation of each.

    `down`: why a broker cannot be reached.
    """

    def __init__(self, *names: str) -> None:
        self.clock = HandClock()
        self.brokers = {name: BrokerBench(schedule=self.clock.schedule) for name in names}
        self.down: dict[str, str] = {}
        self.lines: dict[LocalLine, str] = {}
        self.of: dict[str, Federation] = {}
        for name, bench in self.brokers.items():
            bench.broker.node = name
            staging = StagingHost(bench.broker, bench.turns, bench.server.conversions, name)
            self.of[name] = Federation(bench.broker, Dialing(self, name), "1.0", staging)
            self.of[name].start()

    def forget(self, line: LocalLine) -> None:
        self.lines.pop(line, None)

    def cut(self, host: str) -> None:
        """End all connections to a broker, which cannot be reached from now on."""
        self.down[host] = "Connection refused"
        for line, to in list(self.lines.items()):
            if to == host:
                peer = line._peer
                line.abort()
                if peer is not None:
                    peer.on_lost("reset")
        self.run()

    def run(self, milliseconds: int = 0) -> None:
        """Do everything that is due, and what follows from it, while time passes."""
        self._settle()
        self.clock.advance(milliseconds, self._settle)
        before = -1
        while before != self._progress():
            before = self._progress()
            self.clock.advance(0, self._settle)

    def _settle(self) -> None:
        for bench in self.brokers.values():
            bench.turns.run()
            bench.store.complete()
            bench.turns.run()

    def _progress(self) -> int:
        appended = sum(len(bench.store.appended) for bench in self.brokers.values())
        return len(self.clock.wakes) + appended

    def vhost(self, broker: str, name: str = "/") -> VirtualHost:
        return self.brokers[broker].broker.declare_vhost(name)

    def set(self, broker: str, component: str, name: str, value: object, vhost: str = "/") -> None:
        """Set a parameter, as the API does."""
        COMPONENTS[component](vhost, name, value)
        self.vhost(broker, vhost).parameters.set(component, name, value)

    def upstream(self, broker: str, name: str, vhost: str = "/", **fields: object) -> None:
        """Make the broker `name` an upstream of `broker`."""
        value: dict[str, object] = {"uri": url(name)}
        value |= {field.replace("_", "-"): each for field, each in fields.items()}
        self.set(broker, "federation-upstream", name, value, vhost)

    def policy(
        self, broker: str, pattern: str, apply_to: str = "all", name: str = "p", vhost: str = "/", **keys: str
    ) -> None:
        """Set a policy; underscores in the names of keys are hyphens. Without keys: the set of all."""
        definition = {key.replace("_", "-"): value for key, value in keys.items()}
        definition = definition or {"federation-upstream-set": "all"}
        policies = self.vhost(broker, vhost).policies
        policies.set(parse_policy(vhost, name, pattern, definition, 0, apply_to, False))

    def exchange(self, broker: str, name: str, kind: str = "topic", vhost: str = "/") -> None:
        self.vhost(broker, vhost).declarations.declare_exchange(name, kind, True, False, False, {})

    def queue(self, broker: str, name: str, vhost: str = "/", **arguments: object) -> CoreQueue:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost(broker, vhost).declarations.declare_queue(name, True, None, False, named)

    def bind(
        self, broker: str, queue: str, exchange: str, key: str = "", vhost: str = "/", **arguments: object
    ) -> None:
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.vhost(broker, vhost).declarations.bind_queue(queue, exchange, key, named)

    def unbind(self, broker: str, queue: str, exchange: str, key: str = "") -> None:
        self.vhost(broker).declarations.unbind_queue(queue, exchange, key, {})

    def publish(
        self, broker: str, exchange: str, key: str, payload: bytes, properties: Basic.Properties | None = None
    ) -> None:
        client = self.brokers[broker].open()
        client.connection.receive(method_bytes(Basic.Publish(0, exchange, key), 1))
        head = header.ContentHeader(0, len(payload), properties or Basic.Properties(delivery_mode=2))
        client.connection.receive(frame.marshal(head, 1))
        for start in range(0, len(payload), 100_000):
            client.connection.receive(frame_bytes(BODY, 1, payload[start : start + 100_000]))
        client.connection.on_lost("")
        self.run()

    def consume(self, broker: str, queue: str, prefetch: int = 0, priority: int = 0) -> Client091:
        """A client that consumes a queue."""
        client = self.brokers[broker].open()
        client.send(Basic.Qos(0, prefetch, False), 1)
        client.send(Basic.Consume(0, queue, "", arguments={"x-priority": priority}), 1)
        self.run()
        return client

    def bodies(self, broker: str, queue: str, vhost: str = "/") -> list[bytes]:
        entries = list(self.vhost(broker, vhost).topology.queues[queue].entries)
        return [body(entry.message.content or b"") for entry in entries]

    def headers(self, broker: str, queue: str, number: int = 0) -> dict[str, Any]:
        entry = list(self.vhost(broker).topology.queues[queue].entries)[number]
        return Properties(entry.message.content or b"").headers()

    def empty(self, broker: str, queue: str) -> None:
        client = self.brokers[broker].open()
        client.send(Queue.Purge(0, queue), 1)
        self.run()
        client.connection.on_lost("")

    def links(self, broker: str) -> list[FederationLink]:
        return list(self.of[broker].all())

    def internal(self, broker: str, vhost: str = "/") -> list[str]:
        """The exchanges that links have made at a broker."""
        return [
            name for name in self.vhost(broker, vhost).topology.exchanges if name.startswith("federation:")
        ]

    def bound(self, broker: str, exchange: str) -> list[str]:
        """The routing keys of the bindings from an exchange to exchanges of links."""
        topology = self.vhost(broker).topology
        return sorted(
            binding.routing_key
            for binding in topology.exchanges[exchange].bindings()
            if binding.destination_name.startswith("federation:")
        )
