"""AMQP 1.0: deliveries of other message formats than that of the specification. [amqp-1.0 2.8.11]"""

import pytest
from pamqp.common import FieldTable

from protocol.amqp10.composites import Accepted, Rejected, Released
from protocol.amqp10.types import Uint
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

UNKNOWN = 0x80013700


@pytest.mark.spec("amqp-1.0", "2.8.11")
@pytest.mark.spec("amqp-1.0", "3.2.16")
@pytest.mark.parametrize("payload", [b"", b"anything", b"\0Sp" * 100, b"large" * 40000])
def test_a_message_of_an_unknown_format_is_delivered_unchanged(
    session: PeerSession10, node: str, channel: PeerChannel, payload: bytes
) -> None:
    session.sends(node)
    half = len(payload) // 2
    session.transfer(0, payload[:half], 0, message_format=UNKNOWN, more=True)
    session.transfer(0, payload[half:], None)
    session.outcome(0)
    session.publish(0, 1, first=1)
    session.receives(node, 1, 2)
    delivery = session.delivery(1)
    assert (delivery.payload, delivery.transfer.message_format) == (payload, UNKNOWN)
    other = session.delivery(1)
    assert other.transfer.message_format == 0
    session.settle(other.id)
    session.settle(delivery.id, state=Released())
    session.detach(1)
    message = channel.take(node)
    assert (message.body, message.properties.message_type) == (payload, "amqp-1.0")


@pytest.mark.spec("amqp-1.0", "2.8.11")
def test_a_header_that_claims_another_format_has_no_effect(session: PeerSession10, node: str) -> None:
    session.sends(node)
    body = b"\0Su\xa0\x01a\0Su\xa0\x01b"
    session.publish(0, 1, content10({"x-basic-format": Uint(UNKNOWN)}, body=body))
    session.receives(node, 1, 2)
    delivery = session.delivery(1)
    assert delivery.transfer.message_format == 0
    assert delivery.payload.endswith(body)


@pytest.mark.spec("amqp-1.0", "2.8.11")
def test_a_format_survives_a_restart_and_a_dead_letter(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("letters", durable=True)
    dead: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    channel.declare("q", durable=True, arguments=dead)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    session.sends("/queues/q")
    session.transfer(0, b"payload", 0, message_format=UNKNOWN)
    assert session.outcome(0) == Accepted()
    daemon.kill()
    daemon = start_daemon()
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    for handle, queue in enumerate(("q", "letters")):
        session.receives(f"/queues/{queue}", handle, 1)
        delivery = session.delivery(handle)
        assert (delivery.payload, delivery.transfer.message_format) == (b"payload", UNKNOWN)
        session.settle(delivery.id, state=Rejected())


@pytest.mark.spec("amqp-1.0", "2.8.11")
def test_a_large_message_of_an_unknown_format_is_refused(session: PeerSession10, node: str) -> None:
    session.sends(node)
    session.transfer(0, bytes(100000), 0, message_format=UNKNOWN, more=True)
    for _ in range(10):
        session.transfer(0, bytes(100000), None, more=True)
    session.expect_detach(0, "amqp:link:message-size-exceeded", "message-format")
