"""Handshakes that a broker must refuse."""

import pytest
from pamqp.commands import Channel, Connection

from tests.conformance.conftest import Bystander, logged
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.daemon import Daemon


@pytest.mark.spec("amqp-0-9-1", "connection.start-ok#response")
@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", "")])
def test_a_wrong_password_is_refused(
    dial: Dialler, own: Daemon | None, bystander: Bystander, user: str, password: str
) -> None:
    peer = dial()
    peer.start()
    peer.login(user, password)
    text = peer.expect_close(403)
    assert text.startswith("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.")
    logged(own, peer, r"\b403\b|refused")


@pytest.mark.spec("rabbitmq-extensions", "authentication_failure_close")
def test_a_wrong_password_ends_the_socket_of_a_client_that_expects_no_close(
    dial: Dialler, own: Daemon | None, bystander: Bystander
) -> None:
    peer = dial()
    peer.start()
    peer.login("guest", "wrong", capabilities={})
    assert peer.expect_end() == b""
    logged(own, peer, r"\b403\b|refused")


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "connection.start-ok#mechanism")
@pytest.mark.parametrize(
    ("mechanism", "response"), [("CRAM-MD5", "x"), ("PLAIN", "no zero bytes"), ("AMQPLAIN", "\x05LOGINS")]
)
def test_a_mechanism_or_response_that_makes_no_sense(
    dial: Dialler, own: Daemon | None, bystander: Bystander, mechanism: str, response: str
) -> None:
    peer = dial()
    peer.start()
    properties = {"capabilities": {"authentication_failure_close": True}}
    peer.write(Connection.StartOk(properties, mechanism, response))  # type: ignore[arg-type]
    close = peer.expect(Connection.Close)
    assert close.reply_code in (403, 501, 502, 503)
    peer.write(Connection.CloseOk())
    peer.expect_end()
    logged(own, peer, rf"\b{close.reply_code}\b|refused")


@pytest.mark.spec("amqp-0-9-1", "connection.open#virtual-host")
def test_an_unknown_virtual_host(dial: Dialler, own: Daemon | None, bystander: Bystander) -> None:
    peer = dial()
    peer.start()
    peer.login()
    peer.tune()
    peer.write(Connection.Open("nope"))
    assert peer.expect_close(530) == "NOT_ALLOWED - vhost nope not found"
    logged(own, peer, r"\b530\b")


@pytest.mark.amqpd_only("RabbitMQ drops the socket before its close can be read")
@pytest.mark.spec("amqp-0-9-1", "connection.tune-ok")
@pytest.mark.parametrize(
    ("channel_max", "frame_max"), [(2048, 131072), (65535, 131072), (2047, 131073), (2047, 4095), (2047, 1)]
)
def test_tune_ok_out_of_range(
    dial: Dialler, own: Daemon | None, bystander: Bystander, channel_max: int, frame_max: int
) -> None:
    peer = dial()
    peer.start()
    peer.login()
    peer.tune(channel_max, frame_max)
    peer.frame_max = 131072
    assert peer.expect_close(530).startswith("NOT_ALLOWED - negotiated ")
    logged(own, peer, r"\b530\b")


@pytest.mark.spec("amqp-0-9-1", "2.2.4")
def test_a_method_out_of_its_turn_in_the_handshake(
    dial: Dialler, own: Daemon | None, bystander: Bystander
) -> None:
    peer = dial()
    peer.start()
    peer.write(Channel.Open(), 1)
    received = peer.expect_end()
    assert Connection.OpenOk.name not in str(received)
    if own is not None:
        logged(own, peer, r"\b50[345]\b")
