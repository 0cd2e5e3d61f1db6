"""Bulk reads of streams: extents of whole chunks, and the end of the readable bytes."""

import random
from itertools import accumulate, pairwise

import pytest

from broker.core.ports import StreamExtent
from broker.store.streams.stream import Stream
from protocol.streams.chunk import BODY, Chunk, ChunkWriter, lost_rows
from tests.support.store.bad_disk import FOLDER, BadDisk
from tests.support.store.hand_log import chunks_of
from tests.support.store.streams import add, open_streams, rows

BATCHES = 60


def a_stream(seed: int) -> Stream:
    """A stream with batches of all lengths in files of a few KiB, whose chunks are marked here and there."""
    chance = random.Random(seed)
    log, (stream,), _ = open_streams(FOLDER, BadDisk(), 1)
    chunks_of(stream).segment_bytes = 3000
    chunks_of(stream).mark_bytes = 700
    for number in range(BATCHES):
        count = chance.choice((1, 3, 20))
        add(stream, *[b"%d" % number * chance.randrange(1, 40) for _ in range(count)])
        log.commit()
    assert len(chunks_of(stream).segments) > 3
    return stream


def places(stream: Stream) -> list[float]:
    """Return the byte position of each row, a share of its chunk, and the end of the last row."""
    sizes: list[float] = []
    offset = stream.first
    while (page := stream.at(offset)) is not None:
        count = int(page.behind - page.first)
        sizes += [int(page.size) / count] * count
        offset = page.behind
    return [0.0, *accumulate(sizes)]


def taken(stream: Stream, extent: StreamExtent) -> bytes:
    """The bytes of an extent, whose file is closed then."""
    disk = chunks_of(stream).disk
    try:
        return disk.read(extent.fd, int(extent.size), int(extent.position))
    finally:
        disk.close(extent.fd)


def chunks(data: bytes) -> list[Chunk]:
    """Return the chunks of the bytes."""
    found: list[Chunk] = []
    position = 0
    while position < len(data):
        found.append(Chunk(data, position))
        position += found[-1].header.size
    return found


def test_extents_have_all_rows_once_and_end_with_their_files() -> None:
    stream = a_stream(1)
    bodies = [body for _, body in rows(stream)]
    offset = found = 0
    while (extent := stream.extent(offset, stream.behind)) is not None:
        assert extent.first == offset
        for chunk in chunks(taken(stream, extent)):
            assert chunk.header.first == offset
            found_bodies = [chunk.value(BODY, row) for row in range(chunk.rows)]
            assert found_bodies == bodies[offset : chunk.header.behind]
            offset = chunk.header.behind
        assert extent.behind == offset
        found += 1
    assert offset == stream.behind
    assert found == len(chunks_of(stream).segments)


def test_an_extent_ends_with_the_chunk_that_is_wanted_last() -> None:
    stream = a_stream(2)
    ends = {segment.next for segment in chunks_of(stream).segments}
    for behind in range(1, stream.behind + 1):
        for first in (behind - 1, max(behind - 25, 0)):
            extent = stream.extent(first, behind)
            assert extent is not None
            found = chunks(taken(stream, extent))
            assert (extent.first, extent.behind) == (found[0].header.first, found[-1].header.behind)
            assert found[0].header.first <= first < found[0].header.behind
            assert extent.behind >= behind or extent.behind in ends
            assert found[-1].header.first < behind


def test_an_extent_has_only_durable_rows() -> None:
    log, (stream,), _ = open_streams(FOLDER, BadDisk(), 1)
    add(stream, b"durable")
    log.commit()
    chunks_of(stream).append(_chunk(stream, b"not yet"))
    extent = stream.extent(0, 100)
    assert extent is not None
    assert extent.behind == 1
    (chunk,) = chunks(taken(stream, extent))
    assert chunk.value(BODY, 0) == b"durable"
    assert stream.extent(1, 100) is None


def _chunk(stream: Stream, body: bytes) -> bytes:
    writer = ChunkWriter()
    writer.add(1, 0, b"", b"", b"", body, b"")
    return writer.take(chunks_of(stream).next, stream.incarnation)


def test_an_extent_ends_before_rows_that_are_lost() -> None:
    _, (stream,), _ = open_streams(FOLDER, BadDisk(), 1)
    files = chunks_of(stream)
    files.append(_chunk(stream, b"before"))
    files.append(lost_rows(1, 5, stream.incarnation, 1))
    files.append(_chunk(stream, b"behind"))
    files.append(_chunk(stream, b"and more"))
    stream.durable = files.next
    assert len(files.segments) == 1
    extents = [stream.extent(offset, 8) for offset in (0, 1, 4, 6, 7)]
    assert [(each.first, each.behind) for each in extents if each is not None] == [
        (0, 1),
        (6, 8),
        (6, 8),
        (6, 8),
        (7, 8),
    ]
    for extent in extents:
        assert extent is not None
        assert not any(chunk.header.lost for chunk in chunks(taken(stream, extent)))


def test_an_extent_outlives_the_trim_of_its_rows() -> None:
    stream = a_stream(5)
    extent = stream.extent(0, 3)
    assert extent is not None
    stream.apply_retention(1, 0)
    assert stream.first > 3
    assert chunks(taken(stream, extent))[0].header.first == 0


def test_an_extent_takes_a_descriptor_that_another_file_gives_back() -> None:
    stream = a_stream(6)
    disk = chunks_of(stream).disk
    assert isinstance(disk, BadDisk)
    for segment in chunks_of(stream).segments:
        chunks_of(stream).open_for_reading(segment)
    disk.descriptors = len(disk.opened)
    extent = stream.extent(0, 1)
    assert extent is not None
    assert chunks(taken(stream, extent))[0].header.first == 0
    chunks_of(stream).close()
    chunks_of(stream).open_for_reading(chunks_of(stream).segments[0])
    disk.descriptors = len(disk.opened)
    with pytest.raises(OSError, match="Too many open files"):
        stream.extent(0, 1)


def test_there_is_no_extent_behind_the_end() -> None:
    stream = a_stream(3)
    assert stream.extent(stream.behind, stream.behind + 1) is None
    assert stream.reach(stream.behind, 1000) == stream.behind


def test_bytes_reach_as_far_as_rows_take_them() -> None:
    stream = a_stream(4)
    starts = places(stream)
    for offset in range(0, stream.behind, 7):
        for size in (1, 30, 200, 1500, 2999, 3001, 8000, 1 << 40):
            reached = stream.reach(offset, size)
            assert offset < reached <= stream.behind
            taken = starts[reached] - starts[offset]
            longest = max(b - a for a, b in pairwise(starts))
            if reached > offset + 1:
                assert taken <= size + longest
            if reached < stream.behind:
                assert taken + 2 * longest > size
