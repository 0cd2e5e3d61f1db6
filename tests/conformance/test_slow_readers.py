"""Clients that read slowly or never: no message is lost, and no output piles up."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from pamqp.commands import Basic, Connection

from tests.support.amqp091.frames import decode_method, method_bytes
from tests.support.amqp091.peer import Connector, Dialler, Peer
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

MIB = 1 << 20


def resident_bytes(daemon: Daemon) -> int:
    """Memory of the broker process."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * 4096


def close_ok_comes(peer: Peer) -> bool:
    """Read to the answer of connection.close; deliveries before it are passed over."""
    while True:
        frame = peer.receive()
        if frame.channel == 0:
            return isinstance(decode_method(frame), Connection.CloseOk)


@pytest.mark.spec("amqp-0-9-1", "connection.close-ok")
def test_close_ok_reaches_a_client_that_is_slow_to_read(start_daemon: DaemonStarter, dial: Dialler) -> None:
    daemon = start_daemon(environment={"AMQPD_HANDSHAKE_TIMEOUT_S": "1"})
    peer = dial(daemon.address)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    channel = peer.open().channel()
    channel.declare("backlog")
    for _ in range(16):
        channel.publish(bytes(MIB), "backlog")
    channel.consume("backlog")
    peer.write(Connection.Close(200, "", 0, 0))
    # this one says nothing: when it is hung up on, the first one has been slow for long enough
    other = dial(daemon.address)
    other.expect_end()
    assert close_ok_comes(peer)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("size", "limit"), [(MIB, 64 * MIB), (4 * MIB, 32 * MIB)], ids=["whole", "in-pieces"]
)
def test_a_client_that_asks_and_never_reads_takes_little_memory(
    start_daemon: DaemonStarter, connect: Connector, size: int, limit: int
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q")
    channel.publish(bytes(size), "q")
    channel.round_trip()
    before = resident_bytes(daemon)
    again = method_bytes(Basic.Get(queue="q"), 1) + method_bytes(Basic.Nack(0, multiple=True), 1)
    channel.peer.send(again * 200)
    other = connect(daemon.address).channel()
    for _ in range(20):
        other.round_trip()
    assert resident_bytes(daemon) - before < limit
    for number in range(1, 201):  # requested messages arrive all the same, in order
        assert channel.peer.expect_content(channel.expect(Basic.GetOk), 1).tag == number


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("size", [MIB, 3 * MIB], ids=["whole", "in-pieces"])
@pytest.mark.amqpd_only("RabbitMQ does not implement basic.recover with requeue=false")
def test_a_client_that_recovers_and_never_reads_takes_little_memory(
    start_daemon: DaemonStarter, connect: Connector, size: int
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q")
    for _ in range(4):
        channel.publish(bytes(size), "q")
    channel.consume("q", "c")
    for _ in range(4):
        channel.delivery()
    before = resident_bytes(daemon)
    channel.peer.send(method_bytes(Basic.Recover(False), 1) * 150)
    other = connect(daemon.address).channel()
    for _ in range(20):
        other.round_trip()
    assert resident_bytes(daemon) - before < 64 * MIB
    channel.write(Basic.Cancel("c"))
    expected = (Basic.Deliver, Basic.RecoverOk, Basic.CancelOk)
    while not isinstance(command := channel.peer.expect_any(expected, 1), Basic.CancelOk):
        if isinstance(command, Basic.Deliver):
            channel.peer.expect_content(command, 1)
    channel.peer.close()
    assert other.counts("q") == (4, 0)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_frames_that_wait_behind_large_bodies_count_as_unread(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    for queue, size in (("whole", MIB), ("large", 2 * MIB)):
        channel.declare(queue)
        channel.publish(bytes(size), queue)
    channel.round_trip()
    before = resident_bytes(daemon)
    back = method_bytes(Basic.Nack(0, multiple=True), 1)
    again = b"".join(method_bytes(Basic.Get(queue=queue), 1) + back for queue in ("whole", "large"))
    channel.peer.send(again * 100)
    other = connect(daemon.address).channel()
    for _ in range(20):
        other.round_trip()
    assert resident_bytes(daemon) - before < 48 * MIB
    for number in range(1, 201):
        message = channel.peer.expect_content(channel.expect(Basic.GetOk), 1)
        assert (message.tag, len(message.body)) == (number, (2 - number % 2) * MIB)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_large_returns_to_a_client_that_never_reads_take_little_memory(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    other = connect(daemon.address).channel()
    before = resident_bytes(daemon)
    publish = channel.encode_publish(bytes(2 * MIB), "nowhere", mandatory=True)
    channel.peer.socket.settimeout(2)
    sent = 0
    with suppress(TimeoutError):
        while sent < 100 * len(publish):
            sent += channel.peer.socket.send(memoryview(publish)[sent % len(publish) :])
    assert sent < 100 * len(publish), "it is not listened to any more"
    other.round_trip()
    assert resident_bytes(daemon) - before < 48 * MIB
    channel.peer.socket.settimeout(PATIENCE_S)
    for _ in range(sent // len(publish)):
        assert channel.returned().body == bytes(2 * MIB)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_large_replies_to_a_client_that_never_reads_take_little_memory(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    asking, answering = connect(daemon.address).channel(), connect(daemon.address).channel()
    asking.consume("amq.rabbitmq.reply-to", no_ack=True)
    answering.declare("q")
    asking.publish(b"?", "q", properties=Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    while (request := answering.get("q")) is None:
        pass
    name = request.properties.reply_to
    assert name is not None
    before = resident_bytes(daemon)
    for _ in range(50):
        answering.publish(bytes(4 * MIB), name)
    answering.round_trip()
    assert resident_bytes(daemon) - before < 48 * MIB
    asking.write(Basic.Cancel("x"))
    whole = 0
    while isinstance(command := asking.peer.expect_any((Basic.Deliver, Basic.CancelOk), 1), Basic.Deliver):
        assert asking.peer.expect_content(command, 1).body == bytes(4 * MIB)
        whole += 1
    assert 2 <= whole < 50, "what does not fit is dropped"
