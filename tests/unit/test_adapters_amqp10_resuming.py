"""Links of AMQP 1.0 that come back while other things are under way. [amqp-1.0 2.6.13]"""

import pytest

from broker.adapters.amqp10.answers import owed_by
from protocol.amqp10.performatives import Attach, Detach, Disposition, Flow
from tests.returning10 import SENDS, kinds, premises, sends
from tests.wired import House
from tests.wired10 import Wired10


@pytest.fixture
def house() -> House:
    return premises()


@pytest.fixture
def client(house: House) -> Wired10:
    return Wired10(house)


def test_two_that_wait_for_the_log_to_take_up_one(house: House, client: Wired10) -> None:
    """The second takes from the first, which has published meanwhile, and so waits once more."""
    client.send(sends())
    client.publish(0, durable=True)
    client.send(Detach(handle=SENDS, closed=False))
    first, second = Wired10(house), Wired10(house)
    first.send(sends(b"0"))
    first.publish(1, durable=True)
    second.send(sends(b"0"))
    second.publish(2, durable=True)
    assert kinds(first) == kinds(second) == []
    house.store.complete()

    assert kinds(first) == [Attach, Flow, Detach]
    assert kinds(second) == []
    house.store.complete()
    assert kinds(second) == [Attach, Flow]
    house.store.complete()
    assert kinds(second) == [Disposition]


def test_what_is_said_behind_a_detach_is_not_waited_for(house: House, client: Wired10) -> None:
    """The sender settles it with the link that takes this one up, or not at all."""
    client.send(sends())
    client.publish(0, 1, 2, durable=True)
    client.send(Detach(handle=SENDS, closed=False))
    house.store.complete()

    assert kinds(client) == [Attach, Flow, Detach, Disposition]
    [session] = client.connection.mapped.all()
    assert owed_by(session).halves.settle(0, 9) == 0, "none is left to look at"
