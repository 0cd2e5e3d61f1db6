"""Events of a range out of whatever files have them: raw and sealed, whole and damaged, there and gone."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from broker.journal.sealing import let_go, seal
from pipeline.connector.choices import OptionError
from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from pipeline.journal.events import EventReader
from pipeline.journal.journals import FolderJournal
from pipeline.journal.options import Bound, journal_options, shown, source_of
from pipeline.journal.planning import EVENTS_OF_TASK, Slice, ends, json_of, resolved, seqs_of, tasks
from pipeline.journal.progress import Progress
from protocol.journal.encoder import Encoder
from tests.journals import NODE, STARTED, Scribe, put

SIZE = 65_536
EVENTS_OF_LIFE = 3


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


def file_of(scribe: Scribe, lives: int) -> bytes:
    """A file with the lives of so many messages, in blocks of one life each."""
    encoder = scribe.encoder
    data = encoder.header(scribe.time)
    for _ in range(lives):
        scribe.life_of(encoder.seq)
        data += encoder.take()
    encoder.end_file()
    return data


def read(
    folder: Path, start: int, end: int, fail_on_loss: bool = True, journal: Any = None
) -> list[dict[str, Any]]:
    journal = journal or FolderJournal(str(folder))
    reader = EventReader(journal, NODE, start, end, fail_on_loss, SIZE)
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


def lose(folder: Path, first: int) -> None:
    (path,) = folder.glob(f"live/{NODE}-{first:020d}*")
    path.unlink()


def test_the_same_rows_come_out_of_live_ended_and_sealed_files(tmp_path: Path, scribe: Scribe) -> None:
    data = file_of(scribe, 4)
    path = put(tmp_path, data, ended=False)
    journal = FolderJournal(str(tmp_path))
    live = read(tmp_path, 1, 13, journal=journal)
    assert seqs(live) == list(range(1, 13))
    assert live[0]["message_id"] == "m1"
    path.rename(path.with_name(path.name.removesuffix(".open")))
    assert read(tmp_path, 1, 13, journal=journal) == live
    assert list(seal(tmp_path))
    assert read(tmp_path, 1, 13, journal=journal) == live, "it is there twice"
    assert let_go(tmp_path, time.time() + 1, 0)
    assert read(tmp_path, 1, 13, journal=journal) == live
    assert ends(journal, SIZE) == {NODE: 13}


@pytest.mark.parametrize(("start", "end"), [(1, 31), (1, 2), (2, 9), (9, 11), (10, 22), (30, 31)])
def test_ranges_begin_and_end_anywhere(tmp_path: Path, scribe: Scribe, start: int, end: int) -> None:
    put(tmp_path, file_of(scribe, 3))
    put(tmp_path, file_of(scribe, 3))
    assert len(list(seal(tmp_path))) == 2
    lose(tmp_path, 1)
    put(tmp_path, file_of(scribe, 4), ended=False)
    assert seqs(read(tmp_path, start, end)) == list(range(start, end))


def test_a_file_that_grows_is_read_on(tmp_path: Path, scribe: Scribe) -> None:
    data = file_of(scribe, 2)
    path = put(tmp_path, data, ended=False)
    journal = FolderJournal(str(tmp_path))
    assert ends(journal, SIZE) == {NODE: 7}
    first = read(tmp_path, 1, 7, journal=journal)
    scribe.encoder._file -= 1  # the names that are there already are not told again
    scribe.life_of(7)
    scribe.tell(10, uid=3, place=3)
    more = scribe.encoder.take()
    path.write_bytes(data + more[:-5])
    assert ends(journal, SIZE) == {NODE: 7}, "the last block is not whole"
    path.write_bytes(data + more)
    assert ends(journal, SIZE) == {NODE: 11}
    rows = read(tmp_path, 7, 11, journal=journal)
    assert seqs(rows) == [7, 8, 9, 10]
    assert {row["queue"] for row in rows} == {"q"}, "its name stands in the part that was read before"
    assert read(tmp_path, 1, 7, journal=journal) == first


def test_another_file_of_the_same_name_is_not_taken_for_it(tmp_path: Path, scribe: Scribe) -> None:
    path = put(tmp_path, file_of(scribe, 5))
    journal = FolderJournal(str(tmp_path))
    read(tmp_path, 13, 16, journal=journal)
    other = Scribe()
    other.time += 1_000_000
    other.queue.fields = ("/", "another", "9")
    path.write_bytes(file_of(other, 5))
    assert {row["queue"] for row in read(tmp_path, 13, 16, journal=journal)} == {"another"}


def test_a_hole_is_told_and_passed_over(
    tmp_path: Path, scribe: Scribe, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, file_of(scribe, 2))
    scribe.encoder.seq += 10  # these could not be written
    put(tmp_path, file_of(scribe, 2), ended=False)
    with caplog.at_level(logging.WARNING, "amqpd.pipeline"):
        assert seqs(read(tmp_path, 1, 23)) == [*range(1, 7), *range(17, 23)]
        assert read(tmp_path, 8, 12) == []
        assert seqs(read(tmp_path, 10, 18)) == [17]
    assert "hole of 10 events" in caplog.text
    list(seal(tmp_path))
    assert seqs(read(tmp_path, 1, 23)) == [*range(1, 7), *range(17, 23)]


def test_a_damaged_block_is_a_hole(tmp_path: Path, scribe: Scribe, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(file_of(scribe, 4))
    place = data.index(b"m4")
    data[place] ^= 1
    path = put(tmp_path, bytes(data), ended=False)
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


def test_an_event_that_is_not_written_yet_is_no_hole(tmp_path: Path, scribe: Scribe) -> None:
    put(tmp_path, file_of(scribe, 2), ended=False)
    with pytest.raises(DataLossError, match="ends before event 7, and events 7 to 8"):
        read(tmp_path, 1, 9)


def test_what_retention_has_let_go_is_a_loss(
    tmp_path: Path, scribe: Scribe, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, file_of(scribe, 2))
    put(tmp_path, file_of(scribe, 2))
    lose(tmp_path, 1)
    with pytest.raises(DataLossError, match=r"events 2 to 6 are gone: .* begins with 7 now"):
        read(tmp_path, 2, 9)
    with caplog.at_level(logging.WARNING, "amqpd.pipeline"):
        assert seqs(read(tmp_path, 2, 9, fail_on_loss=False)) == [7, 8]
    assert "events 2 to 6 are gone" in caplog.text


def test_a_file_that_the_manifest_has_and_that_is_not_there_is_a_loss(tmp_path: Path, scribe: Scribe) -> None:
    for _ in range(3):
        put(tmp_path, file_of(scribe, 2))
    sealed = [each.sealed for each in seal(tmp_path)]
    for first in (1, 7, 13):
        lose(tmp_path, first)
    (tmp_path / sealed[1].file).unlink()
    with pytest.raises(DataLossError, match=r"events 7 to 12 are gone: file 'n-1-.*' is not there"):
        read(tmp_path, 1, 19)
    assert seqs(read(tmp_path, 1, 19, fail_on_loss=False)) == [*range(1, 7), *range(13, 19)]


def test_a_file_that_is_no_journal_is_an_error(tmp_path: Path, scribe: Scribe) -> None:
    path = put(tmp_path, file_of(scribe, 2))
    path.write_bytes(b"x" * 100)
    with pytest.raises(PipelineError, match="is no journal: it does not begin as a journal does"):
        read(tmp_path, 1, 7)


def test_offsets_are_the_next_seqs_of_nodes(tmp_path: Path, scribe: Scribe) -> None:
    put(tmp_path, file_of(scribe, 2))
    other = Scribe(Encoder("m", 101))
    put(tmp_path, file_of(other, 1), ended=False)
    journal = FolderJournal(str(tmp_path))
    assert resolved(Bound(-2), journal, SIZE) == {NODE: 1, "m": 101}
    assert resolved(Bound(-1), journal, SIZE) == {NODE: 7, "m": 104}
    assert resolved(Bound(-2, ((NODE, 5), ("m", -1))), journal, SIZE) == {NODE: 5, "m": 104}
    with pytest.raises(OptionError, match="of node 'x', which has no journal"):
        resolved(Bound(-2, ((NODE, 5), ("m", -1), ("x", 1))), journal, SIZE)
    with pytest.raises(OptionError, match="no seq is said of node 'm'"):
        resolved(Bound(-2, ((NODE, 5),)), journal, SIZE)
    assert json.dumps(json_of({"n": 1, "m": 2})) == '{"v": 1, "nodes": {"m": 2, "n": 1}}'
    assert seqs_of({"v": 1, "nodes": {"m": 2}, "later": 3}) == {"m": 2}
    bad: dict[str, Any]
    for bad in ({"v": 2, "nodes": {}}, {"nodes": {}}, {"v": 1}, {"v": 1, "nodes": {"m": "1"}}):
        with pytest.raises(PipelineError, match="offsets"):
            seqs_of(bad)


def test_reading_begins_at_a_time(tmp_path: Path, scribe: Scribe) -> None:
    for _ in range(3):
        put(tmp_path, file_of(scribe, 3))
        scribe.time += 1000
    sealed = list(seal(tmp_path))
    assert len(sealed) == 3
    lose(tmp_path, 1)
    put(tmp_path, file_of(scribe, 3), ended=False)
    journal = FolderJournal(str(tmp_path))
    times = {row["seq"]: int(row["ts"].timestamp() * 1e6 + 0.5) for row in read(tmp_path, 1, 37)}
    for seq, at in times.items():
        assert resolved(Bound(-2, (), at), journal, SIZE) == {NODE: seq}
    assert resolved(Bound(-2, (), times[9] + 1), journal, SIZE) == {NODE: 10}
    assert resolved(Bound(-2, (), 0), journal, SIZE) == {NODE: 1}
    assert resolved(Bound(-2, (), times[36] + 1), journal, SIZE) == {NODE: 37}
    assert times[1] == STARTED + 1


def cuts(slices: list[Slice]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in slices]


def test_small_files_are_one_task_and_large_ones_several(tmp_path: Path, scribe: Scribe) -> None:
    for _ in range(3):
        put(tmp_path, file_of(scribe, 2))
    large = Scribe(scribe.encoder)
    header = large.encoder.header(large.time)
    for uid in range(EVENTS_OF_TASK // EVENTS_OF_LIFE + 1):
        large.life_of(uid + 100)
    put(tmp_path, header + large.encoder.take())
    large.encoder.end_file()
    behind = large.encoder.seq
    put(tmp_path, file_of(large, 2), ended=False)
    journal = FolderJournal(str(tmp_path))
    assert cuts(tasks(journal, {NODE: 1}, {NODE: 19}, True, SIZE)) == [(1, 19)]
    end = behind + 6
    assert cuts(tasks(journal, {NODE: 2}, {NODE: end}, True, SIZE)) == [(2, behind), (behind, end)]
    assert cuts(tasks(journal, {}, {NODE: 3}, True, SIZE)) == [(1, 3)], (
        "a node that is new begins at its first"
    )
    assert cuts(tasks(journal, {NODE: 3}, {NODE: 3}, True, SIZE)) == []
    assert seqs(read(tmp_path, 1, end)) == list(range(1, end))


@pytest.mark.parametrize(
    ("start", "end", "why", "left"),
    [
        ({NODE: 2}, {NODE: 10}, "begins with event 7 now: those from 2 on are gone", [(7, 10)]),
        ({NODE: 2}, {NODE: 5}, "begins with event 7 now", []),
        ({NODE: 8}, {NODE: 99}, "ends before event 13, not 99", [(8, 13)]),
        ({NODE: 12}, {NODE: 10}, "planned by a run whose beginning is not known", []),
        ({"x": 1}, {"x": 2}, "node 'x' is not in .* any more, with events 1 to 1", []),
    ],
    ids=["begun", "gone", "cut", "latest", "node"],
)
def test_what_was_planned_and_is_not_there_is_a_loss(
    tmp_path: Path,
    scribe: Scribe,
    start: dict[str, int],
    end: dict[str, int],
    why: str,
    left: list[tuple[int, int]],
) -> None:
    put(tmp_path, file_of(scribe, 2))
    put(tmp_path, file_of(scribe, 2))
    lose(tmp_path, 1)
    journal = FolderJournal(str(tmp_path))
    with pytest.raises(DataLossError, match=why):
        tasks(journal, start, end, True, SIZE)
    assert cuts(tasks(journal, start, end, False, SIZE)) == left


def progress(folder: Path, **options: str) -> Progress:
    return Progress(journal_options({"path": str(folder)} | options, streaming=True))


def test_batches_have_no_more_than_wanted_and_end_with_what_was_there(tmp_path: Path, scribe: Scribe) -> None:
    put(tmp_path, file_of(scribe, 4))
    other = Scribe(Encoder("m", 1))
    put(tmp_path, file_of(other, 2))
    planning = progress(tmp_path, startingOffsets="earliest")
    start = planning.initial()
    assert start == {NODE: 1, "m": 1}
    planning.fix_end()
    put(tmp_path, file_of(scribe, 2))
    assert planning.next_batch(start, 9) == {NODE: 7, "m": 4}, "in proportion to what waits"
    assert planning.next_batch({NODE: 7, "m": 4}, None) == {NODE: 13, "m": 7}
    assert planning.next_batch({NODE: 13, "m": 7}, None) == {NODE: 13, "m": 7}
    assert planning.end_seen() == {NODE: 13, "m": 7}
    again = progress(tmp_path, startingOffsets="earliest")
    assert again.next_batch({NODE: 13}, None) == {NODE: 19, "m": 7}, "a node that is new begins at its first"


def test_a_journal_that_is_another_one_is_a_loss(tmp_path: Path, scribe: Scribe) -> None:
    put(tmp_path, file_of(scribe, 2))
    with pytest.raises(DataLossError, match="ends before event 7, and events up to 99 were read"):
        progress(tmp_path).next_batch({NODE: 100}, None)
    assert progress(tmp_path, failOnDataLoss="false").next_batch({NODE: 100}, None) == {NODE: 7}


def test_options_say_where_the_journal_is(tmp_path: Path) -> None:
    options = journal_options({"PATH": f"file://{tmp_path}"}, streaming=False)
    assert (options.folder, options.server) == (str(tmp_path), None)
    options = journal_options({"url": "http://u%40:p@h:15672/x, https://[::1]:1"}, streaming=True)
    server = options.server
    assert server is not None
    assert (server.api, server.user, server.password.read()) == (
        ("http://h:15672/x", "https://[::1]:1"),
        "u@",
        "p",
    )
    server = journal_options({"apiUrl": "http://u:p@h:1", "password": "q"}, streaming=True).server
    assert server is not None
    assert (server.api, server.user, server.password.read()) == (("http://h:1",), "u", "q")
    server = journal_options({"url": "amqp://u:p@h", "apiUrl": "http://a:1"}, streaming=True).server
    assert server is not None
    assert server.api == ("http://a:1",)
    assert source_of("http://h") == {"url": "http://h"}
    assert source_of("amqps://h") == {"url": "amqps://h"}
    assert source_of("/a/b") == {"path": "/a/b"}
    assert shown("http://u:p@h:1/x") == "http://h:1/x"
    assert shown("http://h") == "http://h"
    assert shown("/a@b/c") == "/a@b/c"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "one of the options 'path', .* and 'url'"),
        ({"path": ".", "url": "http://h"}, "one of the options"),
        ({"path": "/no/such"}, "option 'path' is '/no/such': there is no such folder"),
        ({"path": "s3://b/x"}, "option 'path' is 's3://b/x': a journal is read from a local folder"),
        ({"url": "http://"}, "option 'url' has 'http://'"),
        (
            {"path": ".", "startingOffsets": "7"},
            "option 'startingOffsets' is '7'; it is earliest or latest, or JSON",
        ),
        ({"path": ".", "startingOffsets": '{"n": -3}'}, "option 'startingOffsets'"),
        ({"path": ".", "startingOffsets": '{"n": true}'}, "option 'startingOffsets'"),
        (
            {"path": ".", "endingOffsets": "earliest"},
            "option 'endingOffsets' is 'earliest'; it is latest, or JSON",
        ),
        ({"path": ".", "maxEventsPerTrigger": "0"}, "option 'maxEventsPerTrigger' is '0'"),
        ({"path": ".", "maxEventsPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "are the same"),
        ({"path": ".", "subscribe": "q"}, "format 'amqp-journal' has no option 'subscribe'"),
    ],
)
def test_bad_options_are_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        journal_options(given, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="option 'endingOffsets' is for batches"):
        journal_options({"path": ".", "endingOffsets": "latest"}, streaming=True)


def test_a_folder_without_a_journal_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no journal in"):
        FolderJournal(str(tmp_path)).extents()
