"""Values of AMQP 1.0 as bodies for clients of AMQP 0-9-1. [amqp-1.0 messaging 3.2.8]"""

import base64

import pytest

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Header
from protocol.amqp10.types import Symbol
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

TEXT = b"\0Sw\xa1\x05" + "gr\xfcn".encode()
LONG = b"\0Sw\xb1\0\0\0\x02hi"
BINARY = b"\0Sw\xa0\x03\0\xff\0"
NUMBER = b"\0Sw\x54\x07"
SEQUENCE = b"\0Sv\x45"
PEEK = {"count": 9, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.mark.spec("amqp-1.0", "3.2.8")
def test_strings_and_binaries_are_bodies_where_that_is_wished(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet
) -> None:
    daemon = start_daemon(environment={"AMQPD_AMQP_VALUE_AS_TEXT": "true"})
    channel = connect(daemon.address).channel()
    channel.declare("q")
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    session.sends("/queues/q")
    sent = [
        bare10(body=TEXT),
        bare10(body=LONG),
        bare10(body=LONG, content_type=Symbol("text/html")),
        bare10(body=BINARY),
        encode_composite(Header(ttl=1000000)) + BINARY,  # with a time to live
        bare10(body=NUMBER),
        bare10(body=SEQUENCE),
    ]
    for number, payload in enumerate(sent):
        session.publish(0, 1, payload, number)
    expected = [
        ("gr\xfcn".encode(), "text/plain", None),
        (b"hi", "text/plain", None),
        (b"hi", "text/html", None),
        (b"\0\xff\0", None, None),
        (b"\0\xff\0", None, None),
        (NUMBER, None, "amqp-1.0"),
        (SEQUENCE, None, "amqp-1.0"),
    ]
    api = Api(daemon.admin)
    shown = api.post("queues", "/", "q", "get", status=200, body=PEEK)
    assert (shown[0]["payload"], shown[0]["properties"]["content_type"]) == ("gr\xfcn", "text/plain")
    assert base64.b64decode(shown[3]["payload"]) == b"\0\xff\0"
    api.close()
    for body, content_type, kind in expected:
        message = channel.take("q")
        assert (message.body, message.properties.content_type, message.properties.message_type) == (
            body,
            content_type,
            kind,
        )
