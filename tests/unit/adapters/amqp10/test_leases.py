"""Consumer time-outs of AMQP 1.0 links that come back, or do not. [RabbitMQ consumer_timeout]"""

import pytest

from protocol.amqp10.performatives import Detach, End
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import Wired10
from tests.support.adapters.connection_without_socket import House
from tests.support.adapters.resumed_links10 import (
    RECEIVES,
    allow,
    delivered,
    kinds,
    premises,
    ready,
    receives,
    transfers,
)

LEASE = 1000  # milliseconds
SUSPEND = Detach(handle=RECEIVES, closed=False)


@pytest.fixture
def house() -> House:
    return premises({"x-consumer-timeout": LEASE})


@pytest.mark.parametrize("ending", [SUSPEND, End()], ids=["detached", "ended"])
def test_deliveries_of_a_suspended_link_return_in_time(house: House, ending: Composite) -> None:
    client = Wired10(house)
    delivered(client, 2)
    client.send(ending)
    assert ready(house) == (0, 2)
    house.clock.advance(LEASE + 1)

    assert ready(house) == (2, 0)


@pytest.mark.parametrize("all_said", [True, False])
def test_deliveries_that_wait_for_a_resume_return_in_time(house: House, all_said: bool) -> None:
    """The link is there, and allows nothing; or has not said all that it has."""
    client = Wired10(house)
    tags = delivered(client, 2)
    attach = receives(dict.fromkeys(tags if all_said else []))
    attach.incomplete_unsettled = not all_said
    client.send(SUSPEND, attach)
    assert ready(house) == (0, 2)
    house.clock.advance(LEASE + 1)

    assert ready(house) == (2, 0)
    assert house.server.counters.timed_out == 2
    kinds(client)
    client.send(allow(2))
    new = transfers(client)
    assert len(new) == (2 if all_said else 0)
    assert not any(each.resume or each.delivery_tag in tags for each in new)


def test_a_delivery_resumed_in_time_has_a_new_lease(house: House) -> None:
    client = Wired10(house)
    tags = delivered(client, 2)
    client.send(SUSPEND)
    house.clock.advance(LEASE - 1)
    client.send(receives(dict.fromkeys(tags)), allow(2))
    assert len(transfers(client)) == 2
    house.clock.advance(LEASE - 1)
    assert ready(house) == (0, 2)
    house.clock.advance(LEASE)

    assert ready(house) == (2, 0)
