"""Sessions of AMQP 1.0 that end in the middle of a frame, because the log has failed; it may recover."""

import pytest

from protocol.amqp10.composites import Accepted
from protocol.amqp10.performatives import Begin, Detach, Disposition, End
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import WINDOW, Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.resumed_links10 import (
    RECEIVES,
    SENDS,
    bench_with_queues,
    counts_of_q,
    delivered,
    performative_types,
    receiver_attach,
    sender_attach,
)

MINUTES = 120_000

ENDINGS = [
    Detach(handle=RECEIVES, closed=False),
    Detach(handle=9),
    End(),
    receiver_attach({}, 2),
]


@pytest.fixture
def bench() -> BrokerBench:
    return bench_with_queues()


@pytest.mark.parametrize("ending", ENDINGS, ids=["detach", "error", "end", "steal"])
def test_a_session_ends_once_after_a_store_failure_and_requeues_its_deliveries(
    bench: BrokerBench, ending: Composite
) -> None:
    """The answer to an unsettled delivery waits for the log, which has failed."""
    client = Client10(bench)
    assert len(delivered(client, 2)) == 2
    bench.store.failure = "the disk is full"
    client.send(Disposition(role=True, first=0, settled=False, state=Accepted()), ending)
    bench.store.failure = ""

    assert performative_types(client) == [End]
    if not isinstance(ending, End):
        client.send(End())
    bench.clock.advance(MINUTES)
    assert counts_of_q(bench) == (1, 0)
    assert bench.broker.vhosts["/"].topology.queues["q"].consumer_count == 0


def test_a_link_that_waits_for_the_log_holds_up_no_other_session(bench: BrokerBench) -> None:
    """The answers of the earlier link of its name have ended its session before it hears of the failure."""
    client = Client10(bench)
    client.send(sender_attach())
    client.publish(0, durable=True)
    client.send(Detach(handle=SENDS, closed=False), sender_attach(b"0"))
    performative_types(client)
    bench.store.fail("the disk is full")

    assert performative_types(client) == [End]
    client.send(End(), Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
    assert performative_types(client) == [Begin]
