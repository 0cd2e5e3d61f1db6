"""Deliveries that an earlier link of AMQP 1.0 has sent: how they go out again. [amqp-1.0 2.6.13]"""

from protocol.amqp10.composites import Accepted, Error, Rejected
from protocol.amqp10.performatives import Detach
from tests.returning10 import RECEIVES, SENDS, allow, delivered, kinds, premises, receives, sends, transfers
from tests.wired10 import Wired10

MANY = 1000
SUSPEND = Detach(handle=RECEIVES, closed=False)


def test_very_many_go_in_several_turns() -> None:
    house = premises()
    client = Wired10(house)
    tags = delivered(client, MANY)
    settled = {tag: Accepted() for tag in tags[: MANY // 2]}
    client.send(SUSPEND, receives({**dict.fromkeys(tags), **settled}))
    kinds(client)
    client.send(allow(MANY))

    sent = len(client.said())
    assert 0 < sent < MANY // 2
    turns = 0
    while house.turns.waiting:
        house.turns.waiting.popleft().pump(MANY)
        turns += 1
    assert turns > 2
    assert sent + len(client.said()) == MANY


def test_what_a_deleted_queue_had_is_not_sent() -> None:
    """Its link ends with it, but behind the answers that the peer waits for."""
    house = premises()
    client = Wired10(house)
    tags = delivered(client, 3)
    client.send(SUSPEND, receives(dict.fromkeys(tags)))
    client.send(sends())
    client.publish(0, durable=True)
    house.broker.vhosts["/"].delete_queue("q", False, False, None)
    kinds(client)
    client.send(allow(3, sent=1))

    assert transfers(client) == []
    house.store.complete()
    assert Detach in kinds(client)
    client.publish(1, handle=SENDS)
    assert client.connection.is_open()


def test_an_outcome_that_is_larger_than_a_frame_is_not_repeated() -> None:
    """The receiver knows it, and hears that it is settled."""
    house = premises()
    client = Wired10(house, 512)
    tags = delivered(client, 2)
    long = Rejected(error=Error(condition="test:long", description="x" * 600))
    client.send(SUSPEND, receives({tags[0]: long, tags[1]: None}))
    kinds(client)
    client.send(allow(2))

    told, again = transfers(client)
    assert (told.delivery_tag, told.settled, told.resume, told.state) == (tags[0], True, True, None)
    assert (again.delivery_tag, again.settled, again.resume) == (tags[1], False, True)
