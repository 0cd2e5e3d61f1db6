"""Shovels that pull exactly once: the other broker stages its queue, and this one remembers positions."""

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Tx

from broker.core.queues.queue import Queue
from broker.forwarding.shovel import RUNNING, TERMINATED, Shovel
from protocol.amqp091.properties import Properties
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.forwarding import OTHER, Sites


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("out", "other")
    return sites


def pull(sites: Sites, **more: Any) -> Shovel:
    ends = {"src_uri": OTHER, "dest_uri": "amqp://", "ack_mode": "exactly-once"}
    shovel = sites.define("s", **{**ends, "reconnect_delay": 1, **more})
    sites.run()
    return shovel


def cut(sites: Sites) -> None:
    """End the connections of the other broker."""
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")


def headers(sites: Sites) -> list[dict[str, object]]:
    queue = sites.vhost().topology.queues["in"]
    return [Properties(entry.message.content or b"").headers() for entry in queue.entries]


def test_messages_carry_the_origin_and_the_positions_of_the_other_broker(sites: Sites) -> None:
    shovel = pull(sites)
    sites.publish("out", numbered(5), "other")
    assert shovel.state == RUNNING, shovel.reason
    assert sites.bodies("in") == numbered(5)
    assert sites.bodies("out", "other") == []
    found = headers(sites)
    assert [each["x-origin-position"] for each in found] == [0, 1, 2, 3, 4]
    assert [each.get("x-origin-preceding") for each in found] == [None, 0, 1, 2, 3]
    [origin] = {each["x-origin"] for each in found}
    assert str(origin).startswith("distant/")
    assert shovel.reader == "shovel origin/%2F/s"
    queue = sites.vhost("other").topology.queues["out"]
    assert sites.there.broker.staging.find_stage(queue, shovel.reader) is not None


def test_a_lost_acknowledgement_repeats_no_message(sites: Sites) -> None:
    shovel = pull(sites)
    sites.publish("out", numbered(2), "other")
    sites.syncs[""] = False
    sites.publish("out", numbered(4, 2), "other")
    cut(sites)
    sites.here.store.complete()
    sites.syncs[""] = True
    sites.run()
    assert shovel.state == TERMINATED
    assert sites.bodies("out", "other") == numbered(4, 2), "no acknowledgement has come"
    sites.run(1000)
    assert shovel.state == RUNNING
    assert sites.bodies("in") == numbered(6)
    assert sites.bodies("out", "other") == []
    assert sites.here.broker.counters.duplicate > 0


def test_nothing_is_delivered_before_its_position_is_on_disk(sites: Sites) -> None:
    pull(sites)
    sites.syncs["other"] = False
    client = sites.there.open()
    client.publish("out", b"0", persistent=True)
    sites.run()
    assert sites.bodies("in") == []
    sites.syncs["other"] = True
    sites.run()
    assert sites.bodies("in") == [b"0"]


def test_refused_messages_come_later_once_and_in_order(sites: Sites) -> None:
    shovel = pull(sites, dest_queue_args={"x-max-length": 3, "x-overflow": "reject-publish"})
    sites.publish("out", numbered(10), "other")
    found: list[bytes] = []
    for _ in range(20):
        found += sites.bodies("in")
        sites.empty("in")
        sites.run(1000)
    assert found == numbered(10)
    assert (shovel.attempts, sites.bodies("out", "other")) == (1, [])
    assert shovel.refused > 0


def test_messages_wait_while_this_broker_is_short_of_memory(sites: Sites) -> None:
    shovel = pull(sites)
    sites.publish("out", numbered(1), "other")
    sites.here.server.shortage.set_shortages(True, False)
    sites.publish("out", [*numbered(3, 1), b"x" * 3_000_000, *numbered(3, 5)], "other")
    sites.here.server.shortage.set_shortages(False, False)
    sites.run()
    assert [each["x-origin-position"] for each in headers(sites)] == list(range(8))
    assert (shovel.attempts, sites.bodies("out", "other")) == (1, [])


def test_a_broker_that_gives_messages_no_positions_is_refused(sites: Sites) -> None:
    capabilities = sites.there.server.properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities["message_origins"]
    shovel = pull(sites)
    assert shovel.reason.endswith("the broker gives messages no positions: no capability 'message_origins'")


def test_a_queue_that_is_not_durable_is_refused(sites: Sites) -> None:
    sites.vhost("other").declarations.declare_queue("fleeting", False, None, False, {})
    shovel = pull(sites, src_queue="fleeting")
    assert "it is not durable, so positions of its messages cannot be remembered" in shovel.reason


