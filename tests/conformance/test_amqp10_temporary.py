"""AMQP 1.0: temporary queues and topics, which are their connection's own.

[amqp-1.0 3.5.2, 3.5.10, JMS mapping 5.3]
"""

import pytest

from protocol.amqp10.composites import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
)
from protocol.amqp10.performatives import Attach, Close, Detach, Flow
from protocol.amqp10.types import Composite, Described, Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer_session import Begins, PeerSession10, receiver, sender
from tests.support.effort import combinations

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

LIFETIME = Symbol("lifetime-policy")
POLICIES = [None, DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages()]
KINDS = ["temporary-queue", "temporary-topic"]
SIDES = [Source, Target]
by_kind = pytest.mark.parametrize("kind", KINDS)
by_side = pytest.mark.parametrize("side", SIDES, ids=["source", "target"])


def make(
    session: PeerSession10, kind: str, side: type[Source | Target], policy: Composite | None = None
) -> str:
    """Have a node made with a link on handle 0; returns its address."""
    properties: dict[str, object] | None = None if policy is None else {LIFETIME: policy}
    node = side(dynamic=True, dynamic_node_properties=properties, capabilities=(Symbol(kind),))
    if isinstance(node, Source):
        session.write(receiver(None, source=node))
        given: object = session.expect(Attach).source
    else:
        session.write(sender(None, target=node))
        given = session.expect(Attach).target
        session.expect(Flow)
    assert isinstance(given, Source | Target)
    assert given.dynamic
    assert given.capabilities == (kind,)
    assert given.address is not None
    assert given.dynamic_node_properties is not None
    lifetime = given.dynamic_node_properties[LIFETIME]
    assert isinstance(lifetime, Described)
    assert lifetime.descriptor == (policy or DeleteOnClose()).DESCRIPTOR
    return given.address


def expect_refused(session: PeerSession10, attach: Attach, condition: str) -> None:
    """A link gets no terminus, and is detached for this reason."""
    session.write(attach)
    answer = session.expect(Attach)
    assert (answer.source if attach.role else answer.target) is None
    session.expect_detach(attach.handle, condition)


@by_kind
@by_side
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.spec("amqp-1.0", "3.5.2")
def test_other_connections_send_to_a_dynamic_node_and_its_owner_receives(
    begin: Begins, kind: str, side: type[Source | Target], policy: Composite | None
) -> None:
    owner, other = begin(), begin()
    address = make(owner, kind, side, policy)
    other.sends(address)
    other.publish(0, 1, bare10(body=b"\0Su\xa0\1a"))
    with_the_owner = PeerSession10(owner.peer, 1)  # any session of the connection will do
    with_the_owner.receives(address, 5, 10)
    delivery = with_the_owner.delivery(5)
    assert delivery.payload.endswith(b"a")
    with_the_owner.settle(delivery.id)
    with_the_owner.sends(address, 6)
    with_the_owner.transfer(6, bare10(body=b"\0Su\xa0\1b"), 0, settled=True)
    assert with_the_owner.delivery(5).payload.endswith(b"b")


@by_kind
@by_side
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.spec("amqp-1.0", "3.5.2")
def test_other_connections_may_not_receive_from_a_dynamic_node(
    begin: Begins, kind: str, side: type[Source | Target], policy: Composite | None
) -> None:
    owner, other = begin(), begin()
    address = make(owner, kind, side, policy)
    expect_refused(other, receiver(address, 3), "amqp:resource-locked")
    looking = Source(address=address, distribution_mode="copy")
    expect_refused(other, receiver(None, 4, source=looking), "amqp:resource-locked")
    expect_refused(
        other,
        receiver(None, 5, source=Source(address=address, capabilities=(Symbol(kind),))),
        "amqp:resource-locked",
    )
    other.sends(address)
    other.publish(0, 1)  # the message waits for the queue's owner
    owner.receives(address, 1, 1)
    owner.delivery(1)


@pytest.mark.parametrize(
    ("policy", "kind", "side", "ending"), combinations(POLICIES, KINDS, SIDES, ["closed", "lost"])
)
@pytest.mark.spec("amqp-1.0", "3.5.10")
def test_a_temporary_node_is_deleted_with_its_connection(
    begin: Begins,
    channel: PeerChannel,
    kind: str,
    side: type[Source | Target],
    policy: Composite | None,
    ending: str,
) -> None:
    """Senders learn of the deletion, also while there are messages, and links of other connections."""
    owner, other = begin(), begin()
    address = make(owner, kind, side, policy)
    other.sends(address)
    other.publish(0, 1)
    if ending == "closed":
        owner.peer.write(Close())
        owner.peer.expect(Close)
    else:
        owner.peer.socket.close()
    other.expect_detach(0, "amqp:resource-deleted")
    expect_refused(other, sender(address, 1), "amqp:not-found")
    expect_refused(other, receiver(address, 2), "amqp:not-found")


@by_kind
@by_side
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])
@pytest.mark.spec("amqp-1.0", "3.5.10")
def test_a_temporary_node_is_deleted_with_a_closed_link_and_not_with_a_detached_one(
    begin: Begins, kind: str, side: type[Source | Target], closed: bool
) -> None:
    owner, other = begin(), begin()
    address = make(owner, kind, side)
    other.sends(address)
    other.publish(0, 1)
    owner.detach(closed=closed)
    if closed:
        other.expect_detach(0, "amqp:resource-deleted")
        expect_refused(owner, receiver(address, 1), "amqp:not-found")
    else:
        owner.receives(address, 1, 1)
        owner.delivery(1)
        other.expect_silence()


@by_kind
@pytest.mark.spec("amqp-1.0", "3.5.10")
def test_a_temporary_node_is_deleted_though_its_own_connection_receives_from_it(
    begin: Begins, kind: str
) -> None:
    """Closing the link that it came with ends the others."""
    owner = begin()
    address = make(owner, kind, Target)
    owner.receives(address, 1, 1)
    owner.publish(0, 1)
    owner.delivery(1)
    owner.write(Detach(handle=0, closed=True))
    handles = set()
    for _ in range(2):
        detach = owner.expect(Detach)
        assert (detach.error is None) == (detach.handle == 0)
        handles.add(detach.handle)
    assert handles == {0, 1}
