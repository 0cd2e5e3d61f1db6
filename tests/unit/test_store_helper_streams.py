"""The sync helper and the files of streams, which come along with the log's own, however many there are."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store import sync_helper
from broker.store.disk import RealDisk
from broker.store.sync import HelperSyncer, run_inline
from broker.store.sync_helper import ATTACHED_MAX
from tests.logged_streams import StreamSink, add, rows
from tests.storing import Waiter, chunks_of, file_log, open_log, storage_of

MANY = 2 * ATTACHED_MAX + 50


class Served:
    """A syncer whose helper is a thread, and which files that has synced, by their inodes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[int] = []
        self.broken = -1
        monkeypatch.setattr(os, "fdatasync", self.sync)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        folder_fd = os.open(folder, os.O_RDONLY)
        self.thread = threading.Thread(target=sync_helper.serve_syncs, args=(folder_fd, theirs))
        self.thread.start()
        self.theirs = theirs
        self.target, _ = open_log(str(folder / "log"), RealDisk())
        self.syncer = HelperSyncer(RealDisk(), run_inline)
        self.syncer.target = storage_of(self.target).answers
        self.syncer.socket = ours

    def sync(self, fd: int) -> None:
        """In the place of fdatasync."""
        self.synced.append(os.fstat(fd).st_ino)
        if self.synced[-1] == self.broken:
            raise OSError(errno.EIO, "Input/output error")

    def close(self) -> None:
        """End it."""
        self.target.release()
        self.syncer.close()
        self.thread.join()
        self.theirs.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path, monkeypatch)
    yield served
    served.close()


def files(folder: Path, count: int) -> list[int]:
    """Descriptors of new files."""
    return [os.open(folder / str(number), os.O_CREAT | os.O_RDWR) for number in range(count)]


def inodes(descriptors: list[int]) -> list[int]:
    return [os.fstat(fd).st_ino for fd in descriptors]


@pytest.mark.parametrize("count", [1, ATTACHED_MAX, ATTACHED_MAX + 1, MANY])
def test_all_of_them_are_synced_before_the_log(served: Served, tmp_path: Path, count: int) -> None:
    log, *others = files(tmp_path, count + 1)
    for directory in (True, False):
        served.synced.clear()
        before = len(os.listdir("/proc/self/fd"))
        served.syncer.start_sync(log, directory, others)
        served.syncer.finish()
        assert served.synced == inodes([*others, log])
        assert served.target.failure == ""
        assert len(os.listdir("/proc/self/fd")) <= before + 1, "the helper keeps the log's file only"
    for fd in (log, *others):
        os.close(fd)


def test_one_that_fails_is_told_of_and_forgotten(served: Served, tmp_path: Path) -> None:
    log, *others = files(tmp_path, MANY + 1)
    served.broken = inodes(others)[3]
    for broken in (served.broken, -1):
        served.broken = broken
        served.synced.clear()
        served.syncer.start_sync(log, False, others)
        served.syncer.finish()
        assert served.target.failure == "sync failed: Input/output error"
    assert served.synced == inodes([*others, log]), "what comes after it is synced"
    for fd in (log, *others):
        os.close(fd)


def test_rows_of_very_many_streams_become_durable_together(tmp_path: Path) -> None:
    sink = StreamSink(*range(1, MANY + 1))
    syncer = HelperSyncer(RealDisk(), run_inline)
    log = file_log(str(tmp_path), RealDisk(), syncer, lambda: 0.0, list)
    sink.log = log
    log.recover(sink)
    waiter = Waiter()
    for stream in sink.streams:
        add(stream, b"row of %d" % chunks_of(stream).number)
    log.wait(waiter)
    log.commit()
    syncer.finish()
    assert waiter.durable == [log.durable]
    for stream in sink.streams:
        assert rows(stream) == [(0, b"row of %d" % chunks_of(stream).number)]
    log.close()
