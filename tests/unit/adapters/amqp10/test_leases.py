"""Consumer time-outs of AMQP 1.0 links that come back, or do not. [RabbitMQ consumer_timeout]"""

import pytest

from protocol.amqp10.performatives import Detach, End
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.resumed_links10 import (
    RECEIVES,
    bench_with_queues,
    counts_of_q,
    credit_flow,
    delivered,
    performative_types,
    receiver_attach,
    transfers,
)

LEASE = 1000  # milliseconds
SUSPEND = Detach(handle=RECEIVES, closed=False)


@pytest.fixture
def bench() -> BrokerBench:
    return bench_with_queues({"x-consumer-timeout": LEASE})


@pytest.mark.parametrize("ending", [SUSPEND, End()], ids=["detached", "ended"])
def test_deliveries_of_a_suspended_link_return_in_time(bench: BrokerBench, ending: Composite) -> None:
    client = Client10(bench)
    delivered(client, 2)
    client.send(ending)
    assert counts_of_q(bench) == (0, 2)
    bench.clock.advance(LEASE + 1)

    assert counts_of_q(bench) == (2, 0)


@pytest.mark.parametrize("all_said", [True, False])
def test_deliveries_that_wait_for_a_resume_return_in_time(bench: BrokerBench, all_said: bool) -> None:
    """The link is there, and allows nothing; or has not said all that it has."""
    client = Client10(bench)
    tags = delivered(client, 2)
    attach = receiver_attach(dict.fromkeys(tags if all_said else []))
    attach.incomplete_unsettled = not all_said
    client.send(SUSPEND, attach)
    assert counts_of_q(bench) == (0, 2)
    bench.clock.advance(LEASE + 1)

    assert counts_of_q(bench) == (2, 0)
    assert bench.server.counters.timed_out == 2
    performative_types(client)
    client.send(credit_flow(2))
    new = transfers(client)
    assert len(new) == (2 if all_said else 0)
    assert not any(each.resume or each.delivery_tag in tags for each in new)


def test_a_delivery_resumed_in_time_has_a_new_lease(bench: BrokerBench) -> None:
    client = Client10(bench)
    tags = delivered(client, 2)
    client.send(SUSPEND)
    bench.clock.advance(LEASE - 1)
    client.send(receiver_attach(dict.fromkeys(tags)), credit_flow(2))
    assert len(transfers(client)) == 2
    bench.clock.advance(LEASE - 1)
    assert counts_of_q(bench) == (0, 2)
    bench.clock.advance(LEASE)

    assert counts_of_q(bench) == (2, 0)
