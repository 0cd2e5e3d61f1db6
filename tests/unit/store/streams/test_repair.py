"""Check and repair of stream files that were cut, changed or lost."""

import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.core.values import encode_table
from broker.store.disk import RealDisk
from broker.store.errors import LogDamaged
from broker.store.repair.check import CheckReport, check, repair
from broker.store.repair.streams import read_all, stored_files
from broker.store.segment import segment_name
from broker.store.streams.stream import Stream
from protocol.streams.chunk import HEADER_BYTES, Header
from tests.support.store.hand_log import chunks_of, content_of, logged_queue, open_log, publish, storage_of
from tests.support.store.streams import add, open_streams, rows

DISK = RealDisk()
QUEUES = (1, 2)
ROWS = 40
BODIES = [content_of(number, 30 * (number % 7)) for number in range(ROWS)]
WHOLE = list(enumerate(BODIES))


def write(folder: Path) -> None:
    """Write two streams with the same rows: chunks of a row or two, files of about four chunks."""
    log, found, _ = open_streams(str(folder), DISK, *QUEUES)
    log.streams.chunk_bytes = 250
    for stream in found:
        chunks_of(stream).segment_bytes = 1200
    for number in range(ROWS):
        for stream in found:
            add(stream, BODIES[number], time=1000 * number)
        if number % 4 == 3:
            log.commit()
    log.commit()
    log.close()


def files(folder: Path, number: int = 1) -> list[Path]:
    """Return the files of a stream."""
    return sorted(folder.glob(f"stream-{number}-*.chunks"))


def chunks(path: Path) -> list[tuple[int, Header]]:
    """Return the positions and headers of the chunks in a file."""
    data = path.read_bytes()
    found: list[tuple[int, Header]] = []
    at = 0
    while at < len(data):
        found.append((at, Header(data, at)))
        at += found[-1][1].size
    return found


