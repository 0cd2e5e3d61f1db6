"""The sync helper, with a real process, real sockets and the real files of the log and of streams."""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store import sync_helper
from broker.store.definition_text import DefinitionText
from broker.store.disk import RealDisk
from broker.store.errors import LogLocked
from broker.store.segment_files import READY
from broker.store.sync import HelperSyncer, run_inline
from broker.store.sync_helper import ATTACHED_MAX
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    RecordingWaiter,
    chunks_of,
    content_of,
    file_log,
    files_of,
    logged_queue,
    open_log,
    publish,
    storage_of,
)
from tests.support.store.streams import StreamSink, add, rows

DISK = RealDisk()
PATIENCE = 20.0


class Bench:
    """A log whose syncs are done by a helper."""

    def __init__(self, folder: Path, deferred: DeferredWork | None = None) -> None:
        self.folder = folder
        self.unwatched: list[int] = []
        self.syncer = HelperSyncer(DISK, run_inline if deferred is None else deferred.run)
        self.syncer.unwatch = self.unwatched.append
        self.log = file_log(
            str(folder),
            DISK,
            self.syncer,
            lambda: 0.0,
            list,
            segment_bytes=4096,
            first_segment_bytes=4096,
            reserve_bytes=8192,
        )
        self.log.recover(RecordingSink())

    def await_answer(self) -> None:
        """Wait for the helper's answer and process it."""
        readable, _, _ = select.select([self.syncer.fileno()], [], [], PATIENCE)
        assert readable, "the helper has not answered"
        self.syncer.on_readable()

    def await_stop(self) -> None:
        """Wait until the log has stopped; answers about prepared files may come before."""
        while not self.log.stopped:
            self.await_answer()

    def settle_down(self) -> None:
        """Wait until no batch is on its way."""
        while self.log.in_flight:
            self.await_answer()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.log.release()


def test_batches_become_durable_by_another_process(bench: Bench) -> None:
    assert bench.syncer.pid != os.getpid()
    waiter = RecordingWaiter()
    publish(bench.log, [logged_queue(1)], b"one")
    bench.log.wait(waiter)
    bench.log.commit()
    assert waiter.durable == []
    bench.settle_down()
    assert waiter.durable == [bench.log.durable]


def test_the_helper_follows_to_new_segments_and_closes_old_ones(bench: Bench) -> None:
    queue = logged_queue(1)
    messages = []
    for number in range(1, 101):
        messages.append(publish(bench.log, [queue], content_of(number, 500)))
        if number > 20:
            bench.log.append_settle(messages[number - 21], queue)
        bench.log.commit()
        bench.settle_down()
    while len(list(bench.folder.glob("*.log"))) > bench.log.segment_count:
        bench.await_answer()
    assert bench.log.segment_count < 10
    while files_of(bench.log).spare != READY:
        files_of(bench.log).request(True)
        bench.await_answer()
    assert (bench.folder / "spare").stat().st_size == 4096
    assert (bench.folder / "reserve").stat().st_size == files_of(bench.log).reserve_length >= 8192
    bench.log.close()
    sink = RecordingSink()
    log, report = open_log(str(bench.folder), DISK, sink)
    assert report.clean
    assert [message.sequence for message, _, _ in sink.messages] == list(range(81, 101))
    log.release()


def test_a_dead_helper_is_a_failed_sync(bench: Bench) -> None:
    watched = bench.syncer.fileno()
    waiter = RecordingWaiter()
    os.kill(bench.syncer.pid, signal.SIGSTOP)
    publish(bench.log, [logged_queue(1)], b"one")
    bench.log.wait(waiter)
    bench.log.commit()
    os.kill(bench.syncer.pid, signal.SIGKILL)
    bench.await_stop()
    assert f"pid {bench.syncer.pid}" in bench.log.failure
    assert (waiter.durable, waiter.failed) == ([], [bench.log.failure])
    assert bench.unwatched == [watched], "a dead socket is not read for ever"


def test_a_dead_helper_is_noticed_without_a_pending_batch(bench: Bench) -> None:
    os.kill(bench.syncer.pid, signal.SIGKILL)
    bench.await_stop()


def test_the_terminal_s_and_the_service_manager_s_signals_do_not_end_it(bench: Bench) -> None:
    publish(bench.log, [logged_queue(1)], b"one")
    bench.log.commit()
    bench.settle_down()  # the helper runs
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(bench.syncer.pid, number)
    publish(bench.log, [logged_queue(1)], b"two")
    bench.log.commit()
    bench.settle_down()
    assert not bench.log.stopped


