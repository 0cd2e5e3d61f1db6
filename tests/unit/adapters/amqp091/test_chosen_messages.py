"""basic.consume of chosen messages, while the broker searches for them and when it finds none."""

import pytest
from pamqp.commands import Basic, Queue

from broker.adapters.amqp091 import chosen_messages
from broker.auth.terms import READ
from broker.core.queues.purge import SLICE
from tests.support.adapters.connection_without_socket import BrokerBench, Client091

FAR = int(chosen_messages.SEARCH_STEP) + 1  # a place that is not found in one turn


def fill(client: Client091, count: int, durable: bool = False) -> None:
    """The queue `q`, with so many messages."""
    client.send(Queue.Declare(queue="q", durable=durable), 1)
    for _ in range(count):
        client.publish("q", persistent=durable)
    client.bench.store.complete()
    names(client)


def names(client: Client091, milliseconds: int = 0) -> list[str]:
    """The methods that were written since the last call, after so much time."""
    client.bench.clock.advance(milliseconds)
    client.bench.turns.run()
    client.bench.clock.advance(0)
    client.bench.turns.run()
    return [frame.name for frame in client.frames()]


def consume(client: Client091, **arguments: object) -> None:
    asked = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    client.send(Basic.Consume(queue="q", consumer_tag="c", arguments=asked), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_counted_consumer_is_cancelled_when_a_purge_in_slices_empties_the_queue(
    bench: BrokerBench, prefetch: int
) -> None:
    client, operator = bench.open(), bench.open()
    client.send(Basic.Qos(prefetch_count=prefetch), 1)
    count = int(SLICE) + 10
    fill(client, count)
    consume(client, get_count=count - 1)
    if prefetch:
        assert names(client) == ["Basic.ConsumeOk", "Basic.Deliver"]
    operator.send(Queue.Purge(queue="q"), 1)
    if prefetch:
        client.send(Basic.Ack(1), 1)
    assert "Queue.PurgeOk" in names(operator, 1)
    assert "Basic.Cancel" in names(client, int(chosen_messages.CHECK_INTERVAL_MS))
    client.publish("q")
    assert names(client, 10_000) == [], "it is not there any more"
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 1


def test_a_message_that_the_disk_does_not_give_back_ends_the_connection_and_stays(bench: BrokerBench) -> None:
    client = bench.open()
    fill(client, FAR + 1, durable=True)
    bench.store.drop_contents()
    bench.store.unreadable = True
    consume(client, get_position=FAR)
    assert names(client, 1)[-1] == "Connection.Close"
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert (queue.ready, queue.unacked) == (FAR + 1, 0)


@pytest.mark.parametrize("browse", [False, True])
def test_revoking_read_permission_during_a_search_closes_the_channel(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch, browse: bool
) -> None:
    client = bench.open()
    fill(client, FAR + 1)
    consume(client, get_position=FAR, browse=browse)
    assert client.frames() == []
    monkeypatch.setattr(bench.door, "is_allowed", lambda user, vhost, what, name: what != READ)
    client.connection.on_rights_changed()
    assert names(client, 1) == ["Channel.Close"]