def spoil(path: Path, position: int) -> None:
    """Change a byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x20
    path.write_bytes(data)


def repaired(folder: Path) -> tuple[CheckReport, list[tuple[int, bytes]]]:
    """Return the report, the same from check and repair, and the readable rows of the first stream."""
    before = check(str(folder), DISK)
    assert not before.healthy
    report = repair(str(folder), DISK)
    assert report.repaired
    lines = [line.replace("a repair would lose", "lost") for line in before.lines()]
    assert lines == report.lines()
    assert check(str(folder), DISK).healthy
    log, (stream, other), _ = open_streams(str(folder), DISK, *QUEUES)
    assert rows(other) == WHOLE
    found = rows(stream)
    assert stream.first == 0
    assert stream.next == ROWS, "no offset is given out twice"
    check_reading(stream, found)
    add(stream, b"behind it", time=10**9)
    log.commit()
    assert rows(stream) == [*found, (ROWS, b"behind it")]
    log.close()
    return before, found


def check_reading(stream: Stream, found: list[tuple[int, bytes]]) -> None:
    """Check that a read from any offset and any time finds the next existing row."""
    offsets = [offset for offset, _ in found]
    for offset in range(ROWS):
        page = stream.at(offset)
        later = [there for there in offsets if there >= offset]
        assert (page is None) == (not later)
        if page is not None:
            assert max(page.first, offset) == later[0]
        since = stream.since(1000 * offset)
        assert [there for there in offsets if there >= since] == later


def test_check_counts_the_rows_of_streams(tmp_path: Path) -> None:
    write(tmp_path)
    report = check(str(tmp_path), DISK)
    assert report.healthy
    size = sum(path.stat().st_size for path in files(tmp_path))
    assert len(files(tmp_path)) > 3
    assert f"2 streams, {2 * ROWS} rows, {2 * size} bytes" in report.lines()
    assert f"  queue 's1' in vhost '/': offsets 0 to {ROWS - 1}: {ROWS} rows, {size} bytes" in report.lines()


def test_a_damaged_chunk_costs_its_rows_only(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    write(whole)
    places = [(path.name, place) for path in files(whole)[:-1] for place in chunks(path)]
    assert len(places) > 12
    for index, (name, (at, header)) in enumerate(places):
        folder = tmp_path / str(index)
        shutil.copytree(whole, folder)
        path = folder / name
        spoil(path, at + (9, 20, HEADER_BYTES + 3, header.size - 1)[index % 4])
        changed = path.read_bytes()
        report, found = repaired(folder)
        assert found == WHOLE[: header.first] + WHOLE[header.behind :]
        [damage] = report.streams[1].damages
        assert (damage.path, damage.offset, damage.length) == (str(path), at, header.size)
        lost = f"rows {header.first} to {header.behind - 1} of queue 's1' in vhost '/'"
        assert f"damaged: {path} at offset {at}, {header.size} bytes: {lost}" in report.lines()
        assert f"a repair would lose: {header.rows} rows of queue 's1'" in "\n".join(report.lines())
        assert (folder / (name + ".damaged")).read_bytes() == changed


def test_the_daemon_does_not_start_where_a_header_is_damaged(tmp_path: Path) -> None:
    write(tmp_path)
    path = files(tmp_path)[1]
    at = chunks(path)[1][0]
    spoil(path, at)
    with pytest.raises(LogDamaged) as caught:
        open_streams(str(tmp_path), DISK, *QUEUES)
    assert (caught.value.path, caught.value.offset) == (str(path), at)


@pytest.mark.parametrize("index", [0, 1, -2])
def test_a_missing_file_loses_only_its_rows(tmp_path: Path, index: int) -> None:
    write(tmp_path)
    path = files(tmp_path)[index]
    found = chunks(path)
    first, behind = found[0][1].first, found[-1][1].behind
    path.unlink()
    report, left = repaired(tmp_path)
    assert left == WHOLE[:first] + WHOLE[behind:]
    assert any(
        f"missing: {path} from offset 0 on: rows {first} to {behind - 1}" in line for line in report.lines()
    )


def test_a_file_that_was_cut_costs_the_rows_behind_the_cut(tmp_path: Path) -> None:
    write(tmp_path)
    path = files(tmp_path)[1]
    found = chunks(path)
    at, header = found[-2]
    path.write_bytes(path.read_bytes()[: at + header.size // 2])
    _, left = repaired(tmp_path)
    assert left == WHOLE[: header.first] + WHOLE[found[-1][1].behind :]


def test_a_stream_without_any_file_is_repaired(tmp_path: Path) -> None:
    write(tmp_path)
    log, _, _ = open_streams(str(tmp_path), DISK, *QUEUES)
    log.close()  # the last batch is one without rows: what was before it is not torn but lost
    for path in files(tmp_path):
        path.unlink()
    report, left = repaired(tmp_path)
    assert left == []
    assert (
        f"a repair would lose: {ROWS} rows of queue 's1' in vhost '/'; others keep their offsets"
        in report.lines()
    )


def test_earlier_losses_are_reported(tmp_path: Path) -> None:
    write(tmp_path)
    files(tmp_path)[1].unlink()
    repair(str(tmp_path), DISK)
    report = check(str(tmp_path), DISK)
    assert report.streams[1].lost > 0
    assert any(f"{report.streams[1].lost} lost before" in line for line in report.lines())
    lost = report.streams[1].lost
    path = files(tmp_path)[0]
    spoil(path, HEADER_BYTES)
    _, left = repaired(tmp_path)
    assert len(left) == ROWS - lost - chunks(path)[0][1].rows


def test_the_chunk_of_a_last_batch_that_is_torn_is_no_damage(tmp_path: Path) -> None:
    log, (stream, _), _ = open_streams(str(tmp_path), DISK, *QUEUES)
    add(stream, b"first")
    log.commit()
    message = publish(log, [logged_queue(2)], b"goes with it")
    add(stream, b"second")
    log.commit()
    assert message.sequence
    log.release()
    [path] = files(tmp_path)
    spoil(path, chunks(path)[1][0] + HEADER_BYTES)
    report = check(str(tmp_path), DISK)
    assert report.healthy
    assert report.torn
    assert (report.messages, report.streams[1].rows) == (0, 1)
    assert not repair(str(tmp_path), DISK).repaired
    log, (stream, _), recovered = open_streams(str(tmp_path), DISK, *QUEUES)
    assert recovered.torn
    assert rows(stream) == [(0, b"first")]
    log.close()


def test_rows_of_batches_that_are_lost_stay_where_they_are(tmp_path: Path) -> None:
    """The log no longer says that they were appended, and yet their offsets have been given out."""
    write(tmp_path)
    path = tmp_path / segment_name(1)
    data = path.read_bytes()
    spoil(path, data.rindex(b"AMQL", 0, data.rindex(b"AMQL")) + 50)
    report = check(str(tmp_path), DISK)
    assert len(report.damages) == 1
    assert not any(stream.damages for stream in report.streams.values())
    assert repair(str(tmp_path), DISK).repaired
    log, (stream, other), _ = open_streams(str(tmp_path), DISK, *QUEUES)
    assert rows(stream) == rows(other) == WHOLE
    log.close()


def test_files_of_streams_whose_queues_are_lost_are_kept_aside(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / segment_name(1)
    spoil(path, path.read_bytes().index(b'"s2"') + 1)
    before = {file.name: file.read_bytes() for number in QUEUES for file in files(tmp_path, number)}
    report = repair(str(tmp_path), DISK)
    assert report.repaired
    assert report.unowned == sorted(before)
    assert f"kept aside: {len(before)} files of streams whose queues are not known" in report.lines()
    assert {name: (tmp_path / (name + ".damaged")).read_bytes() for name in before} == before


def test_a_check_knows_the_partitions_of_a_stream(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    arguments = encode_table({"x-queue-type": "stream", "x-partitions": 2})
    log.append_definition({"kind": "queue", "number": 7, "name": "p", "vhost": "v", "arguments": arguments})
    log.append_definition({"kind": "queue", "number": 9, "name": "q", "vhost": "v", "arguments": {}})
    partitions = [log.streams.open(number) for number in (7, 8)]
    for number, stream in enumerate(partitions):
        for body in BODIES[: number + 1]:
            add(stream, body)
    log.commit()
    log.close()
    report = check(str(tmp_path), DISK)
    assert {number: stream.rows for number, stream in report.streams.items()} == {7: 1, 8: 2}
    assert any(
        "queue 'p' in vhost 'v', partition 1: offsets 0 to 1: 2 rows" in line for line in report.lines()
    )
    spoil(files(tmp_path, 8)[0], HEADER_BYTES)
    assert any("queue 'p' in vhost 'v', partition 1" in line for line in check(str(tmp_path), DISK).lines())
    log, _ = open_log(str(tmp_path), DISK)
    log.append_definition({"kind": "queue.delete", "number": 7, "last": 8, "name": "p", "vhost": "v"})
    log.commit()
    log.close()
    report = check(str(tmp_path), DISK)
    assert (report.healthy, report.streams, report.unowned) == (True, {}, [])


@pytest.mark.parametrize(
    "within", [0, 9, 20, HEADER_BYTES + 3, -1], ids=["magic", "rows", "row", "time", "end"]
)
def test_readers_skip_rows_that_are_damaged_while_the_log_is_open(tmp_path: Path, within: int) -> None:
    whole = tmp_path / "whole"
    write(whole)
    places = [(path.name, place) for path in files(whole) for place in chunks(path)]
    for index, (name, (at, header)) in enumerate(places):
        folder = tmp_path / str(index)
        shutil.copytree(whole, folder)
        log, (stream, other), _ = open_streams(str(folder), DISK, *QUEUES)
        spoil(folder / name, at + (within if within >= 0 else header.size - 1))
        with capture_logs() as log_lines:
            found = rows(stream)
            assert found == WHOLE[: header.first] + WHOLE[header.behind :]
            check_reading(stream, found)
            assert rows(other) == WHOLE
        [line] = log_lines
        assert (line["file"], line["offset"]) == (str(folder / name), at)
        assert line["rows"] == f"{header.first} to {header.behind - 1}"
        for offset in range(ROWS):  # bulk reads, as stored
            extent = stream.extent(offset, ROWS)
            if extent is not None:
                assert extent.behind <= header.first or extent.first >= header.behind
                os.close(extent.fd)
        log.close()
        shutil.rmtree(folder)


def test_all_chunks_are_read_after_a_start_and_damaged_ones_are_logged(tmp_path: Path) -> None:
    write(tmp_path)
    [path, *_] = files(tmp_path)
    (at, header) = chunks(path)[1]
    spoil(path, at + header.size - 9)
    log, (stream, _), _ = open_streams(str(tmp_path), DISK, *QUEUES)
    stored = stored_files(storage_of(log))
    found = [chunk for chunk in read_all(stored, DISK) if chunk is not None]
    assert [(chunk.file.path, chunk.position, chunk.first) for chunk in found] == [
        (str(path), at, header.first)
    ]
    with capture_logs() as log_lines:
        found[0].mark_unreadable(storage_of(log))
        found[0].mark_unreadable(storage_of(log))
        assert rows(stream) == WHOLE[: header.first] + WHOLE[header.behind :]
    assert len(log_lines) == 1
    log.close()
