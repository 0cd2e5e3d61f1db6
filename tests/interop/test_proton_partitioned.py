"""Partitioned queues as an unmodified python-qpid-proton sees them."""

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import ACCEPTED, ProtonDial, Sender, bodies, dialling, proton, take
from tests.support.daemon.daemon import Address

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no partitioned queues")


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    yield from dialling(address)


def test_amqp_1_0_sends_and_receives(dial: ProtonDial, channel: BlockingChannel, name: str) -> None:
    members = [f"{name}.{number}" for number in range(3)]
    for member in members:
        channel.queue_declare(member, durable=True)
    arguments = {
        "x-queue-kind": "partitioned",
        "x-partition-by": "key",
        "x-partition-members": members,
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    try:
        sent = [
            proton.Message(body=number, durable=True, properties={"key": f"key {number % 8}"})
            for number in range(40)
        ]
        assert Sender(dial(), f"/queues/{name}").send(*sent) == [ACCEPTED] * 40
        counts = [channel.queue_declare(member, passive=True).method.message_count for member in members]
        assert sum(counts) == 40
        assert len([count for count in counts if count]) > 1
        receiver = dial().create_receiver(f"/queues/{name}", credit=40)
        got = bodies(take(receiver, 40))
        for number in range(8):
            of_key = [body for body in got if body % 8 == number]
            assert of_key == sorted(of_key)
        assert sorted(got) == list(range(40))
    finally:
        channel.queue_delete(name)
        for member in members:
            channel.queue_delete(member)
