"""Syncing: off the event loop, one batch at a time, in this process or in the sync helper."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from broker.store.disk import Disk
from broker.store.format import BLANK
from broker.store.sync_helper import ATTACHED_MAX, FOLDER, MORE, NEW_FILE, PACKET_MAX

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]
RunOffLoop = Callable[[Work, Done], None]
"""Runs the work where it may block (a thread) and then calls done on the loop, with what the work raised."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncTarget:
    """The receiver of a syncer's answers."""

    def on_written(self, error: BaseException | None) -> None:
        """Note that a large batch has been written completely, or the error."""
        raise NotImplementedError

    def on_synced(self, reason: str) -> None:
        """Note that the sync has ended; `reason`: why it has failed, also if the syncer is lost."""
        raise NotImplementedError

    def on_prepared(self, name: str, reason: str) -> None:
        """Note that a file exists and has its room on the disk, or the reason why not."""
        raise NotImplementedError

    def on_removed(self, name: str, reason: str) -> None:
        """Note that a file has been deleted for good, or the reason why that is not known."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Syncer:
    """The blocking work of a log.

    At most one write or sync runs at a time; work on files by name may overlap.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()  # the process whose fdatasync makes batches durable

    def attach(self, directory: str, target: SyncTarget, lock: int) -> None:
        """Work for the log in this folder from now on; called once, before anything else.

        `lock` is the descriptor that keeps the folder locked; another process that works there inherits it.
        """
        raise NotImplementedError

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write a large batch; answered by `on_written`. Raises OSError if the write could not even begin."""
        raise NotImplementedError

    def start_sync(self, fd: int, directory: bool, others: list[int]) -> None:
        """Sync `others`, then the file, then the folder if `directory` is set; answered by `on_synced`."""
        raise NotImplementedError

    def prepare(self, name: str, size: int) -> None:
        """Create file `name` with `size` zero bytes that have room on the disk; answered by `on_prepared`."""
        raise NotImplementedError

    def grow(self, name: str, size: int) -> None:
        """Extend file `name` to `size` bytes, all with room on the disk; answered by `on_prepared`."""
        raise NotImplementedError

    def recycle(self, name: str, new_name: str, size: int) -> None:
        """Turn file `name` into file `new_name` of `size` bytes, blank at its beginning.

        Answered by `on_prepared` for the new name.
        """
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Delete file `name` and sync the folder; answered by `on_removed`."""
        raise NotImplementedError

    def finish(self) -> None:
        """Block until the write or sync in flight, if any, has been reported. For a clean stop."""
        raise NotImplementedError

    def close(self) -> None:
        """Release everything; nothing is reported any more."""
        raise NotImplementedError


