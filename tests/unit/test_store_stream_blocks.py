"""What is read of streams in bulk: blocks of whole chunks, and how far bytes reach."""

import random
from itertools import accumulate, pairwise

from broker.store.stream import Stream
from protocol.streams.chunk import BODY, Chunk
from tests.bad_disk import FOLDER, BadDisk
from tests.logged_streams import add, open_streams, rows

BATCHES = 60


def a_stream(seed: int) -> Stream:
    """A stream with batches of all lengths in files of a few KiB, whose chunks are marked here and there."""
    chance = random.Random(seed)
    log, (stream,), _ = open_streams(FOLDER, BadDisk(), 1)
    stream.files.segment_bytes = 3000
    stream.files.mark_bytes = 700
    for number in range(BATCHES):
        count = chance.choice((1, 3, 20))
        add(stream, *[b"%d" % number * chance.randrange(1, 40) for _ in range(count)])
        log.commit()
    assert len(stream.files.segments) > 3
    return stream


def places(stream: Stream) -> list[float]:
    """Where each row begins among all bytes, and behind them where the last ends: shares of their chunks."""
    sizes: list[float] = []
    offset = stream.first
    while (page := stream.at(offset)) is not None:
        count = int(page.behind - page.first)
        sizes += [int(page.size) / count] * count
        offset = page.behind
    return [0.0, *accumulate(sizes)]


def test_blocks_have_all_rows_once_and_end_where_they_say() -> None:
    stream = a_stream(1)
    bodies = [body for _, body in rows(stream)]
    for size in (1, 500, 2000, 100_000):
        offset, found = stream.first, 0
        while (block := stream.block(offset, stream.behind, size)) is not None:
            assert block.first == offset
            position = 0
            while position < len(block.data):
                chunk = Chunk(block.data, position)
                assert chunk.header.first == offset
                found_bodies = [chunk.value(BODY, row) for row in range(chunk.rows)]
                assert found_bodies == bodies[offset : chunk.header.behind]
                offset = chunk.header.behind
                position += chunk.header.size
            assert block.behind == offset
            found += 1
        assert offset == stream.behind
        assert found >= 3, "a block is of one file"


def test_a_block_ends_with_the_chunk_that_is_wanted_last() -> None:
    stream = a_stream(2)
    for behind in range(1, stream.behind + 1):
        block = stream.block(behind - 1, behind, 100_000)
        assert block is not None
        assert block.first <= behind - 1 < block.behind
        assert len(block.data) == Chunk(block.data).header.size


def test_there_is_no_block_behind_the_end() -> None:
    stream = a_stream(3)
    assert stream.block(stream.behind, stream.behind + 1, 1000) is None
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
