"""An event loop without sockets that knows how long its turns are, and a broker that runs on it."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pamqp import base
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from broker.core.queues.queue import Queue as CoreQueue
from broker.core.schedule import NS_PER_MS, Schedule
from broker.net.pump import Pump
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import publish_bytes

CHUNK: Final = 1000  # messages that a client sends in one piece


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure. `limit`: its maximum, if there is any."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    def line(self) -> str:
        """Return the printed line."""
        bound = "" if self.limit is None else f"{self.limit:g}"
        verdict = "" if self.limit is None else ("met" if self.value <= self.limit else "MISSED")
        return f"{self.name:<62} {self.value:>12,.3f} {self.unit:<10} {bound:>8} {verdict}"


class Loop:
    """A loop with a call in each turn. `longest`: CPU seconds of the longest turn since `restart`."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._ahead = 0  # milliseconds that the clock was moved by
        self._due = 0  # when the schedule wants to run; 0: never
        self.longest = 0.0
        self.turns = 0
        self.schedule = Schedule(
            lambda: time.monotonic_ns() + self._ahead * NS_PER_MS,
            lambda: time.time_ns() + self._ahead * NS_PER_MS,
            self._wake,
        )
        self.pump = Pump(self._calls.append, time.perf_counter)

    def now(self) -> int:
        """Milliseconds of the clock."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def date(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self._ahead

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self._ahead += milliseconds

    def restart(self) -> None:
        """Count turns anew."""
        self.longest = 0.0
        self.turns = 0

    def turn(self, call: Callable[[], None]) -> float:
        """Run a turn of the loop; return its CPU time in seconds."""
        began = time.thread_time()
        call()
        took = time.thread_time() - began
        self.longest = max(self.longest, took)
        self.turns += 1
        return took

    def step(self) -> bool:
        """The next turn; False if there is nothing to do now."""
        if self._due and self._due <= self.now():
            self._due = 0
            self.turn(self.schedule.run)
            return True
        if not self._calls:
            return False
        self.turn(self._calls.popleft())
        return True

    def run(self) -> None:
        """Turns until there is nothing to do now."""
        while self.step():
            pass

    def _wake(self, due: int) -> None:
        self._due = due


class LoopBench(BrokerBench):
    """A broker on a Loop, whose clients write into lists."""

    def __init__(self) -> None:
        self.loop = Loop()
        super().__init__(schedule=self.loop.schedule, scheduler=self.loop.pump)

    def declare(self, name: str, **arguments: object) -> CoreQueue:
        """Declare a queue; `message_ttl=5` is its x-message-ttl, and so on."""
        client = self.open()
        held: FieldTable = {}
        for key, value in arguments.items():
            held[f"x-{key.replace('_', '-')}"] = value  # type: ignore[assignment]
        client.send(Queue.Declare(queue=name, arguments=held), 1)
        client.frames()
        return self.broker.vhosts["/"].topology.queues[name]

    def fill(
        self, client: Client091, queue: str, count: int, headers: Callable[[int], FieldTable] | None = None
    ) -> None:
        """Have `client` publish `count` messages of 100 B."""
        body = b"x" * 100
        one = publish_bytes(queue, body)
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            data = (
                one * len(numbers)
                if headers is None
                else b"".join(
                    publish_bytes(queue, body, properties=Basic.Properties(headers=headers(n)))
                    for n in numbers
                )
            )
            self.loop.turn(lambda data=data: client.connection.receive(data))  # type: ignore[misc]
            self.loop.run()

    def consumer(
        self, queue: str, prefetch: int = 0, arguments: FieldTable | None = None, no_ack: bool = False
    ) -> Client091:
        """A client that consumes."""
        client = self.open()
        if prefetch:
            client.send(Basic.Qos(0, prefetch, False), 1)
        self.ask(
            client, Basic.Consume(queue=queue, consumer_tag="c", no_ack=no_ack, arguments=arguments or {})
        )
        return client

    def ask(self, client: Client091, command: base.Frame) -> float:
        """Send a method on channel 1 in a turn of its own; return the turn's CPU time in seconds."""
        return self.loop.turn(lambda: client.send(command, 1))
