"""Calls from queues into a connection do not call a queue again, except at the end of a snapshot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.common import FieldTable

from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp091.get import WaitingGet
from broker.core.delivery.session import PullingTarget
from broker.core.queues.attach import detach
from tests.support.adapters.connection_without_socket import CAPABILITIES, BrokerBench, Client091
from tests.support.amqp091.frames import publish_bytes
from tests.support.core.queue_entrances import ENTRANCES, names_by_code

CALLS = names_by_code(
    (
        PullingTarget.on_no_messages,
        Target091.deliver,
        Target091.on_acquisition_removed,
        Target091.on_consumer_cancelled,
        Target091.on_snapshot_end,
        Target091.on_activity_changed,
        WaitingGet.deliver,
        WaitingGet.on_acquisition_removed,
        WaitingGet.on_consumer_cancelled,
    )
)
CODES = names_by_code(ENTRANCES)
watchable = pytest.mark.skipif(not CALLS, reason="what is compiled does not tell what it calls")


class Watch:
    """Record the calls out of queues, and the entrances of queues that these calls use."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.caught: set[tuple[str, str]] = set()
        self._now: list[str] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self._told)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _told(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if code in CALLS and event == "call":
            self.called.add(CALLS[code])
            self._now.append(CALLS[code])
        elif code in CALLS and event == "return":
            self._now.pop()
        elif code in CODES and event == "call" and self._now:
            self.caught.add((self._now[-1], CODES[code]))


def consume(
    client: Client091, queue: str = "q", channel: int = 1, no_ack: bool = False, **options: str | bool
) -> None:
    """Arguments are given with underscores for dashes."""
    arguments: FieldTable = {f"x-{key.replace('_', '-')}": value for key, value in options.items()}
    client.send(Basic.Consume(queue=queue, no_ack=no_ack, arguments=arguments), channel)


def go_on(bench: BrokerBench) -> None:
    """Run all turns and alarms."""
    bench.turns.run()
    bench.clock.advance(0)
    bench.turns.run()


@watchable
def test_targets_do_not_call_back_into_the_queue_during_a_call(bench: BrokerBench) -> None:
    watch, client, other = Watch(), bench.open(), bench.open()
    with watch.on():
        for name in ("q", "notices", "empty"):
            client.send(Queue.Declare(queue=name, arguments={"x-get-wait": 1000, "x-delivery-limit": 3}), 1)
        for number in range(3):
            client.publish("q", b"m%d" % number)
        client.send(Basic.Qos(prefetch_count=2), 1)
        consume(client, notify_active="notices")
        consume(other, no_ack=True)
        consume(other, browse="snapshot")
        go_on(bench)
        client.send(Basic.Nack(1, requeue=True), 1)
        client.send(Basic.Recover(requeue=False), 1)
        go_on(bench)
        client.send(Channel.Open(), 2)
        client.send(Basic.Get(queue="notices"), 2)
        client.send(Basic.Get(queue="notices", no_ack=True), 2)
        go_on(bench)
        consume(client, exclusive_consumer=True, notify_active="notices")
        go_on(bench)
        client.publish("q", b"last")
        go_on(bench)
        other.send(Basic.Get(queue="empty"), 1)
        for name in ("q", "empty"):
            client.send(Queue.Delete(queue=name), 1)
        go_on(bench)
    assert watch.called >= {name for name in CALLS.values() if not name.startswith("WaitingGet.acq")}
    assert watch.caught == {("Target091.on_snapshot_end", "detach")}


@watchable
def test_a_delivery_with_too_long_headers_ends_the_connection_later(bench: BrokerBench) -> None:
    watch, small, client = Watch(), bench.connect(), bench.open()
    small.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    small.send(Connection.TuneOk(2047, 4096, 0))
    small.send(Connection.Open("/"))
    small.send(Channel.Open(), 1)
    client.send(Queue.Declare(queue="q"), 1)
    headers: FieldTable = {"long": "x" * 5000}
    with watch.on():
        consume(small)
        client.connection.receive(publish_bytes("q", properties=Basic.Properties(headers=headers)))
        bench.turns.run()
        assert "Target091.deliver" in watch.called
        go_on(bench)
    assert watch.caught == set()
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 1


@watchable
def test_a_call_back_into_a_queue_is_detected(bench: BrokerBench) -> None:
    watch, client = Watch(), bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    consume(client)
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    (target,) = [consumer.target for consumer in queue.manager.all]
    assert isinstance(target, Target091)
    with watch.on():
        watch._now.append("Target091.deliver")
        detach(queue, target.consumers[0], [])
    assert watch.caught == {("Target091.deliver", "detach")}
