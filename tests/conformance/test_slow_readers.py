"""Clients that are slow to read, or never do: nothing is lost to the one, nothing piles up for the other."""

import socket
from pathlib import Path

import pytest
from pamqp.commands import Basic, Connection

from tests.daemon import Daemon, DaemonStarter
from tests.frames import decode_method, method_bytes
from tests.peer import Connector, Dialler, Peer

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
def test_a_client_that_asks_and_never_reads_takes_little_memory(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q")
    channel.publish(bytes(MIB), "q")
    channel.round_trip()
    before = resident_bytes(daemon)
    again = method_bytes(Basic.Get(queue="q"), 1) + method_bytes(Basic.Nack(0, multiple=True), 1)
    channel.peer.send(again * 200)
    other = connect(daemon.address).channel()
    for _ in range(20):
        other.round_trip()
    assert resident_bytes(daemon) - before < 64 * MIB
    for number in range(1, 201):  # what was asked for comes all the same, in order
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
