"""Warnings of misspelt arguments of consumers, of both protocols."""

import pytest
from pamqp.commands import Basic, Queue

from protocol.amqp10.types import Symbol
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench

TEXT = (
    "arg 'x-priorty' of a consumer of queue 'q' in vhost '/' is unknown and has no effect: was 'x-priority' "
    "meant?"
)


@pytest.fixture
def warned(bench: BrokerBench) -> list[str]:
    found: list[str] = []
    bench.broker.vhosts["/"].warn = found.append
    return found


def test_a_consumer_of_amqp_0_9_1(bench: BrokerBench, warned: list[str]) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    for number in range(3):
        arguments = {"x-priorty": number, "x-cancel-on-ha-failover": True}
        client.send(Basic.Consume(queue="q", arguments=arguments), 1)  # type: ignore[arg-type]
    names = [frame.name for frame in client.frames()]
    assert names == ["Queue.DeclareOk", *["Basic.ConsumeOk"] * 3]
    assert warned == [TEXT]


def test_a_link_of_amqp_1_0(bench: BrokerBench, warned: list[str]) -> None:
    bench.broker.vhosts["/"].declarations.declare_queue("q", False, None, False, {})
    client = Client10(bench)
    link_properties = {Symbol("x-priorty"): 1, Symbol("paired"): True, Symbol("x-priority"): 1}
    client.receives("q", properties=link_properties)
    assert warned == [TEXT]
