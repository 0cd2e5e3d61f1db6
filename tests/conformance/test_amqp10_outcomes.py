"""AMQP 1.0: what becomes of messages by their outcomes, and what is kept of them. [amqp-1.0 3.2, 3.4]"""

import pytest

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Header, Modified, Rejected, Released
from protocol.amqp10.performatives import Detach
from tests.peer_channel import PeerChannel
from tests.peer_session10 import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

DATA = bytes.fromhex("005375a00178")
ODD = {
    "list32 for a small one": "005373d00000000700000001a10161" + DATA.hex(),
    "a descriptor by name": "00a310616d71703a646174613a62696e617279a00178",
    "a long binary": "005375b00000000178",
    "several": DATA.hex() * 3,
    "a sequence": "005376450053764500537645",
    "a value": "00537740",
    "a footer": DATA.hex() + "005378c10100",
}
WRONG = {
    "no section": "40",
    "properties behind the body": DATA.hex() + "00537345",
    "two values": "0053774000537740",
    "data and a value": DATA.hex() + "00537740",
    "a body of another type": "00537545",
    "cut short": DATA.hex()[:-2],
}


def header(payload: bytes) -> Header:
    found, _ = decode_composite(payload)
    assert isinstance(found, Header)
    return found


@pytest.mark.spec("amqp-1.0", "3.4")
@pytest.mark.parametrize(
    ("state", "back", "count"),
    [
        (Accepted(), False, 0),
        (Rejected(), False, 0),
        (Released(), True, 0),
        (Modified(), True, 0),
        (Modified(delivery_failed=True), True, 1),
    ],
    ids=["accepted", "rejected", "released", "modified", "failed"],
)
def test_what_an_outcome_does(
    session: PeerSession10, node: str, state: DeliveryState, back: bool, count: int
) -> None:
    session.sends(node, 1)
    session.publish(1, 1)
    session.receives(node, 0, 1)
    first = header(session.delivery().payload)
    assert (first.first_acquirer, first.delivery_count or 0) == (True, 0)
    session.settle(0, state=state)
    session.allow(0, 1, 1)
    if not back:
        session.expect_silence()
        return
    again = header(session.delivery().payload)
    assert (again.first_acquirer or False, again.delivery_count or 0) == (False, count)


@pytest.mark.spec("amqp-1.0", "3.4.4")
def test_messages_come_back_in_their_order(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    for number in range(10):
        channel.publish(b"%d" % number, node)
    session.receives(node, 0, 10)
    for _ in range(10):
        session.delivery()
    for number in (7, 2, 5):
        session.settle(number, state=Released())
    session.settle(0, 9, Released())
    session.allow(0, 10, 10)
    assert [session.delivery().payload[-1:] for _ in range(10)] == [b"%d" % number for number in range(10)]


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize("bare", ODD.values(), ids=ODD.keys())
def test_the_bare_message_is_what_it_was(session: PeerSession10, node: str, bare: str) -> None:
    session.sends(node, 1)
    session.publish(1, 1, bytes.fromhex(bare))
    session.receives(node, 0, 1)
    assert session.delivery().payload.endswith(bytes.fromhex(bare))


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize("bare", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_message(session: PeerSession10, channel: PeerChannel, node: str, bare: str) -> None:
    session.sends(node)
    session.transfer(0, bytes.fromhex(bare))
    said = session.expect(Detach)
    assert said.error is not None
    assert said.error.condition in ("amqp:decode-error", "amqp:not-implemented")
    assert channel.counts(node)[0] == 0
