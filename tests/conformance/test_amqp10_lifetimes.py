"""AMQP 1.0: dynamic nodes that outlive their link, until there are no links or messages. [amqp-1.0 3.5.11]"""

import time

import pytest

from protocol.amqp10.composites import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Released,
    Source,
    Target,
)
from protocol.amqp10.performatives import Attach, Close, Detach, Flow
from protocol.amqp10.types import Composite, Described, Symbol
from tests.support.admin.api import Api
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import Begins, PeerSession10
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

LIFETIME = Symbol("lifetime-policy")
QUEUES = "/queues/"


def attach_target(session: PeerSession10, policy: object, *capabilities: str) -> str:
    """Have a sender's node made, which is to be there for so long; returns its name."""
    target = Target(
        dynamic=True,
        dynamic_node_properties={LIFETIME: policy},
        capabilities=tuple(Symbol(each) for each in capabilities),
    )
    session.write(Attach(name="makes", handle=0, role=False, target=target, initial_delivery_count=0))
    answer = session.expect(Attach)
    assert isinstance(answer.target, Target)
    assert answer.target.dynamic_node_properties is not None
    given = answer.target.dynamic_node_properties[LIFETIME]
    assert isinstance(given, Described)
    if isinstance(policy, Composite):
        assert given.descriptor == policy.DESCRIPTOR
    session.expect(Flow)
    assert answer.target.address is not None
    return answer.target.address.removeprefix(QUEUES)


def expect_detached(session: PeerSession10) -> int:
    """Expect that a link ends with its node; return the handle."""
    detach = session.expect(Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-deleted"
    return detach.handle


def is_there(api: Api, name: str) -> bool:
    """Whether there is such a queue."""
    return api.ask("GET", "queues", "/", name).status_code == 200


def expect_gone(api: Api, name: str) -> None:
    """Wait until the queue is deleted."""
    end = time.monotonic() + PATIENCE_S
    while is_there(api, name):
        assert time.monotonic() < end, "the queue stays"


@pytest.mark.spec("amqp-1.0", "3.5.11")
def test_a_node_without_links_goes_when_the_last_one_does(begin: Begins, api: Api) -> None:
    session, other, last = begin(), begin(), begin()
    name = attach_target(session, DeleteOnNoLinks())
    session.publish(0, 1)
    other.receives(QUEUES + name)
    last.sends(QUEUES + name)
    session.detach()
    other.expect_silence()
    other.detach()
    other.expect_silence()
    assert is_there(api, name)
    last.detach()
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.11")
def test_a_node_without_links_outlives_its_connection_with_a_consumer_of_the_other_protocol(
    begin: Begins, api: Api, channel: PeerChannel
) -> None:
    session = begin()
    name = attach_target(session, DeleteOnNoLinks())
    tag = channel.consume(name)
    session.peer.write(Close())
    session.peer.expect(Close)
    assert channel.counts(name) == (0, 1)
    channel.cancel(tag)
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.12")
def test_a_node_without_messages_stays_with_its_link_and_goes_with_the_last_message(
    begin: Begins, api: Api
) -> None:
    session, other = begin(), begin()
    name = attach_target(session, DeleteOnNoMessages())
    other.sends(QUEUES + name, 1)
    other.receives(QUEUES + name, 0, credit=9)
    session.publish(0, 1)
    other.settle(other.delivery().id)
    other.expect_silence()  # the queue is empty, and has its link
    session.publish(0, 2, first=1)
    first, second = other.delivery().id, other.delivery().id
    session.detach()
    other.settle(first)
    other.settle(second, state=Released())  # a release does not end the queue
    second = other.delivery().id
    other.expect_silence()
    assert is_there(api, name)
    other.settle(second)
    assert {expect_detached(other), expect_detached(other)} == {0, 1}
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.12")
def test_a_node_that_is_empty_goes_with_its_link(begin: Begins, api: Api) -> None:
    session = begin()
    name = attach_target(session, DeleteOnNoMessages())
    session.detach()
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.13")
@pytest.mark.parametrize("way", ["settled", "purged"])
def test_a_node_without_links_or_messages_waits_for_the_end_of_both(
    begin: Begins, api: Api, channel: PeerChannel, way: str
) -> None:
    session, other = begin(), begin()
    name = attach_target(session, Described(Symbol("amqp:delete-on-no-links-or-messages:list"), []))
    session.publish(0, 1)
    session.detach()
    session.expect_silence()
    assert is_there(api, name)  # no links
    other.receives(QUEUES + name, credit=1)
    delivery = other.delivery().id
    if way == "settled":
        other.settle(delivery)
        other.expect_silence()
        assert is_there(api, name)  # no messages
        other.detach()
    else:
        other.detach()
        other.expect_silence()
        assert is_there(api, name)
        api.delete("queues", "/", name, "contents")
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.13")
def test_a_link_that_is_detached_and_not_closed_is_one_until_its_connection_ends(
    begin: Begins, api: Api
) -> None:
    session = begin()
    name = attach_target(session, DeleteOnNoLinksOrMessages())
    session.detach(closed=False)
    session.expect_silence()
    assert is_there(api, name)
    session.peer.write(Close())
    session.peer.expect(Close)
    expect_gone(api, name)


@pytest.mark.spec("amqp-1.0", "3.5.2")
@pytest.mark.parametrize("policy", [DeleteOnClose(), DeleteOnNoMessages()])
def test_a_temporary_queue_is_its_connections_own(begin: Begins, api: Api, policy: Composite) -> None:
    session, other = begin(), begin()
    name = attach_target(session, policy, "temporary-queue")
    session.publish(0, 1)
    source = Source(address=QUEUES + name)
    other.write(Attach(name="other", handle=0, role=True, source=source, target=Target()))
    assert other.expect(Attach).source is None
    other.expect_detach(0, "amqp:resource-locked")
    session.peer.write(Close())
    session.peer.expect(Close)
    expect_gone(api, name)
