"""A bit of a stream's file flips while the broker runs: readers in bulk get all other messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pipeline.connector.offsets import Place, Range
from pipeline.connector.server import PasswordSource, Server, TlsFiles
from pipeline.connector.streams import DataLossError, fetch_range
from protocol.streams.chunk import BODY
from tests.support.amqp091.peer import Connector
from tests.support.amqp091.streams import Publisher, declare_stream
from tests.support.daemon.daemon import Daemon, DaemonStarter

COUNT = 12
TEXT = b"x" * 500


@pytest.fixture
def broker(start_daemon: DaemonStarter, connect: Connector) -> Daemon:
    """A broker with a stream, of which each message is a chunk of its own."""
    daemon = start_daemon()
    publisher = Publisher(lambda *_: connect(daemon.address))
    declare_stream(publisher.channel, "s")
    for number in range(COUNT):
        publisher.publish("s", b"%02d" % number + TEXT)
    return daemon


Flip = Callable[..., None]


@pytest.fixture
def flip(broker: Daemon, tmp_path: Path) -> Flip:
    """Flips a bit of some messages; `within`: how far behind the beginning of their bodies, or before it."""

    def flip(*numbers: int, within: int = 0) -> None:
        [path] = (tmp_path / "data").glob("stream-*.chunks")
        data = bytearray(path.read_bytes())
        for number in numbers:
            data[data.index(b"%02d" % number + TEXT) + within] ^= 1
        path.write_bytes(data)

    return flip


def server_of(daemon: Daemon) -> Server:
    host, port = daemon.address
    return Server(
        (("amqp", host, port),),
        (daemon.admin,),
        "guest",
        PasswordSource("guest"),
        "/",
        TlsFiles(),
        30,
        patience=60,
    )


def read(daemon: Daemon, start: int = 0, end: int = COUNT, gaps: bool = True) -> list[int]:
    """The numbers of the messages that are read."""
    server = server_of(daemon)
    [partition] = server.get("streams", "/", "s")["partitions"]
    wanted = Range(Place("s", 0), str(partition["incarnation"]), start, end)
    return [
        int(chunk.value(BODY, first - chunk.header.first)[:2])
        for chunk, first, _ in fetch_range(server, wanted, gaps)
    ]


def test_all_other_messages_are_read_and_one_line_says_which_are_not(
    broker: Daemon, flip: Flip, caplog: pytest.LogCaptureFixture
) -> None:
    assert read(broker) == list(range(COUNT))
    flip(0, 3, 4, COUNT - 1)
    expected = [number for number in range(COUNT) if number not in (0, 3, 4, COUNT - 1)]
    with caplog.at_level(logging.WARNING):
        assert read(broker) == expected
    lines = [line for line in caplog.messages if "do not read back" in line]
    for line, (first, last) in zip(lines, [(0, 0), (3, 4), (COUNT - 1, COUNT - 1)], strict=True):
        assert line.startswith(f"messages {first} to {last} of partition 0 of 's'")
        broker.log.wait_for(f"rows of a stream do not read back.*{first} to {last}")
    assert read(broker) == expected, "the broker remembers"
    assert broker.log.text().count("do not read back") == 3
    assert "Traceback" not in broker.log.text()


def test_chunks_with_damaged_headers_are_skipped(broker: Daemon, flip: Flip, tmp_path: Path) -> None:
    [path] = (tmp_path / "data").glob("stream-*.chunks")
    data = path.read_bytes()
    begins = [at for at in range(len(data)) if data.startswith(b"AMQK", at)]
    body = data.index(b"06" + TEXT)
    for field in (0, 12):  # the magic, and the bytes of the chunk
        flip(6, within=begins[6] + field - body)
        assert read(broker) == [number for number in range(COUNT) if number != 6]
    broker.log.wait_for("rows of a stream do not read back.*6 to 6")


def test_a_reader_without_tolerance_for_gaps_fails_at_once(broker: Daemon, flip: Flip) -> None:
    flip(5)
    with pytest.raises(DataLossError, match=r"partition 0 of 's'.*410.*message 5 .*does not read back"):
        read(broker, gaps=False)
    assert read(broker, 0, 5, gaps=False) == [0, 1, 2, 3, 4]
    assert read(broker, 6, COUNT, gaps=False) == list(range(6, COUNT))
