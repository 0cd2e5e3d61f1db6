"""A single consumer tag for several queues: `x-also-consume`."""

import pytest
from pamqp.commands import Basic, Channel, Queue

from broker.core.queues.election import is_served
from broker.core.queues.queue import Queue as CoreQueue
from tests.support.adapters.connection_without_socket import BrokerBench, Client091

ALSO = "x-also-consume"


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    """Has declared the queues `a`, `b` and `c`."""
    client = bench.open()
    for name in "abc":
        client.send(Queue.Declare(queue=name), 1)
    client.frames()
    return client


def queue(bench: BrokerBench, name: str) -> CoreQueue:
    return bench.broker.vhosts["/"].topology.queues[name]


def consume(client: Client091, *others: str, prefetch: int = 0, **arguments: object) -> None:
    client.send(Basic.Qos(prefetch_count=prefetch), 1)
    named = {ALSO: list(others)} | {"x-" + name.replace("_", "-"): arguments[name] for name in arguments}
    client.send(Basic.Consume(queue="a", consumer_tag="t", arguments=named), 1)  # type: ignore[arg-type]
    assert [frame.name for frame in client.frames()] == ["Basic.QosOk", "Basic.ConsumeOk"]


def queues_of_deliveries(client: Client091) -> list[str]:
    """Return the queues of the deliveries since the last call; other methods by their names."""
    client.bench.turns.run()
    client.bench.clock.advance(0)
    client.bench.turns.run()
    frames = client.frames()
    return [str(frame.routing_key) if isinstance(frame, Basic.Deliver) else frame.name for frame in frames]


def publish(client: Client091, *keys: str) -> None:
    for key in keys:
        client.publish(key)


def test_queues_take_turns_by_message(client: Client091) -> None:
    publish(client, *"aaaabbbcc")
    consume(client, "b", "c")
    assert queues_of_deliveries(client) == list("abcabcaba")


def test_the_queues_share_a_window(bench: BrokerBench, client: Client091) -> None:
    publish(client, *"aaabbb")
    consume(client, "b", prefetch=3)
    assert queues_of_deliveries(client) == list("aba")
    client.send(Basic.Ack(2), 1)
    assert queues_of_deliveries(client) == ["b"]
    client.send(Basic.Nack(0, multiple=True), 1)
    assert sorted(queues_of_deliveries(client)) in (list("aab"), list("abb"))
    assert queue(bench, "a").unacked + queue(bench, "b").unacked == 3


def test_cancel_detaches_the_consumer_from_all_its_queues(bench: BrokerBench, client: Client091) -> None:
    consume(client, "b", "c")
    assert [queue(bench, name).consumer_count for name in "abc"] == [1, 1, 1]
    client.send(Basic.Cancel("t"), 1)
    publish(client, *"abc")
    assert queues_of_deliveries(client) == ["Basic.CancelOk"]
    assert [queue(bench, name).consumer_count for name in "abc"] == [0, 0, 0]


def test_deleting_a_queue_leaves_the_other_queues_and_deleting_the_last_queue_cancels(
    bench: BrokerBench, client: Client091
) -> None:
    consume(client, "b", "c")
    other = bench.open()
    other.send(Queue.Delete(queue="a"), 1)
    publish(client, *"bc")
    assert queues_of_deliveries(client) == ["b", "c"]
    other.send(Queue.Delete(queue="c"), 1)
    assert queues_of_deliveries(client) == []
    other.send(Queue.Delete(queue="b"), 1)
    assert queues_of_deliveries(client) == ["Basic.Cancel"]
    client.send(Basic.Ack(0, multiple=True), 1)
    client.send(Queue.Declare(queue="a"), 1)
    assert queues_of_deliveries(client) == ["Queue.DeclareOk"]
    consume(client)  # the tag is free again


def test_deliveries_return_to_their_places_in_each_queue(bench: BrokerBench, client: Client091) -> None:
    publish(client, *"aabb")
    consume(client, "b")
    assert queues_of_deliveries(client) == list("abab")
    client.send(Basic.Recover(requeue=False), 1)
    assert queues_of_deliveries(client) == [*"abab", "Basic.RecoverOk"]
    client.send(Channel.Close(0, "", 0, 0), 1)
    assert [(queue(bench, name).ready, queue(bench, name).unacked) for name in "ab"] == [(2, 0), (2, 0)]


def test_deliveries_of_each_queue_have_a_lease(bench: BrokerBench, client: Client091) -> None:
    publish(client, *"ab")
    consume(client, "b", consumer_timeout=100)
    assert queues_of_deliveries(client) == list("ab")
    bench.clock.advance(100)
    assert sorted(queues_of_deliveries(client)) == ["a", "b"]


def test_priority_and_exclusive_consumer_apply_to_each_queue(bench: BrokerBench, client: Client091) -> None:
    consume(client, "b", exclusive_consumer=True, priority=7)
    for name in "ab":
        (consumer,) = queue(bench, name).manager.all
        assert (consumer.candidate, consumer.priority, is_served(consumer)) == (True, 7, True)


@pytest.mark.parametrize(
    ("others", "code", "text"),
    [
        (["b", "nowhere"], 404, "no queue 'nowhere'"),
        (["b", "b"], 406, "'b' of type 'longstr' is consumed already"),
        (["a"], 406, "'a' of type 'longstr' is consumed already"),
        ("b", 406, "a list of at most 255 names"),
        ([1], 406, "a list of at most 255 names"),
        ([""], 406, "a list of at most 255 names"),
        (["x"] * 256, 406, "a list of at most 255 names"),
        (["b", "taken"], 403, "queue 'taken' in vhost '/' in exclusive use"),
    ],
)
def test_a_refused_consume_attaches_to_no_queue(
    bench: BrokerBench, client: Client091, others: object, code: int, text: str
) -> None:
    other = bench.open()
    other.send(Queue.Declare(queue="taken"), 1)
    other.send(Basic.Consume(queue="taken", exclusive=True), 1)
    arguments = {ALSO: others}
    client.send(Basic.Consume(queue="a", consumer_tag="t", arguments=arguments), 1)  # type: ignore[arg-type]
    (refusal,) = client.frames()
    assert isinstance(refusal, Channel.Close)
    assert refusal.reply_code == code
    assert text in refusal.reply_text
    assert [queue(bench, name).consumer_count for name in "ab"] == [0, 0]
