"""The file of a dead segment becomes the next segment: its former content is never recovered."""

import shutil
from pathlib import Path

import pytest

from broker.core.message import Message
from broker.core.queues.queue import Queue
from broker.store import sync_helper
from broker.store.disk import Disk, RealDisk
from broker.store.errors import LogDamaged
from broker.store.format import BLANK, HEADER_BYTES, MAGIC, encode_header
from broker.store.log import Log
from broker.store.repair.check import check, repair
from broker.store.scan import SegmentScanner
from broker.store.segment import segment_name
from broker.store.segment_files import READY, REQUESTED
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    content_of,
    files_of,
    logged_queue,
    open_log,
    publish,
)

DISK = RealDisk()
SEGMENT_BYTES = 8192


def busy_log(folder: Path, deferred: DeferredWork | None = None) -> tuple[Log, Queue]:
    """Return a log with short-lived segments, in the middle of a recycled one."""
    log, _ = open_log(
        str(folder), DISK, None, deferred, segment_bytes=SEGMENT_BYTES, first_segment_bytes=SEGMENT_BYTES
    )
    queue = logged_queue(1)
    inodes: set[int] = set()
    held = []
    for number in range(400):
        held.append(publish(log, [queue], content_of(number, 300)))
        if len(held) > 3:
            log.append_settle(held.pop(0), queue)
        log.commit()
        if deferred is not None:
            deferred.run_all()
        current = folder / log.filling.segment.name
        if current.exists():
            inode = current.stat().st_ino
            if inode in inodes and log.filling.segment.end > 2000 and number > 200:
                return log, queue
            if log.filling.segment.end > 4 * SEGMENT_BYTES // 5:
                inodes.add(inode)
    raise AssertionError("no file was used again")


def crashed(log: Log, folder: Path, to: Path) -> Path:
    """Copy the files as a kill -9 would leave them. Returns the newest segment's copy."""
    shutil.copytree(folder, to)
    newest = to / log.filling.segment.name
    log.release()
    return newest


def test_old_batches_behind_the_end_are_neither_replayed_nor_called_torn(tmp_path: Path) -> None:
    log, _ = busy_log(tmp_path / "a")
    end = log.filling.segment.end
    live = [message.sequence for message in _live(log)]
    newest = crashed(log, tmp_path / "a", tmp_path / "b")
    data = newest.read_bytes()
    assert data[end : end + HEADER_BYTES] == BLANK
    assert MAGIC in data[end:], "the file has no past: the test is about nothing"
    report = check(str(tmp_path / "b"), DISK)
    assert report.healthy
    assert report.torn == ""
    sink = RecordingSink()
    log, found = open_log(str(tmp_path / "b"), DISK, sink)
    assert found.torn == ""
    assert [message.sequence for message, _, _ in sink.messages] == live
    assert newest.stat().st_size == end
    log.release()


def _live(log: Log) -> list[Message]:
    found: list[Message] = []
    for segment in log.segments.all():
        message = segment.first
        while message is not None:
            found.append(message)
            message = message.log_next
    return sorted(found, key=lambda message: message.sequence)


def test_the_first_batch_of_a_recycled_file_is_no_torn_end(tmp_path: Path) -> None:
    log, queue = busy_log(tmp_path / "a")
    number = log.filling.segment.number
    while files_of(log).spare != READY:
        files_of(log).request(True)
    past = (tmp_path / "a" / "spare").read_bytes()
    assert MAGIC in past, "the file has no past: the test is about nothing"
    while log.filling.segment.number == number:
        publish(log, [queue], content_of(2, 300))
        log.commit()
    publish(log, [queue], content_of(3, 10))
    log.commit()
    newest = crashed(log, tmp_path / "a", tmp_path / "b")
    assert MAGIC in newest.read_bytes()[2000:]
    log, found = open_log(str(tmp_path / "b"), DISK)
    assert found.torn == ""
    log.release()


def test_a_batch_begun_over_old_ones_is_a_torn_end(tmp_path: Path) -> None:
    log, queue = busy_log(tmp_path / "a")
    end = log.filling.segment.end
    live = [message.sequence for message in _live(log)]
    publish(log, [queue], content_of(1, 1000))
    log.commit()
    newest = crashed(log, tmp_path / "a", tmp_path / "b")
    old = newest.read_bytes()
    with newest.open("r+b") as file:  # the second half of the last batch never reached the disk
        file.seek(end + 600)
        file.write(b"\xa5" * 500)
    sink = RecordingSink()
    log, found = open_log(str(tmp_path / "b"), DISK, sink)
    assert (found.torn, found.torn_offset) == (str(newest), end)
    assert found.torn_bytes == len(old) - end
    assert [message.sequence for message, _, _ in sink.messages] == live
    log.release()


