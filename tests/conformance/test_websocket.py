"""AMQP over WebSocket, for both protocols."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pamqp.commands import Connection

from protocol.amqp10.frames import SASL_FRAME
from protocol.amqp10.performatives import Close, Open, SaslInit, SaslMechanisms, SaslOutcome
from tests.conformance.test_slow_readers import resident_bytes
from tests.support.admin.api import Api
from tests.support.amqp091.frames import HEARTBEAT, PROTOCOL_HEADER
from tests.support.amqp091.peer import Dialler
from tests.support.amqp10.peer import AMQP, SASL, Meet, amqp, sasl
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.websocket_bridge import Bridger, Visit

pytestmark = pytest.mark.amqpd_only("RabbitMQ has it in a commercial plugin")

MIB = 1 << 20
CUTS = [(65536, 65536), (1, 1), (7, 2), (65536, 1000)]


@pytest.mark.parametrize(
    ("path", "subprotocol"),
    [("/", "amqp"), ("/ws", "amqp"), ("/$servicebus/websocket", "AMQPWSB10")],
)
def test_connection_start_answers_the_protocol_header(
    serving: Daemon, visit: Visit, path: str, subprotocol: str
) -> None:
    websocket = visit(serving, path, subprotocols=[subprotocol])
    assert websocket.subprotocol == subprotocol
    websocket.send(PROTOCOL_HEADER)
    answer = websocket.recv()
    assert isinstance(answer, bytes)
    assert answer.startswith(b"\x01\0\0")
    assert answer[7:11] == b"\0\x0a\0\x0a", "connection.start"


@pytest.mark.spec("amqp-1.0", "2.2")
@pytest.mark.spec("wsb-1.0", "2.2.1")
@pytest.mark.parametrize("cut", [8, 1])
def test_the_protocol_header_of_amqp_1_0_is_answered(serving: Daemon, visit: Visit, cut: int) -> None:
    websocket = visit(serving)
    for start in range(0, 8, cut):
        websocket.send(SASL[start : start + cut])
    answer = websocket.recv()
    assert isinstance(answer, bytes)
    assert answer.startswith(SASL)


@pytest.mark.spec("wsb-1.0", "2.1")
def test_rhea_gets_the_subprotocol_that_is_the_bindings(serving: Daemon, visit: Visit) -> None:
    websocket = visit(serving, subprotocols=["binary", "AMQPWSB10", "amqp"])
    assert websocket.subprotocol == "amqp"


@pytest.mark.parametrize(("message", "frame"), CUTS)
def test_amqp_0_9_1_however_it_is_cut(
    serving: Daemon, bridge: Bridger, dial: Dialler, message: int, frame: int
) -> None:
    channel = dial(bridge(serving, message=message, frame=frame)).open().channel()
    queue = channel.declare(exclusive=True)
    bodies = [b"%d" % number * number for number in range(40)]
    for body in bodies:
        channel.publish(body, queue)
    for body in bodies:
        assert channel.take(queue).body == body
    channel.peer.close()


@pytest.mark.spec("amqp-1.0", "5.3.2")
@pytest.mark.spec("wsb-1.0", "2.2.2")
@pytest.mark.spec("wsb-1.0", "2.3")
@pytest.mark.spec("wsb-1.0", "2.4")
@pytest.mark.parametrize(("message", "frame"), CUTS)
def test_amqp_1_0_however_it_is_cut(
    serving: Daemon, bridge: Bridger, meet: Meet, message: int, frame: int
) -> None:
    peer = meet(bridge(serving, message=message, frame=frame))
    assert peer.open(hostname="localhost").container_id
    peer.write(Close())
    assert peer.expect(Close).error is None
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.4.1")
@pytest.mark.spec("wsb-1.0", "2.4")
@pytest.mark.spec("wsb-1.0", "2.5")
def test_many_frames_in_one_message(serving: Daemon, bridge: Bridger, meet: Meet) -> None:
    peer = meet(bridge(serving))
    init = sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest"))
    peer.send(SASL + init + AMQP + amqp(Open(container_id="test", hostname="localhost")))
    assert peer.take(8) == SASL
    peer.expect(SaslMechanisms, frame_kind=SASL_FRAME)
    assert peer.expect(SaslOutcome, frame_kind=SASL_FRAME).code == 0
    assert peer.take(8) == AMQP
    peer.expect(Open)


def test_large_messages_come_in_pieces_that_every_client_takes(
    serving: Daemon, bridge: Bridger, dial: Dialler
) -> None:
    channel = dial(bridge(serving, max_size=32768)).open().channel()
    queue = channel.declare(exclusive=True)
    body = bytes(range(256)) * (20 * MIB // 256)
    channel.publish(body, queue)
    assert channel.take(queue).body == body


def test_a_message_is_read_as_it_comes(serving: Daemon, visit: Visit) -> None:
    """The broker answers the first part before the message has ended."""
    websocket = visit(serving)

    def beginning() -> Iterator[bytes]:
        yield PROTOCOL_HEADER
        answer = websocket.recv()
        assert isinstance(answer, bytes)
        assert answer.startswith(b"\x01\0\0")
        yield b"\x08\0\0\0\0\0\0\xce"

    websocket.send(beginning())


def test_pika_publishes_and_consumes(serving: Daemon, bridge: Bridger) -> None:
    address = bridge(serving)
    with pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for number in range(500):
            channel.basic_publish("", queue, b"%d" % number)
        got = []
        for _, _, body in channel.consume(queue, auto_ack=True):
            got.append(int(body))
            if len(got) == 500:
                break
        assert got == list(range(500))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_client_that_does_not_read_takes_little_memory(
    start_daemon: DaemonStarter, visit: Visit, bridge: Bridger, dial: Dialler
) -> None:
    daemon = start_daemon("--websocket-listen", "127.0.0.1:0", "--memory-budget", "1MiB")
    channel = dial(daemon.address).open().channel()
    channel.declare("backlog", durable=True)
    for _ in range(96):
        channel.publish(bytes(MIB), "backlog")
    channel.round_trip()
    slow = dial(bridge(daemon)).open().channel()
    before = resident_bytes(daemon)
    slow.consume("backlog")
    for _ in range(20):
        channel.round_trip()
    assert resident_bytes(daemon) - before < 32 * MIB
    for number in range(1, 97):
        assert slow.delivery().tag == number


def test_heartbeats(serving: Daemon, bridge: Bridger, dial: Dialler) -> None:
    peer = dial(bridge(serving)).open(heartbeat=1)
    assert peer.raw_frame() == (HEARTBEAT, 0, b"")


def test_websocket_connections_in_the_api(serving: Daemon, bridge: Bridger, dial: Dialler) -> None:
    peer = dial(bridge(serving)).open()
    api = Api(serving.admin)
    assert "Web AMQP 0-9-1" in [each["protocol"] for each in api.get("connections")]
    listeners = [each["protocol"] for each in api.get("overview")["listeners"]]
    assert {"amqp", "http/web-amqp"} <= set(listeners)
    assert "https/web-amqp" not in listeners
    assert api.get("health", "checks", "protocol-listener", "web-amqp")["status"] == "ok"
    api.close()
    peer.close()


def test_both_protocols_over_tls(
    start_daemon: DaemonStarter, certificates: Certificates, bridge: Bridger, dial: Dialler, meet: Meet
) -> None:
    options = ("--websocket-tls-listen", "127.0.0.1:0", "--tls-certificate", str(certificates.server))
    daemon = start_daemon(*options)
    secure = bridge(daemon, tls=certificates.trusting())
    channel = dial(secure).open().channel()
    queue = channel.declare(exclusive=True)
    channel.publish(bytes(5 * MIB), queue)
    assert channel.take(queue).body == bytes(5 * MIB)
    daemon.log.wait_for(r"connection opened.*tls=TLSv1\.3.*websocket=True")
    api = Api(daemon.admin)
    assert [each["ssl"] for each in api.get("connections")] == [True]
    assert "https/web-amqp" in [each["protocol"] for each in api.get("overview")["listeners"]]
    api.close()
    channel.peer.close()
    peer = meet(secure)
    peer.open(hostname="localhost")
    peer.write(Close())
    peer.expect(Close)
    peer.expect_end()


def test_a_certificate_names_the_user(
    start_daemon: DaemonStarter, certificates: Certificates, bridge: Bridger, dial: Dialler
) -> None:
    verify = ("--tls-ca", str(certificates.folder / "ca.pem"), "--tls-verify", "required")
    name = ("--tls-login-from", "common_name", "--tls-certificate", str(certificates.server))
    daemon = start_daemon("--websocket-tls-listen", "127.0.0.1:0", *verify, *name)
    shown = certificates.trusting(certificates.client("guest"))
    peer = dial(bridge(daemon, tls=shown))
    assert "EXTERNAL" in peer.start().mechanisms
    peer.write(Connection.StartOk({}, "EXTERNAL", ""))
    peer.tune()
    peer.write(Connection.Open("/"))
    peer.expect(Connection.OpenOk)
    peer.close()
