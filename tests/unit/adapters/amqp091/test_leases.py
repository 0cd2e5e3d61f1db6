"""Deliveries that a channel does not settle in time: the client only sees a further delivery."""

import pytest
import structlog.testing
from pamqp.commands import Basic, Channel, Queue

from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.adapters.leases import TIMEOUT, client_with_queue, consume, counts, deliveries
from tests.support.core.policies import set_policy


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    return client_with_queue(bench)


def test_only_deliveries_beyond_their_timeout_are_requeued(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100, prefetch=3)
    for _ in range(2):
        client.publish("q")
    assert deliveries(client) == [(1, False), (2, False)]
    bench.clock.advance(50)
    client.publish("q")
    assert deliveries(client) == [(3, False)]
    client.send(Basic.Ack(1), 1)
    bench.clock.advance(49)
    assert deliveries(client) == []
    bench.clock.advance(1)
    assert deliveries(client) == [(4, True)], "the second message once more"
    assert bench.broker.counters.timed_out == 1
    bench.clock.advance(50)
    assert deliveries(client) == [(5, True)], "the third"
    client.send(Basic.Ack(4), 1)
    client.send(Basic.Ack(5), 1)
    assert counts(bench) == (0, 0)


def test_a_timed_out_delivery_restores_credit_in_both_windows(bench: BrokerBench, client: Client091) -> None:
    client.send(Basic.Qos(prefetch_count=1, global_=True), 1)
    consume(client, 100)
    other = bench.open()
    client.publish("q", b"x" * 10)
    client.publish("q")
    assert deliveries(client) == [(1, False)]
    other.send(Basic.Qos(prefetch_count=1), 1)
    other.send(Basic.Consume(queue="q"), 1)
    assert deliveries(other) == [(1, False)]
    bench.clock.advance(100)
    assert deliveries(client) == [(2, True)]
    channel = client.connection.wire.channels[1]
    assert channel.window.used == 1  # type: ignore[union-attr]


def test_a_timed_out_delivery_may_go_to_another_consumer(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100, prefetch=1)
    other = bench.open()
    other.send(Basic.Consume(queue="q"), 1)
    deliveries(other)
    client.publish("q")
    client.publish("q")
    client.send(Channel.Flow(True), 1)
    assert deliveries(client) == [(1, False)]
    client.send(Channel.Flow(False), 1)
    assert deliveries(other) == [(1, False)]
    bench.clock.advance(100)
    assert deliveries(other) == [(2, True)]
    assert deliveries(client) == []


def test_deliveries_that_outlive_their_consumer(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100)
    client.publish("q")
    deliveries(client)
    client.send(Basic.Cancel("t"), 1)
    bench.clock.advance(100)
    assert counts(bench) == (1, 0)
    client.send(Basic.Ack(1), 1)
    assert deliveries(client) == []


def test_redelivery_by_recover_begins_anew(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100)
    client.publish("q")
    deliveries(client)
    bench.clock.advance(60)
    client.send(Basic.Recover(requeue=False), 1)
    assert deliveries(client) == [(2, True)]
    bench.clock.advance(99)
    assert deliveries(client) == []
    bench.clock.advance(1)
    assert deliveries(client) == [(3, True)]


