"""AMQP 1.0: how connections, sessions and links end, when both sides say so too. [amqp-1.0 2.4 to 2.6]"""

import pytest

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Error
from protocol.amqp10.performatives import Begin, Close, Detach, End, Open
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer import SASL, Meet, amqp
from tests.support.amqp10.peer_session import Begins, PeerSession10
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

ERROR = Error(condition="amqp:internal-error", description="the client's own", info={"n": 1})


@pytest.mark.spec("amqp-1.0", "2.2")
@pytest.mark.spec("amqp-1.0", "5.2")
@pytest.mark.parametrize(
    "header", ["414d515002010000", "414d515000010100", "414d515000020000", "414d515003020000"]
)
def test_an_unsupported_protocol_header_is_answered_by_a_supported_header(meet: Meet, header: str) -> None:
    peer = meet()
    peer.send(bytes.fromhex(header))
    assert peer.take(8)[:4] == b"AMQP"
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "5.2.1")
def test_tls_comes_first_on_a_port_of_its_own(
    start_daemon: DaemonStarter, certificates: Certificates, meet: Meet
) -> None:
    address = secure_address(start_daemon(*certificates.options()))
    peer = meet(address)
    peer.socket = certificates.trusting().wrap_socket(peer.socket, server_hostname="localhost")
    peer.open(hostname="localhost")
    peer.write(Close())
    assert peer.expect(Close).error is None


@pytest.mark.spec("amqp-1.0", "2.3.1")
@pytest.mark.spec("amqp-1.0", "2.3.2")
def test_an_extended_header_of_a_frame_is_ignored(meet: Meet) -> None:
    peer = meet()
    peer.log_in()
    body = encode_composite(Open(container_id="c"))
    peer.send((len(body) + 16).to_bytes(4, "big") + bytes.fromhex("04000000") + b"extended" + body)
    peer.expect(Open)
    peer.send(bytes.fromhex("0000000c03000000ffffffff"))  # an empty frame with more in front of nothing
    peer.write(Close())
    assert peer.expect(Close).error is None


@pytest.mark.spec("amqp-1.0", "2.4.4")
@pytest.mark.spec("amqp-1.0", "2.4.6")
def test_both_sides_close_at_once(meet: Meet) -> None:
    peer = meet()
    peer.open()
    peer.send(amqp(Open(container_id="again")) + amqp(Close(error=ERROR)))
    close = peer.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:not-allowed"
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.7.9")
@pytest.mark.spec("amqp-1.0", "2.8.14")
def test_a_close_with_an_error_is_answered_without_an_error(meet: Meet) -> None:
    peer = meet()
    peer.open()
    peer.write(Close(error=ERROR))
    assert peer.expect(Close).error is None
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.5.3")
@pytest.mark.spec("amqp-1.0", "2.5.5")
def test_both_sides_end_a_session_at_once(session: PeerSession10) -> None:
    peer = session.peer
    peer.send(session.encode(Detach(handle=9)) + session.encode(End(error=ERROR)))
    ended = session.expect(End)
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"
    again = PeerSession10(peer)  # the channel is free, and nothing more is said of the session before
    assert again.begun.remote_channel == 0
    again.end()


@pytest.mark.spec("amqp-1.0", "2.5.2")
@pytest.mark.spec("amqp-1.0", "2.7.8")
def test_an_end_with_an_error_is_answered_without_an_error(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    session.receives(node, 0, 1)
    session.delivery()
    session.write(End(error=ERROR))
    assert session.expect(End).error is None
    again = PeerSession10(session.peer)
    again.receives(node, 0, 1)
    assert again.delivery().payload.endswith(b"x"), "what was unsettled has gone back"


@pytest.mark.spec("amqp-1.0", "2.5.4")
def test_an_error_of_a_session_is_its_own(begin: Begins, node: str) -> None:
    session = begin()
    session.peer.write(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), 1)
    session.peer.expect(Begin, 1)
    session.write(Detach(handle=9))
    session.expect_end("amqp:session:unattached-handle")
    session.peer.write(End(), 1)
    assert session.peer.expect(End, 1).error is None


@pytest.mark.spec("amqp-1.0", "2.6.2")
@pytest.mark.spec("amqp-1.0", "2.8.4")
def test_a_handle_is_free_when_its_link_is_detached(session: PeerSession10, node: str) -> None:
    session.sends(node, 5)
    session.publish(5, 1)
    session.detach(5)
    session.receives(node, 5, 1)
    assert session.delivery(5).id == 0


@pytest.mark.spec("amqp-1.0", "2.6.4")
def test_a_link_that_was_detached_is_attached_again(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for number in range(3):
        channel.publish(b"%d" % number, node)
    session.receives(node, 0, 2)
    first = session.delivery()
    session.delivery()
    session.settle(first.id)
    session.detach(0, closed=False)
    answer = session.receives(node, 1, 2, name="receives 0")
    assert answer.initial_delivery_count is not None
    assert [session.delivery(1).payload[-1:] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.spec("amqp-1.0", "2.7.7")
@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_a_detach_with_an_error_is_answered_without_an_error(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    session.receives(node, 0, 1)
    session.delivery()
    session.write(Detach(handle=0, closed=True, error=ERROR))
    detach = session.expect(Detach)
    assert (detach.handle, detach.closed, detach.error) == (0, True, None)
    session.receives(node, 0, 1)
    assert session.delivery().payload.endswith(b"x")


@pytest.mark.spec("amqp-1.0", "2.6.6")
def test_both_sides_detach_at_once(session: PeerSession10, node: str) -> None:
    session.sends(node)
    wrong = session.encode_transfer(0, b"\x40")
    session.peer.send(wrong + session.encode(Detach(handle=0, closed=True)))
    detach = session.expect(Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:decode-error"
    session.expect_silence()  # above all no other detach


@pytest.mark.spec("amqp-1.0", "5.3.1")
@pytest.mark.spec("amqp-1.0", "5.3.4")
def test_the_layer_of_sasl_has_a_header_of_its_own(meet: Meet) -> None:
    peer = meet()
    peer.send(SASL)
    assert peer.take(8) == SASL == b"AMQP\x03\x01\x00\x00"
    kind, channel, body = peer.raw_frame()
    assert (kind, channel, body[:3]) == (1, 0, b"\x00\x53\x40")
