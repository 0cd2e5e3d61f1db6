"""Dynamic nodes and subscriptions of AMQP 1.0: nodes that are created and deleted with a link."""

import pytest

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Detach, Flow
from protocol.amqp10.types import Described, Symbol
from tests.support.amqp10.contents import bare10, content10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, PeerSession10
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

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
    found = attached(again, 2, name=name)  # the broker knows the source of this name
    assert found.source is not None
    assert found.source.address == TOPIC + key
    again.detach(2, True)
    assert attached(again, 3, name=name).source is None
    again.expect_detach(3, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_subscription_to_another_topic_begins_without_old_messages(begin: Begins, name: str) -> None:
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


def no_local() -> dict[str, object]:
    """Return the filter that excludes messages of the link's own connection."""
    return {"local": Described(Symbol("apache.org:no-local-filter:list"), [])}


@pytest.mark.spec("amqp-1.0", "3.5.8")
@pytest.mark.parametrize("exchange", ["amq.topic", "amq.fanout", "amq.headers"])
def test_a_no_local_subscription_gets_only_messages_of_other_connections(
    begin: Begins, name: str, exchange: str
) -> None:
    session, other = begin(), begin()
    address = f"/exchanges/{exchange}/{name.rpartition('.')[2]}"
    answer = attached(session, 1, source=Source(address=address, filter=no_local()))
    assert answer.source is not None
    assert list(answer.source.filter or {}) == ["local"]
    session.allow(1, 10)
    session.sends(None)
    other.sends(None)
    attached(other, 1, source=Source(address=address))
    other.allow(1, 10)
    other.expect_silence()
    post(session, address, 0)  # at least the other link gets the message
    other.settle(other.delivery(1).id)
    session.expect_silence()
    post(other, address, 0)
    session.settle(session.delivery(1).id)


@pytest.mark.spec("amqp-1.0", "3.5.8")
def test_a_message_only_for_a_no_local_subscription_of_its_sender_is_not_accepted(
    session: PeerSession10, name: str
) -> None:
    address = TOPIC + name.rpartition(".")[2]
    session.sends(None)
    attached(session, 1, source=Source(address=address))
    session.allow(1, 10)
    post(session, address, 0)
    session.settle(session.delivery(1).id)
    session.detach(1)
    attached(session, 2, source=Source(address=address, filter=no_local()))
    session.allow(2, 10)
    session.transfer(0, bare10(to=address), 1)
    assert type(session.outcome(1)).__name__ == "Rejected"  # as it is on a link for any address
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.5.8")
def test_a_detached_no_local_subscription_gets_no_message_of_its_container(
    begin: Begins, meet: Meet, name: str
) -> None:
    key = name.rpartition(".")[2]
    session = begin()
    answer = subscribe(session, key, name, filter=no_local())
    assert answer.source is not None
    assert answer.source.filter is not None
    session.detach(1, False)
    session.end()
    again = begin()
    again.sends(None)
    again.transfer(0, bare10(to=TOPIC + key), 0)
    assert type(again.outcome(0)).__name__ == "Rejected"
    peer = meet()
    peer.open(container_id="other")
    other = PeerSession10(peer)
    other.sends(None)
    post(other, TOPIC + key, 0)
    subscribe(again, key, name, filter=no_local())
    again.settle(again.delivery(1).id)
    again.detach(1, False)
    subscribe(again, key, name)  # another subscription
    post(again, TOPIC + key, 1)
    again.settle(again.delivery(1).id)
    again.detach(1, True)


@pytest.mark.spec("amqp-1.0", "3.5.8")
def test_local_messages_with_further_keys_stay_away_too(
    session: PeerSession10, begin: Begins, name: str
) -> None:
    key = name.rpartition(".")[2]
    other = begin()
    for receiver, given in ((session, no_local()), (other, None)):
        attached(receiver, 1, source=Source(address=TOPIC + key, filter=given))
        receiver.allow(1, 10)
    other.expect_silence()
    session.sends(TOPIC + "elsewhere." + key)
    session.transfer(0, content10({"x-cc": [key]}), 0)
    assert type(session.outcome(0)).__name__ == "Accepted"
    other.settle(other.delivery(1).id)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.parametrize("what", ["a queue", "a shared subscription"])
def test_no_local_is_not_in_force_on_queues_and_shared_subscriptions(
    session: PeerSession10, node: str, what: str
) -> None:
    shared = Source(address=TOPIC + "key", capabilities=(Symbol("shared"),), filter=no_local())
    source = Source(address=node, filter=no_local()) if what == "a queue" else shared
    answer = attached(session, 1, source=source)
    assert answer.source is not None
    assert not answer.source.filter
    session.detach(1, True)


@pytest.mark.spec("amqp-1.0", "3.5.8")
def test_the_no_local_owner_of_a_durable_subscription_survives_a_restart(
    start_daemon: DaemonStarter, meet: Meet
) -> None:
    daemon = start_daemon()
    peer = meet(daemon.address)
    peer.open()
    subscribe(PeerSession10(peer), "key", "durable", filter=no_local())
    daemon.kill()
    daemon = start_daemon()
    for container, outcome in (("test", "Rejected"), ("other", "Accepted")):
        peer = meet(daemon.address)
        peer.open(container_id=container)
        session = PeerSession10(peer)
        session.sends(None)
        session.transfer(0, bare10(to=TOPIC + "key"), 0)
        assert type(session.outcome(0)).__name__ == outcome