def test_basic_get_has_the_queue_s_time(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q", arguments={TIMEOUT: 100}), 1)
    for no_ack in (False, True, False):
        client.publish("q")
        client.send(Basic.Get(queue="q", no_ack=no_ack), 1)
    assert counts(bench) == (0, 2)
    bench.clock.advance(100)
    assert counts(bench) == (2, 0)
    client.send(Basic.Ack(3), 1)
    assert deliveries(client) == []


def test_the_broker_s_and_a_policy_s_time(bench: BrokerBench, client: Client091) -> None:
    bench.server.consumer_timeout = 1000
    client.publish("q")
    client.send(Basic.Consume(queue="q"), 1)
    assert deliveries(client) == [(1, False)]
    set_policy(bench.broker.vhosts["/"], "p", "q", consumer_timeout=200)
    other = bench.open()
    client.publish("q")
    client.send(Channel.Flow(False), 1)
    bench.clock.advance(1000)
    assert counts(bench) == (2, 0)
    other.send(Basic.Consume(queue="q"), 1)
    assert deliveries(other) == [(1, True), (2, False)]
    bench.clock.advance(199)
    assert counts(bench) == (0, 2)
    bench.clock.advance(1)
    assert deliveries(other) == [(3, True), (4, True)]


def test_consumers_without_a_timeout_or_acknowledgements_have_no_leases(
    bench: BrokerBench, client: Client091
) -> None:
    bench.server.consumer_timeout = 100
    consume(client, 0)
    client.publish("q")
    assert deliveries(client) == [(1, False)]
    browser, reader = bench.open(), bench.open()
    browser.send(Basic.Consume(queue="q", arguments={"x-browse": True}), 1)
    reader.send(Queue.Declare(queue="r"), 1)
    reader.send(Basic.Consume(queue="r", no_ack=True), 1)
    client.publish("q")
    client.publish("r")
    assert deliveries(reader) == [(1, False)]
    assert deliveries(browser) == [(1, False)]
    for other in (client, reader, browser):
        assert other.connection.wire.channels[1].leases is None  # type: ignore[union-attr]
    bench.clock.advance(1000)
    assert deliveries(client) == [(2, False)]
    assert deliveries(reader) == deliveries(browser) == []
    assert bench.clock.schedule._set == 0


def test_a_closed_channel_leaves_no_lease_alarms(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100)
    consume(client, 200, tag="u")
    client.publish("q")
    client.publish("q")
    deliveries(client)
    client.send(Channel.Close(200, "", 0, 0), 1)
    assert counts(bench) == (2, 0)
    assert bench.clock.schedule._set == 0


def test_lease_lengths_without_consumers_are_forgotten(bench: BrokerBench, client: Client091) -> None:
    for tag, milliseconds in (("holder", 100), ("idle", 200)):
        consume(client, milliseconds, tag=tag, prefetch=1)
    client.publish("q")
    assert deliveries(client) == [(1, False)]
    leases = client.connection.wire.channels[1].leases  # type: ignore[union-attr]
    consume(client, 300, tag="gone", prefetch=1)
    client.publish("q")
    client.publish("q")
    assert deliveries(client) == [(2, False), (3, False)]
    client.send(Basic.Cancel("gone"), 1)
    client.send(Basic.Ack(2), 1)
    for milliseconds in range(1000, 1500):
        consume(client, milliseconds, tag="t")
        client.send(Basic.Cancel("t"), 1)
    assert len(leases._by_length) < 50
    assert {100, 200, 300} <= set(leases._by_length)
    bench.clock.advance(300)
    assert bench.broker.counters.timed_out == 2


def test_a_deleted_queue_restores_the_credit_of_its_timed_out_deliveries(
    bench: BrokerBench, client: Client091
) -> None:
    client.send(Basic.Qos(prefetch_count=1, global_=True), 1)
    consume(client, 100)
    client.publish("q")
    assert deliveries(client) == [(1, False)]
    client.send(Queue.Delete(queue="q"), 1)
    bench.clock.advance(100)
    client.send(Queue.Declare(queue="q"), 1)
    consume(client, 100)
    client.publish("q")
    assert deliveries(client) == [(2, False)]


def test_a_single_active_consumer_that_never_settles_drains_by_its_lease(bench: BrokerBench) -> None:
    old, new = bench.open(), bench.open()
    old.send(Queue.Declare(queue="q", arguments={"x-single-active-consumer": True}), 1)
    consume(old, 100)
    consume(new, 0)
    for _ in range(2):
        old.publish("q")
    assert deliveries(old) == [(1, False), (2, False)]
    old.send(Basic.Cancel("t"), 1)
    old.publish("q")
    assert deliveries(new) == []
    bench.clock.advance(100)
    assert deliveries(new) == [(1, True), (2, True), (3, False)]
    old.send(Basic.Ack(2, multiple=True), 1)
    assert counts(bench) == (0, 3)


@pytest.mark.parametrize("value", [-1, "1000", True, 10**12, 1.5])
def test_a_time_must_be_a_number_of_milliseconds(client: Client091, value: object) -> None:
    client.send(Basic.Consume(queue="q", arguments={TIMEOUT: value}), 1)  # type: ignore[dict-item]
    (close,) = client.frames()
    assert isinstance(close, Channel.Close)
    assert close.reply_code == 406
    expected = f"PRECONDITION_FAILED - invalid arg '{TIMEOUT}' for queue 'q' in vhost '/': '"
    assert close.reply_text.startswith(expected)
    assert "is not an integer from 0 to" in close.reply_text


def test_the_log_does_not_get_a_line_for_each(bench: BrokerBench, client: Client091) -> None:
    consume(client, 100, prefetch=1)
    client.publish("q")
    with structlog.testing.capture_logs() as lines:
        deliveries(client)
        for _ in range(1200):
            bench.clock.advance(100)
            deliveries(client)
    late = [line for line in lines if line["event"] == "deliveries were not settled in time"]
    assert [line["count"] for line in late] == [1, 600]
    assert bench.broker.counters.timed_out == 1200
