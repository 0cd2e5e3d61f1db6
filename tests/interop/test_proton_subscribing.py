"""python-qpid-proton subscribes to exchanges: for as long as a link is there, or for longer. Unmodified."""

from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import (
    ACCEPTED,
    RELEASED,
    ProtonDial,
    Sender,
    bodies,
    dialling,
    drain,
    proton,
    reactor,
    take,
    url,
    utils,
)
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def exchange(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A durable topic exchange."""
    channel.exchange_declare(name, "topic", durable=True)
    yield name
    channel.exchange_delete(name)


class Shared(reactor.ReceiverOption):  # type: ignore[misc]
    """A receiver option: several links share a subscription."""

    def __init__(self, *besides: str) -> None:
        self._capabilities = ["shared", *besides]

    def apply(self, receiver: Any) -> None:
        """Say so of a link."""
        symbols = [proton.symbol(name) for name in self._capabilities]
        capabilities = proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *symbols)
        receiver.source.capabilities.put_object(capabilities)


def container(identifier: str) -> Any:
    """Return a container with this id, which identifies the subscriber on every connection."""
    made = reactor.Container()
    made.container_id = identifier
    return made


def subscribe(connection: Any, exchange: str, *options: Any, name: str = "news") -> Any:
    """Create a link that receives messages with keys of news."""
    return connection.create_receiver(f"{exchange}/news.*", name=name, options=list(options))


def publish(dial: ProtonDial, exchange: str, *numbers: int) -> list[Any]:
    """Publish numbers; return the outcome of each."""
    messages = [proton.Message(body=number, durable=True) for number in numbers]
    return Sender(dial(), f"/exchanges/{exchange}/news.uk").send(*messages)


def detach(receiver: Any) -> None:
    """Leave, and let the subscription be."""
    receiver.link.detach()
    receiver.connection.close()


def test_each_subscriber_gets_messages_published_while_it_is_attached(
    dial: ProtonDial, exchange: str
) -> None:
    one, two = subscribe(dial(), exchange), subscribe(dial(), exchange)
    assert publish(dial, exchange, 1, 2) == [ACCEPTED] * 2
    three = subscribe(dial(), exchange)
    assert publish(dial, exchange, 3) == [ACCEPTED]
    assert [bodies(take(one, 3)), bodies(take(two, 3)), bodies(take(three, 1))] == [[1, 2, 3], [1, 2, 3], [3]]
    for receiver in (one, two, three):
        receiver.connection.close()
    assert publish(dial, exchange, 4) == [RELEASED]


def test_a_durable_subscription_collects_messages_without_a_link(dial: ProtonDial, exchange: str) -> None:
    durable = reactor.DurableSubscription()
    detach(subscribe(dial(container=container("me")), exchange, durable))
    assert publish(dial, exchange, 1, 2) == [ACCEPTED] * 2
    receiver = subscribe(dial(container=container("me")), exchange, durable)
    assert bodies(take(receiver, 2)) == [1, 2]
    receiver.accept()
    detach(receiver)
    again = subscribe(dial(container=container("me")), exchange, durable)
    assert bodies(drain(again, 10)) == [2]
    again.close()
    assert publish(dial, exchange, 3) == [RELEASED]


def test_subscriptions_are_of_a_container_and_a_name(dial: ProtonDial, exchange: str) -> None:
    durable = reactor.DurableSubscription()
    receivers = [
        subscribe(dial(container=container(identifier)), exchange, durable, name=name)
        for identifier, name in (("me", "one"), ("me", "two"), ("you", "one"))
    ]
    assert publish(dial, exchange, 1) == [ACCEPTED]
    assert [bodies(take(receiver, 1)) for receiver in receivers] == [[1]] * 3
    for receiver in receivers:
        receiver.close()
    assert publish(dial, exchange, 2) == [RELEASED]


def test_a_subscription_with_a_selector_gets_no_more_than_that(dial: ProtonDial, exchange: str) -> None:
    receiver = subscribe(dial(), exchange, reactor.Selector("number > 1"))
    messages = [proton.Message(body=number, properties={"number": number}) for number in range(4)]
    Sender(dial(), f"/exchanges/{exchange}/news.uk").send(*messages)
    assert bodies(drain(receiver, 10)) == [2, 3]


@pytest.mark.parametrize("besides", [(), ("global",)], ids=["container", "broker"])
def test_links_share_a_subscription(dial: ProtonDial, exchange: str, besides: tuple[str, ...]) -> None:
    identifiers = ("me", "you") if besides else ("me", "me")
    one, two = (
        subscribe(dial(container=container(identifier)), exchange, Shared(*besides), name=name)
        for identifier, name in zip(identifiers, ("news", "news|2"), strict=True)
    )
    assert publish(dial, exchange, *range(10)) == [ACCEPTED] * 10
    shares = [bodies(take(one, 4)), bodies(drain(two, 100))]
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    one.close()
    assert publish(dial, exchange, 10) == [ACCEPTED]
    assert bodies(take(two, 5)) == [0, 1, 2, 3, 10]
    two.close()
    assert publish(dial, exchange, 11) == [RELEASED]


def test_a_durable_subscription_outlives_the_broker(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    durable = reactor.DurableSubscription()

    def dial(**options: Any) -> Any:
        return utils.BlockingConnection(url(daemon.address), timeout=PATIENCE_S, **options)

    detach(subscribe(dial(container=container("me")), "amq.topic", durable))
    assert publish(dial, "amq.topic", 1) == [ACCEPTED]
    daemon.kill()
    daemon = start_daemon(port=daemon.address.port)
    assert publish(dial, "amq.topic", 2) == [ACCEPTED]
    receiver = subscribe(dial(container=container("me")), "amq.topic", durable)
    assert bodies(take(receiver, 2)) == [1, 2]
    receiver.connection.close()
