"""AMQP 1.0: sole connections of a container. [sole connection 1.0]"""

import pytest

from protocol.amqp10.performatives import Close, Open
from protocol.amqp10.types import Symbol, Uint
from tests.support.admin.api import Api
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer import Meet, Peer10
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ does not know of it")

SOLE = Symbol("sole-connection-for-container")
ENFORCEMENT = Symbol("sole-connection-enforcement-policy")
DETECTION = Symbol("sole-connection-detection-policy")
REFUSE, CLOSE_EXISTING = 0, 1
STRONG, WEAK = 0, 1


def sole(
    meet: Meet, container: str, policy: int | None = None, detection: int | None = None, **fields: object
) -> Peer10:
    """Open a connection that requests to be the only one of its container."""
    asked = {ENFORCEMENT: policy, DETECTION: detection}
    peer = meet()
    peer.open(
        container_id=container,
        desired_capabilities=(SOLE,),
        properties={name: Uint(value) for name, value in asked.items() if value is not None},
        **fields,
    )
    return peer


def plain(meet: Meet, container: str) -> Peer10:
    """A connection of the container that wants nothing."""
    peer = meet()
    peer.open(container_id=container)
    return peer


def expect_refused(peer: Peer10) -> None:
    """Expect an open that is followed by a close."""
    refused = peer.expect_close("amqp:invalid-field", "container")
    assert refused.error is not None
    assert refused.error.info == {"invalid-field": "container-id"}


def expect_place_taken(peer: Peer10) -> None:
    """Expect the close of a connection that another connection replaces."""
    closed = peer.expect_close("amqp:resource-locked")
    assert closed.error is not None
    assert closed.error.info == {"sole-connection-enforcement": True}


def expect_alive(peer: Peer10) -> None:
    """Check that the connection is still open."""
    PeerSession10(peer).end()


@pytest.mark.spec("soleconn-1.0", "2")
@pytest.mark.parametrize("policy", [REFUSE, CLOSE_EXISTING], ids=["refuse", "close"])
def test_the_capability_is_offered(meet: Meet, name: str, policy: int) -> None:
    peer = meet()
    answer = peer.open(
        container_id=name, desired_capabilities=(SOLE,), properties={ENFORCEMENT: Uint(policy)}
    )
    assert SOLE in answer.offered_capabilities
    expect_alive(peer)


@pytest.mark.spec("soleconn-1.0", "3")
@pytest.mark.parametrize("policy", [None, REFUSE], ids=["by default", "refuse"])
def test_another_connection_of_the_container_is_refused(meet: Meet, name: str, policy: int | None) -> None:
    first = sole(meet, name)
    second = meet()
    answer = second.open(
        container_id=name,
        desired_capabilities=(SOLE,),
        properties=None if policy is None else {ENFORCEMENT: Uint(policy)},
    )
    assert answer.properties is not None
    assert answer.properties["amqp:connection-establishment-failed"] is True
    expect_refused(second)
    expect_alive(first)
    expect_alive(sole(meet, name + " other"))


@pytest.mark.spec("soleconn-1.0", "3")
def test_a_connection_of_the_container_gives_its_place(meet: Meet, name: str) -> None:
    first = sole(meet, name, CLOSE_EXISTING)
    second = sole(meet, name, CLOSE_EXISTING)
    expect_place_taken(first)
    expect_alive(second)


@pytest.mark.spec("soleconn-1.0", "3")
def test_close_existing_closes_all_connections_of_the_container(meet: Meet, name: str) -> None:
    before = [plain(meet, name) for _ in range(5)]
    expect_alive(sole(meet, name, CLOSE_EXISTING))
    for peer in before:
        expect_place_taken(peer)


@pytest.mark.spec("soleconn-1.0", "3")
@pytest.mark.parametrize("detection", [None, STRONG], ids=["by default", "strong"])
@pytest.mark.parametrize("policy", [REFUSE, CLOSE_EXISTING], ids=["refuse", "close"])
def test_strong_detection_sees_connections_without_a_policy(
    meet: Meet, name: str, policy: int, detection: int | None
) -> None:
    first = plain(meet, name)
    second = sole(meet, name, policy, detection)
    if policy == REFUSE:
        expect_refused(second)
        expect_alive(first)
    else:
        expect_place_taken(first)
        expect_alive(second)


@pytest.mark.spec("soleconn-1.0", "3")
@pytest.mark.parametrize("policy", [REFUSE, CLOSE_EXISTING], ids=["refuse", "close"])
def test_weak_detection_sees_only_connections_with_a_policy(meet: Meet, name: str, policy: int) -> None:
    first = plain(meet, name)
    second = sole(meet, name, policy, WEAK)
    expect_alive(first)
    expect_alive(second)
    third = sole(meet, name, policy, WEAK)
    if policy == REFUSE:
        expect_refused(third)
        expect_alive(second)
    else:
        expect_place_taken(second)
        expect_alive(third)
    expect_alive(first)


@pytest.mark.spec("soleconn-1.0", "3")
def test_the_policy_of_the_later_connection_counts(meet: Meet, name: str) -> None:
    first = sole(meet, name, CLOSE_EXISTING)
    expect_refused(sole(meet, name, REFUSE))
    expect_alive(first)
    second = sole(meet, name, CLOSE_EXISTING)
    expect_place_taken(first)
    expect_refused(sole(meet, name, REFUSE))
    expect_alive(second)


@pytest.mark.spec("soleconn-1.0", "3")
def test_a_connection_without_the_capability_is_accepted(meet: Meet, name: str) -> None:
    first = sole(meet, name)
    expect_alive(plain(meet, name))
    expect_alive(first)


@pytest.mark.spec("soleconn-1.0", "3")
def test_the_place_is_free_when_a_connection_has_ended(meet: Meet, name: str) -> None:
    first = sole(meet, name)
    first.write(Close())
    assert first.expect(Close).error is None
    expect_alive(sole(meet, name))


@pytest.mark.spec("soleconn-1.0", "3")
def test_a_container_id_in_another_virtual_host_is_another_container(
    meet: Meet, name: str, api: Api, vhost: str
) -> None:
    first = sole(meet, name)
    expect_alive(sole(meet, name, hostname=f"vhost:{vhost}"))
    expect_alive(first)


@pytest.mark.spec("soleconn-1.0", "3")
@pytest.mark.parametrize("field", [ENFORCEMENT, DETECTION], ids=["enforcement", "detection"])
@pytest.mark.parametrize("value", [Uint(2), True, "close"], ids=["high", "boolean", "text"])
def test_an_invalid_sole_connection_policy_closes_the_connection(
    meet: Meet, name: str, field: Symbol, value: object
) -> None:
    peer = meet()
    peer.log_in()
    peer.write(Open(container_id=name, desired_capabilities=(SOLE,), properties={field: value}))
    peer.expect(Open)
    peer.expect_close("amqp:invalid-field", field)


@pytest.mark.spec("soleconn-1.0", "3")
@pytest.mark.parametrize("policy", [REFUSE, CLOSE_EXISTING], ids=["refuse", "close"])
def test_connections_of_amqp_0_9_1_are_of_no_container(meet: Meet, channel: PeerChannel, policy: int) -> None:
    """A connection without a container-id has no effect on AMQP 0-9-1 either."""
    peer = sole(meet, "", policy, STRONG)
    expect_alive(peer)
    channel.round_trip()
