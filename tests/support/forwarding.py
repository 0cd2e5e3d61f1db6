"""Brokers without sockets, and shovels between them, moved by a hand clock."""

from collections.abc import Callable

from pamqp.commands import Queue

from broker.core.schedule import TimedTask
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.ends import EndHost
from broker.forwarding.line import Line, Peer
from broker.forwarding.local import LocalLine
from broker.forwarding.readers import Readers
from broker.forwarding.remote_queues import RemoteQueues
from broker.forwarding.shovel import Shovel
from broker.forwarding.shovels import Shovels
from broker.forwarding.staged import StagingHost
from broker.forwarding.uri import Uri
from protocol.amqp091.content import body
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.core.hand_clock import HandClock

OTHER = "amqp://guest:guest@other/%2F"


class DeadLine(TimedTask):
    """A line that is refused in the next step, or never made."""

    frame_max = 0

    def __init__(self, clock: HandClock, peer: Peer, reason: str) -> None:
        super().__init__()
        self._peer: Peer | None = peer
        self._reason = reason
        if reason:
            clock.schedule.set(self, clock.now)

    def do_due_work(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.on_lost(self._reason)

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written before the line is connected")

    def hold(self) -> None:
        """Nothing comes."""

    def release(self) -> None:
        """Nothing comes."""

    def close(self) -> None:
        self._peer = None

    def abort(self) -> None:
        self._peer = None


class BrokenLine(DeadLine):
    """A line that fails when the peer writes, as no line does."""

    def do_due_work(self) -> None:
        if self._peer is not None:
            self._peer.on_connected()

    def write(self, data: bytes) -> None:
        raise RuntimeError("broken")


class StuckLine:
    """A line whose last output nobody takes, so that only `abort` ends the line.

    `jams`: no output is taken. `room`: so many bytes are taken. `largest`: the bytes of the largest write.
    """

    jams = False
    room = 2**62
    largest = 0

    def __init__(self, line: LocalLine) -> None:
        self.frame_max = line.frame_max
        self.hold = line.hold
        self.release = line.release
        self.abort = line.abort
        self._line = line

    def write(self, data: bytes) -> None:
        self.largest = max(self.largest, len(data))
        self.room -= len(data)
        if not self.jams and self.room >= 0:
            self._line.write(data)

    def close(self) -> None:
        """The output is not taken."""


class Sites:
    """This broker, another one at the host `other`, and the shovels of this one.

    `down`: why a host cannot be reached; "": the attempt to connect never ends. `syncs`: batches of the
    hosts' logs are on disk at once. `stuck`: the lines to hosts that take no last output. A line to the host
    `broken` fails in ways that are errors of this broker.
    """

    def __init__(self) -> None:
        self.clock = HandClock()
        self.here = BrokerBench(schedule=self.clock.schedule)
        self.there = BrokerBench(schedule=self.clock.schedule)
        self.hosts = {"": self.here, "other": self.there}
        self.down: dict[str, str] = {}
        self.syncs = {"": True, "other": True}
        self.lines: set[LocalLine] = set()
        self.staging: dict[str, StagingHost] = {}
        self.stuck: dict[str, list[StuckLine]] = {}
        self.dialed: Callable[[str], object] = len  # called with each line of a source
        for name, bench in (("origin", self.here), ("distant", self.there)):
            staging = StagingHost(bench.broker, bench.turns, bench.server.conversions, name)
            bench.server.make_reader = Readers(staging)
            self.staging[name] = staging
        self.shovels = Shovels(self.here.broker, self, "1.0", self.staging["origin"])
        self.shovels.start()
        broker = self.here.broker
        ends = EndHost(
            self, self.clock.schedule, "1.0", self.here.server.conversions, lambda: broker.cluster_name
        )
        self.remotes = RemoteQueues(ends, self.staging["origin"])
        self.remotes.start()

    def dial(self, uri: Uri, peer: Peer, name: str) -> Line:
        if uri.host in self.down:
            return DeadLine(self.clock, peer, self.down[uri.host])
        if uri.host == "broken":
            return BrokenLine(self.clock, peer, "broken")
        bench = self.hosts[uri.host]
        line = LocalLine(bench.server, bench.turns, uri, peer, name, self.lines.discard)
        self.lines.add(line)
        if name.endswith("source"):
            self.dialed(name)
        if uri.host in self.stuck:
            self.stuck[uri.host].append(StuckLine(line))
            return self.stuck[uri.host][-1]
        return line

    def make_nonce(self) -> str:
        return "nonce"

    def compute(self, work: Callable[[], bytes], done: Callable[[bytes], None]) -> None:
        done(work())

    def run(self, milliseconds: int = 0) -> None:
        """Do everything that is due, and what follows from it, while time passes."""
        self._settle()
        self.clock.advance(milliseconds, self._settle)
        before = -1
        while before != self._progress():
            before = self._progress()
            self.clock.advance(0, self._settle)

    def _settle(self) -> None:
        for host, bench in self.hosts.items():
            bench.turns.run()
            if self.syncs[host]:
                bench.store.complete()
                bench.turns.run()

    def _progress(self) -> int:
        return len(self.clock.wakes) + sum(len(bench.store.appended) for bench in self.hosts.values())

    def vhost(self, host: str = "") -> VirtualHost:
        return self.hosts[host].broker.vhosts["/"]

    def queue(self, name: str, host: str = "", **arguments: object) -> None:
        """Declare a durable queue."""
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.vhost(host).declarations.declare_queue(name, True, None, False, named)

    def publish(self, queue: str, bodies: list[bytes], host: str = "") -> None:
        """Publish persistent messages."""
        client = self.hosts[host].open()
        for each in bodies:
            client.publish(queue, each, persistent=True)
        client.connection.on_lost("")
        self.run()

    def bodies(self, queue: str, host: str = "") -> list[bytes]:
        """The bodies in a queue."""
        entries = list(self.vhost(host).topology.queues[queue].entries)
        return [body(entry.message.content or b"") for entry in entries]

    def empty(self, queue: str, host: str = "") -> None:
        """Take all messages from a queue."""
        client = self.hosts[host].open()
        client.send(Queue.Purge(0, queue), 1)
        self.run()
        client.connection.on_lost("")

    def define(self, name: str = "s", **value: object) -> Shovel:
        """Define a shovel from the queue `out` here to the queue `in` there, with other fields."""
        self.define_later(name, **value)
        return self.shovels.existing("/", name)

    def define_later(self, name: str = "s", **value: object) -> None:
        """Define a shovel that starts with the others, if they have stopped."""
        fields: dict[str, object] = {
            "src-uri": "amqp://",
            "src-queue": "out",
            "dest-uri": OTHER,
            "dest-queue": "in",
        }
        fields |= {field.replace("_", "-"): each for field, each in value.items()}
        wanted = {field: each for field, each in fields.items() if each is not None}
        self.vhost().parameters.set("shovel", name, wanted)
