"""Dynamic nodes and subscriptions of AMQP 1.0: what comes and goes with a link."""

import pytest

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Detach, Flow
from protocol.amqp10.types import Described, Symbol
from tests.contents10 import bare10
from tests.peer_session10 import Begins, PeerSession10

TOPIC = "/exchanges/amq.topic/"


def attached(session: PeerSession10, handle: int, **fields: object) -> Attach:
    """The broker's answer to the attach of a receiver."""
    values = {"name": f"link {handle}", "target": Target(), "role": True, **fields}
    session.write(Attach(handle=handle, **values))  # type: ignore[arg-type]
    return session.expect(Attach)


def subscribe(session: PeerSession10, key: str, name: str, handle: int = 1, **fields: object) -> Attach:
    """Attach a durable subscription, and allow ten deliveries."""
    source = Source(address=TOPIC + key, durable=2, expiry_policy="never", **fields)  # type: ignore[arg-type]
    answer = attached(session, handle, name=name, source=source)
    session.allow(handle, 10)
    return answer


def post(session: PeerSession10, address: str, number: int, handle: int = 0) -> None:
    """Send to an address, and see it accepted."""
    session.transfer(handle, bare10(to=address), number)
    state = session.outcome(number)
    assert type(state).__name__ == "Accepted", state


@pytest.mark.spec("amqp-1.0", "3.5.10")
@pytest.mark.parametrize("closed", [True, False])
def test_a_dynamic_node_goes_when_its_link_is_closed(
    session: PeerSession10, begin: Begins, closed: bool
) -> None:
    answer = attached(session, 1, source=Source(dynamic=True))
    assert answer.source is not None
    address = answer.source.address
    assert address is not None
    other = begin()
    other.sends(address)
    other.publish(0, 1)
    session.allow(1, 1)
    session.settle(session.delivery(1).id)
    assert attached(other, 5, source=Source(address=address)).source is None
    other.expect_detach(5, "amqp:resource-locked")
    session.detach(1, closed)
    if closed:
        other.expect_detach(0, "amqp:resource-deleted")
    else:
        other.publish(0, 1, first=7)
    session.end()


@pytest.mark.spec("amqp-1.0", "3.5.10")
@pytest.mark.spec("amqp-1.0", "3.5.9")
def test_a_lifetime_that_is_not_known_is_refused(session: PeerSession10) -> None:
    policy = Described(Symbol("example:delete-on-monday:list"), [])
    properties: dict[str, object] = {Symbol("lifetime-policy"): policy}
    answer = attached(session, 1, source=Source(dynamic=True, dynamic_node_properties=properties))
    assert answer.source is None
    session.expect_detach(1, "amqp:not-implemented")


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.spec("amqp-1.0", "3.5.5")
@pytest.mark.spec("amqp-1.0", "3.5.6")
def test_a_durable_subscription_outlives_its_connection(begin: Begins, name: str) -> None:
    key = name.rpartition(".")[2]
    session = begin()
    subscribe(session, key, name)
    session.detach(1, False)
    sender = begin()
    sender.sends(None)
    post(sender, TOPIC + key, 0)
    again = begin()
    subscribe(again, key, name)
    again.settle(again.delivery(1).id)
    again.detach(1, False)
    found = attached(again, 2, name=name)  # whose source the broker knows
    assert found.source is not None
    assert found.source.address == TOPIC + key
    again.detach(2, True)
    assert attached(again, 3, name=name).source is None
    again.expect_detach(3, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_subscription_to_something_else_begins_anew(begin: Begins, name: str) -> None:
    session = begin()
    subscribe(session, "one", name)
    session.detach(1, False)
    sender = begin()
    sender.sends(None)
    post(sender, TOPIC + "one", 0)
    subscribe(session, "two", name)
    session.expect_silence()
    session.detach(1, True)


@pytest.mark.spec("amqp-1.0", "2.6.1")
def test_a_durable_subscription_is_taken_over(begin: Begins, name: str) -> None:
    first, second = begin(), begin()
    subscribe(first, "key", name)
    subscribe(second, "key", name)
    first.expect_detach(1, "amqp:link:stolen")
    second.detach(1, True)


@pytest.mark.spec("amqp-1.0", "3.5.1")
def test_a_shared_subscription_has_several_links(begin: Begins, name: str) -> None:
    first, second = begin(), begin()
    capabilities = (Symbol("shared"),)
    subscribe(first, "shared", name + "|1", capabilities=capabilities)
    subscribe(second, "shared", name + "|2", capabilities=capabilities)
    sender = begin()
    sender.sends(None)
    for number in range(4):
        post(sender, TOPIC + "shared", number)
    for session in (first, second):
        for _ in range(2):
            session.settle(session.delivery(1).id)
    first.detach(1, False)
    post(sender, TOPIC + "shared", 4)
    second.settle(second.delivery(1).id)
    second.detach(1, True)


@pytest.mark.spec("amqp-1.0", "2.6.1")
def test_a_link_of_the_same_name_in_one_connection_is_stolen(session: PeerSession10, node: str) -> None:
    session.receives(node, 0, name="twice")
    session.write(Attach(name="twice", handle=1, role=True, source=Source(address=node), target=Target()))
    stolen = session.expect(Detach)
    assert (stolen.handle, stolen.error is not None and stolen.error.condition) == (0, "amqp:link:stolen")
    assert session.expect(Attach).source is not None
    session.write(Detach(handle=0, closed=True))
    session.flow(echo=True)
    assert session.expect(Flow).handle is None