@pytest.mark.parametrize("how", ["deleted", "paused"])
def test_a_deleted_shovel_returns_its_messages_and_a_paused_one_keeps_its_positions(
    sites: Sites, how: str
) -> None:
    pull(sites)
    sites.publish("out", numbered(1), "other")
    sites.syncs[""] = False
    sites.publish("out", numbered(5, 1), "other")
    queue = sites.vhost("other").topology.queues["out"]
    if how == "deleted":
        sites.vhost().parameters.delete("shovel", "s")
    else:
        sites.shovels.set_paused("/", "s", True)
    sites.run(4000)
    assert (queue.ready, queue.depth) == ((5 if how == "deleted" else 0), 5)
    assert queue.consumer_count == 0
    if how == "paused":
        sites.syncs[""] = True
        sites.shovels.set_paused("/", "s", False)
        sites.run()
        assert sites.bodies("in") == numbered(6)
        assert [each["x-origin-position"] for each in headers(sites)] == list(range(6))


@pytest.mark.parametrize(
    ("consume", "reason"),
    [
        (Basic.Consume(0, "out", "t", False, True), "does not go with no-ack"),
        (Basic.Consume(0, "out", "t", False, False, True), "does not go with exclusive"),
    ],
)
def test_a_reader_acknowledges_and_shares_its_queue(
    sites: Sites, consume: Basic.Consume, reason: str
) -> None:
    consume.arguments = {"x-origin-reader": "r"}
    assert reason in refusal(sites.there, [consume])


@pytest.mark.parametrize(
    "before",
    [[Basic.Consume(0, "out", "a")], [Basic.Get(0, "out")], [Tx.Select()]],
)
def test_a_reader_needs_a_channel_of_its_own(sites: Sites, before: list[Any]) -> None:
    sites.publish("out", [b"m"], "other")
    reader = Basic.Consume(0, "out", "t", arguments={"x-origin-reader": "r"})
    assert "needs a channel of its own" in refusal(sites.there, [*before, reader])


@pytest.mark.parametrize("after", [Basic.Consume(0, "out", "a"), Basic.Get(0, "out")])
def test_nobody_else_reads_on_the_channel_of_a_reader(sites: Sites, after: Any) -> None:
    reader = Basic.Consume(0, "out", "t", arguments={"x-origin-reader": "r"})
    assert "consumer 't' with x-origin-reader needs its channel alone" in refusal(
        sites.there, [reader, after]
    )


def test_a_reader_rejects_no_message(sites: Sites) -> None:
    reader = Basic.Consume(0, "out", "t", arguments={"x-origin-reader": "r"})
    assert "rejects none" in refusal(sites.there, [reader, Basic.Reject(1, False)])


def refusal(bench: BrokerBench, requests: list[Any]) -> str:
    """The text with which the broker closes the channel after these requests."""
    client = bench.open()
    for request in requests:
        client.send(request, 1)
    texts = [str(frame.reply_text) for frame in client.frames() if isinstance(frame, Channel.Close)]
    assert len(texts) == 1, "the channel is closed"
    return texts[0]


def staged_and_unconfirmed(sites: Sites) -> Queue:
    """The queue of the other broker, whose five messages are staged, and not confirmed here."""
    pull(sites)
    sites.publish("out", numbered(1), "other")
    sites.syncs[""] = False
    sites.publish("out", numbered(5, 1), "other")
    queue = sites.vhost("other").topology.queues["out"]
    assert (queue.ready, queue.depth) == (0, 5)
    return queue


def test_messages_of_a_deleted_reader_return_when_the_log_recovers(sites: Sites) -> None:
    queue = staged_and_unconfirmed(sites)
    sites.there.store.failure = "no space"
    sites.vhost().parameters.delete("shovel", "s")
    sites.run(4000)
    assert (queue.ready, queue.depth) == (0, 5)
    sites.there.store.failure = ""
    sites.run(1000)
    assert (queue.ready, queue.depth) == (5, 5)
    assert sites.there.broker.staging.all() == []
    assert sites.bodies("out", "other") == numbered(5, 1)


def test_a_reader_that_comes_back_before_the_log_recovers_keeps_its_stage(sites: Sites) -> None:
    staged_and_unconfirmed(sites)
    sites.there.store.failure = "no space"
    sites.vhost().parameters.delete("shovel", "s")
    sites.run()
    sites.there.store.failure = ""
    sites.syncs[""] = True
    pull(sites)
    [stage] = sites.there.broker.staging.all()
    sites.run(3000)
    assert sites.there.broker.staging.all() == [stage]
    sites.publish("out", numbered(2, 6), "other")
    assert sites.bodies("in") == numbered(8)
