"""Settlements after the lease of a delivery has ended, and invalid settlements."""

import pytest
from pamqp.commands import Basic, Channel

from broker.adapters.peers.unsettled import FORGIVEN_MAX, Unacked
from broker.core.durations import Latency, Stopwatch
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.adapters.leases import client_with_queue, consume, counts, deliveries


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    return client_with_queue(bench)


@pytest.mark.parametrize(
    "late",
    [Basic.Ack(1), Basic.Nack(1, requeue=True), Basic.Reject(1, requeue=False), Basic.Nack(1, requeue=False)],
)
def test_settling_a_timed_out_delivery_is_no_error_and_changes_nothing(
    bench: BrokerBench, client: Client091, late: Basic.Ack | Basic.Nack | Basic.Reject
) -> None:
    consume(client, 100, prefetch=1)
    client.publish("q")
    assert deliveries(client) == [(1, False)]
    bench.clock.advance(100)
    assert deliveries(client) == [(2, True)]
    for _ in range(2):
        client.send(late, 1)
        assert deliveries(client) == []
        assert counts(bench) == (0, 1)
    client.send(Basic.Ack(2), 1)
    assert counts(bench) == (0, 0)


def test_a_tag_that_never_was_is_still_an_error(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100)
    client.publish("q")
    client.publish("q")
    deliveries(client)
    client.send(Basic.Ack(2), 1)
    bench.clock.advance(100)
    deliveries(client)
    client.send(Basic.Ack(2), 1)
    (close,) = client.frames()
    assert isinstance(close, Channel.Close)
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - unknown delivery tag 2")


def test_ack_with_multiple_passes_over_timed_out_deliveries(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100, prefetch=2)
    client.publish("q")
    deliveries(client)
    bench.clock.advance(60)
    client.publish("q")
    deliveries(client)
    bench.clock.advance(40)
    assert deliveries(client) == [(3, True)]
    client.send(Basic.Ack(2, multiple=True), 1)
    assert counts(bench) == (0, 1)
    client.send(Basic.Ack(1, multiple=True), 1)
    client.send(Basic.Ack(0, multiple=True), 1)
    assert counts(bench) == (0, 0)


def test_unacked_remembers_a_bounded_number_of_timed_out_tags() -> None:
    unacked = Unacked(Stopwatch(Latency(), int))
    unacked.forgive([2, 4])
    assert [unacked.is_forgiven(tag) for tag in range(6)] == [False, False, True, False, True, False]
    unacked.forgive(list(range(10, 10 + FORGIVEN_MAX)))
    unacked.forgive([20_000])
    assert not unacked.is_forgiven(0)
    assert unacked.is_forgiven(3), "no longer known: not an error"
    assert unacked.is_forgiven(9 + FORGIVEN_MAX)
    assert not unacked.is_forgiven(10 + FORGIVEN_MAX)
    assert unacked.is_forgiven(20_000)
