"""Chunks of streams: written rows are read from any position, and damage is detected."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.streams.chunk import (
    BASIC,
    BODY,
    EXCHANGE,
    FILTER,
    PROPERTIES,
    ROUTING_KEY,
    SECTIONS,
    Chunk,
    ChunkDamagedError,
    ChunkWriter,
)

COLUMNS = (EXCHANGE, ROUTING_KEY, PROPERTIES, BODY, FILTER)


class Row(NamedTuple):
    """An added row."""

    time: int
    kind: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes
    filter_value: bytes = b""


TEXTS = st.binary(max_size=40)
ROWS = st.lists(
    st.builds(
        Row,
        st.integers(-(2**62), 2**62),
        st.sampled_from([BASIC, BASIC, BASIC, SECTIONS]),
        TEXTS,
        TEXTS,
        TEXTS,
        st.binary(max_size=300),
        st.sampled_from([b"", b"", b"invoices"]),
    ),
    min_size=1,
    max_size=20,
)


def chunk_of(rows: list[Row], first: int = 7, incarnation: int = 2**64 - 1) -> bytes:
    writer = ChunkWriter()
    for row in rows:
        writer.add(*row)
    assert writer.rows == len(rows)
    data = writer.take(first, incarnation)
    assert writer.rows == 0
    return data


@given(ROWS, st.integers(0, 2**64 - 1), st.integers(0, 3))
def test_written_rows_are_read(rows: list[Row], first: int, before: int) -> None:
    data = bytes(8 * before) + chunk_of(rows, first) + b"behind it"
    chunk = Chunk(data, 8 * before)
    header = chunk.header
    assert (header.rows, header.first, header.incarnation) == (len(rows), first, 2**64 - 1)
    assert header.behind == first + len(rows)
    assert chunk.at + header.size == len(data) - len(b"behind it")
    latest = rows[0].time
    for index, row in enumerate(rows):
        latest = max(latest, row.time)
        assert (chunk.time(index), chunk.kind(index)) == (latest, row.kind)
        assert tuple(chunk.value(column, index) for column in COLUMNS) == row[2:]
    assert (header.first_time, header.last_time) == (rows[0].time, latest)


@given(ROWS)
def test_arrow_finds_every_part_where_it_wants_it(rows: list[Row]) -> None:
    data = chunk_of(rows)
    chunk = Chunk(data)
    places = [chunk.times, chunk.header.size]
    for column in chunk.columns:
        places += [column.offsets, column.start]
    assert all(place % 8 == 0 for place in places)


@given(ROWS, st.data())
def test_cut_and_changed_chunks_are_detected(rows: list[Row], data: st.DataObject) -> None:
    whole = chunk_of(rows)
    with pytest.raises(ChunkDamagedError):
        Chunk(whole[: data.draw(st.integers(0, len(whole) - 1))])
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ChunkDamagedError):
        Chunk(bytes(changed))


def test_a_writer_knows_about_how_long_the_chunk_will_be() -> None:
    writer = ChunkWriter()
    for number in range(1000):
        writer.add(number, BASIC, b"x", b"key", b"p" * 20, b"b" * 256)
    estimate = int(writer.size)
    assert abs(estimate - len(writer.take(0, 1))) < estimate // 50


def test_the_version_is_named() -> None:
    data = bytearray(chunk_of([Row(1, BASIC, b"", b"k", b"", b"b")]))
    data[4] = 9
    with pytest.raises(ChunkDamagedError, match="version 9"):
        Chunk(bytes(data))
