"""The way of a message is short: the modules on the stack, traced in a broker that takes real messages."""

import json
import sys
from pathlib import Path
from typing import Final

import pytest
from pamqp.commands import Basic

from broker.flavour import FLAVOUR
from tests.support.amqp091.peer import Connector
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import begins
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = [
    pytest.mark.amqpd_only("the modules are amqpd's own"),
    pytest.mark.skipif(FLAVOUR == "compiled", reason="compiled modules cannot be traced"),
]

TRACER: Final = str(Path(__file__).parents[1] / "support" / "daemon" / "traced_daemon.py")
ENQUEUE: Final = "broker.core.queues.queue.enqueue"
WRITE: Final = "broker.net.transport.write"
DELIVER: Final = {
    "0-9-1": "broker.adapters.amqp091.deliver.deliver",
    "1.0": "broker.adapters.amqp10.target.deliver",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


@pytest.fixture
def traced(start_daemon: DaemonStarter, trace: Path) -> Daemon:
    """A broker that notes the way to the calls of interest."""
    calls = ",".join([ENQUEUE, WRITE, *DELIVER.values()])
    environment = {"TRACED_FILE": str(trace), "TRACED_CALLS": calls}
    return start_daemon(environment=environment, wrapper=(sys.executable, TRACER))


def ways(trace: Path) -> list[tuple[str, list[str]]]:
    return [(name, way) for name, way in map(json.loads, trace.read_text().splitlines())]


def the_way(found: list[tuple[str, list[str]]], call: str, first: str) -> list[str]:
    """Return the last recorded path to a call that begins in a module."""
    return [way for name, way in found if name == call and way[0] == first][-1]


def test_the_path_over_amqp_0_9_1(traced: Daemon, trace: Path, connect: Connector) -> None:
    consumer = connect(traced.address).channel()
    consumer.declare("q", durable=True)
    consumer.consume("q")
    publisher = connect(traced.address).channel()
    publisher.confirm_select()
    for number in range(3):  # the first ones find routes and targets
        publisher.publish(b"body", "q", properties=Basic.Properties(delivery_mode=2))
        publisher.expect_confirms(number + 1, number + 1)
        consumer.ack(consumer.delivery().tag)

    found = ways(trace)

    assert len(the_way(found, ENQUEUE, "broker.net.transport")) <= 9
    assert len(the_way(found, WRITE, "broker.store.sync")) <= 6
    assert len(the_way(found, DELIVER["0-9-1"], "broker.net.pump")) <= 5
    assert len(the_way(found, WRITE, "broker.net.pump")) <= 5


def test_the_path_over_amqp_1_0(traced: Daemon, trace: Path, connect: Connector, meet: Meet) -> None:
    connect(traced.address).channel().declare("q", durable=True)
    begin = begins(lambda: meet(traced.address))
    receiver, sender = begin(), begin()
    receiver.receives("/queues/q", 0, 10)
    sender.sends("/queues/q", 1)
    for number in range(3):
        sender.publish(1, 1, content10(durable=True), number)
        receiver.delivery()

    found = ways(trace)

    assert len(the_way(found, ENQUEUE, "broker.net.transport")) <= 13
    assert len(the_way(found, WRITE, "broker.store.sync")) <= 6
    assert len(the_way(found, DELIVER["1.0"], "broker.net.pump")) <= 7
    assert len(the_way(found, WRITE, "broker.net.pump")) <= 7