def test_damage_before_valid_batches_is_still_refused(tmp_path: Path) -> None:
    log, _ = busy_log(tmp_path / "a")
    newest = crashed(log, tmp_path / "a", tmp_path / "b")
    data = bytearray(newest.read_bytes())
    second = data.index(MAGIC, HEADER_BYTES)
    data[second : second + HEADER_BYTES] = BLANK  # the bytes even look like the end
    newest.write_bytes(data)
    with pytest.raises(LogDamaged, match=f"offset {second}"):
        open_log(str(tmp_path / "b"), DISK)


def test_a_crash_right_after_the_first_write_leaves_nothing_torn(tmp_path: Path) -> None:
    """The spare has the name of a segment, and no byte of its first batch."""
    log, _ = busy_log(tmp_path / "a")
    while files_of(log).spare != READY:
        files_of(log).request(True)
    number = log.filling.segment.number
    live = [message.sequence for message in _live(log)]
    crashed(log, tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "spare").rename(tmp_path / "b" / f"{number + 1:010d}.log")
    sink = RecordingSink()
    log, found = open_log(str(tmp_path / "b"), DISK, sink)
    assert found.torn == ""
    assert [message.sequence for message, _, _ in sink.messages] == live
    log.release()


def test_a_file_is_recycled_off_the_loop(tmp_path: Path) -> None:
    deferred = DeferredWork()
    log, queue = busy_log(tmp_path, deferred)
    number = log.filling.segment.number
    while log.filling.segment.number == number:
        publish(log, [queue], content_of(1, 300))
        log.commit()
        deferred.run_all()
    for message in _live(log):
        log.append_settle(message, queue)
    while files_of(log).spare != REQUESTED:
        publish(log, [queue], content_of(2, 10))
        log.commit()
        while log.in_flight:
            deferred.step()
    assert not (tmp_path / "spare").exists(), "made here and now"
    deferred.run_all()
    assert files_of(log).spare == READY
    assert MAGIC in (tmp_path / "spare").read_bytes(), "it was not a segment before"
    log.release()


def test_the_sync_helper_and_the_log_have_the_same_blank() -> None:
    """The helper imports nothing of the broker, so that it has its own constant for a header's length."""
    assert sync_helper.BLANK == BLANK


def test_a_segment_that_is_left_has_nothing_of_another_one_behind_its_end(tmp_path: Path) -> None:
    log, _ = busy_log(tmp_path)
    for segment in log.segments.all():
        if segment is not log.filling.segment:
            data = (tmp_path / segment.name).read_bytes()
            assert data[segment.end :].strip(b"\0") == b""
    log.release()


def test_nothing_is_recycled_for_a_repair(tmp_path: Path) -> None:
    """A damaged file is kept, although it is dead and large enough for the next segment."""
    mib = 1 << 20
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=32 * mib, first_segment_bytes=32 * mib)
    queue = logged_queue(1)
    log.append_definition({"kind": "queue", "name": "q", "vhost": "/", "number": 1})
    for number, length in enumerate([mib] * 5 + [25 * mib, mib, mib, mib]):
        publish(log, [queue], content_of(number, length))
        log.commit()
    assert log.segment_count == 2
    first = tmp_path / log.segments.all()[0].name
    log.release()
    data = bytearray(first.read_bytes())
    assert len(data) > 4 * mib
    data[6 * mib] ^= 1
    first.write_bytes(data)
    assert repair(str(tmp_path), DISK).repaired
    assert (tmp_path / (first.name + ".damaged")).read_bytes() == data
    spare = tmp_path / "spare"
    assert not spare.exists() or MAGIC not in spare.read_bytes()


class Counting(Disk):
    """A disk that counts the bytes read from a single file."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def size(self, fd: int) -> int:
        """The length."""
        return DISK.size(fd)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Read."""
        data = DISK.read(fd, length, offset)
        self.bytes_read += len(data)
        return data


def test_thousands_of_old_batches_behind_the_end_are_read_once(tmp_path: Path) -> None:
    size = 12 * 1024 * 1024  # three windows of the scanner
    file = tmp_path / segment_name(9)
    identity = 77
    with file.open("wb") as out:
        out.write(encode_header(identity, 500_000, 1, 0, b"", 9, 0) + BLANK)
        offset = out.tell()
        number = 0
        while offset < size:
            number += 1
            offset += out.write(encode_header(identity, number % 400_000, 1, 1, b"\x07" * 400, 3, offset))
            offset += out.write(b"\x07" * 400)
    disk = Counting()
    scanner = SegmentScanner(disk, DISK.open(str(file)), str(file), 9, identity)
    assert scanner.next()
    assert not scanner.next()
    scanner.refuse_damage()
    assert scanner.at_blank()
    assert disk.bytes_read < 3 * size
    DISK.close(scanner.fd)