def test_a_sync_that_fails_is_reported_with_its_reason(bench: Bench) -> None:
    reader, writer = os.pipe()
    bench.log.in_flight = bench.log.batch  # a pipe cannot be synced
    bench.syncer.start_sync(writer, False, [])
    bench.await_stop()
    assert bench.log.failure == "sync failed: Invalid argument"
    os.close(reader)
    os.close(writer)


def test_close_waits_for_running_syncs(tmp_path: Path) -> None:
    deferred = DeferredWork()
    bench = Bench(tmp_path, deferred)
    queue = logged_queue(1)
    publish(bench.log, [queue], content_of(1, 400_000))  # written off the loop, by work that never comes
    bench.log.commit()
    publish(bench.log, [queue], content_of(2, 10))
    bench.log.close()
    deferred.run_all()  # too late: it finds its own descriptor and nobody to report to
    sink = RecordingSink()
    log, report = open_log(str(tmp_path), DISK, sink)
    assert report.clean
    contents = [log.load(message) for message, _, _ in sink.messages]
    assert contents == [content_of(1, 400_000), content_of(2, 10)]
    log.release()


def test_the_helper_ends_with_the_broker(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from tests.unit.store.test_sync_helper import Bench
bench = Bench(Path({str(tmp_path)!r}))
print(bench.syncer.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    readable, _, _ = select.select([descriptor], [], [], PATIENCE)
    os.close(descriptor)
    assert readable, "the helper is still there"


def test_the_helper_has_the_lock_of_the_folder_too(bench: Bench) -> None:
    """The helper may still write to a file when the broker is killed."""
    descriptors = Path(f"/proc/{bench.syncer.pid}/fd").iterdir()
    files = [os.path.realpath(each) for each in descriptors]  # no error if the helper closes one meanwhile
    assert os.path.realpath(bench.folder / "lock") in files


def test_a_new_broker_waits_for_the_helper_of_a_dead_broker(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    broker = DISK.lock(str(path))
    path.write_text("2000000000\n")  # no process has that number
    with pytest.raises(LogLocked, match=r"in use by another process \(pid 2000000000\)"):
        RealDisk(lock_seconds=0.1).lock(str(path))
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[broker]
    ) as helper:
        os.close(broker)
        timer = threading.Timer(0.3, helper.communicate)
        timer.start()
        os.close(DISK.lock(str(path)))
        timer.join()
        assert helper.poll() is not None
    assert path.read_text() == f"{os.getpid()}\n"


def test_the_helper_imports_nothing_big() -> None:
    script = Path(sys.modules["broker.store.sync_helper"].__file__ or "")
    assert script.suffix == ".py", "it is never compiled: the plain interpreter runs it"
    listed = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import runpy, sys; runpy.run_path({str(script)!r}); print(len(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(listed.stdout) < 80


def test_the_reserve_grows_with_the_definitions(bench: Bench) -> None:
    while files_of(bench.log).reserve != READY:
        bench.await_answer()
    change: dict[str, object] = {"kind": "x", "pad": "a" * 100_000}
    bench.log.appender.definitions = DefinitionText(lambda: [[change]])
    bench.log.append_definition(change)
    bench.log.commit()
    bench.settle_down()
    files = files_of(bench.log)
    while files.growing or files.reserve_length < 100_000:  # a spare on its way comes first
        bench.await_answer()
    status = (bench.folder / "reserve").stat()
    assert status.st_size == files.reserve_length == files.checkpoint_bytes + 8192
    assert status.st_blocks * 512 >= status.st_size > 100_000


def test_any_number_of_files_can_go_at_once(bench: Bench) -> None:
    """Requests and answers have room for a few hundred: broker and helper must not wait for each other."""
    names = [f"old-{number}" for number in range(3000)]
    for name in names:
        (bench.folder / name).touch()

    def too_late(*_: object) -> None:
        raise AssertionError("the broker waits for the helper")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(int(PATIENCE))
    try:
        for name in names:
            bench.syncer.remove(name)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    while any(bench.folder.glob("old-*")):
        bench.await_answer()


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
        """Replace fdatasync."""
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
def test_attached_files_are_synced_before_the_log(served: Served, tmp_path: Path, count: int) -> None:
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


def test_a_failed_stream_sync_is_reported_and_forgotten(served: Served, tmp_path: Path) -> None:
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
    waiter = RecordingWaiter()
    for stream in sink.streams:
        add(stream, b"row of %d" % chunks_of(stream).number)
    log.wait(waiter)
    log.commit()
    syncer.finish()
    assert waiter.durable == [log.durable]
    for stream in sink.streams:
        assert rows(stream) == [(0, b"row of %d" % chunks_of(stream).number)]
    log.close()
