"""Events of a range from any files: raw and sealed, whole and damaged, existing and deleted."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from broker.journal.seal import delete_sealed, seal
from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from pipeline.journal.journals import FolderJournal
from pipeline.journal.raw import find_ends
from tests.support.journal.handmade_journal import NODE, EventWriter, file_of, write_file
from tests.support.pipeline.journal_events import READ_BYTES as SIZE
from tests.support.pipeline.journal_events import lose, read, seqs


@pytest.fixture
def scribe() -> EventWriter:
    return EventWriter()


def test_the_same_rows_come_out_of_live_ended_and_sealed_files(tmp_path: Path, scribe: EventWriter) -> None:
    data = file_of(scribe, 4)
    path = write_file(tmp_path, data, ended=False)
    journal = FolderJournal(str(tmp_path))
    live = read(tmp_path, 1, 13, journal=journal)
    assert seqs(live) == list(range(1, 13))
    assert live[0]["message_id"] == "m1"
    path.rename(path.with_name(path.name.removesuffix(".open")))
    assert read(tmp_path, 1, 13, journal=journal) == live
    assert list(seal(tmp_path))
    assert read(tmp_path, 1, 13, journal=journal) == live, "it is there twice"
    assert delete_sealed(tmp_path, time.time() + 1, 0)
    assert read(tmp_path, 1, 13, journal=journal) == live
    assert find_ends(journal, SIZE) == {NODE: 13}


@pytest.mark.parametrize(("start", "end"), [(1, 31), (1, 2), (2, 9), (9, 11), (10, 22), (30, 31)])
def test_ranges_begin_and_end_anywhere(tmp_path: Path, scribe: EventWriter, start: int, end: int) -> None:
    write_file(tmp_path, file_of(scribe, 3))
    write_file(tmp_path, file_of(scribe, 3))
    assert len(list(seal(tmp_path))) == 2
    lose(tmp_path, 1)
    write_file(tmp_path, file_of(scribe, 4), ended=False)
    assert seqs(read(tmp_path, start, end)) == list(range(start, end))


def test_a_file_that_grows_is_read_on(tmp_path: Path, scribe: EventWriter) -> None:
    data = file_of(scribe, 2)
    path = write_file(tmp_path, data, ended=False)
    journal = FolderJournal(str(tmp_path))
    assert find_ends(journal, SIZE) == {NODE: 7}
    first = read(tmp_path, 1, 7, journal=journal)
    scribe.encoder._file -= 1  # names that the journal has already are not written again
    scribe.life_of(7)
    scribe.tell(10, uid=3, place=3)
    more = scribe.encoder.take()
    path.write_bytes(data + more[:-5])
    assert find_ends(journal, SIZE) == {NODE: 7}, "the last block is not whole"
    path.write_bytes(data + more)
    assert find_ends(journal, SIZE) == {NODE: 11}
    rows = read(tmp_path, 7, 11, journal=journal)
    assert seqs(rows) == [7, 8, 9, 10]
    assert {row["queue"] for row in rows} == {"q"}, "its name stands in the part that was read before"
    assert read(tmp_path, 1, 7, journal=journal) == first


def test_a_replaced_file_of_the_same_name_is_read_again(tmp_path: Path, scribe: EventWriter) -> None:
    path = write_file(tmp_path, file_of(scribe, 5))
    journal = FolderJournal(str(tmp_path))
    read(tmp_path, 13, 16, journal=journal)
    other = EventWriter()
    other.time += 1_000_000
    other.queue.fields = ("/", "another", "9")
    path.write_bytes(file_of(other, 5))
    assert {row["queue"] for row in read(tmp_path, 13, 16, journal=journal)} == {"another"}


def test_a_hole_is_reported_and_skipped(
    tmp_path: Path, scribe: EventWriter, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, file_of(scribe, 2))
    scribe.encoder.seq += 10  # these could not be written
    write_file(tmp_path, file_of(scribe, 2), ended=False)
    with caplog.at_level(logging.WARNING, "amqpd.pipeline"):
        assert seqs(read(tmp_path, 1, 23)) == [*range(1, 7), *range(17, 23)]
        assert read(tmp_path, 8, 12) == []
        assert seqs(read(tmp_path, 10, 18)) == [17]
    assert "hole of 10 events" in caplog.text
    list(seal(tmp_path))
    assert seqs(read(tmp_path, 1, 23)) == [*range(1, 7), *range(17, 23)]


def test_a_damaged_block_is_a_hole(
    tmp_path: Path, scribe: EventWriter, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(file_of(scribe, 4))
    place = data.index(b"m4")
    data[place] ^= 1
    path = write_file(tmp_path, bytes(data), ended=False)
    rest = [1, 2, 3, 7, 8, 9, 10, 11, 12]
    with caplog.at_level(logging.WARNING, "amqpd.pipeline"):
        assert seqs(read(tmp_path, 1, 13)) == rest
        assert read(tmp_path, 4, 7) == []
    assert "hole of 3 events" in caplog.text
    path.rename(path.with_name(path.name.removesuffix(".open")))
    list(seal(tmp_path))
    lose(tmp_path, 1)
    assert seqs(read(tmp_path, 1, 13)) == rest
    assert read(tmp_path, 4, 7) == []


def test_an_event_that_is_not_written_yet_is_no_hole(tmp_path: Path, scribe: EventWriter) -> None:
    write_file(tmp_path, file_of(scribe, 2), ended=False)
    with pytest.raises(DataLossError, match="ends before event 7, and events 7 to 8"):
        read(tmp_path, 1, 9)


def test_events_that_retention_has_removed_are_a_loss(
    tmp_path: Path, scribe: EventWriter, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, file_of(scribe, 2))
    write_file(tmp_path, file_of(scribe, 2))
    lose(tmp_path, 1)
    with pytest.raises(DataLossError, match=r"events 2 to 6 are lost: .* begins with 7 now"):
        read(tmp_path, 2, 9)
    with caplog.at_level(logging.WARNING, "amqpd.pipeline"):
        assert seqs(read(tmp_path, 2, 9, fail_on_loss=False)) == [7, 8]
    assert "events 2 to 6 are lost" in caplog.text


def test_a_file_that_the_manifest_has_and_that_is_not_there_is_a_loss(
    tmp_path: Path, scribe: EventWriter
) -> None:
    for _ in range(3):
        write_file(tmp_path, file_of(scribe, 2))
    sealed = [each.sealed for each in seal(tmp_path)]
    for first in (1, 7, 13):
        lose(tmp_path, first)
    (tmp_path / sealed[1].file).unlink()
    with pytest.raises(DataLossError, match=r"events 7 to 12 are lost: file 'n-1-.*' does not exist"):
        read(tmp_path, 1, 19)
    assert seqs(read(tmp_path, 1, 19, fail_on_loss=False)) == [*range(1, 7), *range(13, 19)]


def test_a_file_that_is_no_journal_is_an_error(tmp_path: Path, scribe: EventWriter) -> None:
    path = write_file(tmp_path, file_of(scribe, 2))
    path.write_bytes(b"x" * 100)
    with pytest.raises(PipelineError, match="is no journal: the file does not begin with 'AJL1'"):
        read(tmp_path, 1, 7)
