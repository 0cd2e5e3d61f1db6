"""Damaged journals: read rows are written rows, and the rest is reported."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.journal import records as r
from protocol.journal.decoder import Decoder, JournalDamagedError
from protocol.journal.rows import rows
from tests.support.journal.handmade_journal import EventWriter

WITH_TEXT = (
    r.ENQUEUE,
    r.APPEND,
    r.UNROUTABLE,
    r.REFUSE,
    r.GAP,
    r.START,
    r.CHANGE,
    r.ROLLBACK,
    r.FORWARD,
)


def blocks_of(count: int) -> tuple[bytes, list[bytes]]:
    """The header of a file and its blocks: the names that a block uses belong to it."""
    scribe = EventWriter()
    header = scribe.encoder.header(scribe.time)
    blocks = []
    for number in range(1, count + 1):
        scribe.life_of(number)
        blocks.append(scribe.encoder.take())
    return header, blocks


HEADER, BLOCKS = blocks_of(6)
WHOLE = HEADER + b"".join(BLOCKS)
ROWS = list(rows(Decoder(WHOLE)))


def test_cut_at_every_byte_all_whole_blocks_are_read() -> None:
    for size in range(len(HEADER), len(WHOLE)):
        decoder = Decoder(WHOLE[:size])
        read_rows = list(rows(decoder))
        whole = sum(len(HEADER) + sum(map(len, BLOCKS[: n + 1])) <= size for n in range(len(BLOCKS)))
        assert read_rows == ROWS[: 3 * whole]
        assert decoder.end <= size
        assert not decoder.holes or decoder.holes[-1].end == size
        assert bool(decoder.holes) == (decoder.end < size)


@given(st.integers(len(HEADER) * 8, len(WHOLE) * 8 - 1))
def test_a_flipped_bit_costs_one_block_and_is_told(bit: int) -> None:
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    decoder = Decoder(bytes(data))
    read_rows = list(rows(decoder))
    nameless: dict[str, Any] = {
        "queue": None,
        "vhost": None,
        "queue_id": None,
        "exchange": None,
        "routing_key": None,
    }
    nameless |= dict.fromkeys(("conn", "user", "channel", "consumer", "address", "request"))
    expected = [row._replace(**nameless) for row in ROWS]
    assert {row._replace(**nameless) for row in read_rows} <= set(expected)
    assert len(read_rows) >= len(ROWS) - 3
    assert len(decoder.holes) == 1
    if len(read_rows) == len(ROWS):  # the damage was in the names, which a reader does not invent
        assert all(row.queue is None for row in read_rows)


@given(st.integers(0, len(HEADER) * 8 - 1))
def test_a_flipped_bit_in_the_header_is_told(bit: int) -> None:
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    try:
        Decoder(bytes(data))
    except JournalDamagedError:
        return
    raise AssertionError("it was taken for whole")


@given(st.binary(max_size=300), st.integers(0, 6))
def test_bytes_between_blocks_are_skipped(noise: bytes, place: int) -> None:
    data = HEADER + b"".join([*BLOCKS[:place], noise, *BLOCKS[place:]])
    decoder = Decoder(data)
    assert list(rows(decoder)) == ROWS
    assert sum(hole.end - hole.start for hole in decoder.holes) == len(noise)


@given(st.lists(st.tuples(st.integers(1, len(r.OPS) - 1), st.text(max_size=80)), max_size=40))
def test_any_events_come_back(events: list[tuple[int, str]]) -> None:
    scribe = EventWriter()
    for number, (op, text) in enumerate(events, 1):
        scribe.tell(op, number, number, text=text.encode())
    read_rows = list(rows(Decoder(scribe.file())))
    assert [(row.op, row.msg_uid) for row in read_rows] == [
        (r.OPS[op], number) for number, (op, _) in enumerate(events, 1)
    ]
    texts = [row.message_id or row.text or "" for row in read_rows]
    expected = [text if op in WITH_TEXT else "" for op, text in events]
    assert texts == expected
