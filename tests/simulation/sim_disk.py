"""A disk that forgets: whatever was not synced may be lost, torn or reordered when the power goes."""

import errno
import random
from collections.abc import Iterable

from broker.store.disk import Disk
from broker.store.errors import LogLocked

SECTOR = 512


class PowerLoss(BaseException):
    """The simulated machine has just lost power; nothing of the process is left."""


class _File:
    """A file: the `cache` that processes see, the platter, and possible states of each sector."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.unsynced: dict[int, list[bytes]] = {}  # every version of a sector since it was last synced
        self.sizes: list[int] = []  # every length since then

    def sector(self, index: int) -> bytes:
        data = bytes(self.cache[index * SECTOR : (index + 1) * SECTOR])
        return data + bytes(SECTOR - len(data))

    def changed(self, start: int, end: int) -> None:
        for index in range(start // SECTOR, (end + SECTOR - 1) // SECTOR):
            self.unsynced.setdefault(index, []).append(self.sector(index))

    def resize(self, length: int) -> None:
        old = len(self.cache)
        if length < old:
            del self.cache[length:]
            self.changed(length, old)
        else:
            self.cache += bytes(length - old)
        self.sizes.append(length)

    def put(self, index: int, data: bytes) -> None:
        end = (index + 1) * SECTOR
        if len(self.platter) < end:
            self.platter += bytes(end - len(self.platter))
        self.platter[index * SECTOR : end] = data

    def cut_platter(self, length: int) -> None:
        del self.platter[length:]
        self.platter += bytes(length - len(self.platter))

    def sync(self, indexes: Iterable[int], size: bool) -> None:
        """Bring these sectors, and the length, to the platter; all counts as synced afterwards."""
        length = len(self.cache) if size or not self.sizes else len(self.platter)
        for index in indexes:
            self.put(index, self.sector(index))
        self.cut_platter(length)
        self.unsynced.clear()
        self.sizes.clear()

    def lose_power(self, rng: random.Random) -> None:
        length = rng.choice([len(self.platter), *self.sizes])
        for index, versions in self.unsynced.items():
            if rng.random() < 0.5:
                self.put(index, rng.choice(versions))
        self.cut_platter(length)
        self.unsynced.clear()
        self.sizes.clear()
        self.cache = bytearray(self.platter)


class SimDisk(Disk):
    """A folder of files. `capacity` is in bytes; any operation may be the last before the power is cut."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names_now: dict[str, _File] = {}
        self.names_synced: dict[str, _File] = {}
        self.name_changes: dict[str, list[_File | None]] = {}
        self.opened: dict[int, _File] = {}
        self.locks: dict[int, str] = {}
        self.next_fd = 100
        self.capacity = 1 << 40
        self.operations_left = -1  # until the power goes; -1: it stays
        self.failing_syncs = 0
        self.rotten_reads = 0
        self.syncs = 0

    # --- accidents

    def crash(self) -> None:
        """Cut the power: each unsynced sector and name survives or not, independently."""
        for name, versions in self.name_changes.items():
            file = self.rng.choice([self.names_synced.get(name), *versions])
            if file is None:
                self.names_synced.pop(name, None)
            else:
                self.names_synced[name] = file
        for file in dict.fromkeys(self.names_synced.values()):
            file.lose_power(self.rng)
        self.names_now = dict(self.names_synced)
        self.name_changes.clear()
        self.kill()

    def kill(self) -> None:
        """End the process; the page cache stays."""
        self.opened.clear()
        self.locks.clear()
        self.operations_left = -1

    def _tick(self) -> None:
        if self.operations_left == 0:
            raise PowerLoss
        if self.operations_left > 0:
            self.operations_left -= 1

    def _renamed(self, name: str) -> None:
        self.name_changes.setdefault(name, []).append(self.names_now.get(name))

    def used(self) -> int:
        """Bytes that the files take."""
        return sum(len(file.cache) for file in set(self.names_now.values()))

    # --- the port

    def make_directory(self, path: str) -> None:
        """Do nothing: there is a single folder."""

    def lock(self, path: str) -> int:
        """Lock within this machine."""
        if path in self.locks.values():
            raise LogLocked(path)
        self.next_fd += 1
        self.locks[self.next_fd] = path
        return self.next_fd

    def names(self, directory: str) -> list[str]:
        """Return the visible names in the folder."""
        return [name.removeprefix(directory + "/") for name in self.names_now]

    def create(self, path: str) -> int:
        """A new file."""
        self._tick()
        if path in self.names_now:
            raise FileExistsError(errno.EEXIST, path)
        self.names_now[path] = _File()
        self._renamed(path)
        return self.open(path)

    def open(self, path: str) -> int:
        """An existing file."""
        if path not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, path)
        self.next_fd += 1
        self.opened[self.next_fd] = self.names_now[path]
        return self.next_fd

    def close(self, fd: int) -> None:
        """Close a file or give a lock back."""
        if self.locks.pop(fd, None) is None:
            del self.opened[fd]

    def duplicate(self, fd: int) -> int:
        """Return another descriptor."""
        self.next_fd += 1
        self.opened[self.next_fd] = self.opened[fd]
        return self.next_fd

    def size(self, fd: int) -> int:
        """The length."""
        return len(self.opened[fd].cache)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Return the bytes that a process reads."""
        data = self.opened[fd].cache[offset : offset + length]
        if self.rotten_reads > 0 and data:
            self.rotten_reads -= 1
            data[self.rng.randrange(len(data))] ^= 1
        return bytes(data)

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        """Write; a full disk or a power cut leaves a part."""
        file = self.opened[fd]
        data = b"".join(parts)
        room = self.capacity - self.used() + len(file.cache) - offset
        fits = len(data) if room >= len(data) else max(0, room)
        dies = self.operations_left == 0
        taken = data[: self.rng.randrange(fits + 1) if dies else fits]
        if offset + len(taken) > len(file.cache):
            file.resize(offset + len(taken))
        file.cache[offset : offset + len(taken)] = taken
        file.changed(offset, offset + len(taken))
        self._tick()
        if fits < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, fd: int, length: int) -> None:
        """Cut."""
        self._tick()
        self.opened[fd].resize(length)

    def preallocate(self, fd: int, length: int) -> None:
        """Reserve zeros."""
        self._tick()
        file = self.opened[fd]
        if self.used() - len(file.cache) + length > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        file.resize(length)

    def sync(self, fd: int) -> None:
        """Bring a file to the platter. A failing sync loses some of it and forgets that it did."""
        file = self.opened[fd]
        dirty = list(file.unsynced)
        if self.operations_left == 0 or self.failing_syncs > 0:
            some = [index for index in dirty if self.rng.random() < 0.5]
            if self.operations_left == 0:
                self._tick()
            self.failing_syncs -= 1
            file.sync(some, self.rng.random() < 0.5)
            raise OSError(errno.EIO, "Input/output error")
        self._tick()
        self.syncs += 1
        file.sync(dirty, True)

    def sync_directory(self, path: str) -> None:
        """Bring the names to the platter."""
        self._tick()
        self.names_synced = dict(self.names_now)
        self.name_changes.clear()

    def rename(self, source: str, destination: str) -> None:
        """Two changes of names, which a crash may tear apart."""
        self._tick()
        self.names_now[destination] = self.names_now.pop(source)
        self._renamed(destination)
        self._renamed(source)

    def unlink(self, path: str) -> None:
        """Delete a name."""
        self._tick()
        if self.names_now.pop(path, None) is not None:
            self._renamed(path)

    def new_identity(self) -> int:
        """Random, but of this machine's seed."""
        return self.rng.getrandbits(63) | 1
