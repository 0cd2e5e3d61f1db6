"""An unmodified python-qpid-proton receives through filters."""

from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import (
    ACCEPTED,
    ProtonDial,
    Sender,
    bodies,
    deliveries,
    dialling,
    drain,
    proton,
    reactor,
    take,
    utils,
)
from tests.support.daemon.daemon import Address


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def queue(dial: ProtonDial, channel: BlockingChannel, name: str) -> Iterator[str]:
    """A queue of eight numbers, each with a colour and a size."""
    channel.queue_declare(name, durable=True)
    colours = ("red", "blue")
    messages = [
        proton.Message(
            body=number,
            subject=f"number {number}",
            priority=number,
            properties={"colour": colours[number % 2], "size": number},
        )
        for number in range(8)
    ]
    assert Sender(dial(), f"/queues/{name}").send(*messages) == [ACCEPTED] * 8
    yield name
    channel.queue_delete(name)


def receiver_of(dial: ProtonDial, queue: str, *options: Any) -> Any:
    """A receiver, on a connection of its own, that is sent nothing before it asks."""
    return dial().create_receiver(f"/queues/{queue}", options=list(options))


def held_by(receiver: Any) -> dict[Any, Any]:
    """Return the effective filters in the broker's answer."""
    filters = receiver.link.remote_source.filter
    filters.rewind()
    assert filters.next()
    return dict(filters.get_dict())


SELECTORS: dict[str, list[int]] = {
    "colour = 'red'": [0, 2, 4, 6],
    "size > 2 AND colour = 'blue'": [3, 5, 7],
    "colour LIKE 'b%' AND size NOT BETWEEN 2 AND 6": [1, 7],
    "JMSPriority >= 6": [6, 7],
    "missing IS NULL AND size * 2 = 8": [4],
    "missing = 1": [],
}


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_selector_passes_the_messages_that_it_matches(
    dial: ProtonDial, channel: BlockingChannel, queue: str, selector: str
) -> None:
    wanted = SELECTORS[selector]
    receiver = receiver_of(dial, queue, reactor.Selector(selector))
    seen = drain(receiver, 100)
    assert bodies(seen) == wanted
    for _ in seen:
        receiver.accept()
    receiver.connection.close()
    assert bodies(drain(receiver_of(dial, queue), 100)) == [n for n in range(8) if n not in wanted]


def test_the_answer_says_which_filter_holds(dial: ProtonDial, queue: str) -> None:
    (held,) = held_by(receiver_of(dial, queue, reactor.Selector("size = 1"))).values()
    assert held.value == "size = 1"


def test_an_unknown_filter_is_left_out_of_the_attach(dial: ProtonDial, queue: str) -> None:
    name = proton.symbol("test:unknown")
    unknown = reactor.Filter({name: proton.Described(name, "anything")})
    receiver = receiver_of(dial, queue, unknown)
    assert held_by(receiver) == {}
    assert bodies(drain(receiver, 100)) == list(range(8))


def test_a_selector_that_does_not_parse_is_refused(dial: ProtonDial, queue: str) -> None:
    with pytest.raises(utils.LinkDetached) as refused:
        receiver_of(dial, queue, reactor.Selector("colour = = 'red'"))
    assert refused.value.condition == "amqp:invalid-field"


def test_later_messages_are_selected_too(dial: ProtonDial, queue: str) -> None:
    receiver = receiver_of(dial, queue, reactor.Selector("size > 100"))
    receiver.flow(5)
    small, large = (proton.Message(body=size, properties={"size": size}) for size in (100, 101))
    assert Sender(dial(), f"/queues/{queue}").send(small, large) == [ACCEPTED] * 2
    receiver.connection.wait(lambda: receiver.fetcher.has_message)
    assert bodies([receiver.fetcher.pop()]) == [101]


def test_a_browser_has_a_selector(dial: ProtonDial, queue: str) -> None:
    options = (reactor.Copy(), reactor.Selector("colour = 'blue'"))
    assert bodies(drain(receiver_of(dial, queue, *options), 100)) == [1, 3, 5, 7]
    assert bodies(drain(receiver_of(dial, queue), 100)) == list(range(8))


def test_messages_without_a_match_go_to_another_receiver(dial: ProtonDial, queue: str) -> None:
    receiver = receiver_of(dial, queue, reactor.Selector("size < 2"))
    take(receiver, 2)
    for delivery in deliveries(receiver):
        delivery.local.undeliverable = True
        delivery.local.failed = True
        delivery.update(proton.Delivery.MODIFIED)
        delivery.settle()
    assert drain(receiver, 10) == []
    others = drain(receiver_of(dial, queue, reactor.Selector("size < 3")), 10)
    assert [(message.body, message.delivery_count) for message in others] == [(0, 1), (1, 1), (2, 0)]
