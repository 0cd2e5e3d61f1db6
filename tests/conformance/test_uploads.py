"""Large bodies on their way: kept pieces, and pieces of uploads that do not end."""

from contextlib import suppress
from pathlib import Path

from pamqp.commands import Basic, Connection

from tests.conformance.test_content import body_of
from tests.support.amqp091.frames import body_frames, header_bytes, method_bytes
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

MIB = 1 << 20
PERSISTENT = Basic.Properties(delivery_mode=2, message_id="m", headers={"a": 1})


def disk_bytes(folder: Path) -> int:
    """Return the bytes of the log's segments; a segment that is deleted meanwhile counts as 0."""
    taken = 0
    for path in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            taken += path.stat().st_size
    return taken


def begin(channel: PeerChannel, queue: str, body: bytes, frames: int) -> None:
    """Publish the first frames of a persistent body, and no more."""
    channel.peer.send(
        method_bytes(Basic.Publish(routing_key=queue), channel.number)
        + header_bytes(len(body), PERSISTENT, channel.number)
        + b"".join(body_frames(body, channel.number, channel.peer.frame_max)[:frames])
    )


def test_an_interrupted_upload_frees_its_disk_space(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path
) -> None:
    """Neither when the connection is lost, nor when the channel is closed in the middle of it."""
    daemon = start_daemon("--segment-bytes", "4MiB")
    body = body_of(40 * MIB)
    watching = connect(daemon.address).channel()
    watching.declare("q", durable=True)
    before = disk_bytes(tmp_path / "data")
    lost = connect(daemon.address).channel()
    begin(lost, "q", body, 200)
    while disk_bytes(tmp_path / "data") < before + 16 * MIB:
        watching.round_trip()
    lost.peer.drop()
    broken = connect(daemon.address).channel()
    begin(broken, "q", body, 100)
    broken.peer.send(header_bytes(1, None, 1))  # where a body frame should be
    broken.peer.expect_close(505)
    watching.confirm_select()
    published = 0
    while disk_bytes(tmp_path / "data") > before + 12 * MIB:
        watching.publish(b"small", "q", properties=PERSISTENT)
        published += 1
        watching.expect_confirms(published, published)
    assert watching.counts("q")[0] == published


def test_an_upload_is_held_while_the_disk_is_short_of_space(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path
) -> None:
    daemon = start_daemon("--disk-free-min", "1000000GB")
    daemon.log.wait_for("publishers are held back.*low on disk")
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    before = disk_bytes(tmp_path / "data")
    with suppress(OSError):  # the broker no longer reads from the socket
        channel.peer.socket.settimeout(2)
        begin(channel, "q", body_of(64 * MIB), 500)
    channel.peer.socket.settimeout(PATIENCE_S)
    assert channel.peer.expect(Connection.Blocked).reason == "low on disk"
    watching = connect(daemon.address).channel()
    watching.round_trip()
    assert disk_bytes(tmp_path / "data") < before + 8 * MIB
