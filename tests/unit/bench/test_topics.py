"""Keys that the bench publishes to a topic exchange, and bindings that match only these keys."""

import asyncio
from typing import cast

import pytest
from pamqp import commands, frame

from broker.bench.amqp091 import Sender091
from broker.bench.messages import make_patterns, routing_key
from broker.bench.plan import Address, Plan
from broker.bench.traffic import Traffic
from tests.property.test_topic_trie import naive
from tests.unit.bench.test_consumer import Socket

QUEUES = ["one", "two"]


def keys_of(plan: Plan, count: int) -> list[str]:
    """The routing keys of the first messages that a publisher writes."""
    sender = Sender091(plan, Traffic(plan), [(0, "one")], "topics")
    socket = Socket()
    sender.connection_made(cast("asyncio.BaseTransport", socket))
    asyncio.run(sender.prepare())
    sender.send(0, count, 0, 1)
    written = bytes(socket.written)
    keys = []
    while written:
        size, _, found = frame.unmarshal(written)
        written = written[size:]
        if isinstance(found, commands.Basic.Publish):
            assert found.exchange == "topics"
            keys.append(found.routing_key)
    return keys


@pytest.mark.parametrize(("keys", "different"), [(1, 1), (7, 7), (0, 20)])
def test_messages_have_as_many_keys_as_were_asked_for(keys: int, different: int) -> None:
    plan = Plan(Address("h", 1, "u", "p", "/"), count=20, bindings=5, keys=keys, size=100_000)
    found = keys_of(plan, 20)
    assert len(found) == 20
    assert set(found) == {routing_key("one", number) for number in range(different)}


def test_each_key_goes_to_its_queue_alone() -> None:
    made = list(make_patterns(QUEUES, 500))
    assert len(set(made)) == 500
    for queue in QUEUES:
        words = routing_key(queue, 12345).split(".")
        assert [bound for bound, pattern in made if naive(pattern.split("."), words)] == [queue]
