"""The disk: the store accesses files only through this interface, so that tests can simulate a disk."""

import errno
import fcntl
import os
import time
from typing import Final, final

from mypy_extensions import mypyc_attr

from broker.store.errors import LogLocked

DISK_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE))  # temporary: descriptors become free again


LOCK_SECONDS: Final = 20.0  # the time that the former process's last sync or chore may take
LOCK_PAUSE_SECONDS: Final = 0.01


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_running(pid: str) -> bool:
    """Whether there is a process with this number; a text that is no number names none."""
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process
    return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Disk:
    """File operations; all block, all raise OSError. Names are paths, files are descriptors."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents unless it exists."""
        raise NotImplementedError

    def lock(self, path: str) -> int:
        """Take the exclusive lock of this lock file. Raises LogLocked while another process has it."""
        raise NotImplementedError

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in no order."""
        raise NotImplementedError

    def create(self, path: str) -> int:
        """Open a new file for reading and writing; FileExistsError if there is one."""
        raise NotImplementedError

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        raise NotImplementedError

    def close(self, fd: int) -> None:
        """Close a file; releases its lock."""
        raise NotImplementedError

    def duplicate(self, fd: int) -> int:
        """Return another descriptor of the same open file."""
        raise NotImplementedError

    def size(self, fd: int) -> int:
        """Return the file's length in bytes."""
        raise NotImplementedError

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""
        raise NotImplementedError

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write the parts in order, completely; after an error some of the bytes may be in the file."""
        raise NotImplementedError

    def truncate(self, fd: int, length: int) -> None:
        """Truncate the file."""
        raise NotImplementedError

    def preallocate(self, fd: int, length: int) -> None:
        """Extend the file with zeros to `length` bytes, which surely have room on the disk."""
        raise NotImplementedError

    def sync(self, fd: int) -> None:
        """Return when the file's bytes are on the disk."""
        raise NotImplementedError

    def sync_directory(self, path: str) -> None:
        """Return when created, renamed and deleted names are on the disk."""
        raise NotImplementedError

    def rename(self, source: str, destination: str) -> None:
        """Rename a file."""
        raise NotImplementedError

    def unlink(self, path: str) -> None:
        """Delete a name; not an error if there is none."""
        raise NotImplementedError

    def new_identity(self) -> int:
        """Return a random number of 63 bits, not 0."""
        raise NotImplementedError


@final
class RealDisk(Disk):
    """The operating system's files. `lock_seconds`: how long to wait for a lock whose owner has ended."""

    def __init__(self, lock_seconds: float = LOCK_SECONDS) -> None:
        self.lock_seconds = lock_seconds

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents unless it exists; only the owner may access it."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def lock(self, path: str) -> int:
        """Lock with flock: the kernel releases the lock with the last process that has the descriptor.

        The sync helper of a broker that was killed runs on until it has finished its work, and may still
        rename a file. This method waits for it.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + self.lock_seconds
        while not _try_lock(fd):
            owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            if _is_running(owner) or time.monotonic() > until:
                os.close(fd)
                who = f" (pid {owner})" if owner else ""
                raise LogLocked(f"{os.path.dirname(path)} is in use by another process{who}")
            time.sleep(LOCK_PAUSE_SECONDS)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in no order."""
        return os.listdir(directory)

    def create(self, path: str) -> int:
        """Open a new file for reading and writing; FileExistsError if there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a file; releases its lock."""
        os.close(fd)

    def duplicate(self, fd: int) -> int:
        """Return another descriptor of the same open file."""
        return os.dup(fd)

    def size(self, fd: int) -> int:
        """Return the file's length in bytes."""
        return os.fstat(fd).st_size

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length:  # a read of more than 2 GiB, or one that a signal cut short
            data = os.pread(fd, length - have, offset + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write the parts in order; a short write is continued, so that it ends with its reason."""
        total = sum(map(len, parts))
        written = os.pwritev(fd, parts, offset)
        if written == total:
            return
        rest = memoryview(b"".join(parts))
        while written < total:
            count = os.pwrite(fd, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += count

    def truncate(self, fd: int, length: int) -> None:
        """Truncate the file."""
        os.ftruncate(fd, length)

    def preallocate(self, fd: int, length: int) -> None:
        """Extend the file with zeros to `length` bytes, which surely have room on the disk."""
        os.posix_fallocate(fd, 0, length)

    def sync(self, fd: int) -> None:
        """Call fdatasync, which includes the file's length."""
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """Call fsync on the directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, destination: str) -> None:
        """Rename a file."""
        os.rename(source, destination)

    def unlink(self, path: str) -> None:
        """Delete a name; not an error if there is none."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def new_identity(self) -> int:
        """Return a random number of 63 bits, not 0."""
        return int.from_bytes(os.urandom(8), "big") >> 1 or 1
