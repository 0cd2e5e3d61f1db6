"""Sealed files have the same events, are there as a whole or not at all, and let raw ones go."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from broker.journal.reader import JournalError, JournalReader
from broker.journal.seal import delete_sealed, seal
from protocol.journal import records as r
from protocol.journal.columns import SCHEMA, table_of
from protocol.journal.decoder import Decoder
from protocol.journal.files import OPEN
from protocol.journal.rows import EventRow, rows
from tests.support.journal.handmade_journal import EventWriter, write_file

HOUR = 3600.0


def complete_file() -> bytes:
    """Return a file with each operation, with and without a reason, a text and other values."""
    scribe = EventWriter()
    for op in range(1, len(r.OPS)):
        scribe.tell(op, op, op, other=3, size=9, text="mé".encode(), reason=r.REASONS[op % len(r.REASONS)])
        scribe.tell(op, size=op, flags=op & 7)
    return scribe.file()


def test_columns_have_the_values_of_rows() -> None:
    data = complete_file()
    table = table_of(Decoder(data))
    assert table.schema == SCHEMA
    assert tuple(table.schema.names) == EventRow._fields
    at = table.schema.get_field_index("ts")
    found = table.set_column(at, "ts", table["ts"].cast("int64")).to_pylist()
    assert [EventRow(**each) for each in found] == list(rows(Decoder(data)))
    assert len(found) == 2 * (len(r.OPS) - 1)


def test_a_file_without_an_event_has_no_rows() -> None:
    assert table_of(Decoder(EventWriter().file())).num_rows == 0


def test_files_that_are_ended_are_sealed_once(tmp_path: Path) -> None:
    write_file(tmp_path, complete_file())
    scribe = EventWriter()
    scribe.encoder.seq = 1000
    scribe.life_of(1)
    write_file(tmp_path, scribe.file(), ended=False)
    (only,) = seal(tmp_path)
    assert only.holes == []
    assert only.sealed.file == (
        f"parquet/date=2026-11-24/hour=03/n-1-{1:020d}-{2 * (len(r.OPS) - 1):020d}.parquet"
    )
    with pq.ParquetFile(tmp_path / only.sealed.file) as file:
        assert file.metadata.num_rows == only.sealed.rows == 2 * (len(r.OPS) - 1)
        assert file.schema_arrow.equals(SCHEMA)
    assert list(seal(tmp_path)) == []
    assert [path.name[0] for path in (tmp_path / only.sealed.file).parent.iterdir()] == ["n"]


def test_sealing_again_after_a_crash_before_the_manifest(tmp_path: Path) -> None:
    write_file(tmp_path, complete_file())
    (before,) = seal(tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:20])
    (again,) = seal(tmp_path)
    assert again == before
    assert len(manifest.read_text().splitlines()) == 2
    assert list(seal(tmp_path)) == []


def test_raw_files_go_when_they_are_sealed_and_old(tmp_path: Path) -> None:
    path = write_file(tmp_path, complete_file())
    began = path.stat().st_mtime
    assert delete_sealed(tmp_path, began + 25 * HOUR, 24 * HOUR) == []  # not sealed
    list(seal(tmp_path))
    before = list(JournalReader(tmp_path).rows())
    assert delete_sealed(tmp_path, began + 23 * HOUR, 24 * HOUR) == []
    assert delete_sealed(tmp_path, began + 25 * HOUR, 24 * HOUR) == [path]
    assert not path.exists()
    assert list(JournalReader(tmp_path).rows()) == before


def test_raw_files_deleted_before_reading_are_read_as_sealed(tmp_path: Path) -> None:
    path = write_file(tmp_path, complete_file())
    list(seal(tmp_path))
    reading = JournalReader(tmp_path)
    before = list(reading.rows())
    path.unlink()
    assert list(reading.rows()) == before


def test_raw_bytes_follow_the_end_and_deletion_of_files(tmp_path: Path) -> None:
    path = write_file(tmp_path, complete_file())
    size = path.stat().st_size
    being_written = path.rename(path.with_name(path.name + OPEN))
    reading = JournalReader(tmp_path)
    assert reading.raw_bytes() == size
    being_written.rename(path)
    assert reading.raw_bytes() == size, "it has been ended"
    path.unlink()
    assert reading.raw_bytes() == 0


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_raw_files_are_kept_if_their_sealed_file_is_damaged(tmp_path: Path, harm: str) -> None:
    path = write_file(tmp_path, complete_file())
    (only,) = seal(tmp_path)
    sealed = tmp_path / only.sealed.file
    if harm == "changed":
        sealed.write_bytes(sealed.read_bytes()[:-1] + b"?")
    else:
        sealed.unlink()
    with pytest.raises(JournalError, match="raw files are kept"):
        delete_sealed(tmp_path, path.stat().st_mtime + HOUR, 0)
    assert path.exists()


def test_damaged_blocks_are_left_out_of_the_sealed_file(tmp_path: Path) -> None:
    scribe = EventWriter()
    blocks = []
    header = scribe.encoder.header(scribe.time)
    for uid in (1, 2, 3):
        scribe.life_of(uid)
        blocks.append(scribe.encoder.take())
    write_file(tmp_path, header + blocks[0] + blocks[1][:-1] + b"?" + blocks[2])
    (only,) = seal(tmp_path)
    assert (only.sealed.rows, len(only.holes)) == (6, 1)
    assert [row.seq for row in JournalReader(tmp_path).rows()] == [1, 2, 3, 7, 8, 9]


def test_a_single_seal_at_a_time(tmp_path: Path) -> None:
    write_file(tmp_path, complete_file())
    sealing = seal(tmp_path)
    next(sealing)
    with pytest.raises(JournalError, match="is being sealed by another process"):
        next(seal(tmp_path))
    sealing.close()
    assert list(seal(tmp_path)) == []


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    path = write_file(tmp_path, complete_file())
    path.write_bytes(b"?")
    with pytest.raises(JournalError, match="cannot be sealed: the file does not begin with 'AJL1'"):
        list(seal(tmp_path))


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal in"):
        list(seal(tmp_path / "absent"))