def run_inline(work: Work, done: Done) -> None:
    """Run the work here and now: a RunOffLoop for tools and tests."""
    error: BaseException | None = None
    try:
        work()
    except OSError as problem:
        error = problem
    done(error)


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskSyncer(Syncer):
    """Does everything through the disk, where `run_off_loop` runs it; with `run_inline` here and now."""

    def __init__(self, disk: Disk, run_off_loop: RunOffLoop = run_inline) -> None:
        super().__init__()
        self.disk = disk
        self.run_off_loop = run_off_loop
        self.directory = ""
        self.target: SyncTarget | None = None
        self.job: _Write | None = None
        self.sync_job: _Sync | None = None

    def attach(self, directory: str, target: SyncTarget, lock: int) -> None:
        """Work for the log in this folder from now on."""
        self.directory = directory
        self.target = target

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write a large batch off the loop."""
        job = _Write(self, fd, self.disk.duplicate(fd), parts, offset)
        self.job = job
        self.run_off_loop(job.work, job.done)

    def start_sync(self, fd: int, directory: bool, others: list[int]) -> None:
        """Sync off the loop."""
        job = _Sync(self, fd, directory, others)
        self.sync_job = job
        self.run_off_loop(job.work, job.done)

    def prepare(self, name: str, size: int) -> None:
        """Preallocate off the loop."""
        path = os.path.join(self.directory, name)
        self.run_off_loop(lambda: self._prepare(path, size), _Report(self, name, True).done)

    def _prepare(self, path: str, size: int) -> None:
        self.disk.unlink(path)
        fd = self.disk.create(path)
        try:
            self.disk.preallocate(fd, size)
        except OSError:
            self.disk.unlink(path)
            raise
        finally:
            self.disk.close(fd)

    def grow(self, name: str, size: int) -> None:
        """Preallocate more off the loop."""
        path = os.path.join(self.directory, name)
        self.run_off_loop(lambda: self._grow(path, size), _Report(self, name, True).done)

    def _grow(self, path: str, size: int) -> None:
        fd = self.disk.open(path)
        try:
            self.disk.preallocate(fd, size)
        finally:
            self.disk.close(fd)

    def recycle(self, name: str, new_name: str, size: int) -> None:
        """Rename and cut off the loop."""
        path = os.path.join(self.directory, name)
        new_path = os.path.join(self.directory, new_name)
        self.run_off_loop(lambda: self._recycle(path, new_path, size), _Report(self, new_name, True).done)

    def _recycle(self, path: str, new_path: str, size: int) -> None:
        self.disk.rename(path, new_path)
        fd = self.disk.open(new_path)
        try:
            self.disk.truncate(fd, size)
            self.disk.write(fd, [BLANK], 0)
        finally:
            self.disk.close(fd)

    def remove(self, name: str) -> None:
        """Unlink off the loop: freeing a large file takes milliseconds."""
        path = os.path.join(self.directory, name)
        self.run_off_loop(lambda: self._remove(path), _Report(self, name, False).done)

    def _remove(self, path: str) -> None:
        self.disk.unlink(path)
        self.disk.sync_directory(self.directory)

    def finish(self) -> None:
        """Write and sync here, in case the other thread has not: doing both twice does no harm."""
        job = self.job
        if job is not None:
            run_inline(job.work_here, job.done)
        job_sync = self.sync_job
        if job_sync is not None:
            run_inline(job_sync.work, job_sync.done)

    def close(self) -> None:
        """Report nothing any more."""
        self.target = None


@final
class _Report:
    """The answer to a prepare or remove, which may overlap others."""

    def __init__(self, syncer: DiskSyncer, name: str, prepared: bool) -> None:
        self.syncer = syncer
        self.name = name
        self.prepared = prepared

    def done(self, error: BaseException | None) -> None:
        target = self.syncer.target
        if target is None:
            return
        reason = "" if error is None else str(error)
        if self.prepared:
            target.on_prepared(self.name, reason)
        else:
            target.on_removed(self.name, reason)


@final
class _Write:
    """A large write through its own descriptor: if it is late, the log's may already be another file."""

    def __init__(self, syncer: DiskSyncer, fd: int, own: int, parts: list[bytes], offset: int) -> None:
        self.syncer = syncer
        self.fd = fd
        self.own = own
        self.parts = parts
        self.offset = offset

    def work(self) -> None:
        """Write and close the descriptor; for the other thread."""
        try:
            self.syncer.disk.write(self.own, self.parts, self.offset)
        finally:
            self.syncer.disk.close(self.own)

    def work_here(self) -> None:
        """Write the same bytes to the same place while the log's descriptor is open."""
        self.syncer.disk.write(self.fd, self.parts, self.offset)

    def done(self, error: BaseException | None) -> None:
        """Report, once."""
        if self.syncer.job is self:
            self.syncer.job = None
            if self.syncer.target is not None:
                self.syncer.target.on_written(error)


@final
class _Sync:
    """A sync."""

    def __init__(self, syncer: DiskSyncer, fd: int, directory: bool, others: list[int]) -> None:
        self.syncer = syncer
        self.fd = fd
        self.directory = directory
        self.others = others

    def work(self) -> None:
        """Sync; for the other thread."""
        disk = self.syncer.disk
        for fd in self.others:
            disk.sync(fd)
        disk.sync(self.fd)
        if self.directory:
            disk.sync_directory(self.syncer.directory)

    def done(self, error: BaseException | None) -> None:
        """Report, once."""
        if self.syncer.sync_job is self:
            self.syncer.sync_job = None
            if self.syncer.target is not None:
                self.syncer.target.on_synced("" if error is None else f"sync failed: {error}")


CHORES_MAX: Final = 16  # sent at a time: requests and answers always fit into the sockets' buffers
EXIT_SECONDS: Final = 10.0  # the time that a running sync may still take when the log is closed


def do_nothing() -> None:
    """Do nothing: the `lost` of a syncer whose owner continues without a log."""


