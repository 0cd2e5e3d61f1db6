"""The slices of time in which connections get their turns."""

from collections.abc import Callable
from itertools import count

import pytest
from mypy_extensions import i64
from pamqp.commands import Basic, Queue

from broker.core.delivery.session import Connection
from broker.net.pump import SLICE_SECONDS, Pump
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench

TURNS = 20  # in a slice


class Loop:
    """An event loop whose calls a test runs, with a clock by which a slice has `TURNS` turns."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        moments = count()
        self.pump = Pump(self.calls.append, lambda: next(moments) * SLICE_SECONDS / TURNS)

    def run_slice(self) -> None:
        """Run the only call that is due."""
        (call,) = self.calls
        self.calls.clear()
        call()


class Unfinished(Connection):
    """A connection that always has more to do, and whose output is written at the end of a slice."""

    def __init__(self, pump: Pump, fails: bool = False) -> None:
        super().__init__(pump)
        self.fails = fails
        self.writes = 0

    def pump(self, budget: i64) -> None:
        self.unwritten = True
        self.scheduled = False
        self.schedule()

    def write_output(self) -> None:
        super().write_output()
        self.writes += 1
        if self.fails:
            raise OSError("no more")


def test_each_slice_writes_the_output_of_each_connection_once() -> None:
    loop = Loop()
    connections = [Unfinished(loop.pump) for _ in range(3)]
    for connection in connections:
        connection.schedule()
    for slices in (1, 2):
        loop.run_slice()
        assert [connection.writes for connection in connections] == [slices] * 3


def test_a_connection_that_cannot_write_does_not_strand_the_others() -> None:
    loop = Loop()
    connections = [Unfinished(loop.pump, fails) for fails in (True, False, True)]
    for connection in connections:
        connection.schedule()
    for _ in range(2):
        with pytest.raises(OSError, match="no more"):
            loop.run_slice()
    assert all(connection.writes for connection in connections)


def test_a_slice_brings_messages_to_everybody() -> None:
    """A consumer alone on its connection would otherwise wait for 256 KiB of messages."""
    loop = Loop()
    bench = BrokerBench(scheduler=loop.pump)
    publisher, *consumers = [bench.open() for _ in range(3)]
    receiver = Client10(bench)
    publisher.send(Queue.Declare(queue="q", arguments={"x-consumers-before-dispatch": 3}), 1)
    for _ in range(100):
        publisher.publish("q")
    loop.calls.clear()
    for consumer in consumers:
        consumer.send(Basic.Consume(queue="q", no_ack=True), 1)
        consumer.frames()
    receiver.receives("q")
    loop.run_slice()
    assert loop.calls, "there are messages for another slice"
    assert all(Basic.Deliver in map(type, consumer.frames()) for consumer in consumers)
    assert receiver.written()
