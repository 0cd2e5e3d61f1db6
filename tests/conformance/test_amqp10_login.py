"""AMQP 1.0: protocol headers and the layer of SASL. [amqp-1.0 2.2, 5.3]"""

import pytest

from protocol.amqp10.performatives import (
    Close,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from tests.support.amqp10.peer import AMQP, SASL, Meet, Peer10, amqp, sasl
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

PLAIN = SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest")


def offered(peer: Peer10) -> tuple[str, ...]:
    """Begin the SASL layer; return the offered mechanisms."""
    peer.send(SASL)
    assert peer.take(8) == SASL
    return peer.expect(SaslMechanisms, frame_kind=1).sasl_server_mechanisms


def outcome(peer: Peer10) -> SaslOutcome:
    return peer.expect(SaslOutcome, frame_kind=1)


@pytest.mark.spec("amqp-1.0", "2.4.2")
def test_everything_may_come_in_one_piece(meet: Meet) -> None:
    peer = meet()
    peer.send(SASL + sasl(PLAIN) + AMQP + amqp(Open(container_id="c")) + amqp(Close()))
    assert peer.take(8) == SASL
    peer.expect(SaslMechanisms, frame_kind=1)
    assert outcome(peer).code == 0
    assert peer.take(8) == AMQP
    peer.expect(Open)
    peer.expect(Close)
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.3")
def test_everything_may_come_byte_by_byte(meet: Meet) -> None:
    peer = meet()
    for octet in SASL + sasl(PLAIN) + AMQP + amqp(Open(container_id="c")) + amqp(Close()):
        peer.send(bytes([octet]))
    assert peer.take(8) == SASL
    peer.expect(SaslMechanisms, frame_kind=1)
    assert outcome(peer).code == 0
    assert peer.take(8) == AMQP
    peer.expect(Open)
    peer.expect(Close)
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.2")
def test_a_peer_that_should_log_in_and_does_not_is_told(meet: Meet) -> None:
    peer = meet()
    peer.send(AMQP)
    assert peer.take(8) == SASL
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.2")
def test_anonymous_connections_need_no_sasl_layer(start_daemon: DaemonStarter, meet: Meet) -> None:
    daemon = start_daemon(environment={"AMQPD_ANONYMOUS_USER": "guest"})
    peer = meet(daemon.address)
    peer.send(AMQP + amqp(Open(container_id="c")))
    assert peer.take(8) == AMQP
    peer.expect(Open)
    other = meet(daemon.address)
    assert "ANONYMOUS" in offered(other)
    other.send(sasl(SaslInit(mechanism="ANONYMOUS")))
    assert outcome(other).code == 0


@pytest.mark.spec("amqp-1.0", "5.3.3.1")
def test_plain_connections_are_offered_plain_and_not_external(meet: Meet) -> None:
    mechanisms = offered(meet())
    assert "PLAIN" in mechanisms
    assert not {"AMQPLAIN", "EXTERNAL"} & set(mechanisms)


@pytest.mark.spec("amqp-1.0", "5.3.3.6")
def test_a_wrong_password(meet: Meet) -> None:
    peer = meet()
    offered(peer)
    peer.send(sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0wrong")))
    state = outcome(peer)
    assert (state.code, state.additional_data) == (1, None)
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "5.3.3.2")
@pytest.mark.spec("amqp-1.0", "5.3.3.5")
@pytest.mark.parametrize("mechanism", ["CRAM-MD5", "EXTERNAL", "AMQPLAIN", "", "x" * 1000])
def test_a_mechanism_that_is_not_offered(meet: Meet, mechanism: str) -> None:
    peer = meet()
    offered(peer)
    peer.send(sasl(SaslInit(mechanism=mechanism, initial_response=b"")))
    state = outcome(peer)
    assert (state.code, state.additional_data) == (1, None)
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "5.3.3.2")
def test_an_invalid_sasl_response_is_refused(meet: Meet) -> None:
    peer = meet()
    offered(peer)
    peer.send(sasl(SaslInit(mechanism="PLAIN", initial_response=b"guest")))
    assert outcome(peer).code == 1
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "5.3.3.3")
@pytest.mark.spec("amqp-1.0", "5.3.3.4")
def test_without_an_initial_response_the_peer_is_asked(meet: Meet) -> None:
    peer = meet()
    offered(peer)
    peer.send(sasl(SaslInit(mechanism="PLAIN")))
    assert peer.expect(SaslChallenge, frame_kind=1).challenge == b""
    peer.send(sasl(SaslResponse(response=b"\0guest\0guest")))
    assert outcome(peer).code == 0


@pytest.mark.spec("amqp-1.0", "5.3.2")
@pytest.mark.spec("amqp-1.0", "5.3.1")
@pytest.mark.parametrize(
    "data",
    [
        sasl(SaslMechanisms(sasl_server_mechanisms=("PLAIN",))),
        sasl(SaslChallenge(challenge=b"")),
        sasl(SaslOutcome(code=0)),
        amqp(Open(container_id="c")),
        b"\x00\x00\x00\x08\x02\x01\x00\x00",
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        b"\x00\x00\x20\x01\x02\x01\x00\x00",
        AMQP,
    ],
    ids=["mechanisms", "challenge", "outcome", "open", "empty", "too small", "more than 8192", "header"],
)
def test_frames_other_than_sasl_init_end_the_connection(meet: Meet, data: bytes) -> None:
    peer = meet()
    offered(peer)
    peer.send(data)
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "5.3.2")
def test_another_header_behind_the_log_in(meet: Meet) -> None:
    peer = meet()
    offered(peer)
    peer.send(sasl(PLAIN))
    assert outcome(peer).code == 0
    peer.send(SASL)
    peer.expect_end()
