"""AMQP 1.0: the effect of each outcome on the message, and recovery. [amqp-1.0 3.2, 3.4]"""

import pytest
from pamqp.commands import Queue
from pamqp.common import FieldTable

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Header, Modified, Rejected, Released, Source
from protocol.amqp10.performatives import Detach
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import Begins, Delivery, PeerSession10

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


def put(session: PeerSession10, channel: PeerChannel, queue: str, converted: bool) -> None:
    """Have a message in the queue, published with AMQP 0-9-1 or 1.0."""
    if converted:
        channel.publish(b"x", queue)
        channel.round_trip()
    else:
        session.sends(queue, 1)
        session.publish(1, 1)
        session.detach(1)


def tried(delivery: Delivery) -> tuple[bool, int]:
    """Whether a delivery says that it is the first, and of how many failed ones it tells."""
    found, _ = decode_composite(delivery.payload)
    assert isinstance(found, Header)
    return found.first_acquirer or False, found.delivery_count or 0


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
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
def test_effect_of_each_outcome(
    session: PeerSession10,
    channel: PeerChannel,
    node: str,
    state: DeliveryState,
    back: bool,
    count: int,
    converted: bool,
) -> None:
    put(session, channel, node, converted)
    session.receives(node, 0, 1)
    assert tried(session.delivery()) == (True, 0)
    session.settle(0, state=state)
    session.allow(0, 1, 1)
    if back:
        assert tried(session.delivery()) == (False, count)
    else:
        session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.4.4")
@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_released_does_not_increment_the_delivery_count_of_a_queue_that_delays_retries(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = f"{name}.delaying"
    arguments: FieldTable = {
        "x-queue-type": "quorum",
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": 1,
    }
    channel.declare(queue, durable=True, arguments=arguments)
    put(session, channel, queue, True)
    session.receives(queue, 0, 3)
    assert tried(session.delivery()) == (True, 0)
    session.settle(0, state=Released())
    assert tried(session.delivery()) == (False, 0)
    session.settle(1, state=Modified(delivery_failed=True))
    assert tried(session.delivery()) == (False, 1)
    session.settle(2)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.spec("amqp-1.0", "3.2.1")
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
def test_the_delivery_count_includes_failures_of_both_protocols(
    begin: Begins, session: PeerSession10, channel: PeerChannel, node: str, converted: bool
) -> None:
    put(session, channel, node, converted)
    session.receives(node, 0, 1)
    assert tried(session.delivery()) == (True, 0)
    session.settle(0, state=Modified(delivery_failed=True))
    session.allow(0, 1, 1)
    assert tried(session.delivery()) == (False, 1)
    session.settle(1, state=Released())
    session.allow(0, 1, 2)
    assert tried(session.delivery()) == (False, 1)
    session.detach(0)  # the detach leaves the delivery unsettled
    got = channel.get(node, no_ack=False)
    assert got is not None
    assert got.redelivered
    channel.nack(got.tag)
    other = begin()
    other.receives(node, 0, 1, source=Source(address=node, distribution_mode="copy"))
    assert tried(other.delivery()) == (False, 3)
    other.detach(0)  # a browser takes nothing
    other.receives(node, 0, 1)
    assert tried(other.delivery()) == (False, 3)
    other.settle(1)


@pytest.mark.spec("amqp-1.0", "3.2.1")
def test_browsing_does_not_count_as_first_acquirer(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    put(session, channel, node, False)
    put(session, channel, node, True)
    session.receives(node, 0, 2, source=Source(address=node, distribution_mode="copy"))
    assert [tried(session.delivery()) for _ in range(2)] == [(True, 0)] * 2
    session.settle(0, 1, Modified(delivery_failed=True))
    session.receives(node, 2, 2)
    assert [tried(session.delivery(2)) for _ in range(2)] == [(True, 0)] * 2


@pytest.mark.spec("amqp-1.0", "3.2.1")
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
def test_a_dead_letter_is_a_new_message(
    session: PeerSession10, channel: PeerChannel, node: str, converted: bool
) -> None:
    dying = channel.declare(
        exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": node}
    )
    put(session, channel, dying, converted)
    session.receives(node, 0, 1)
    got = channel.get(dying, no_ack=False)
    assert got is not None
    channel.nack(got.tag, requeue=True)
    got = channel.get(dying, no_ack=False)
    assert got is not None
    channel.nack(got.tag, requeue=False)
    assert tried(session.delivery()) == (True, 0)


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
def test_the_bare_message_is_delivered_unchanged(session: PeerSession10, node: str, bare: str) -> None:
    session.sends(node, 1)
    session.publish(1, 1, bytes.fromhex(bare))
    session.receives(node, 0, 1)
    assert session.delivery().payload.endswith(bytes.fromhex(bare))


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize("bare", WRONG.values(), ids=WRONG.keys())
def test_payloads_that_are_no_message(
    session: PeerSession10, channel: PeerChannel, node: str, bare: str
) -> None:
    session.sends(node)
    session.transfer(0, bytes.fromhex(bare))
    detach = session.expect(Detach)
    assert detach.error is not None
    assert detach.error.condition in ("amqp:decode-error", "amqp:not-implemented")
    assert channel.counts(node)[0] == 0
