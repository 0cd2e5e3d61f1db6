"""AMQP 1.0: a link that is attached again while it is there. [amqp-1.0 2.6.1]"""

import pytest

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Detach, Flow
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import Begins, PeerSession10, receiver, sender

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

STOLEN = "amqp:link:stolen"


def attach(node: str, handle: int, receives: bool, durable: int = 0) -> Attach:
    """Return the attach of a link, always with the same name."""
    if receives:
        return receiver(node, handle, name="one", source=Source(address=node, durable=durable))
    return sender(node, handle, name="one", target=Target(address=node, durable=durable))


def attached(session: PeerSession10, attach: Attach) -> None:
    """Attach the link and expect its answer."""
    session.write(attach)
    answer = session.expect(Attach)
    assert answer.source is not None
    assert answer.target is not None
    if not attach.role:
        session.expect(Flow)


@pytest.mark.spec("amqp-1.0", "2.6.1")
@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
def test_in_the_same_session(session: PeerSession10, node: str, receives: bool) -> None:
    attached(session, attach(node, 0, receives))
    session.write(attach(node, 1, receives))
    session.expect_detach(0, STOLEN)
    assert session.expect(Attach).handle == 1


@pytest.mark.spec("amqp-1.0", "2.6.1")
@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
def test_in_another_session_of_the_connection(session: PeerSession10, node: str, receives: bool) -> None:
    attached(session, attach(node, 0, receives))
    other = PeerSession10(session.peer, channel=1)
    other.write(attach(node, 0, receives))
    session.expect_detach(0, STOLEN)
    assert other.expect(Attach).handle == 0
    if not receives:
        other.expect(Flow)
        other.publish(0, 1)
    session.end()
    other.end()


@pytest.mark.spec("amqp-1.0", "2.6.1")
@pytest.mark.parametrize("durable", [0, 1, 2])
@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
def test_a_durable_link_is_stolen_by_another_connection_of_the_container(
    begin: Begins, node: str, receives: bool, durable: int
) -> None:
    first, second = begin(), begin()
    attached(first, attach(node, 0, receives, durable))
    attached(second, attach(node, 0, receives, durable))
    if durable:
        first.expect_detach(0, STOLEN)
    else:
        first.detach(0)
    second.detach(0)


@pytest.mark.spec("amqp-1.0", "2.6.1")
def test_a_stolen_link_gets_the_deliveries_of_the_earlier_link_again(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for number in range(3):
        channel.publish(b"%d" % number, node)
    attached(session, attach(node, 0, receives=True))
    session.allow(0, 2)
    for _ in range(2):
        session.delivery(0)
    session.write(attach(node, 1, receives=True))
    stolen = session.expect(Detach)
    assert (stolen.handle, stolen.error is not None and stolen.error.condition) == (0, STOLEN)
    assert session.expect(Attach).handle == 1
    session.allow(1, 3)
    assert [session.delivery(1).payload[-1:] for _ in range(3)] == [b"0", b"1", b"2"]
