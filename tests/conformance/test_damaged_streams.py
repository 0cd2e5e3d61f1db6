"""A stream of which a byte has changed on disk: the broker says so, and consumers get all other messages."""

from pathlib import Path

import pytest

from tests.support.amqp091.peer import Connector
from tests.support.amqp091.streams import Publisher, declare_stream, read
from tests.support.daemon.daemon import DaemonStarter

COUNT = 40
BODY = b"x" * 500


@pytest.mark.parametrize("running", [False, True], ids=["at-the-start", "while-it-runs"])
def test_a_flipped_bit_costs_the_rows_of_its_chunk(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path, running: bool
) -> None:
    daemon = start_daemon()
    publisher = Publisher(lambda *_: connect(daemon.address))
    declare_stream(publisher.channel, "s")
    for number in range(COUNT):  # each is a chunk of its own
        publisher.publish("s", b"%02d" % number + BODY)
    if not running:
        daemon.stop()
    [path] = (tmp_path / "data").glob("stream-*.chunks")
    data = bytearray(path.read_bytes())
    at = data.index(b"20" + BODY)
    data[at] ^= 1
    path.write_bytes(data)
    if not running:
        daemon = start_daemon()
        daemon.log.wait_for(f"rows of a stream do not read back.*{path.name}")
    channel = connect(daemon.address).channel()
    read(channel, "s", "first", COUNT)
    assert [int(message.body[:2]) for message in channel.deliveries(COUNT - 1)] == [
        number for number in range(COUNT) if number != 20
    ]
    channel.round_trip()
    daemon.log.wait_for("rows of a stream do not read back.*20 to 20")
    assert daemon.log.text().count("do not read back") == 1
    assert "Traceback" not in daemon.log.text()
