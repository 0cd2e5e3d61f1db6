"""A broker short of memory or space: publishers are blocked, and consumers make room."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue

from broker.net.resources import resident_bytes
from tests.support.admin.api import Api, fetch
from tests.support.amqp091.frames import body_frames, header_bytes, method_bytes
from tests.support.amqp091.peer import Connector, Peer
from tests.support.daemon.daemon import Daemon, DaemonStarter

NEVER_FREE = ("--disk-free-min", "1000000GB")
BODY = b"x" * 8192


def health(daemon: Daemon, path: str) -> tuple[int, dict[str, object]]:
    answer = fetch(daemon.admin + path)
    return answer.status_code, answer.json()


def expect_blocked(peer: Peer) -> str:
    blocked = peer.expect(Connection.Blocked)
    assert isinstance(blocked.reason, str)
    return blocked.reason


@pytest.mark.parametrize("understands_blocked", [True, False])
def test_low_disk_space_blocks_only_publishers(
    start_daemon: DaemonStarter, connect: Connector, understands_blocked: bool
) -> None:
    daemon = start_daemon(*NEVER_FREE)
    daemon.log.wait_for("publishers are held back.*low on disk")
    peer = connect(daemon.address, capabilities={"connection.blocked": understands_blocked})
    channel = peer.channel()
    channel.declare("q")
    channel.publish(b"1", "q")
    if understands_blocked:
        assert expect_blocked(peer) == "low on disk"
    channel.publish(b"2", "q")
    consumer = connect(daemon.address).channel()
    consumer.consume("q", "c")
    message = consumer.delivery()
    assert message.body == b"1"
    consumer.ack(message.tag)
    consumer.expect_silence()
    assert health(daemon, "/health/alarms")[0] == 503
    assert health(daemon, "/health/ready") == (200, {"status": "ready", "alarms": "low on disk"})
    failed = fetch(daemon.admin + "/api/health/checks/alarms", auth=("guest", "guest"))
    assert (failed.status_code, failed.json()["reason"]) == (503, "low on disk")
    (node,) = fetch(daemon.admin + "/api/nodes", auth=("guest", "guest")).json()
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (False, True)
    assert 0 < node["disk_free"] < node["disk_free_limit"]
    assert daemon.metric("amqpd_low_on_disk") == 1
    assert daemon.metric("amqpd_low_on_memory") == 0
    assert daemon.metric("amqpd_publishers_held") == 1
    peer.close()  # is answered, and what was sent before it is not lost
    assert consumer.delivery().body == b"2"
    assert daemon.metric("amqpd_publishers_held") == 0


def test_publishing_over_http_is_refused_during_the_disk_alarm(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon(*NEVER_FREE)
    daemon.log.wait_for("publishers are held back")
    api = Api(daemon.admin)
    api.put("queues", "/", "q")
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    refused = api.refused(503, "POST", "exchanges", "/", "amq.default", "publish", body=body)
    assert refused["reason"] == "publishers wait: the broker is low on disk"
    assert api.get("queues", "/", "q")["messages"] == 0
    api.close()


def test_a_held_publisher_lives_on_heartbeats(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon(*NEVER_FREE)
    daemon.log.wait_for("publishers are held back")
    peer = connect(daemon.address, heartbeat=1)
    channel = peer.channel()
    channel.declare("q", exclusive=True)
    channel.publish(b"1", "q")
    expect_blocked(peer)
    beats = 0
    while beats < 5:  # the broker sends a heartbeat each half second
        if peer.raw_frame() == (8, 0, b""):
            beats += 1
            peer.send(b"\x08\x00\x00\x00\x00\x00\x00\xce")
    silent = connect(daemon.address, heartbeat=1)
    silent.channel().publish(b"", "nowhere")
    daemon.log.wait_for(f"missed heartbeats.*{silent.name}")


def test_memory_is_made_room_in_by_consumers(start_daemon: DaemonStarter, connect: Connector) -> None:
    # An idle broker has 75 MiB, and one that has seen a flood keeps 110: it must come down to its limit.
    daemon = start_daemon("--memory-max", "160MiB")
    publisher = connect(daemon.address)
    channel = publisher.channel()
    channel.declare("q")
    alarmed = threading.Event()
    sent: list[None] = []

    def flood() -> None:
        one = channel.encode_publish(BODY, "q")
        while not alarmed.is_set():
            publisher.send(one)
            sent.append(None)

    flooding = threading.Thread(target=flood)
    flooding.start()
    assert expect_blocked(publisher) == "low on memory"
    alarmed.set()
    assert health(daemon, "/health/alarms")[1]["reason"] == "low on memory"

    consumer = connect(daemon.address).channel()
    ready, _ = consumer.counts("q")
    consumer.consume("q", "c", no_ack=True)
    taken = 0
    for _ in range(ready):
        assert consumer.delivery().body == BODY
        taken += 1
    publisher.expect(Connection.Unblocked)
    flooding.join()
    channel.publish(b"last", "q")
    while consumer.delivery().body == BODY:
        taken += 1
    assert taken == len(sent)
    assert health(daemon, "/health/alarms") == (200, {"status": "ok"})


MEMORY_MAX = 200 << 20
SENT = 512 << 20


def flood(peer: Peer, channels: int) -> None:
    """Send large bodies on several channels at once, until it is over or the connection is."""
    size = SENT // channels
    pieces: list[bytes] = []
    with suppress(OSError):
        for number in range(1, channels + 1):
            peer.send(method_bytes(Channel.Open(), number))
            publish = method_bytes(Basic.Publish(routing_key="nowhere"), number)
            peer.send(publish + header_bytes(size, None, number))
            pieces += body_frames(bytes(100_000), number, 131_072)
        for _ in range(size // 100_000):
            for piece in pieces:
                peer.send(piece)


@pytest.mark.parametrize("channels", [1, 8])
def test_a_publisher_is_held_in_the_middle_of_large_bodies(
    start_daemon: DaemonStarter, connect: Connector, channels: int
) -> None:
    """Transient ones, which are in memory until they are whole: no channel comes to the end of its body."""
    daemon = start_daemon("--memory-max", str(MEMORY_MAX), "--message-size-max", str(SENT))
    peer = connect(daemon.address)
    flooding = threading.Thread(target=flood, args=(peer, channels))
    flooding.start()
    try:
        assert expect_blocked(peer) == "low on memory"
        assert daemon.metric("amqpd_publishers_held") == 1
        assert resident_bytes(Path(f"/proc/{daemon.process.pid}/statm")) < 1.5 * MEMORY_MAX
    finally:
        peer.socket.shutdown(socket.SHUT_RDWR)
        flooding.join()


@pytest.mark.nightly
def test_unfinished_bodies_do_not_hold_publishers_for_ever(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    """Memory is free again when the bodies are whole, and the bodies wait for free memory."""
    daemon = start_daemon("--memory-max", str(MEMORY_MAX), "--message-size-max", str(SENT))
    peer = connect(daemon.address)
    flooding = threading.Thread(target=flood, args=(peer, 8))
    flooding.start()
    expect_blocked(peer)
    other = connect(daemon.address)
    other.channel().publish(b"", "nowhere")
    expect_blocked(other)
    other.expect(Connection.Unblocked)
    flooding.join()
    daemon.log.wait_for("low on memory for 30 seconds, with [0-9]+ bytes of incomplete bodies")


def test_a_client_that_declares_is_blocked_while_memory_is_short_and_finds_existing_objects(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    filler = connect((daemon := start_daemon("--memory-max", "180MiB")).address).channel()
    api = Api(daemon.admin)
    for queue in ("hoard", "q"):
        filler.declare(queue)
    filler.call(Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"), Queue.BindOk)
    while daemon.metric("amqpd_low_on_memory") == 0:
        for _ in range(8):
            filler.publish(bytes(65536), "hoard")

    consumer = connect(daemon.address).channel()
    consumer.declare("q")  # the queue exists already, so that consumers return and make room
    consumer.call(Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"), Queue.BindOk)
    consumer.consume("q", "c")
    held = []
    for method, answer in (
        (Queue.Declare(queue="new"), Queue.DeclareOk),
        (Exchange.Declare(exchange="new"), Exchange.DeclareOk),
        (Queue.Bind(queue="q", exchange="amq.direct", routing_key="new"), Queue.BindOk),
        (Exchange.Bind(destination="amq.fanout", source="amq.direct"), Exchange.BindOk),
    ):
        peer = connect(daemon.address)
        channel = peer.channel()
        peer.write(method, channel.number)
        assert expect_blocked(peer) == "low on memory"
        channel.expect(answer)
        held.append((peer, channel))
    assert daemon.metric("amqpd_publishers_held") >= 4

    binding = ("bindings", "/", "e", "amq.direct", "q", "q")
    for verb, path, body in (
        ("PUT", ("queues", "/", "n"), {}),
        ("PUT", ("exchanges", "/", "n"), {"type": "direct"}),
        ("POST", binding, {"routing_key": "n"}),
        ("POST", ("definitions",), {"queues": []}),
    ):
        refusal = api.refused(503, verb, *path, body=body)
        assert refusal["reason"] == "nothing new can be declared while the broker is low on memory"
    api.put("queues", "/", "q", status=204)
    api.close()

    connect(daemon.address).channel().call(Queue.Purge(queue="hoard"), Queue.PurgeOk)
    for peer, channel in held:
        peer.expect(Connection.Unblocked)
        assert channel.counts("q") == (0, 1)
