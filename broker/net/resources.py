"""The watch on resources: the process's resident memory, and the free space on the disk with the data."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import structlog

from broker.adapters.peers.shortage import Shortage

M_TRIM_THRESHOLD: Final = -1  # [malloc.h]
M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 4 << 20
TOP_BYTES: Final = 32 << 20
IDLE_CHECKS: Final = 10
IDLE_BYTES: Final = 16 << 20
TRIM_EVERY: Final = 10  # checks during a shortage of memory; a trim may take 50 ms
STATM: Final = Path("/proc/self/statm")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

_log = structlog.get_logger("amqpd")


def resident_bytes(statm: Path = STATM) -> int:
    """Return the process's resident memory in bytes, 0 if unknown."""
    try:
        return int(statm.read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def free_bytes(folder: str) -> int:
    """Return the free bytes on the disk of `folder`, -1 if unknown."""
    try:
        stat = os.statvfs(folder)
    except OSError:
        return -1
    return stat.f_bavail * stat.f_frsize


class _MallocInfo(ctypes.Structure):
    """The result of glibc's mallinfo2: ten sizes, of which `fordblks` is the bytes in free blocks."""

    _fields_ = (  # type: ignore[mutable-override]  # ctypes reads it once
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )
    fordblks: int


def _malloc_info() -> Callable[[], _MallocInfo] | None:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _MallocInfo
    return function


_MALLOC_INFO: Final = _malloc_info()
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def free_in_library() -> int:
    """Return the free bytes that the C library keeps, 0 if unknown: only glibc reports this."""
    return 0 if _MALLOC_INFO is None else _MALLOC_INFO().fordblks


def return_large_blocks() -> None:
    """Make the C library return large blocks to the system when they are freed, if it can (glibc).

    By default the library keeps such blocks once one has been freed, and the blocks of threads for ever. A
    hash of a password takes 19 MiB in each thread that checks passwords.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, LARGE_BYTES)
        set_option(M_TRIM_THRESHOLD, TOP_BYTES)  # else the library derives the value from freed blocks


def return_memory() -> None:
    """Make the C library return its free memory to the system, if it can (glibc)."""
    if _TRIM is not None:
        _TRIM(0)


@final
class IdleMemory:
    """Memory that the C library keeps unused after a burst, and that is returned to the system.

    `check` takes the free bytes of the library each second. If at least IDLE_BYTES were free at all of the
    last IDLE_CHECKS checks, the burst is over. The broker does not need this memory for the next burst.
    """

    def __init__(self, return_idle: Callable[[], None]) -> None:
        self._return_memory = return_idle
        self._returned = 0  # free bytes that were returned to the system already
        self._least = 0  # the least number of other free bytes during the counted checks
        self._checks = 0

    def check(self, free: int) -> None:
        """Take the count of free bytes, and return memory to the system if the burst is over."""
        self._returned = min(self._returned, free)
        kept = free - self._returned
        self._least = kept if self._checks == 0 else min(self._least, kept)
        self._checks += 1
        if self._least < IDLE_BYTES:
            self._checks = 0
        elif self._checks == IDLE_CHECKS:
            self._checks = 0
            self._returned = free
            self._return_memory()


@final
class Resources:
    """The check of the process's memory and disk space against their limits, which updates `shortage`.

    `memory_max`: bytes of resident memory. `disk_free_min`: bytes of free space. 0: not checked.
    """

    def __init__(self, shortage: Shortage, folder: str, memory_max: int, disk_free_min: int) -> None:
        self.memory_max = memory_max
        self.disk_free_min = disk_free_min
        self.memory = 0
        self.disk_free = -1
        self.shortage = shortage
        self._folder = folder
        self._until_trim = 0
        self._idle_memory = IdleMemory(return_memory)

    def tick(self) -> None:
        """Return unused memory to the system; called every second."""
        self._idle_memory.check(free_in_library())

    def check(self, log_is_full: bool) -> None:
        """Measure and update `shortage`; `log_is_full`: the log had no room for its latest batch."""
        low_on_memory = self._is_low_on_memory()
        self.disk_free = free_bytes(self._folder)
        low_on_disk = log_is_full or 0 <= self.disk_free < self.disk_free_min
        shortage = self.shortage
        before = shortage.reason
        shortage.set_shortages(low_on_memory, low_on_disk)
        if shortage.reason and shortage.reason != before:
            _log.warning(
                "publishers are held back",
                reason=shortage.reason,
                memory=self.memory,
                memory_max=self.memory_max,
                disk_free=self.disk_free,
                disk_free_min=self.disk_free_min,
            )
        elif before and not shortage.reason:
            _log.warning("publishers continue", was=before)

    def _is_low_on_memory(self) -> bool:
        self.memory = resident_bytes()
        if not 0 < self.memory_max < self.memory:
            self._until_trim = 0
            return False
        self._until_trim -= 1
        if self._until_trim < 0:
            self._until_trim = TRIM_EVERY
            return_memory()
            self.memory = resident_bytes()
        return self.memory > self.memory_max
