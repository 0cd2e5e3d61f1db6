"""A disk that fails when a test says so, a log on it, and the log's content afterwards."""

import errno
import random
from typing import final

from broker.core.message import Message
from broker.store.log import Log
from tests.simulation.sim_disk import SimDisk
from tests.support.store.hand_log import DeferredWork, RecordingSink, open_log

FOLDER = "/log"


@final
class BadDisk(SimDisk):
    """A disk whose next writes or truncates fail with an errno, and with a byte that may read wrong.

    The process may have `descriptors` files open at a time.
    """

    def __init__(self) -> None:
        super().__init__(random.Random(7))
        self.write_errors: list[int] = []
        self.truncate_error = 0
        self.rotten_at = -1
        self.descriptors = 1000

    def open(self, path: str) -> int:
        self._need_descriptor()
        return super().open(path)

    def create(self, path: str) -> int:
        self._need_descriptor()
        return super().create(path)

    def duplicate(self, fd: int) -> int:
        self._need_descriptor()
        return super().duplicate(fd)

    def _need_descriptor(self) -> None:
        if len(self.opened) >= self.descriptors:
            raise OSError(errno.EMFILE, "Too many open files")

    def write(self, fd: int, parts: list[bytes], offset: int) -> None:
        if self.write_errors:
            error = OSError(self.write_errors.pop(0), "write")
            super().write(fd, [b"".join(parts)[:30]], offset)
            raise error
        super().write(fd, parts, offset)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = bytearray(super().read(fd, length, offset))
        if 0 <= self.rotten_at - offset < len(data):
            data[self.rotten_at - offset] ^= 1
        return bytes(data)

    def truncate(self, fd: int, length: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, "truncate")
        super().truncate(fd, length)


def reopened_log(disk: SimDisk) -> tuple[Log, list[Message]]:
    """The log after its process was killed, and the messages that came back."""
    disk.kill()
    sink = RecordingSink()
    log, _ = open_log(FOLDER, disk, sink)
    return log, [message for message, _, _ in sink.messages]


def reopened_sequences(disk: SimDisk) -> tuple[Log, list[int]]:
    """The same, with the sequences of the messages."""
    log, messages = reopened_log(disk)
    return log, [message.sequence for message in messages]


def log_on_bad_disk() -> tuple[BadDisk, Log, DeferredWork]:
    """An empty log, its reserve made, on a disk that does as it should until the test spoils it."""
    disk = BadDisk()
    deferred = DeferredWork()
    log, _ = open_log(FOLDER, disk, deferred=deferred)
    deferred.run_all()
    return disk, log, deferred


def places(disk: BadDisk) -> list[tuple[bytes, list[int]]]:
    """Kill the process; return the recovered messages and their queues."""
    disk.kill()
    sink = RecordingSink()
    log, _ = open_log(FOLDER, disk, sink)
    found = [(log.load(message), queues) for message, queues, _ in sink.messages]
    log.release()
    return found


def make_durable(log: Log, deferred: DeferredWork) -> None:
    """Make all records durable, if the disk accepts them."""
    log.commit()
    deferred.run_all()


def fill_disk(disk: BadDisk, log: Log) -> None:
    """Fill the disk: the batch being filled does not fit, and only the reserve has room."""
    disk.write_errors = [errno.ENOSPC]
    disk.capacity = disk.used()
    log.commit()
    assert log.full
