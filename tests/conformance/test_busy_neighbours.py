"""A queue that is never emptied and a publisher that never waits do not stop other clients."""

import threading

import pytest
from pamqp.commands import Basic

from tests.conformance.conftest import Bystander
from tests.support.amqp091.peer import PeerChannel

PERSISTENT = Basic.Properties(delivery_mode=2)


@pytest.mark.parametrize("properties", [None, PERSISTENT], ids=["transient", "persistent"])
def test_a_queue_that_only_grows(
    channel: PeerChannel, durable_queue: str, bystander: Bystander, properties: Basic.Properties | None
) -> None:
    sent: list[int] = []
    enough = threading.Event()

    def flood() -> None:
        some = channel.encode_publish(bytes(4096), durable_queue, properties=properties) * 10
        while not enough.is_set():
            channel.peer.send(some)
            sent.append(10)

    flooding = threading.Thread(target=flood)
    flooding.start()
    for _ in range(5):
        bystander.expect_progress()
    enough.set()
    flooding.join()
    bystander.expect_progress()
    assert channel.counts(durable_queue) == (sum(sent), 0)