def ignore(_: int) -> None:
    """Do nothing: the `unwatch` of a syncer that is driven by hand."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HelperSyncer(DiskSyncer):
    """Syncs in a separate process; large writes go through `run_off_loop`.

    A thread could sync too, but a busy loop can keep a thread from the interpreter lock for a second. The
    helper's answer is a readable socket. Register `fileno` for reading with `on_readable` after `attach`
    (that is, after `Log.recover`). Set `unwatch` to the function that undoes this: the syncer calls `unwatch`
    with the descriptor before the descriptor is closed. If the process dies, the log stops, because the
    result of the last sync is unknown.
    """

    def __init__(self, disk: Disk, run_off_loop: RunOffLoop) -> None:
        super().__init__(disk, run_off_loop)
        self.socket: socket.socket | None = None
        self.chores: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.current = -1  # the helper's current file
        self.unwatch: Callable[[int], None] = ignore
        self.lost: Callable[[], None] = do_nothing  # called when the helper has died
        self.syncing = False
        self.unanswered: int = 0  # chores that were sent and not answered
        self.waiting: deque[bytes] = deque()  # chores that have not been sent yet

    def attach(self, directory: str, target: SyncTarget, lock: int) -> None:
        """Start the helper. Raises OSError."""
        super().attach(directory, target, lock)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        chores, their_chores = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sync_helper.py")
        descriptors = (theirs.fileno(), their_chores.fileno())
        try:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", script, directory, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=(*descriptors, lock),  # so that the folder is locked until it has ended
                process_group=0,
            )
        finally:
            theirs.close()
            their_chores.close()
        ours.setblocking(False)
        self.socket = ours
        self.chores = chores
        self.pid = self.process.pid

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the helper answers."""
        assert self.socket is not None
        return self.socket.fileno()

    def start_sync(self, fd: int, directory: bool, others: list[int]) -> None:
        """Send a sync request; `fd` is passed only if it is another file than before, `others` always are."""
        flags = FOLDER if directory else 0
        while len(others) > ATTACHED_MAX:
            self._send_sync(MORE, others[:ATTACHED_MAX])
            others = others[ATTACHED_MAX:]
        attached = list(others)
        if fd != self.current or directory:
            flags |= NEW_FILE
            attached.append(fd)
        self.current = fd
        self.syncing = True
        self._send_sync(flags, attached)

    def _send_sync(self, flags: int, files: list[int]) -> None:
        if self.socket is None:
            self._handle_loss("it is gone")
            return
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
        try:
            self.socket.sendmsg([b"S" + bytes([flags])], ancillary)
        except OSError as error:
            self._handle_loss(str(error))

    def prepare(self, name: str, size: int) -> None:
        """Send the request to the helper's second thread."""
        self._request(b"P" + size.to_bytes(8, "big") + name.encode())

    def grow(self, name: str, size: int) -> None:
        """Send the request to the helper's second thread."""
        self._request(b"G" + size.to_bytes(8, "big") + name.encode())

    def recycle(self, name: str, new_name: str, size: int) -> None:
        """Send the request to the helper's second thread."""
        self._request(b"C" + size.to_bytes(8, "big") + name.encode() + b"\0" + new_name.encode())

    def remove(self, name: str) -> None:
        """Send the request to the helper's second thread."""
        self._request(b"R" + name.encode())

    def _request(self, request: bytes) -> None:
        """Send a chore, now or when an earlier one is done: neither side may ever wait for the other."""
        if self.chores is None:
            return
        if self.unanswered >= CHORES_MAX:
            self.waiting.append(request)
            return
        self.unanswered += 1
        try:
            self.chores.send(request)
        except OSError as error:
            self._handle_loss(str(error))

    def on_readable(self) -> None:
        """Report the helper's answers."""
        while self.socket is not None:
            try:
                packet = self.socket.recv(PACKET_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                self._handle_loss(str(error))
                return
            if not packet:
                self._handle_loss("it has exited")
                return
            self._report(packet)

    def _report(self, packet: bytes) -> None:
        if packet[:1] != b"S":
            self.unanswered -= 1
            if self.waiting:
                self._request(self.waiting.popleft())
        target = self.target
        if target is None:
            return
        number = int.from_bytes(packet[1:5], "big")
        reason = os.strerror(number) if number else ""
        if packet[:1] == b"S":
            self.syncing = False
            target.on_synced(f"sync failed: {reason}" if reason else "")
        elif packet[:1] == b"P":
            target.on_prepared(packet[5:].decode(), reason)
        else:
            target.on_removed(packet[5:].decode(), reason)

    def _handle_loss(self, problem: str) -> None:
        """Treat the loss of the helper, or of the connection to it, as a failed sync."""
        self._close_sockets()
        if self.target is not None:
            self.syncing = False
            self.target.on_synced(f"the sync helper (pid {self.pid}) is lost: {problem}")
            self.lost()

    def finish(self) -> None:
        """Write here, in case the other thread has not, and wait for the helper's answer."""
        super().finish()
        while self.syncing and self.socket is not None:
            select.select([self.socket], [], [])
            self.on_readable()

    def close(self) -> None:
        """End the helper, which sees its sockets closed."""
        super().close()
        self._close_sockets()
        process = self.process
        self.process = None
        if process is not None:
            try:
                process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _close_sockets(self) -> None:
        sock = self.socket
        chores = self.chores
        self.socket = None
        self.chores = None
        if sock is not None:
            self.unwatch(sock.fileno())
            sock.close()
        if chores is not None:
            chores.close()
