"""Heartbeats both ways. [amqp-0-9-1 4.2.7]"""

import threading

import pytest

from tests.conformance.conftest import Bystander, logged
from tests.support.amqp091.frames import HEARTBEAT, Frame, frame_bytes
from tests.support.amqp091.peer import Connector
from tests.support.daemon.daemon import Daemon

BEAT = frame_bytes(HEARTBEAT, 0, b"")


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_the_broker_beats_on_an_idle_connection(connect: Connector) -> None:
    peer = connect(heartbeat=1)
    for _ in range(6):
        assert Frame(HEARTBEAT, 0, b"") == peer.raw_frame()
        peer.send(BEAT)
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_a_peer_that_falls_silent_is_dropped(
    connect: Connector, own: Daemon | None, bystander: Bystander
) -> None:
    peer = connect(heartbeat=1)
    received = peer.expect_end()  # the broker's own heartbeats, and not a word more
    assert received == BEAT * (len(received) // len(BEAT))
    logged(own, peer, "heartbeat")


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_deliveries_of_a_silent_peer_return(connect: Connector, name: str) -> None:
    watcher = connect().channel()
    watcher.declare(name, auto_delete=True)
    watcher.publish(b"held", name)
    silent = connect(heartbeat=1).channel()
    assert silent.take(name).body == b"held"
    watcher.consume(name)
    message = watcher.delivery()  # only after the silent peer has been given up
    assert (message.body, message.redelivered) == (b"held", True)


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_any_traffic_counts_as_a_heartbeat(connect: Connector) -> None:
    """A peer that sends a method byte by byte is alive."""
    peer = connect(heartbeat=1)
    channel = peer.channel()
    pause = threading.Event()
    message = channel.encode_publish(b"x" * 12, "nowhere")
    for start in range(24):
        peer.send(message[start : start + 1])
        pause.wait(0.2)  # the test is about time: 24 bytes take longer than two heartbeats
    peer.send(message[24:])
    channel.round_trip()
    peer.close()


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_heartbeats_in_the_middle_of_a_content(connect: Connector) -> None:
    channel = connect().channel()
    queue = channel.declare(exclusive=True)
    publish = channel.encode_publish(bytes(300_000), queue)
    at = 0
    pieces = []
    while at < len(publish):
        size = int.from_bytes(publish[at + 3 : at + 7], "big") + 8
        pieces.append(publish[at : at + size])
        at += size
    channel.peer.send(BEAT.join(pieces))
    assert channel.take(queue).body == bytes(300_000)


@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_no_heartbeats_when_none_were_agreed(connect: Connector) -> None:
    quiet, beating = connect(heartbeat=0), connect(heartbeat=1)
    for _ in range(5):
        beating.raw_frame()
        beating.send(BEAT)
    quiet.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        quiet.socket.recv(1)
    quiet.socket.setblocking(True)
    quiet.close()


@pytest.mark.amqpd_only("RabbitMQ drops the socket without a word")
@pytest.mark.spec("amqp-0-9-1", "4.2.7")
def test_a_heartbeat_on_a_channel(connect: Connector, bystander: Bystander) -> None:
    peer = connect()
    peer.channel()
    peer.send(frame_bytes(HEARTBEAT, 1, b""))
    assert peer.expect_close(505).startswith("UNEXPECTED_FRAME")
