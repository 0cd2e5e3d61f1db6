"""Who syncs: off the loop, one batch at a time, reporting back to the log."""

import os
from collections.abc import Callable
from typing import final

from mypy_extensions import mypyc_attr

from broker.store.disk import Disk
from broker.store.format import BLANK
from broker.store.group_commit import GroupCommit

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]
RunOffLoop = Callable[[Work, Done], None]
"""Runs the work where it may block (a thread) and then calls done on the loop, with what the work raised."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Syncer:
    """Does what may block. At most one write or sync at a time; what is done to files by name may overlap."""

    def __init__(self) -> None:
        self.pid = os.getpid()  # the process whose fdatasync makes batches durable

    def attach(self, directory: str, target: GroupCommit, lock: int) -> None:
        """Work for the log in this folder from now on; called once, before anything else.

        `lock` is the descriptor that keeps the folder locked: whoever else works there has it too.
        """
        raise NotImplementedError

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write a large batch; answered by `written`. Raises OSError if that could not even begin."""
        raise NotImplementedError

    def start_sync(self, fd: int, directory: bool, others: list[int]) -> None:
        """Sync other files, then the file, then the folder if asked; answered by `completed`."""
        raise NotImplementedError

    def prepare(self, name: str, size: int) -> None:
        """Create file `name` with `size` zero bytes that have their room; answered by `prepared`."""
        raise NotImplementedError

    def grow(self, name: str, size: int) -> None:
        """Let file `name` have `size` bytes, all with their room on the disk; answered by `prepared`."""
        raise NotImplementedError

    def recycle(self, name: str, new_name: str, size: int) -> None:
        """Make file `name` the file `new_name` of `size` bytes, blank at its beginning.

        Answered by `prepared` for the new name.
        """
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Delete file `name` and sync the folder; answered by `removed`."""
        raise NotImplementedError

    def finish(self) -> None:
        """Block until the write or sync in flight, if any, has been reported. For a clean stop."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of everything; nothing is reported any more."""
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
    """Does everything through the disk, wherever `run_off_loop` runs it; with `run_inline` here and now."""

    def __init__(self, disk: Disk, run_off_loop: RunOffLoop = run_inline) -> None:
        super().__init__()
        self.disk = disk
        self.run_off_loop = run_off_loop
        self.directory = ""
        self.target: GroupCommit | None = None
        self.job: _Write | None = None
        self.sync_job: _Sync | None = None

    def attach(self, directory: str, target: GroupCommit, lock: int) -> None:
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
        """Write here what the other thread may not have written yet, and sync it here: twice does no harm."""
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
            target.prepared(self.name, reason)
        else:
            target.removed(self.name, reason)


@final
class _Write:
    """A large write, by a descriptor of its own: if it comes late, the log's may already be another file."""

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
                self.syncer.target.written(error)


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
                self.syncer.target.completed("" if error is None else f"sync failed: {error}")
