"""Rows of streams and the batches of the log: durable together or not at all."""

import errno
import random

import pytest

from broker.core.message import Address, Message
from broker.core.ports import NO_PARTITION, StreamWatcher
from broker.store.streams import stream as streams
from broker.store.streams.stream import Stream
from protocol.amqp091.properties import Properties
from protocol.amqp10.sections import scan_preamble
from protocol.streams.chunk import BASIC, ChunkWriter
from tests.simulation.sim_disk import SimDisk
from tests.support.amqp091.field_bytes import long_string
from tests.support.amqp10.contents import content10
from tests.support.conversion.contents import content, short_string
from tests.support.store.bad_disk import FOLDER, BadDisk, fill_disk, make_durable
from tests.support.store.hand_log import DeferredWork, RecordingWaiter, chunks_of, logged_queue, publish
from tests.support.store.streams import add, open_streams, rows


class Watcher(StreamWatcher):
    """A watcher that records its calls."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def on_rows_durable(self, behind: int) -> None:
        """Remember."""
        self.positions.append(behind)


def test_a_stale_chunk_is_not_taken_for_the_chunk_of_the_last_batch() -> None:
    """A refused batch has left the chunk behind, whole and with as many rows."""
    disk = SimDisk(random.Random(1))
    deferred = DeferredWork()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    add(stream, b"first")
    log.commit()
    deferred.run_all()
    end = int(chunks_of(stream).segments[-1].end)
    publish(log, [logged_queue(2)], b"goes with it")
    add(stream, b"new")
    log.commit()
    path = chunks_of(stream).path(chunks_of(stream).segments[-1])
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
    log.release()


def bodies(stream: Stream) -> list[bytes]:
    return [body for _, body in rows(stream)]


def test_rows_are_visible_only_after_their_sync() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    watcher = Watcher()
    stream.watch(watcher)
    add(stream, b"one", b"two")
    log.commit()
    assert (stream.next, stream.behind, watcher.positions, rows(stream)) == (2, 0, [], [])
    assert stream.at(0) is None
    deferred.run_all()
    assert (stream.behind, watcher.positions, bodies(stream)) == (2, [2], [b"one", b"two"])
    assert stream.at(2) is None
    log.close()


@pytest.mark.parametrize("place", ["chunk", "log"])
def test_rows_refused_by_a_full_disk_are_dropped_and_their_offsets_used_again(place: str) -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, (stream, other), _ = open_streams(FOLDER, disk, 1, 2, deferred=deferred)
    add(stream, b"kept")
    make_durable(log, deferred)
    watcher, refused = Watcher(), RecordingWaiter()
    stream.watch(watcher)
    add(stream, b"refused", b"refused too")
    add(other, b"refused there")
    log.wait(refused)
    if place == "log":
        write = disk.write

        def refuse_log(fd: int, parts: list[bytes], offset: int) -> None:
            if b"AMQL" in parts[0][:4]:
                disk.write = write  # type: ignore[method-assign]
                raise OSError(errno.ENOSPC, "No space left on device")
            write(fd, parts, offset)

        disk.write = refuse_log  # type: ignore[method-assign]
        log.commit()
    else:
        fill_disk(disk, log)
    assert log.full
    assert (refused.durable, refused.failed) == ([], [log.failure])
    assert (stream.next, stream.behind, other.next, watcher.positions) == (1, 1, 0, [1])
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert log.failure == ""
    accepted = RecordingWaiter()
    add(stream, b"later")
    add(other, b"later there")
    log.wait(accepted)
    make_durable(log, deferred)
    assert len(accepted.durable) == 1
    assert (rows(stream), rows(other)) == ([(0, b"kept"), (1, b"later")], [(0, b"later there")])
    disk.crash()
    log, (stream, other), _ = open_streams(FOLDER, disk, 1, 2)
    assert (rows(stream), rows(other)) == ([(0, b"kept"), (1, b"later")], [(0, b"later there")])
    log.close()


@pytest.mark.parametrize("durably", [False, True])
@pytest.mark.parametrize("by_age", [False, True])
def test_files_are_deleted_when_their_removal_is_on_disk(durably: bool, by_age: bool) -> None:
    disk = SimDisk(random.Random(3))
    deferred = DeferredWork()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    chunks_of(stream).segment_bytes = 200
    for number in range(6):
        add(stream, b"%d" % number * 50, time=1000 * number)
        add(stream, b"-", time=1000 * number + 1)
        log.commit()
        deferred.run_all()
    segments = chunks_of(stream).segments
    assert [segment.first for segment in segments] == [0, 2, 4, 6, 8, 10]
    if by_age:
        stream.apply_retention(0, 3000)
    else:
        stream.apply_retention(segments[0].end * 3, 0)
    assert (stream.first, stream.next) == (6, 12)
    assert bodies(stream)[0] == b"3" * 50
    there = {name for name in disk.names(FOLDER) if name.startswith("stream-")}
    assert len(there) == 6, "they stay until that is on disk"
    log.commit()
    if durably:
        deferred.run_all()
        assert len([name for name in disk.names(FOLDER) if name.startswith("stream-")]) == 3
    disk.crash()
    log, (stream,), report = open_streams(FOLDER, disk, 1)
    assert stream.first in ((6,) if durably else (0, 6))
    assert [offset for offset, _ in rows(stream)] == list(range(stream.first, 12))
    assert stream.disk_bytes == sum(segment.end for segment in chunks_of(stream).segments)
    names = {name for name in disk.names(FOLDER) if name.startswith("stream-")}
    assert names == set(chunks_of(stream).names()), "what is left of others goes with the start"
    assert not report.torn or not durably
    log.close()


def test_the_file_that_is_written_to_stays_however_little_is_to_be_kept() -> None:
    log, (stream,), _ = open_streams(FOLDER, SimDisk(random.Random(1)), 1)
    add(stream, b"one", b"two")
    log.commit()
    stream.apply_retention(1, 10**15)
    assert (stream.first, bodies(stream)) == (0, [b"one", b"two"])
    log.close()


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (0, 32 * 1024),
        (1, streams.SEGMENT_BYTES_MIN),
        (5_000_000, 5_000_000),
        (1 << 50, streams.SEGMENT_BYTES_MAX),
    ],
)
def test_files_have_sizes_that_make_sense(asked: int, size: int) -> None:
    log, _, _ = open_streams(FOLDER, SimDisk(random.Random(1)))
    stream = log.open_stream(1, asked, NO_PARTITION)
    assert isinstance(stream, Stream)
    assert chunks_of(stream).segment_bytes == size
    log.close()


def test_a_page_has_messages_of_both_protocols_that_say_their_offsets() -> None:
    log, (stream,), _ = open_streams(FOLDER, SimDisk(random.Random(1)), 1)
    header = short_string(b"x-stream-filter-value") + b"S" + long_string(b"invoices")
    basic = content({0: short_string(b"text/plain")}, header, b"hello")
    sections = content10({"x-opt-n": 1}, {"a": 1}, subject="s")
    for number, made in enumerate((basic, sections)):
        message = Message(Address("logs", f"key.{number}"), made, len(made), True, 0)
        stream.append(message, 1_700_000_000_000 + number, b"invoices")
    log.commit()
    page = stream.at(0)
    assert page is not None
    assert (page.first, page.behind) == (0, 2)
    first, second = page.message(0), page.message(1)
    assert first.content is not None
    assert second.content is not None
    assert (first.address.exchange, first.address.routing_key) == ("logs", "key.0")
    assert (second.address.exchange, second.address.routing_key) == ("logs", "key.1")
    assert Properties(first.content).fields()[-1] == (b"x-stream-offset", b"l" + bytes(8))
    assert b"x-stream-offset\x80" + (1).to_bytes(8, "big") in second.content
    assert second.content[scan_preamble(second.content).bare :] == sections[scan_preamble(sections).bare :]
    assert (page.filter_value(0), page.filter_value(1)) == (b"invoices", b"invoices")
    assert [page.time(row) for row in (0, 1)] == [1_700_000_000_000_000, 1_700_000_000_001_000]
    assert first.size == len(b"hello")
    assert page is stream.at(1), "a chunk that was read last stays in memory"
    log.close()
