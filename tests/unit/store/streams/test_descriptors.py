"""However many streams and files of theirs there are, few are open; and a shortage only takes time."""

import pytest

from broker.core.errors import StoreFailed
from broker.store.streams import files
from broker.store.streams import stream as streams
from tests.support.store.bad_disk import FOLDER, BadDisk, make_durable
from tests.support.store.hand_log import DeferredWork, RecordingWaiter, chunks_of
from tests.support.store.streams import add, open_streams, rows

MANY = 300


def test_many_streams_have_few_open_files_and_pages() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, found, _ = open_streams(FOLDER, disk, *range(1, MANY + 1), deferred=deferred)
    others = len(disk.opened)
    for part in range(0, MANY, 50):
        for stream in found[part : part + 50]:
            add(stream, b"%d" % chunks_of(stream).number)
        make_durable(log, deferred)
        assert len(disk.opened) <= others + files.OPEN_MAX
    for stream in found:
        assert rows(stream) == [(0, b"%d" % chunks_of(stream).number)]
        assert len(disk.opened) <= others + files.OPEN_MAX
    assert sum(stream.page is not None for stream in found) == streams.PAGES_MAX
    log.close()
    assert len(disk.opened) == 0


def test_files_of_a_batch_stay_open_until_it_is_synced() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, found, _ = open_streams(FOLDER, disk, *range(1, MANY + 1), deferred=deferred)
    others = len(disk.opened)
    for stream in found:
        add(stream, b"row")
    log.commit()
    assert len(disk.opened) == others + MANY
    deferred.run_all()
    assert len(disk.opened) <= others + files.OPEN_MAX
    assert all(stream.behind == 1 for stream in found)
    log.close()


def test_a_single_stream_with_many_files_has_few_open() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    others = len(disk.opened)
    chunks_of(stream).segment_bytes = 100
    for number in range(MANY):
        add(stream, b"%d" % number)
        make_durable(log, deferred)
    assert len(chunks_of(stream).segments) == MANY
    assert rows(stream) == [(number, b"%d" % number) for number in range(MANY)]
    assert len(disk.opened) <= others + files.OPEN_MAX
    log.close()


def test_idle_files_give_their_descriptors_to_others() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, found, _ = open_streams(FOLDER, disk, 1, 2, 3, deferred=deferred)
    for stream in found:
        add(stream, b"row")
        make_durable(log, deferred)
        disk.descriptors = len(disk.opened)
    for stream in found * 2:
        add(stream, b"row")
        make_durable(log, deferred)
    assert all(stream.behind == 3 for stream in found)
    log.close()


def test_a_batch_waits_for_descriptors_and_nothing_is_refused() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, found, _ = open_streams(FOLDER, disk, 1, 2, 3, deferred=deferred)
    waiter = RecordingWaiter()
    disk.descriptors = len(disk.opened) + 2
    for stream in found:
        add(stream, b"one", b"two")
    log.wait(waiter)
    for _ in range(3):
        make_durable(log, deferred)
        log.tick()
    assert (waiter.durable, waiter.failed, log.failure) == ([], [], "")
    add(found[0], b"three")  # in the batch after it
    disk.descriptors += 1
    log.tick()
    deferred.run_all()
    assert len(waiter.durable) == 1
    assert [stream.behind for stream in found] == [3, 2, 2]
    disk.kill()
    log, found, _ = open_streams(FOLDER, disk, 1, 2, 3)
    assert rows(found[0]) == [(0, b"one"), (1, b"two"), (2, b"three")]
    log.close()


def test_a_log_whose_last_batch_waits_in_vain_does_not_close_cleanly() -> None:
    disk = BadDisk()
    deferred = DeferredWork()
    log, (stream,), _ = open_streams(FOLDER, disk, 1, deferred=deferred)
    disk.descriptors = len(disk.opened)
    waiter = RecordingWaiter()
    add(stream, b"row")
    log.wait(waiter)
    make_durable(log, deferred)
    with pytest.raises(StoreFailed, match="descriptor"):
        log.close()
    assert len(waiter.failed) == 1
    disk.descriptors = 1000
    log, (stream,), report = open_streams(FOLDER, disk, 1)
    assert not report.clean
    assert rows(stream) == []
    log.close()
