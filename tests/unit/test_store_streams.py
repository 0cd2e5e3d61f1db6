"""Rows of streams and the batches of the log: durable together or not at all."""

import random

from protocol.streams.chunk import BASIC, ChunkWriter
from tests.bad_disk import FOLDER
from tests.logged_streams import add, open_streams, rows
from tests.simulation.sim_disk import SimDisk
from tests.storing import Deferred, logged_queue, publish


def test_a_chunk_that_was_there_before_does_not_pass_for_that_of_the_last_batch() -> None:
    """It is what a refused batch has left behind: whole, and of as many rows."""
    disk = SimDisk(random.Random(1))
    deferred = Deferred()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    add(stream, b"first")
    log.commit()
    deferred.run_all()
    end = int(stream.files.segments[-1].end)
    publish(log, [logged_queue(2)], b"goes with it")
    add(stream, b"new")
    log.commit()
    path = stream.files.path(stream.files.segments[-1])
    incarnation = stream.incarnation
    disk.kill()
    before = ChunkWriter()
    before.add(1000, BASIC, b"", b"key", b"\0\0", b"old")
    fd = disk.open(path)
    disk.write(fd, [before.take(1, incarnation)], end)
    log, (stream,), report = open_streams(FOLDER, disk, 1)
    assert rows(stream) == [(0, b"first")]
    assert report.torn
    assert report.messages == 0, "the message was in the batch that is torn"
    log.let_go()
