"""basic.consume of chosen messages: what goes on while the broker looks for them, or has none to give."""

import pytest
from pamqp.commands import Basic, Queue

from broker.adapters import picked091
from broker.auth.terms import READ
from broker.flavour import FLAVOUR
from tests.wired import House, Wired

changeable = pytest.mark.skipif(FLAVOUR == "compiled", reason="compiled modules keep their lengths of slices")


def fill(client: Wired, count: int, durable: bool = False) -> None:
    """The queue `q`, with so many messages."""
    client.send(Queue.Declare(queue="q", durable=durable), 1)
    for _ in range(count):
        client.publish("q", persistent=durable)
    client.house.store.complete()
    names(client)


def names(client: Wired, milliseconds: int = 0) -> list[str]:
    """The methods that were written since the last call, after so much time."""
    client.house.clock.advance(milliseconds)
    client.house.turns.run()
    client.house.clock.advance(0)
    client.house.turns.run()
    return [frame.name for frame in client.frames()]


def consume(client: Wired, **arguments: object) -> None:
    asked = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    client.send(Basic.Consume(queue="q", consumer_tag="c", arguments=asked), 1)  # type: ignore[arg-type]


@changeable
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_counted_consumer_ends_when_a_purge_in_slices_leaves_nothing_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch, prefetch: int
) -> None:
    monkeypatch.setattr("broker.core.purging.purge.__defaults__", (3,))
    client, operator = house.open(), house.open()
    client.send(Basic.Qos(prefetch_count=prefetch), 1)
    fill(client, 10)
    consume(client, get_count=9)
    if prefetch:
        assert names(client) == ["Basic.ConsumeOk", "Basic.Deliver"]
    operator.send(Queue.Purge(queue="q"), 1)
    if prefetch:
        client.send(Basic.Ack(1), 1)
    assert "Queue.PurgeOk" in names(operator, 1)
    assert "Basic.Cancel" in names(client, int(picked091.LOOK_AGAIN_MS))
    client.publish("q")
    assert names(client, 10_000) == [], "it is not there any more"
    assert house.broker.vhosts["/"].queues["q"].ready == 1


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only few messages are looked at in one turn."""
    monkeypatch.setattr(picked091, "LOOK", 2)


@changeable
@pytest.mark.usefixtures("slowly")
def test_a_message_that_the_disk_does_not_give_back_ends_the_connection_and_stays(house: House) -> None:
    client = house.open()
    fill(client, 6, durable=True)
    house.store.drop_contents()
    house.store.unreadable = True
    consume(client, get_position=5)
    assert names(client, 1)[-1] == "Connection.Close"
    queue = house.broker.vhosts["/"].queues["q"]
    assert (queue.ready, queue.unacked) == (6, 0)


@changeable
@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("browse", [False, True])
def test_rights_that_are_taken_away_meanwhile_are_missed(
    house: House, monkeypatch: pytest.MonkeyPatch, browse: bool
) -> None:
    client = house.open()
    fill(client, 6)
    consume(client, get_position=5, browse=browse)
    assert client.frames() == []
    monkeypatch.setattr(house.door, "allowed", lambda user, vhost, what, name: what != READ)
    client.connection.rights_changed()
    assert names(client, 1) == ["Channel.Close"]
