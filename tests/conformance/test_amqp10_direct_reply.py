"""Direct reply-to over AMQP 1.0, and between both protocols. [RabbitMQ 4.2 direct reply-to]"""

import pytest
from pamqp.commands import Basic, Queue

from protocol.amqp10.composites import Accepted, Rejected, Released, Source
from protocol.amqp10.decoding import decode
from protocol.amqp10.performatives import Attach
from protocol.amqp10.properties import REPLY_TO as REPLY_TO_FIELD
from protocol.amqp10.properties import read_property
from protocol.amqp10.sections import scan_preamble
from tests.support.adapters.management_client import request
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.management_links import pair
from tests.support.amqp10.peer_session import Begins, Delivery, PeerSession10, receiver, sender

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

REPLY_TO = "amq.rabbitmq.reply-to"
PREFIX = f"/queues/{REPLY_TO}."
HELLO = b"\x00\x53\x75\xa0\x05hello"


def asks(session: PeerSession10, handle: int = 0, credit: int = 10, **fields: object) -> str:
    """Attach the link of a requester; returns where replies to it go."""
    source = Source(dynamic=True, expiry_policy="link-detach", capabilities=("rabbitmq:volatile-queue",))
    answer = session.receives(None, handle, credit, source=source, snd_settle_mode=1, **fields)
    assert answer.source is not None
    assert answer.source.capabilities == ("rabbitmq:volatile-queue",)
    assert answer.source.address is not None
    assert answer.source.address.startswith(PREFIX)
    return answer.source.address


def reply_to(delivery: Delivery) -> str:
    """The address to which a request wants its reply."""
    layout = scan_preamble(delivery.payload)
    raw = read_property(delivery.payload, layout.properties, layout.properties_end, REPLY_TO_FIELD)
    assert raw is not None
    return str(decode(raw)[0])


def expect_hello(session: PeerSession10, handle: int = 0) -> None:
    """The reply comes, settled."""
    reply = session.delivery(handle)
    assert reply.settled
    assert reply.payload.endswith(HELLO)


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_requester_has_an_address_as_with_rabbitmq(
    session: PeerSession10, begin: Begins, anonymous: bool
) -> None:
    address = asks(session)
    responder = begin()
    responder.sends(None if anonymous else address, 0)
    responder.transfer(0, bare10(body=HELLO, to=address), 0)
    assert responder.outcome(0) == Accepted()
    expect_hello(session)


def test_an_address_ends_with_its_link(session: PeerSession10, begin: Begins) -> None:
    for closed in (True, False):
        address = asks(session)
        session.detach(0, closed=closed)
        responder = begin()
        responder.write(sender(address))
        assert responder.expect(Attach).target is None
        responder.expect_detach(0, "amqp:not-found")


def test_nobody_else_receives_replies(session: PeerSession10, begin: Begins) -> None:
    address = asks(session)
    other = begin()
    other.write(receiver(address))
    assert other.expect(Attach).source is None
    other.expect_detach(0, "amqp:resource-locked")


def test_a_responder_of_the_older_protocol(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    address = asks(session)
    session.sends(f"/queues/{node}", 1)
    session.transfer(1, bare10(reply_to=address), 0)
    assert session.outcome(0) == Accepted()
    name = channel.take(node).properties.reply_to
    assert name == address.removeprefix("/queues/")
    assert channel.call(Queue.Declare(queue=name, passive=True), Queue.DeclareOk).consumer_count == 1
    channel.confirm_select()
    channel.publish(b"hello", name, mandatory=True)
    channel.expect_confirms(1)
    assert session.delivery(0).payload.endswith(b"hello")


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_requester_of_the_older_protocol(
    session: PeerSession10, channel: PeerChannel, node: str, anonymous: bool
) -> None:
    channel.consume(REPLY_TO, "replies", no_ack=True)
    channel.publish(b"?", node, properties=Basic.Properties(reply_to=REPLY_TO))
    session.receives(f"/queues/{node}", 0, 1)
    asked = session.delivery(0)
    address = reply_to(asked)
    assert address.startswith(PREFIX)
    pair(session, handles=(5, 6))
    session.transfer(5, request("GET", address), 0, settled=True)
    assert b"rabbit_volatile_queue" in session.delivery(6).payload
    session.sends(None if anonymous else address, 1)
    session.transfer(1, bare10(body=b"\x00\x53\x75\xa0\x05hello", to=address), 1)
    assert session.outcome(1) == Accepted()
    reply = channel.delivery()
    assert (reply.consumer_tag, reply.body) == ("replies", b"hello")
    channel.cancel("replies")
    session.transfer(1, bare10(to=address), 2)
    assert isinstance(session.outcome(2), Rejected if anonymous else Released)
    session.transfer(5, request("GET", address), 3, settled=True)
    assert b"404" in session.delivery(6).payload


def test_a_reply_in_a_transaction_goes_with_its_commit(
    session: PeerSession10, connect: Connector, node: str
) -> None:
    requester = connect().channel()
    requester.consume(REPLY_TO, "replies", no_ack=True)
    requester.publish(b"?", node, properties=Basic.Properties(reply_to=REPLY_TO))
    session.receives(f"/queues/{node}", 0, 1)
    address = reply_to(session.delivery(0))
    controller = Controller(session)
    session.sends(address, 1)
    for number, end in enumerate((controller.roll_back, controller.commit)):
        txn_id = controller.declare()
        session.transfer(1, bare10(body=HELLO), number, state=within(txn_id))
        assert session.outcome(number) == within(txn_id, Accepted())
        requester.expect_silence()
        end(txn_id)
    assert requester.delivery().body == b"hello"
    requester.expect_silence()
