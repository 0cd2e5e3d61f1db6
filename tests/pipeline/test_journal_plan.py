"""Beginnings and ends of batches of events, the tasks that read them, and the options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.journal.seal import seal
from pipeline.connector.choices import OptionError
from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from pipeline.journal.journals import FolderJournal
from pipeline.journal.options import Bound, hide_password, journal_options, journal_source
from pipeline.journal.plan import (
    EVENTS_OF_TASK,
    Progress,
    Slice,
    json_of,
    plan_slices,
    resolve_bound,
    seqs_of,
)
from protocol.journal.encoder import Encoder
from tests.support.journal.handmade_journal import (
    EVENTS_OF_LIFE,
    NODE,
    STARTED,
    EventWriter,
    file_of,
    write_file,
)
from tests.support.pipeline.journal_events import READ_BYTES as SIZE
from tests.support.pipeline.journal_events import lose, read, seqs


@pytest.fixture
def scribe() -> EventWriter:
    return EventWriter()


def test_offsets_are_the_next_seqs_of_nodes(tmp_path: Path, scribe: EventWriter) -> None:
    write_file(tmp_path, file_of(scribe, 2))
    other = EventWriter(Encoder("m", 101))
    write_file(tmp_path, file_of(other, 1), ended=False)
    journal = FolderJournal(str(tmp_path))
    assert resolve_bound(Bound(-2), journal, SIZE) == {NODE: 1, "m": 101}
    assert resolve_bound(Bound(-1), journal, SIZE) == {NODE: 7, "m": 104}
    assert resolve_bound(Bound(-2, ((NODE, 5), ("m", -1))), journal, SIZE) == {NODE: 5, "m": 104}
    with pytest.raises(OptionError, match="for node 'x', which has no journal"):
        resolve_bound(Bound(-2, ((NODE, 5), ("m", -1), ("x", 1))), journal, SIZE)
    with pytest.raises(OptionError, match="no seq is given for node 'm'"):
        resolve_bound(Bound(-2, ((NODE, 5),)), journal, SIZE)
    assert json.dumps(json_of({"n": 1, "m": 2})) == '{"v": 1, "nodes": {"m": 2, "n": 1}}'
    assert seqs_of({"v": 1, "nodes": {"m": 2}, "later": 3}) == {"m": 2}
    bad: dict[str, Any]
    for bad in ({"v": 2, "nodes": {}}, {"nodes": {}}, {"v": 1}, {"v": 1, "nodes": {"m": "1"}}):
        with pytest.raises(PipelineError, match="offsets"):
            seqs_of(bad)


def test_reading_begins_at_a_time(tmp_path: Path, scribe: EventWriter) -> None:
    for _ in range(3):
        write_file(tmp_path, file_of(scribe, 3))
        scribe.time += 1000
    sealed = list(seal(tmp_path))
    assert len(sealed) == 3
    lose(tmp_path, 1)
    write_file(tmp_path, file_of(scribe, 3), ended=False)
    journal = FolderJournal(str(tmp_path))
    times = {row["seq"]: int(row["ts"].timestamp() * 1e6 + 0.5) for row in read(tmp_path, 1, 37)}
    for seq, at in times.items():
        assert resolve_bound(Bound(-2, (), at), journal, SIZE) == {NODE: seq}
    assert resolve_bound(Bound(-2, (), times[9] + 1), journal, SIZE) == {NODE: 10}
    assert resolve_bound(Bound(-2, (), 0), journal, SIZE) == {NODE: 1}
    assert resolve_bound(Bound(-2, (), times[36] + 1), journal, SIZE) == {NODE: 37}
    assert times[1] == STARTED + 1


def cuts(slices: list[Slice]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in slices]


def test_small_files_are_one_task_and_large_ones_several(tmp_path: Path, scribe: EventWriter) -> None:
    for _ in range(3):
        write_file(tmp_path, file_of(scribe, 2))
    large = EventWriter(scribe.encoder)
    header = large.encoder.header(large.time)
    for uid in range(EVENTS_OF_TASK // EVENTS_OF_LIFE + 1):
        large.life_of(uid + 100)
    write_file(tmp_path, header + large.encoder.take())
    large.encoder.end_file()
    behind = large.encoder.seq
    write_file(tmp_path, file_of(large, 2), ended=False)
    journal = FolderJournal(str(tmp_path))
    assert cuts(plan_slices(journal, {NODE: 1}, {NODE: 19}, True, SIZE)) == [(1, 19)]
    end = behind + 6
    assert cuts(plan_slices(journal, {NODE: 2}, {NODE: end}, True, SIZE)) == [(2, behind), (behind, end)]
    assert cuts(plan_slices(journal, {}, {NODE: 3}, True, SIZE)) == [(1, 3)], (
        "a node that is new begins at its first"
    )
    assert cuts(plan_slices(journal, {NODE: 3}, {NODE: 3}, True, SIZE)) == []
    assert seqs(read(tmp_path, 1, end)) == list(range(1, end))


@pytest.mark.parametrize(
    ("start", "end", "why", "left"),
    [
        ({NODE: 2}, {NODE: 10}, "begins with event 7 now: those from 2 on are lost", [(7, 10)]),
        ({NODE: 2}, {NODE: 5}, "begins with event 7 now", []),
        ({NODE: 8}, {NODE: 99}, "ends before event 13, not 99", [(8, 13)]),
        ({NODE: 12}, {NODE: 10}, "planned by a run whose beginning is not known", []),
        ({"x": 1}, {"x": 2}, "node 'x' is not in .* any more, with events 1 to 1", []),
    ],
    ids=["begun", "gone", "cut", "latest", "node"],
)
def test_planned_files_that_are_missing_are_a_loss(
    tmp_path: Path,
    scribe: EventWriter,
    start: dict[str, int],
    end: dict[str, int],
    why: str,
    left: list[tuple[int, int]],
) -> None:
    write_file(tmp_path, file_of(scribe, 2))
    write_file(tmp_path, file_of(scribe, 2))
    lose(tmp_path, 1)
    journal = FolderJournal(str(tmp_path))
    with pytest.raises(DataLossError, match=why):
        plan_slices(journal, start, end, True, SIZE)
    assert cuts(plan_slices(journal, start, end, False, SIZE)) == left


def progress(folder: Path, **options: str) -> Progress:
    return Progress(journal_options({"path": str(folder)} | options, streaming=True))


def test_batches_have_no_more_than_wanted_and_end_with_what_was_there(
    tmp_path: Path, scribe: EventWriter
) -> None:
    write_file(tmp_path, file_of(scribe, 4))
    other = EventWriter(Encoder("m", 1))
    write_file(tmp_path, file_of(other, 2))
    planning = progress(tmp_path, startingOffsets="earliest")
    start = planning.initial()
    assert start == {NODE: 1, "m": 1}
    planning.fix_end()
    write_file(tmp_path, file_of(scribe, 2))
    assert planning.next_batch(start, 9) == {NODE: 7, "m": 4}, "in proportion to what waits"
    assert planning.next_batch({NODE: 7, "m": 4}, None) == {NODE: 13, "m": 7}
    assert planning.next_batch({NODE: 13, "m": 7}, None) == {NODE: 13, "m": 7}
    assert planning.end_seen() == {NODE: 13, "m": 7}
    again = progress(tmp_path, startingOffsets="earliest")
    assert again.next_batch({NODE: 13}, None) == {NODE: 19, "m": 7}, "a node that is new begins at its first"


def test_a_journal_that_ends_before_the_read_offset_is_a_data_loss(
    tmp_path: Path, scribe: EventWriter
) -> None:
    write_file(tmp_path, file_of(scribe, 2))
    with pytest.raises(DataLossError, match="ends before event 7, and events up to 99 were read"):
        progress(tmp_path).next_batch({NODE: 100}, None)
    assert progress(tmp_path, failOnDataLoss="false").next_batch({NODE: 100}, None) == {NODE: 7}


def test_options_say_where_the_journal_is(tmp_path: Path) -> None:
    options = journal_options({"PATH": f"file://{tmp_path}"}, streaming=False)
    assert (options.folder, options.server) == (str(tmp_path), None)
    options = journal_options({"url": "http://u%40:p@h:15672/x, http://[::1]:1"}, streaming=True)
    server = options.server
    assert server is not None
    assert (server.api, server.user, server.password.read()) == (
        ("http://h:15672/x", "http://[::1]:1"),
        "u@",
        "p",
    )
    server = journal_options({"apiUrl": "http://u:p@h:1", "password": "q"}, streaming=True).server
    assert server is not None
    assert (server.api, server.user, server.password.read()) == (("http://h:1",), "u", "q")
    server = journal_options({"url": "amqp://u:p@h", "apiUrl": "http://a:1"}, streaming=True).server
    assert server is not None
    assert server.api == ("http://a:1",)
    server = journal_options({"url": "https://u:p@h:1", "caFile": "ca.pem"}, streaming=True).server
    assert server is not None
    assert (server.amqp, server.api, server.tls.authority) == (
        (("amqps", "h", 5671),),
        ("https://h:1",),
        "ca.pem",
    )
    server = journal_options({"url": "amqps://u:p@h"}, streaming=True).server
    assert server is not None
    assert server.api == ("https://h:15671",)
    with pytest.raises(OptionError, match="some with TLS and some without"):
        journal_options({"url": "https://u:p@h:1,http://u:p@g:1"}, streaming=True)
    assert journal_source("http://h") == {"url": "http://h"}
    assert journal_source("amqps://h") == {"url": "amqps://h"}
    assert journal_source("/a/b") == {"path": "/a/b"}
    assert hide_password("http://u:p@h:1/x") == "http://h:1/x"
    assert hide_password("http://h") == "http://h"
    assert hide_password("/a@b/c") == "/a@b/c"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "one of the options 'path', .* and 'url'"),
        ({"path": ".", "url": "http://h"}, "one of the options"),
        ({"path": "/no/such"}, "option 'path' is '/no/such': there is no such folder"),
        ({"path": "s3://b/x"}, "option 'path' is 's3://b/x': a journal is read from a local folder"),
        ({"url": "http://"}, "option 'url' is 'http://'"),
        (
            {"path": ".", "startingOffsets": "7"},
            "option 'startingOffsets' is '7'; it is earliest or latest, or JSON",
        ),
        ({"path": ".", "startingOffsets": '{"n": -3}'}, "option 'startingOffsets'"),
        ({"path": ".", "startingOffsets": '{"n": true}'}, "option 'startingOffsets'"),
        ({"path": ".", "startingOffsets": "[" * 100_000}, "option 'startingOffsets'"),
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
