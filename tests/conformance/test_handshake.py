"""The handshake, from the first byte to connection.open-ok."""

import pytest
from pamqp.commands import Connection

from tests.support.amqp091.frames import PROTOCOL_HEADER, amqplain
from tests.support.amqp091.peer import Connector, Dialler
from tests.support.daemon.daemon import DaemonStarter

RABBITMQ_CAPABILITIES = [
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "consumer_priorities",
    "direct_reply_to",
    "exchange_exchange_bindings",
    "per_consumer_qos",
    "publisher_confirms",
]


@pytest.mark.spec("amqp-0-9-1", "connection.start")
def test_start_has_the_mechanisms_and_capabilities_that_clients_expect(dial: Dialler) -> None:
    peer = dial()
    start = peer.start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
    assert "en_US" in start.locales.split()
    capabilities = start.server_properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert [name for name in RABBITMQ_CAPABILITIES if capabilities.get(name) is not True] == []
    assert {"product", "version", "platform"} <= set(start.server_properties)


@pytest.mark.amqpd_only("the name of the product")
@pytest.mark.spec("amqp-0-9-1", "connection.start#server-properties")
def test_start_names_the_product(dial: Dialler) -> None:
    peer = dial()
    assert peer.start().server_properties["product"] == "amqpd"


@pytest.mark.spec("amqp-0-9-1", "4.2.2")
def test_the_protocol_header_may_come_in_pieces(dial: Dialler) -> None:
    peer = dial()
    for byte in PROTOCOL_HEADER:
        peer.send(bytes([byte]))
    peer.expect(Connection.Start)


@pytest.mark.spec("amqp-0-9-1", "connection.start-ok#mechanism")
@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", "\0guest\0guest"), ("AMQPLAIN", amqplain("guest", "guest"))],
)
def test_mechanisms(dial: Dialler, mechanism: str, response: str) -> None:
    peer = dial()
    peer.start()
    peer.write(Connection.StartOk({}, mechanism, response))
    peer.tune()
    peer.write(Connection.Open("/"))
    peer.expect(Connection.OpenOk)
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "connection.tune")
def test_tune_offers_the_defaults(dial: Dialler) -> None:
    peer = dial()
    peer.start()
    peer.login()
    offer = peer.tune()
    assert (offer.channel_max, offer.frame_max, offer.heartbeat) == (2047, 131072, 60)


@pytest.mark.spec("amqp-0-9-1", "connection.tune-ok")
@pytest.mark.parametrize(
    ("channel_max", "frame_max", "heartbeat"), [(1, 4096, 1), (2047, 131072, 600), (100, 8192, 0)]
)
def test_the_client_may_ask_for_less_and_for_any_heartbeat(
    connect: Connector, channel_max: int, frame_max: int, heartbeat: int
) -> None:
    peer = connect(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
    peer.channel(channel_max).round_trip()
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "2.2.4")
def test_the_client_may_speak_ahead_of_the_replies(dial: Dialler) -> None:
    peer = dial()
    peer.send(PROTOCOL_HEADER)
    peer.login()
    peer.write(Connection.TuneOk(2047, 131072, 0))
    peer.write(Connection.Open("/"))
    peer.expect(Connection.Start)
    peer.expect(Connection.Tune)
    peer.expect(Connection.OpenOk)
    peer.channel().round_trip()
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_close_is_answered_and_ends_the_socket(connect: Connector) -> None:
    peer = connect()
    peer.channel(1)
    peer.channel(2)
    peer.close()


@pytest.mark.amqpd_only("RabbitMQ answers, but does not end the socket")
@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_close_before_open(dial: Dialler) -> None:
    peer = dial()
    peer.start()
    peer.login()
    peer.tune()
    peer.close()


@pytest.mark.spec("rabbitmq-extensions", "connection.update-secret")
def test_update_secret_is_answered(connect: Connector) -> None:
    peer = connect()
    peer.write(Connection.UpdateSecret("guest", "renewal"))
    peer.expect(Connection.UpdateSecretOk)
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "2.2.4")
@pytest.mark.parametrize("stage", ["connected", "header", "login", "tune"])
def test_a_handshake_that_stalls_is_ended(dial: Dialler, start_daemon: DaemonStarter, stage: str) -> None:
    daemon = start_daemon(environment={"AMQPD_HANDSHAKE_TIMEOUT_S": "1"})
    peer = dial(daemon.address)
    if stage != "connected":
        peer.start()
    if stage in ("login", "tune"):
        peer.login()
    if stage == "tune":
        peer.tune()
    peer.expect_end()
    daemon.log.wait_for(rf"(?i)^(?=.*{peer.name})(?=.*(handshake|time))")


def test_a_connection_may_idle_after_its_handshake(dial: Dialler, start_daemon: DaemonStarter) -> None:
    daemon = start_daemon(environment={"AMQPD_HANDSHAKE_TIMEOUT_S": "1"})
    idle = dial(daemon.address).open()
    dial(daemon.address).expect_end()  # this time-out began after the other's
    idle.channel().round_trip()
    idle.close()
